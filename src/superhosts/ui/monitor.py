"""What others learn about a service while it runs: a monitoring system (--metrics) and a service manager (systemd).

The functions `observe_…` hook into the parts of each service: conditions of being ready, and readings for Prometheus,
which yield families of prometheus_client under one name each. Numbers are read when somebody asks, in the thread that
answers (`endpoint.py`), from counters that exist anyway: the work pays nothing for them. No label ever is an address,
neither of a host nor of a destination. docs/reference/metrics.md lists all metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import islice
from typing import Any

from superhosts import __version__
from superhosts.core.notices import Notice
from superhosts.core.pairs import Part, Window
from superhosts.core.profile import Durations
from superhosts.core.text import counted
from superhosts.core.units import SECOND, parse_place
from superhosts.errors import import_extra
from superhosts.fleet.edge import Edge, LocalRows
from superhosts.fleet.hub import Hub
from superhosts.fleet.intake import Intake, LinkReceiver
from superhosts.fleet.link import Backlog
from superhosts.fleet.report import HubReport
from superhosts.fleet.sites import Roster
from superhosts.fleet.spool import LinkSender, Spool
from superhosts.fleet.store import WindowStore
from superhosts.output.alerts.store import AlertDesk
from superhosts.output.console import log_status, tell
from superhosts.output.destination import Destination, Destinations
from superhosts.pipeline.builder import WindowResult
from superhosts.pipeline.network import REASONS
from superhosts.pipeline.scan import Scan
from superhosts.sketch.sketch import Sketch
from superhosts.ui.endpoint import Health, open_endpoint
from superhosts.ui.folder import PartState, states_of
from superhosts.ui.service import Reloads, ServiceManager

MOST_SITES = 1000  # sites that have metrics of their own: a hub without keys takes sketches of any name
PART = ("family", "side", "direction", "counts", "filter", "group")  # labels of a part of a window
DESTINATION = ("purpose", "kind", "number")  # labels of a destination; its address may hold secrets
COUNTER, GAUGE = "counter", "gauge"
PREFIX = "superhosts_"
Metric = Any  # a family of prometheus_client, which is an optional package
Reading = Callable[[], Iterator[Metric]]
Words = tuple[str, ...]


def _metric(kind: str, name: str, help: str, values: float | Mapping[Any, float | None], *labels: str) -> Metric:
    """Return a metric of one number, or of one for each word of its label, or tuple of its labels; None: not known."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    family = (CounterMetricFamily if kind == COUNTER else GaugeMetricFamily)(PREFIX + name, help, labels=labels)
    for words, value in values.items() if isinstance(values, Mapping) else [((), values)]:
        if value is not None:
            family.add_metric([words] if isinstance(words, str) else words, value)
    return family


_counter, _gauge = partial(_metric, COUNTER), partial(_metric, GAUGE)


def _histogram(name: str, help: str, durations: Durations) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    return HistogramMetricFamily(PREFIX + name, help, buckets=durations.cumulated(), sum_value=durations.seconds)


def of_windows(last: LastWindow) -> Iterator[Metric]:
    yield _counter("windows_closed", "Windows that were closed; of a hub: reported, each once.", last.closed)
    if last.at is not None and last.seconds is not None:
        yield _gauge("window_seconds", "Length of the last window.", last.seconds)
        yield _gauge("last_window_hosts", "Super hosts of the last window.", last.hosts)
        yield _gauge("last_window_closed_timestamp_seconds", "When the last window was closed.", last.at)
        yield _gauge("last_window_end_timestamp_seconds", "End of the last window.", last.end or 0.0)
    for name, help, field in (
        ("part_exact", "1 if the part of the last window was counted exactly, 0 if estimated.", "exact"),
        ("part_pairs", "Distinct pairs of the last window, counted or estimated.", "pairs"),
        ("part_exact_ratio", "While exact: share of the pairs that it can hold.", "capacity"),
        ("part_fill_ratio", "If estimated: share of the bits that are set.", "fill"),
        ("part_saturated_columns", "If estimated: columns without a zero bit.", "saturated"),
    ):
        values = {(str(part.family or "keys"), *part[1:]): getattr(state, field) for part, state in last.parts.items()}
        yield _gauge(name, help, values, *PART)


