"""`superhosts hub`: merges the sketches of all sites and reports the super hosts of every window."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from superhosts.cli._alerts import (
    RELOADED,
    NeededEvidence,
    check_threshold,
    exchange,
    open_desk,
    policy_of,
    reload_options,
)
from superhosts.cli._declaration import check_no_conflict, declared
from superhosts.cli._keys import fleet_key, warn_if_public
from superhosts.cli._link import connect_to, find_place, make_sender, nats_options, sending
from superhosts.cli._options import LinkOptions
from superhosts.cli._settings import make_settings, output_options
from superhosts.cli._signals import Interruption, set_safely
from superhosts.cli._values import parse_seconds
from superhosts.cli.usage.fleet import BROKER_CAP, LISTEN
from superhosts.cli.usage.fleet import Hub as HubOptions
from superhosts.cli.web import Dashboard
from superhosts.core.defaults import EVIDENCE_PAIRS
from superhosts.core.files import hold_folder
from superhosts.core.hashing import fingerprint, secret_of
from superhosts.core.notices import INFO, WARNING, Notice
from superhosts.core.pairs import DIRECTIONS, SIDES
from superhosts.core.results import Selection
from superhosts.core.text import counted
from superhosts.core.times import window_name
from superhosts.core.units import SECOND, format_duration, parse_count, parse_duration, parse_size
from superhosts.cubefile.container import SITE_HEADER
from superhosts.cubefile.header import EVIDENCE_WORDS
from superhosts.errors import UsageError, import_extra
from superhosts.fleet.archive import Archive
from superhosts.fleet.edge import check_settings
from superhosts.fleet.filelink import FileReceiver
from superhosts.fleet.hub import Hub, HubSettings
from superhosts.fleet.intake import DEFAULT_LIMITS, Intake, LinkReceiver, expected_kinds
from superhosts.fleet.names import check_site
from superhosts.fleet.report import HubReport
from superhosts.fleet.sites import Quota, Quotas, Roster
from superhosts.fleet.slidingwindows import Grid
from superhosts.fleet.spool import Spool
from superhosts.fleet.store import WindowStore
from superhosts.output.alerts.machine import Policy
from superhosts.output.console import log_status, tell, warn_of_compiling
from superhosts.output.destination import RunKind
from superhosts.output.registry import OutputOptions, open_destinations
from superhosts.output.report import EVIDENCE_COLUMNS, HUB_COLUMNS, words_of
from superhosts.pipeline.rehearsal import rehearse
from superhosts.pipeline.settings import Settings
from superhosts.ui.monitor import Monitor, observe_hub, observe_outputs
from superhosts.ui.service import STATUS, Reloads, Status, in_background, log_in_background, read_status

if TYPE_CHECKING:
    from superhosts.fleet.nats.broker import Broker
    from superhosts.fleet.nats.credentials import NatsOptions


KIND = RunKind(HUB_COLUMNS, endless=True, optional=EVIDENCE_COLUMNS)  # Sites may keep evidence, or not.
NO_RULES = Policy(())


class Plan(NamedTuple):
    outputs: OutputOptions
    traffic: Settings  # that the sketches of the edges must have
    settings: HubSettings
    archive: Archive | None
    policy: Policy  # of alerts
    upward: NatsOptions | None  # connection to the upstream hub


@log_in_background()
def hub(options: HubOptions) -> None:
    plan = make_plan(options)
    monitor, dashboard = Monitor("hub", options.metrics), Dashboard(options)
    stop, reloads = threading.Event(), Reloads(monitor.manager)
    with contextlib.ExitStack() as parts:
        parts.enter_context(hold_folder(options.state))
        store = WindowStore(options.state, tell)
        parts.callback(store.ledgers.close)
        grid, roster = plan.settings.grid, known_sites(options.state)
        intake = Intake(store, expected_kinds(plan.traffic), roster, archive=plan.archive, grid=grid)
        upstream = None
        if options.to is not None or plan.upward is not None:
            upstream = Spool(options.state / "up", options.site, cap=parse_size(options.spool_cap), say=tell)
        desk = open_desk(options, plan.policy, plan.outputs.delivery)
        outputs = parts.enter_context(open_destinations(plan.outputs, KIND, say=tell, desk=desk))
        parts.enter_context(Interruption(monitor.stopping(lambda: set_safely(stop)), reloads.ask))
        reloads.add("--output", outputs.reopen)
        dashboard.add_to(reloads)
        rehearse(plan.traffic, saves=True, merges=True)
        if not stop.is_set():
            warn_of_compiling()
        receiver, extra = _open_receiver(parts, options, plan.traffic, reloads, roster)
        intake.senders = lambda: {*plan.settings.sites, *receiver.senders()}
        if upstream is not None:
            parts.enter_context(sending(make_sender(options.to, plan.upward, options.site), upstream))
            extra["upstream"] = upstream.counters
        if plan.outputs.addresses:
            extra["output"] = lambda: next(iter(outputs.all_status().values()), {})  # the first, as it always was
            extra["outputs"] = outputs.all_status
        needed = NeededEvidence(lambda: NO_RULES if desk is None else desk.policy, tell)

        def report(result: HubReport) -> None:
            titled = with_title(result, merging.settings.selection)
            outputs.write(titled)
            needed.note(result.has_evidence)
            if plan.outputs.format != "table":  # rows alone show neither windows without hosts nor missing sites
                tell(_window_notice(titled))

        merging = Hub(store, intake, plan.settings, report, tell, archive=plan.archive, upstream=upstream)
        status = Status(
            options.state / STATUS,
            key=lambda: fingerprint(secret_of(plan.traffic.key)),
            hub=merging.counters,
            desk=intake.counters,
            link=receiver.counters,
            windows=lambda: len(store.windows()),
            sites=roster.status,
            trouble=lambda: {
                **merging.status(),
                "not_reloaded": reloads.failed,
                "clocks": roster.wrong_clocks(),
                "no_evidence": needed.waiting,
            },
            standard_output=lambda: outputs.status("standard output"),
            standard_error=log_status,
            **extra,
        )

        def take(now: HubOptions) -> None:
            policy = policy_of(now, now.config, threshold=now.threshold)
            selection = _selection(now, policy, check_settings(make_settings(now, site="")))
            asked = output_options(now, KIND, site=now.site, state=now.state)
            exchange(outputs, KIND, desk, asked, now.alert_to, policy)
            merging.settings = replace(merging.settings, selection=selection)

        reloads.add(RELOADED, reload_options(options, take))
        title = "hub" if options.site == "hub" else f"hub {options.site}"
        dashboard.show(monitor, options, title, outputs, lambda: merging.settings, options.archive, roster)
        readings = observe_hub(monitor, merging, intake, store, receiver, upstream)
        parts.enter_context(monitor.serving([*readings, *observe_outputs(outputs, desk)], reloads))
        warn_if_public(plan.traffic.key)
        waits = _waits(options, plan)
        if receiver.counters.down:
            tell(Notice(f"hub started; the link does not work yet; {waits}", "started", WARNING))

        def say_ready() -> None:
            if not stop.is_set():
                tell(Notice(f"hub ready; {waits}", "ready"))

        def receive() -> None:
            receiver.run(intake, stop, say_ready)

        parts.enter_context(in_background("receive", receive, stop))

        def on_turn() -> None:
            reloads.run_if_asked()
            status.write()
            monitor.beat()

        merging.run(stop, on_turn=on_turn, on_merged=monitor.beat)
        status.write(now=True)
    accepted, refused, counters = intake.counters.accepted, intake.counters.refused, merging.counters
    text = counted(accepted, "sketch", "sketches") + (f", {refused:,} REFUSED" if refused else "")
    text += f", {counted(counters.reports, 'report')} ({counters.revisions} of them revisions)"
    level = WARNING if refused else INFO
    tell(Notice(text, "stopped", level, accepted=accepted, refused=refused, reports=counters.reports))


def make_plan(options: HubOptions) -> Plan:
    """Check all options before anything is written or started."""
    outputs = output_options(options, KIND, site=options.site, state=options.state)
    traffic = hub_settings(options)
    check_links(options)
    upward = archive = None
    if options.up is not None:
        upward = connect_to(options.up, _upward_link(options), up=True)
    traffic = replace(traffic, key=fleet_key(options.key_file))
    policy = policy_of(options, options.config, threshold=options.threshold)
    settings = HubSettings(
        selection=_selection(options, policy, traffic),
        sites=hub_sites(options),
        grace=parse_seconds(options.grace),
        late=parse_seconds(options.late),
        grid=hub_grid(options),
        key=traffic.key,
    )
    if options.archive is not None:
        archive = Archive(
            options.archive,
            keep=parse_seconds(options.keep),
            site=options.site,
            with_sites=options.archive_sites,
            key=traffic.key,
            say=tell,
        )
    return Plan(outputs, traffic, settings, archive, policy, upward)


def _upward_link(options: HubOptions) -> LinkOptions:
    return LinkOptions(nkey=options.up_nkey, tls_ca=options.up_ca, tls_cert=options.up_cert, tls_key=options.up_key)


def check_links(options: HubOptions) -> None:
    """Raise UsageError if an address, a key or a certificate of the links can never work."""
    for option, where in (("--from", options.from_folder), ("--to", options.to)):
        if where is not None:
            find_place(where, option)
    if options.nats is not None:
        nats_options(options.nats, options)
    if options.up is not None:
        nats_options(options.up, _upward_link(options), up=True)


def _selection(options: HubOptions, policy: Policy, traffic: Settings) -> Selection:
    """Return which hosts are reported: those that the rules of alerts need, if nothing else is asked for."""
    if options.alerts is None:
        return traffic.selection
    if options.threshold is None and options.top is None:
        return Selection(max(1.0, math.floor(policy.least)))
    check_threshold(policy, traffic.selection)
    return traffic.selection


def _open_receiver(
    parts: contextlib.ExitStack, options: HubOptions, traffic: Settings, reloads: Reloads, roster: Roster
) -> tuple[LinkReceiver, dict[str, Any]]:
    """Return the receiving end of the link, at a folder, at --nats or at the hub's own broker, and its counters."""
    quota = Quota(parse_size(options.quota_bytes), parse_count(options.quota_sketches))
    common: dict[str, Any] = {"largest": largest_sketch(traffic), "quotas": Quotas(quota, roster)}
    if options.from_folder is not None:
        return FileReceiver(find_place(options.from_folder, "--from"), tell, **common), {}
    import_extra("the link over NATS", "fleet", "nats")
    from superhosts.fleet.nats.receive import NatsReceiver, own_identity

    cap = parse_size(options.broker_cap or BROKER_CAP)
    owner = own_identity(options.state)
    if options.nats is not None:
        receiver = NatsReceiver(connect_to(options.nats, options), tell, owner=owner, cap=cap, **common)
        receiver.check_no_other_hub()
        return receiver, {}
    owner = owner._replace(host="")  # the queue is in the state folder: the same hub, whatever its container's name
    broker = _start_broker(parts, options, cap)
    receiver = NatsReceiver(broker.options, tell, owner=owner, cap=cap, admitted=broker.admitted, **common)
    if reason := broker.unreachable():
        receiver.counters.down = reason
        what = f"the broker runs, but this hub cannot reach it: {reason}; retrying until it can"
        tell(Notice(f"NOT READY: {what}", "not-ready", WARNING))

    def reload() -> None:
        broker.reload()
        receiver.note_reach(broker.unreachable())
        if receiver.counters.down:
            raise UsageError(f"a new connection to the broker does not work: {receiver.counters.down}")

    reloads.add("sites and certificates", reload)
    return receiver, {"broker": broker.counters}


