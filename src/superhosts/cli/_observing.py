"""What monitoring reads of each service: hooks into its parts, conditions of being ready, and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from superhosts.cli._console import tell
from superhosts.cli._monitoring import Monitor
from superhosts.cli._service import Reloads
from superhosts.cli._signals import reloaded_by_sighup
from superhosts.cli._summary import REASONS
from superhosts.cli._views import View
from superhosts.core.text import counted
from superhosts.fleet.edge import Edge, LocalRows
from superhosts.fleet.hub import Hub
from superhosts.fleet.intake import Intake
from superhosts.fleet.link import Backlog, LinkReceiver, LinkSender
from superhosts.fleet.report import HubReport
from superhosts.fleet.spool import Spool
from superhosts.fleet.store import WindowStore
from superhosts.output.alerts.store import AlertDesk
from superhosts.output.destination import Destination, Destinations
from superhosts.output.report import Report
from superhosts.pipeline.builder import WindowResult
from superhosts.pipeline.scan import Scan
from superhosts.ui import metrics
from superhosts.ui.metrics import Reading, Sites


def observe_scan(monitor: Monitor, scan: Scan) -> list[Reading]:
    """Observe the windows and packets of a scan."""

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
    return [metrics.of_scan(scan, REASONS)]


def observe_watch(monitor: Monitor, scan: Scan) -> list[Reading]:
    """Observe a watch."""
    return [*observe_scan(monitor, scan), metrics.of_restoring(lambda: scan.restoring)]


class ObservedView:
    """A view of a run that is observed, too: each step is a beat of its main loop."""

    def __init__(
        self, view: View, monitor: Monitor, reloads: Reloads, observe: Callable[[Scan], list[Reading]]
    ) -> None:
        self.run: Scan | None = None
        self._view, self._monitor, self._reloads, self._observe = view, monitor, reloads, observe

    @contextmanager
    def of(self, run: Scan) -> Iterator[None]:
        """Show and observe this run until the context is left."""
        self.run = run
        serving = self._monitor.serving(self._observe(run), self._reloads)
        with reloaded_by_sighup(self._reloads.ask), serving, self._view.of(run):
            yield
            self._monitor.manager.stopping()

    def step(self, position: int, packets: int) -> None:
        """Show how far it is."""
        self._view.step(position, packets)
        self._reloads.run_if_asked()
        self._monitor.beat()

    def paused(self) -> AbstractContextManager[object]:
        """Make room while results are printed."""
        return self._view.paused()

    def add(self, report: Report) -> None:
        """Take note of a window that has closed."""
        self._view.add(report)


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
    found += [metrics.of_edge(run.counters), metrics.of_spool(spool), metrics.of_link(sender.counters)]
    found.append(metrics.of_backlogs({"spool": earlier}))
    if rows is not None:
        found.append(metrics.of_restoring(lambda: scan.restoring))
        found.append(metrics.of_destinations(lambda: {"rows": rows.destinations()}))
    return found


def observe_outputs(outputs: Destinations, desk: AlertDesk | None) -> list[Reading]:
    """Observe the destinations of rows and of alerts, and the alerts."""

    def destinations() -> dict[str, list[Destination]]:
        rows = [each for each in outputs.each() if each is not desk]
        return {"rows": rows, "alerts": [] if desk is None else desk.receivers()}

    return [metrics.of_destinations(destinations), *([] if desk is None else [metrics.of_alerts(desk)])]


@dataclass(frozen=True)
class HubParts:
    """The parts of a hub that have something to say."""

    hub: Hub
    intake: Intake
    store: WindowStore
    receiver: LinkReceiver
    upstream: Spool | None = None


def observe_hub(monitor: Monitor, parts: HubParts) -> list[Reading]:
    """Observe a hub. It is ready when its link works, whatever it has to merge and to report first."""
    hub = parts.hub
    windows = Backlog("windows of earlier runs that are reported", hub.due, tell)
    arrived = Backlog("what waited on the link at the start", parts.receiver.earlier, tell)
    monitor.on_beat += [windows.tell, arrived.tell]
    sites = Sites(parts.intake.roster.taken, hub.settings.sites)

    def note(report: HubReport) -> None:
        if report.window is not None:
            sites.note(report.window, report.sites, report.missing)
            monitor.last.note(report.window, len(report.rows), is_new=report.revision == 1)

    hub.on_report = note
    if monitor.is_asked:
        hub.reporter.on_union = monitor.last.note_sketch
    hub.merging.on_add = monitor.beat  # to merge the windows of many sites takes long
    monitor.health.look_at(lambda: metrics.why_no_link(parts.receiver.counters))
    monitor.status = lambda: f"{counted(hub.counters.reports, 'report')}; missing: {', '.join(sites.missing) or 'none'}"
    return [
        metrics.of_sites(sites),
        metrics.of_roster(parts.intake.roster),
        metrics.of_hub(hub, lambda: len(parts.store.windows())),
        metrics.of_intake(parts.intake),
        metrics.of_link(parts.receiver.counters),
        metrics.of_backlogs({"windows": windows, "link": arrived}),
        metrics.of_merging(hub.merging),
        metrics.of_restoring(lambda: hub.reporter.restoring),
        *([] if parts.upstream is None else [metrics.of_spool(parts.upstream)]),
    ]
