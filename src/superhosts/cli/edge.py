"""`superhosts edge`: a sensor that sends one sketch per window to a hub."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from superhosts.cli._declaration import check_no_conflict, declared
from superhosts.cli._keys import fleet_key, say_what_leaves
from superhosts.cli._link import connect_to, join, make_sender, sending
from superhosts.cli._options import LinkOptions
from superhosts.cli._progress import ScanProgress
from superhosts.cli._settings import make_settings, output_options
from superhosts.cli._signals import Interruption
from superhosts.cli._summary import summarise, warn_of_wrong_inner
from superhosts.cli._values import parse_seconds
from superhosts.cli.scan import use_filter
from superhosts.cli.usage.fleet import LOCAL
from superhosts.cli.usage.fleet import Edge as EdgeOptions
from superhosts.core.defaults import EVIDENCE_PAIRS
from superhosts.core.files import hold_folder
from superhosts.core.hashing import fingerprint, secret_of
from superhosts.core.notices import INFO, WARNING, Notice, as_warning
from superhosts.core.text import counted
from superhosts.core.times import shown_time
from superhosts.core.units import parse_size
from superhosts.errors import RefusedError, SuperhostsError, UsageError
from superhosts.fleet.edge import STATE, Edge, LocalRows, Position, check_settings
from superhosts.fleet.names import check_site
from superhosts.fleet.spool import LinkSender, Spool
from superhosts.output.console import ReportedErrors, fail_with, log_status, tell, warn_of_compiling
from superhosts.output.destination import RunKind
from superhosts.output.registry import open_destinations
from superhosts.output.report import columns_with
from superhosts.pipeline.scan import Counters, RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.sources.open import open_inputs
from superhosts.ui.monitor import Monitor, observe_edge
from superhosts.ui.service import STATUS, Reloads, Status, log_in_background

LIVE_WAIT = 10.0  # seconds that an edge waits for the hub after a live input has ended


@log_in_background()
def edge(options: EdgeOptions) -> None:
    joining = join(options)
    options = options if joining is None else joining.options
    check_site(options.site)
    monitor = Monitor("edge", options.metrics)
    connection = None
    if joining is None and options.to is None:
        connection = connect_to(LOCAL if options.nats is None else options.nats, options)
    settings = edge_settings(options)
    settings = replace(settings, key=fleet_key(options.key_file) if joining is None else joining.key())
    with _local_rows(options) as rows, hold_folder(options.spool):
        connection = connection if joining is None else joining.connect()
        store = Spool(options.spool, options.site, cap=parse_size(options.spool_cap), say=tell)
        sender = make_sender(options.to, connection, options.site)
        errors = watch(options, settings, store, sender, rows, monitor)
    fail_with(errors)


@contextmanager
def _local_rows(options: EdgeOptions) -> Iterator[LocalRows | None]:
    """Open the destination of the site's own super hosts, if there is one."""
    if not options.output:
        yield None
        return
    run = RunKind(columns_with(options.evidence, options.group_by), endless=True)
    asked = output_options(options, run, site=options.site, state=options.spool)
    with open_destinations(asked, run, table=False, say=tell) as destinations:
        yield LocalRows(destinations, tell)


def watch(
    options: EdgeOptions,
    settings: Settings,
    spool: Spool,
    sender: LinkSender,
    rows: LocalRows | None = None,
    monitor: Monitor | None = None,
) -> list[SuperhostsError]:
    """Read the inputs into the spool and send from there; return the errors, already reported.

    Windows that the hub has refused are an error, even one of many: its window lacks this site for good.
    """
    errors, monitor = ReportedErrors(), monitor or Monitor("edge")
    warned: bool | None = None  # of a wrong --inner; None: before the first window has closed

    def on_progress(position: int, packets: int) -> None:
        nonlocal warned
        run.on_progress()
        progress.step(position, packets)
        if warned is None and run.counters.windows:  # not in the end alone: an edge may run for months
            warned = warn_of_wrong_inner(scan.counters)
        on_turn()

    def on_turn() -> None:
        reloads.run_if_asked()
        status.write()
        monitor.beat()

    reloads = Reloads(monitor.manager)
    if rows is not None:
        reloads.add("--output", rows.destinations.reopen)
    position = Position(spool.folder, options.inputs, settings.fingerprint, tell)
    sources = open_inputs(
        options.inputs,
        errors.add,
        follow=True,
        done=position.done(),
        on_warning=lambda text: tell(as_warning(text)),
        tables=options.tables,
    )
    use_filter(sources, options.filter)
    scan = Scan(
        sources,
        settings,
        RunOptions(grace=parse_seconds(options.grace), resume_from=position.frontier, find=rows is not None),
        on_error=errors.add,
        on_progress=on_progress,
    )
    run = Edge(scan, spool, position, tell, rows=rows)
    progress = ScanProgress(wanted=sys.stderr.isatty()).of(scan)  # a log has the status file beside it
    status = _status(run, scan, spool, sender, rows)
    serving = monitor.serving(observe_edge(monitor, run, scan, spool, sender, rows), reloads)
    with serving, sending(sender, spool), Interruption(monitor.stopping(run.stop), reloads.ask):
        if scan.prepare(saves=True):
            warn_of_compiling()
            _say_ready(settings, spool, position)
        with progress:
            run.run()
        summarise(replace(scan.counters, warnings=[]))  # warnings were written as they came
        if not warned:
            warn_of_wrong_inner(scan.counters)
        _deliver(run, spool, on_turn, patient=all(source.replays for source in sources))
    status.write(now=True)
    position.close()
    if refused := spool.counters.refused:
        errors.found.append(RefusedError(f"{counted(refused, 'window was', 'windows were')} refused by the hub"))
    return errors.found