def _start_broker(parts: contextlib.ExitStack, options: HubOptions, cap: int) -> Broker:
    from superhosts.fleet.nats.broker import Broker, Tls

    tls = None
    if options.tls_cert is not None and options.tls_key is not None:
        tls = Tls(options.tls_cert, options.tls_key, options.tls_ca)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # as in connect_to
    listen = LISTEN if options.listen is None else options.listen
    broker = parts.enter_context(Broker(options.state / "broker", tell, listen=listen, cap=cap, tls=tls))
    tell(f"broker ready at {broker.options.url}")
    if not broker.guarded:
        tell("no site is enrolled: any process on this machine can send as any site (superhosts site enroll SITE)")
    return broker


def known_sites(state: Path) -> Roster:
    """Return what the last run of the hub knew about its sites."""
    roster = Roster(tell)
    roster.restore(read_status(state / STATUS).get("sites"))
    return roster


def _waits(options: HubOptions, plan: Plan) -> str:
    sites = ", ".join(plan.settings.sites) or "the sites of the last windows"
    traffic = plan.traffic
    if traffic.slides:
        most = counted(traffic.panes + 3, "sketch", "sketches")
        tell(f"windows of {traffic.window}, one every {traffic.slide}: up to {most} in memory, each --memory a part")
    return f"waits for {sites}, at most {options.grace} after a window's first sketch"


