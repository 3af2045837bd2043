"""What others learn about a service while it runs: a monitoring system (--metrics) and a service manager (systemd).

The functions `observe_…` hook into the parts of each service: conditions of being ready, and the metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial

from superhosts import __version__
from superhosts.core.notices import Notice
from superhosts.core.text import counted
from superhosts.core.units import parse_place
from superhosts.fleet.edge import Edge, LocalRows
from superhosts.fleet.hub import Hub
from superhosts.fleet.intake import Intake, LinkReceiver
from superhosts.fleet.link import Backlog
from superhosts.fleet.report import HubReport
from superhosts.fleet.spool import LinkSender, Spool
from superhosts.fleet.store import WindowStore
from superhosts.output.alerts.store import AlertDesk
from superhosts.output.console import log_status, tell
from superhosts.output.destination import Destination, Destinations
from superhosts.pipeline.builder import WindowResult
from superhosts.pipeline.network import REASONS
from superhosts.pipeline.scan import Scan
from superhosts.ui import metrics
from superhosts.ui.endpoint import Health, check_installed, open_endpoint
from superhosts.ui.metrics import LastWindow, Reading, Sites
from superhosts.ui.service import Reloads, ServiceManager


class Monitor:
    def __init__(self, command: str, place: str | None = None, manager: ServiceManager | None = None) -> None:
        """`place`: where metrics are served. MissingExtraError: the package that writes them is not installed."""
        self.health, self.last = Health(), LastWindow()
        self.manager = ServiceManager() if manager is None else manager
        self.status: Callable[[], str] = lambda: f"{counted(self.last.closed, 'window')} closed"
        self.why_closed: Callable[[], str] = lambda: ""  # why no traffic can come yet
        self.on_beat: list[Callable[[], None]] = []  # called at each beat; they must cost nothing
        self.showing: Callable[[], AbstractContextManager[object]] | None = None  # the dashboard, while it runs
        self._is_open = False
        self._command = command
        self._place = None if place is None else parse_place(place)
        if self._place is not None:
            check_installed()

    @property
    def is_asked(self) -> bool:
        """True if metrics or a dashboard are asked for: what only they need is measured."""
        return self._place is not None or self.showing is not None

    def beat(self) -> None:
        """Take note that the main loop moves. The loop calls this, and no other thread."""
        self.health.beat()
        for each in self.on_beat:
            each()
        self._is_open = self._is_open or not self.why_closed()
        if self._is_open:  # the first of these beats tells a service manager that the service is ready
            self.manager.beat(self.status)

    def stopping(self, stop: Callable[[], None]) -> Callable[[], None]:
        def act() -> None:
            self.manager.stopping()
            stop()

        return act

    @contextmanager
    def serving(self, readings: Sequence[Reading], reloads: Reloads | None = None) -> Iterator[None]:
        with nullcontext() if self.showing is None else self.showing(), ExitStack() as open_:
            if self._place is not None:
                program = partial(metrics.of_program, self._command, __version__, self.health, log_status, reloads)
                server = open_endpoint(
                    self._place, self.health, [program, partial(metrics.of_windows, self.last), *readings]
                )
                open_.callback(server.close)
                url = f"http://{server.place}/metrics"
                tell(Notice(f"metrics at {url}", "metrics", url=url))
            yield


def observe_scan(monitor: Monitor, scan: Scan) -> list[Reading]:
    def note(result: WindowResult) -> None:
        monitor.last.note(result.window, len(result.found), is_new=result.revision == 1)
        if monitor.is_asked and result.stored is not None:
            monitor.last.note_sketch(result.stored)

    def why_not_capturing() -> str:
        """The main loop moves before the thread of a capture has opened its ring."""
        closed = any(source.loses and source.fullness() is None for source in scan.sources)
        return "a capture is not open" if closed else ""

    scan.on_window = note
    monitor.why_closed = why_not_capturing
    monitor.health.look_at(why_not_capturing)
    return [partial(metrics.of_scan, scan, REASONS)]


def observe_watch(monitor: Monitor, scan: Scan) -> list[Reading]:
    return [*observe_scan(monitor, scan), partial(metrics.of_restoring, lambda: scan.restoring)]


def observe_edge(
    monitor: Monitor, run: Edge, scan: Scan, spool: Spool, sender: LinkSender, rows: LocalRows | None
) -> list[Reading]:
    """Observe an edge. It is ready when its link works, however many windows of earlier runs the hub does not have."""
    earlier = Backlog("sketches of earlier runs that the hub has", spool.sizes, tell)
    run.on_wait = monitor.beat
    monitor.on_beat.append(earlier.tell)
    monitor.health.look_at(lambda: metrics.why_no_link(sender.counters))
    monitor.status = lambda: f"{counted(monitor.last.closed, 'window')} closed, {len(spool.waiting())} in the spool"
    found = observe_scan(monitor, scan)
    found += [
        partial(metrics.of_edge, run.counters),
        partial(metrics.of_spool, spool),
        partial(metrics.of_link, sender.counters),
    ]
    found.append(partial(metrics.of_backlogs, {"spool": earlier}))
    if rows is not None:
        found.append(partial(metrics.of_restoring, lambda: scan.restoring))
        found.append(partial(metrics.of_destinations, lambda: {"rows": rows.destinations.each()}))
    return found


def observe_outputs(outputs: Destinations, desk: AlertDesk | None) -> list[Reading]:
    def destinations() -> dict[str, list[Destination]]:
        rows = [each for each in outputs.each() if each is not desk]
        return {"rows": rows, "alerts": [] if desk is None else desk.receivers()}

    return [
        partial(metrics.of_destinations, destinations),
        *([] if desk is None else [partial(metrics.of_alerts, desk)]),
    ]


def observe_hub(
    monitor: Monitor, hub: Hub, intake: Intake, store: WindowStore, receiver: LinkReceiver, upstream: Spool | None
) -> list[Reading]:
    """Observe a hub. It is ready when its link works, whatever it has to merge and to report first."""
    windows = Backlog("windows of earlier runs that are reported", hub.due, tell)
    arrived = Backlog("what waited on the link at the start", receiver.earlier, tell)
    monitor.on_beat += [windows.tell, arrived.tell]
    sites = Sites(intake.roster.taken, hub.settings.sites)

    def note(report: HubReport) -> None:
        if report.window is not None:
            sites.note(report.window, report.sites, report.missing)
            monitor.last.note(report.window, len(report.rows), is_new=report.revision == 1)

    hub.on_report = note
    if monitor.is_asked:
        hub.reporter.on_union = monitor.last.note_sketch
    hub.merging.on_add = monitor.beat  # to merge the windows of many sites takes long
    monitor.health.look_at(lambda: metrics.why_no_link(receiver.counters))
    monitor.status = lambda: f"{counted(hub.counters.reports, 'report')}; missing: {', '.join(sites.missing) or 'none'}"
    return [
        partial(metrics.of_sites, sites),
        partial(metrics.of_roster, intake.roster),
        partial(metrics.of_hub, hub, lambda: len(store.windows())),
        partial(metrics.of_intake, intake),
        partial(metrics.of_link, receiver.counters),
        partial(metrics.of_backlogs, {"windows": windows, "link": arrived}),
        partial(metrics.of_merging, hub.merging),
        partial(metrics.of_restoring, lambda: hub.reporter.restoring),
        *([] if upstream is None else [partial(metrics.of_spool, upstream)]),
    ]
