"""Checks of options that are right by themselves and wrong together. They write nothing and open nothing.

Lists of prefixes in files (@FILE) are read.

Commands make their settings here, and `config check` makes the same ones from a file.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from superhosts.cli._alerts import for_alerts, open_desk, policy_of, wants_alerts
from superhosts.cli._options import check_no_conflict
from superhosts.cli._settings import make_settings, output_options
from superhosts.cli._values import parse_seconds
from superhosts.cli.usage.fleet import Edge, Hub
from superhosts.cli.web import Dashboard
from superhosts.core.defaults import EVIDENCE_PAIRS
from superhosts.core.text import counted
from superhosts.core.units import SECOND, format_duration, parse_duration, parse_size
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import UsageError
from superhosts.fleet.edge import check_settings
from superhosts.fleet.intake import DEFAULT_LIMITS
from superhosts.fleet.names import check_site
from superhosts.fleet.slidingwindows import Grid
from superhosts.output.destination import RUN_THAT_ENDS, RunKind
from superhosts.output.registry import OutputOptions, check_addresses
from superhosts.pipeline.settings import Settings


def check_together(command: str, options: Any, config: Path) -> None:
    """Make what a command would make of its options before it reads or writes anything. Raise UsageError."""
    if command == "hub":
        settings = hub_settings(options)
        hub_grid(options)
    else:
        settings = traffic_settings(command, options)
    endless = RunKind(endless=True)
    if command == "edge":
        check_addresses(OutputOptions(outputs=options.output), endless)
        return
    outputs = output_options(options)
    check_addresses(outputs, RUN_THAT_ENDS if command == "scan" else endless)
    check_addresses(OutputOptions(outputs=options.alert_to), endless)
    policy = policy_of(options, config, settings.inner, threshold=settings.threshold)
    if wants_alerts(options) and command != "hub":
        for_alerts(settings, policy)
    if options.alerts is None:
        open_desk(options, policy, outputs.delivery)  # says what is missing
    if command != "scan":
        Dashboard(options)


def traffic_settings(command: str, options: Any) -> Settings:
    """Return the settings of `scan`, `watch` or `edge`. Raise UsageError if options do not go together."""
    if command == "scan" and options.verbose and options.quiet:
        raise UsageError("--verbose: not with --quiet, which hides progress and summaries")
    settings = make_settings(options)
    settings.check_parts()
    if command != "edge" and options.save is not None and settings.kind.name not in DETECTORS:
        way = f"it has no files; only {', '.join(DETECTORS)} can be saved"
        raise UsageError(f"--save: not with --detector {settings.kind.name}: {way}")
    if command == "edge":
        _check_edge(options, check_settings(settings))
    return settings


def _check_edge(options: Edge, settings: Settings) -> None:
    if options.to is not None:
        if options.nats is not None:
            raise UsageError("--to and --nats: choose one way to the hub")
        check_no_conflict({**options.proofs, **options.tls}, "not with --to, where there is no server")
    if options.site:
        check_site(options.site)
    if settings.evidence and settings.evidence_pairs > EVIDENCE_PAIRS:
        most = f"hubs take evidence of at most {EVIDENCE_PAIRS:,} pairs"
        raise UsageError(f"--evidence-pairs {settings.evidence_pairs}: {most}")
    if not options.output:
        if options.threshold is not None or options.top is not None:
            raise UsageError("--threshold and --top: only with --output, as the hub decides what it reports")
        if options.labels or options.geo or options.names:
            raise UsageError("--labels, --geo and --names: only with --output, as sketches have no names")


def hub_settings(options: Hub) -> Settings:
    """Return the settings that sketches for a hub must have. Raise UsageError if options do not go together."""
    _check_link(options)
    if options.to is not None and options.up is not None:
        raise UsageError("--to and --up: choose one way to the upstream hub")
    if options.up is None:
        up = {"--up-nkey": options.up_nkey, "--up-ca": options.up_ca}
        check_no_conflict({**up, "--up-cert": options.up_cert, "--up-key": options.up_key}, "only with --up")
    if options.archive_sites and options.archive is None:
        raise UsageError("--archive-sites needs --archive DIR")
    if parse_size(options.quota_bytes) == 0:
        raise UsageError(f"--quota-bytes {options.quota_bytes}: nothing would ever be taken; write it like 4GiB")
    hub_sites(options)
    settings = check_settings(make_settings(options, site=""))
    settings.check_parts()
    return settings


def hub_sites(options: Hub) -> tuple[str, ...]:
    """Return the sites that a hub waits for. Raise UsageError if a name is invalid."""
    check_site(options.site)
    return tuple(check_site(name, "--sites") for name in options.sites if options.sites != [""])


def hub_grid(options: Hub) -> Grid | None:
    """Return the windows to report; None for those that the edges send."""
    if options.window is None:
        check_no_conflict({"--slide": options.slide}, "only with --window, like --window 5m --slide 30s")
        return None
    grid = Grid(parse_duration(options.window), parse_duration(options.slide or options.window))
    kept = math.ceil(parse_seconds(options.late) * SECOND / grid.slide)
    if kept > DEFAULT_LIMITS.windows:
        length = format_duration(grid.slide)
        need = counted(kept, f"window of {length}", f"windows of {length}")
        most = f"a site may have {DEFAULT_LIMITS.windows:,} at a time"
        raise UsageError(f"--late {options.late}: {need}, and {most}; take a shorter --late")
    return grid


def _check_link(options: Hub) -> None:
    """Refuse options of the link that would have no effect, and those that need others."""
    if options.from_folder is not None:
        others = {"--nats": options.nats, "--listen": options.listen, "--broker-cap": options.broker_cap}
        check_no_conflict({**others, **options.proofs, **options.tls}, "not with --from, where there is no server")
    elif options.nats is not None:
        check_no_conflict({"--listen": options.listen}, "not with --nats: your own server listens where you told it to")
    else:
        check_no_conflict(options.proofs, "for your own server (--nats); the embedded broker has its own key")
        if (options.tls_cert is None) != (options.tls_key is None) or (options.tls_ca and not options.tls_cert):
            raise UsageError("TLS of the embedded broker takes --tls-cert and --tls-key, and --tls-ca for mutual TLS")