def _window_notice(report: HubReport) -> Notice:
    level = WARNING if report.missing or report.refused else INFO
    window = None if report.window is None else window_name(report.window)
    who = {"sites": report.sites, "missing": report.missing, "refused": report.refused}
    return Notice(
        report.heading, "window", level, window=window, revision=report.revision, hosts=len(report.rows), **who
    )


def largest_sketch(traffic: Settings) -> int:
    """Return the largest size of a sketch file: all sides and directions, evidence, nothing of which compresses."""
    families = len({part.family for part in traffic.parts})
    raw = families * len(SIDES) * len(DIRECTIONS) * traffic.cube_memory
    raw += 8 * EVIDENCE_PAIRS * sum(EVIDENCE_WORDS.values())
    return raw + raw // 64 + SITE_HEADER  # incompressible data grows by less than a 64th


def with_title(result: HubReport, selection: Selection) -> HubReport:
    """Return a report that says which hosts it has, which sites took part, and whether it replaces another one."""
    again = f", revision {result.revision}" if result.revision > 1 else ""
    words = words_of(selection, len(result.rows), left_out=result.left_out, least_listed=result.least_listed)
    return replace(result, notes=[f"{result.attendance}{again}"], **words)


def hub_settings(options: HubOptions) -> Settings:
    """Return the settings that sketches for a hub must have. Raise UsageError if options do not go together."""
    _check_link(options)
    if options.to is not None and options.up is not None:
        raise UsageError("--to and --up: choose one way to the upstream hub")
    if options.up is None:
        check_no_conflict(options, ("up_nkey", "up_ca", "up_cert", "up_key"), "only with --up")
    if options.archive_sites and options.archive is None:
        raise UsageError("--archive-sites needs --archive DIR")
    if parse_size(options.quota_bytes) == 0:
        raise UsageError(f"--quota-bytes {options.quota_bytes}: no sketch would ever be accepted; write it like 4GiB")
    hub_sites(options)
    settings = check_settings(make_settings(options, site=""))
    settings.check_parts()
    return settings