def _say_ready(settings: Settings, spool: Spool, position: Position) -> None:
    waiting = len(spool.waiting())
    text = f"site {settings.site} ready; windows of earlier runs that wait in {spool.folder}: {waiting}"
    tell(Notice(text, "ready", site=settings.site, waiting=waiting))
    say_what_leaves(settings.key)
    if position.frontier is not None:
        before = f"everything before is in the spool, sent or refused ({spool.folder / STATE})"
        tell(f"resumes at {shown_time(position.frontier)}: {before}")


def _status(run: Edge, scan: Scan, spool: Spool, sender: LinkSender, rows: LocalRows | None) -> Status:
    return Status(
        spool.folder / STATUS,
        key=lambda: fingerprint(secret_of(scan.settings.key)),
        scan=lambda: status_counters(scan.counters),
        edge=run.counters,
        spool=spool.counters,
        link=sender.counters,
        waiting=lambda: len(spool.waiting()),
        aside=spool.aside,
        standard_error=log_status,
        **({} if rows is None else {"rows": rows.status, "outputs": rows.destinations.all_status}),
    )


def _deliver(run: Edge, spool: Spool, on_turn: Callable[[], None], *, patient: bool) -> None:
    """Wait until the hub has everything, or until told to stop; after a live input only for a moment.

    A supervisor restarts an edge whose pipe has ended; the next run sends what waits.
    """
    left = len(spool.waiting())
    until = time.monotonic() + (float("inf") if patient else LIVE_WAIT)
    if left and not run.stopping.is_set():
        text = f"the input has ended; windows that wait for the hub: {left} (Ctrl-C leaves them in the spool)"
        tell(Notice(text, "input-ended", waiting=left))
    while not run.stopping.is_set() and spool.waiting() and time.monotonic() < until:
        with spool.changed:
            spool.changed.wait(0.5)
        on_turn()
    with spool.changed:
        left, counters, kept = len(spool.waiting()), spool.counters, len(spool.refused())
    refused = f", {counters.refused} REFUSED by the hub" if counters.refused else ""
    earlier = f"; refused windows of all runs are kept in {spool.folder / 'refused'}: {kept}" if kept else ""
    said = f"{counters.spooled} spooled, {counters.delivered} acknowledged by the hub{refused}, {left} in the spool"
    level = WARNING if counters.refused else INFO
    tell(Notice(f"windows: {said}{earlier}", "stopped", level, **asdict(counters), waiting=left))


def status_counters(counters: Counters) -> dict[str, Any]:
    """Return the counters as a status file has them, with the last few warnings: damaged files have very many."""
    names = {"truncated": "cut"}  # in status files, and whatever reads them
    values = {names.get(name, name): value for name, value in asdict(counters).items()}
    return {**values, "warnings": counters.warnings[-20:]}


def edge_settings(options: EdgeOptions) -> Settings:
    """Return the settings of an edge. Raise UsageError if options do not go together."""
    settings = check_settings(make_settings(options))
    settings.check_parts()
    if options.to is not None:
        if options.nats is not None:
            raise UsageError("--to and --nats: choose one way to the hub")
        check_no_conflict(options, declared(LinkOptions), "not with --to, where there is no server")
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
    return settings