def _restoring(durations: Durations) -> Metric:
    return _histogram("restore_seconds", "Search for the super hosts of a window.", durations)


def of_scan(scan: Scan) -> Iterator[Metric]:
    counters = scan.counters
    yield _counter("packets", "Packets, or rows and records of flows, that were read.", counters.packets)
    yield _counter("pairs", "Pairs of host and peer, repeats included.", counters.pairs)
    not_counted = {name: getattr(counters, name) for name in REASONS}
    yield _counter("packets_not_counted", "Packets that were read and do not count.", not_counted, "reason")
    dropped = {"capture": counters.drops, "receiver": _sum(counters.exports, "kernel_drops")}
    help = "Lost here, as the kernel had no room: packets of a capture, datagrams of a receiver of flows."
    yield _counter("dropped", help, dropped, "where")
    lost = {unit: _sum(counters.exports, f"lost_{unit}") for unit in ("records", "datagrams")}
    yield _counter("exports_lost", "Flow exports lost before they arrived, by sequence number.", lost, "unit")
    fullness = [full for source in scan.sources if (full := source.fullness()) is not None]
    if fullness:
        yield _gauge("ring_fullness_ratio", "How full the fullest ring of a live capture is.", max(fullness))


def _sum(exports: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(each.get(name) or 0 for each in exports)


def of_spool(spool: Spool) -> Iterator[Metric]:
    oldest = spool.oldest()
    age = 0.0 if oldest is None else max(time.time() - oldest, 0.0)
    yield _gauge("spool_sketches", "Sketches that wait for the hub.", len(spool.waiting()))
    yield _gauge("spool_bytes", "Bytes in the spool, with those set aside.", spool.size())
    yield _gauge("spool_oldest_age_seconds", "Age of the oldest sketch that waits; 0 if none does.", age)
    yield _counter("spooled_sketches", "What became of sketches.", vars(spool.counters), "outcome")


def of_link(counters: Any, **backlogs: Backlog) -> Iterator[Metric]:
    yield _gauge("link_up", "1 if the link to the other side works.", not why_no_link(counters))
    left = {name: backlog.left() for name, backlog in backlogs.items()}
    counts, sizes = ({of: found[place] for of, found in left.items()} for place in (0, 1))
    yield _gauge("backlog", "What waited at the start and is not done yet.", counts, "of")
    yield _gauge("backlog_bytes", "Bytes of these.", sizes, "of")


def why_no_link(counters: Any) -> str:
    if counters.down:
        return f"the link does not work: {counters.down}"
    return "" if getattr(counters, "connects", 1) else "the link is not connected yet"


def of_destinations(**purposes: Sequence[Destination]) -> Iterator[Metric]:
    """Yield metrics of destinations, which are given by their purpose: rows or alerts."""
    values: dict[Words, dict[str, int]] = {}
    for purpose, destinations in purposes.items():
        for number, each in enumerate(destinations, 1):
            status = each.status()
            sent = status.get("delivered", status["reports"])  # without a queue, what is written is sent
            values[purpose, each.kind, str(number)] = {**status, "sent": sent, "bytes": each.queued_bytes}
    for kind, name, help, key in (
        (GAUGE, "destination_queued", "Batches that wait.", "waiting"),
        (GAUGE, "destination_queued_bytes", "Bytes of the batches that wait.", "bytes"),
        (COUNTER, "destination_sent", "Batches that were taken.", "sent"),
        (COUNTER, "destination_failed", "Attempts that failed.", "failures"),
        (COUNTER, "destination_dropped", "Batches that it will never get.", "dropped"),
    ):
        yield _metric(kind, name, help, {labels: each[key] for labels, each in values.items()}, *DESTINATION)


def of_sites(last: LastWindow, taken: Mapping[str, float]) -> Iterator[Metric]:
    """Yield metrics of the sites of a hub; `taken`: when a sketch of each was accepted last."""
    yield _gauge("sites_reporting", "Sites in the last window.", len(last.reporting))
    yield _gauge("sites_missing", "Sites that the last window lacked.", len(last.missing))
    help = "1 if the site was in the last window, 0 if it was missing."
    present = [(site, 0.0) for site in sorted(last.missing)] + [(site, 1.0) for site in sorted(last.reporting)]
    yield _gauge("site_reporting", help, dict(present[:MOST_SITES]), "site")
    help = "When the last sketch of the site was accepted, since the start of the hub."
    seen = sorted(taken.items(), key=lambda item: -item[1])[:MOST_SITES]
    yield _gauge("site_last_seen_timestamp_seconds", help, dict(seen), "site")


def of_roster(roster: Roster) -> Iterator[Metric]:
    sites = dict(islice(roster.status().items(), MOST_SITES))
    for kind, name, help, field in (
        (GAUGE, "site_clock_offset_seconds", "Seconds that the site's clock is ahead of the hub's.", "clock"),
        (GAUGE, "site_spool_sketches", "Sketches that wait at the site, as it told last.", "spool_sketches"),
        (GAUGE, "site_spool_bytes", "Bytes of these.", "spool_bytes"),
        (COUNTER, "site_refused", "Sketches of the site that were refused.", "refused"),
        (COUNTER, "site_slowed", "Times that the site had to wait, being over its quota.", "slowed"),
    ):
        yield _metric(kind, name, help, {site: facts[field] for site, facts in sites.items()}, "site")


def of_hub(hub: Hub, intake: Intake, kept: int) -> Iterator[Metric]:
    found = {name: getattr(intake.counters, name) for name in ("accepted", "repeated", "refused", "corrupt")}
    yield _counter("sketches", "Sketches that arrived, by what became of them.", found, "outcome")
    yield _counter("sketches_ahead", "Sketches of windows in the future.", intake.counters.ahead)
    counters, status = hub.counters, hub.status()
    yield _counter("reports_revised", "Reports of windows that were reported before.", counters.revisions)
    yield _counter("reports_incomplete", "First reports of windows that lacked sites.", counters.incomplete)
    yield _counter("hub_waits", "Attempts at the disk or a destination that failed.", counters.waits)
    yield _counter("sketches_damaged", "Sketches left out, being damaged or of other settings.", counters.damaged)
    yield _gauge("hub_windows", "Windows that the hub keeps.", kept)
    yield _gauge("hub_stuck", "Work that failed at the last attempt (trouble in status.json).", len(status["stuck"]))
    yield _gauge("hub_clock_doubted", "1 if the hub does not trust its clock.", status["clock"] is not None)
    yield _counter("hub_set_aside", "Files that were set aside for an operator.", status["aside"]["count"])
    yield _histogram("merge_seconds", "Merging of one sketch into the union of its window.", hub.merging)
    yield _restoring(hub.reporter.restoring)


class LastWindow:
    """What is known of the window that closed last. One thread notes; any thread reads."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self.closed = 0  # windows, each counted once
        self.hosts = 0  # super hosts of the last one
        self.at: float | None = None  # when it was closed, in seconds since 1970
        self.window: Window | None = None
        self.parts: dict[Part, PartState] = {}
        self.reporting: Sequence[str] = ()  # sites that took part in it; none but of a hub
        self.missing: Sequence[str] = ()  # sites that it lacked; before the first one, those that were named
        self._wall = wall

    def note(
        self,
        window: Window,
        hosts: int,
        *,
        is_new: bool = True,
        reporting: Sequence[str] = (),
        missing: Sequence[str] = (),
    ) -> None:
        """Note a window that has closed. One that is reported again (not `is_new`) is not counted."""
        self.closed += is_new
        if self.window is None or window.end >= self.window.end:
            self.window, self.hosts, self.at = window, hosts, self._wall()
            self.reporting, self.missing = tuple(reporting), tuple(missing)

    def note_sketch(self, sketch: Sketch) -> None:
        self.parts = states_of(sketch)

    @property
    def end(self) -> float | None:
        """The end of the last window, in seconds since 1970; None if there is none, or it has no time."""
        return self.window.end / SECOND if self.window is not None and self.window.is_timed else None

    @property
    def seconds(self) -> float | None:
        return (self.window.end - self.window.start) / SECOND if self.window is not None else None


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
            import_extra("--metrics", "metrics", "prometheus_client")

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
                own = [partial(self._read, reloads), partial(of_windows, self.last)]
                server = open_endpoint(self._place, self.health, [*own, *readings])
                open_.callback(server.close)
                url = f"http://{server.place}/metrics"
                tell(Notice(f"metrics at {url}", "metrics", url=url))
            yield

    def _read(self, reloads: Reloads | None) -> Iterator[Metric]:
        yield _gauge("build_info", "Always 1.", {(__version__, self._command): 1}, "version", "command")
        yield _gauge("healthy", "1 if the main loop moved recently (/healthz).", not self.health.why_dead())
        yield _gauge("ready", "1 if it takes traffic (/readyz).", not self.health.why_not_ready())
        yield _counter("log_lines_dropped", "Lines that standard error never got.", log_status()["dropped"])
        if reloads is not None:
            yield _gauge("reload_failures", "Things that the last SIGHUP did not reload.", len(reloads.failed))


def observe_scan(monitor: Monitor, scan: Scan) -> None:
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


def observe_watch(monitor: Monitor, scan: Scan) -> list[Reading]:
    observe_scan(monitor, scan)
    return [lambda: of_scan(scan), lambda: iter([_restoring(scan.restoring)])]


def observe_edge(
    monitor: Monitor, run: Edge, scan: Scan, spool: Spool, sender: LinkSender, rows: LocalRows | None
) -> list[Reading]:
    """Observe an edge. It is ready when its link works, however many windows of earlier runs the hub does not have."""
    earlier = Backlog("sketches of earlier runs that the hub has", spool.sizes, tell)
    run.on_wait = monitor.beat
    monitor.on_beat.append(earlier.tell)
    monitor.health.look_at(lambda: why_no_link(sender.counters))
    monitor.status = lambda: f"{counted(monitor.last.closed, 'window')} closed, {len(spool.waiting())} in the spool"
    observe_scan(monitor, scan)

    def read() -> Iterator[Metric]:
        yield from of_scan(scan)
        lost = {"disk": run.counters.lost, "killed": run.counters.interrupted}
        yield _counter("windows_lost", "Windows of live input that never reached the spool.", lost, "reason")
        yield _counter("clock_jumps", "Times that the clock of the packets was set.", run.counters.jumps)
        yield from of_spool(spool)
        yield from of_link(sender.counters, spool=earlier)
        if rows is not None:
            yield _restoring(scan.restoring)
            yield from of_destinations(rows=rows.destinations.each())

    return [read]


def observe_outputs(outputs: Destinations, desk: AlertDesk | None) -> list[Reading]:
    def read() -> Iterator[Metric]:
        rows = [each for each in outputs.each() if each is not desk]
        yield from of_destinations(rows=rows, alerts=[] if desk is None else desk.receivers())
        if desk is not None:
            states = desk.states()
            yield _gauge("alerts_open", "Alerts that are open.", states.pop("open"))
            yield _counter("alerts", "What became of rows: alerts opened, and so on.", states, "event")

    return [read]


def observe_hub(
    monitor: Monitor, hub: Hub, intake: Intake, store: WindowStore, receiver: LinkReceiver, upstream: Spool | None
) -> list[Reading]:
    """Observe a hub. It is ready when its link works, whatever it has to merge and to report first."""
    windows = Backlog("windows of earlier runs that are reported", hub.due, tell)
    arrived = Backlog("what waited on the link at the start", receiver.earlier, tell)
    monitor.on_beat += [windows.tell, arrived.tell, intake.roster.log.flush]
    last = monitor.last
    last.missing = tuple(hub.settings.sites)

    def note(report: HubReport) -> None:
        if report.window is not None:
            took_part = {"reporting": report.sites, "missing": report.missing}
            last.note(report.window, len(report.rows), is_new=report.revision == 1, **took_part)

    hub.on_report = note
    if monitor.is_asked:
        hub.reporter.on_union = monitor.last.note_sketch
    monitor.health.look_at(lambda: why_no_link(receiver.counters))
    monitor.status = lambda: f"{counted(hub.counters.reports, 'report')}; missing: {', '.join(last.missing) or 'none'}"
    return [
        lambda: of_sites(last, intake.roster.taken()),
        partial(of_roster, intake.roster),
        lambda: of_hub(hub, intake, len(store.windows())),
        partial(of_link, receiver.counters, windows=windows, link=arrived),
        *([] if upstream is None else [partial(of_spool, upstream)]),
    ]