def hub_sites(options: HubOptions) -> tuple[str, ...]:
    """Return the sites that a hub waits for. Raise UsageError if a name is invalid."""
    check_site(options.site)
    names = dict.fromkeys(options.sites if options.sites != [""] else [])  # one that is named twice is one site
    return tuple(check_site(name, "--sites") for name in names)


def hub_grid(options: HubOptions) -> Grid | None:
    """Return the windows to report; None for those that the edges send."""
    if options.window is None:
        check_no_conflict(options, ["slide"], "only with --window, like --window 5m --slide 30s")
        return None
    grid = Grid(parse_duration(options.window), parse_duration(options.slide or options.window))
    kept = math.ceil(parse_seconds(options.late) * SECOND / grid.slide)
    if kept > DEFAULT_LIMITS.windows:
        length = format_duration(grid.slide)
        need = counted(kept, f"window of {length}", f"windows of {length}")
        most = f"a site may have {DEFAULT_LIMITS.windows:,} at a time"
        raise UsageError(f"--late {options.late}: {need}, and {most}; take a shorter --late")
    return grid


def _check_link(options: HubOptions) -> None:
    """Refuse options of the link that would have no effect, and those that need others."""
    if options.from_folder is not None:
        others = ("nats", "listen", "broker_cap", *declared(LinkOptions))
        check_no_conflict(options, others, "not with --from, where there is no server")
    elif options.nats is not None:
        check_no_conflict(options, ["listen"], "not with --nats: your own server listens where you told it to")
    else:
        check_no_conflict(
            options, ("nkey", "creds"), "for your own server (--nats); the embedded broker has its own key"
        )
        if (options.tls_cert is None) != (options.tls_key is None) or (options.tls_ca and not options.tls_cert):
            raise UsageError("TLS of the embedded broker takes --tls-cert and --tls-key, and --tls-ca for mutual TLS")
