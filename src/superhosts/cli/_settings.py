"""From options to `Settings` and destinations: here a command's options become what the pipeline and outputs take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from superhosts.cli._options import NamesOptions
from superhosts.cli._values import parse_seconds
from superhosts.core.units import exact_size, parse_size
from superhosts.detectors.registry import DETECTORS
from superhosts.detectors.stream import Stream
from superhosts.errors import UsageError
from superhosts.output.console import say, tell
from superhosts.output.delivery import DeliveryOptions
from superhosts.output.destination import RUN_THAT_ENDS, RunKind
from superhosts.output.names import NO_NAMES, NamingOptions
from superhosts.output.registry import OutputOptions, check_addresses
from superhosts.pipeline.saver import check_site
from superhosts.pipeline.settings import AUTO, Settings, settings_of


def output_options(
    options: Any, run: RunKind = RUN_THAT_ENDS, *, site: str = "", state: Path | None = None
) -> OutputOptions:
    """Return what the options of a command ask for: a format on standard output, and other destinations.

    `site`: the name of this installation in what is sent. `state`: the folder of a service, which has its queues.
    Raise UsageError if an address is wrong: nothing is opened yet.
    """
    delivery = DeliveryOptions(
        queue=options.output_queue or (None if state is None else state / "outputs"),
        cap=parse_size(options.output_queue_cap),
        wait=parse_seconds(options.output_wait),
        site=site,
        say=tell,
        once=state is not None,  # the folder of a service that was killed hands in its last report again
    )
    naming = naming_of(options) if isinstance(options, NamesOptions) else NO_NAMES
    json, csv = (getattr(options, name, False) for name in ("json", "csv"))
    asked = OutputOptions(json, csv, options.output, delivery, naming)
    check_addresses(asked, run)
    return asked


def naming_of(options: NamesOptions) -> NamingOptions:
    return NamingOptions(options.labels, [Path(text) for text in options.geo], options.names)


def make_settings(options: Any, **others: Any) -> Settings:
    """Return the settings that options and single values name; settings and options have the same names.

    An option that is None was not given: the default of the settings counts.
    The key is a single value: which one counts without `--key-file` differs between commands (`_keys.py`).
    """
    given: dict[str, Any] = vars(options) | others
    if given.get("detector") not in (None, AUTO, *DETECTORS):
        # Imported here: a scan with a cube does not wait for the lab.
        from superhosts.lab.scan import detector_of

        given["detector"] = detector_of(given["detector"])
    return settings_of(given, merges=given.get("save") is not None)


def tell_detector(options: Any, settings: Settings) -> None:
    """Say which detector was chosen if it is not the usual one."""
    if options.detector == AUTO and settings.kind is Stream and not options.quiet:
        why = f"better than a cube with {exact_size(parse_size(settings.memory))}"
        say(f"detector: stream ({why}; sketches to be merged need --detector cube)")


def traffic_settings(options: Any) -> Settings:
    """Return the settings of `scan` or `watch`. Raise UsageError if options do not go together."""
    if getattr(options, "quiet", False) and options.verbose:
        raise UsageError("--verbose: not with --quiet, which hides progress and summaries")
    settings = make_settings(options)
    settings.check_parts()
    if options.save is not None:
        check_site(options.site)
    if options.save is not None and settings.kind.name not in DETECTORS:
        way = f"it has no files; only {', '.join(DETECTORS)} can be saved"
        raise UsageError(f"--save: not with --detector {settings.kind.name}: {way}")
    return settings
