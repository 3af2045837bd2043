"""What Prometheus reads: the counters of a program's parts, under one name each.

Each reading (`of_scan`, `of_hub`) yields the metrics of one part as they are now, as families of prometheus_client.
Numbers are read when somebody asks, in the thread that answers (`endpoint.py`), from counters that exist anyway: the
work pays nothing for them. No label ever is an address, neither of a host nor of a destination.
docs/reference/metrics.md lists all metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from superhosts.core.pairs import Part, Window
from superhosts.core.units import SECOND
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.cube import Cube
from superhosts.detectors.exact import Exact
from superhosts.sketch.sketch import Sketch

if TYPE_CHECKING:
    from superhosts.core.profile import Durations
    from superhosts.fleet.edge import EdgeCounters
    from superhosts.fleet.hub import Hub
    from superhosts.fleet.intake import Intake
    from superhosts.fleet.link import Backlog
    from superhosts.fleet.sites import Roster
    from superhosts.fleet.spool import Spool
    from superhosts.output.alerts.store import AlertDesk
    from superhosts.output.destination import Destination
    from superhosts.pipeline.scan import Scan
    from superhosts.ui.endpoint import Health
    from superhosts.ui.service import Reloads


MOST_SITES = 1000  # sites that have metrics of their own: a hub without keys takes sketches of any name
PART = ("family", "side", "direction", "counts", "filter")  # labels of a part of a window
DESTINATION = ("purpose", "kind", "number")  # labels of a destination; its address may hold secrets
COUNTER, GAUGE = "counter", "gauge"
PREFIX = "superhosts_"
Metric = Any  # a family of prometheus_client, which is an optional package
Reading = Callable[[], Iterator[Metric]]  # one of the functions below, with its arguments
Values = Iterable[tuple[Sequence[str], float | None]]  # of a metric, each with its labels; None: not known


def _metric(kind: str, name: str, help: str, labels: Sequence[str], values: Values) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    family = (CounterMetricFamily if kind == COUNTER else GaugeMetricFamily)(PREFIX + name, help, labels=labels)
    for words, value in values:
        if value is not None:
            family.add_metric(words, value)
    return family


def _counter(name: str, help: str, value: float) -> Metric:
    return _metric(COUNTER, name, help, (), [((), value)])


def _gauge(name: str, help: str, value: float) -> Metric:
    return _metric(GAUGE, name, help, (), [((), value)])


def _counters(name: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
    return _metric(COUNTER, name, help, (label,), [((word,), value) for word, value in values.items()])


def _histogram(name: str, help: str, durations: Durations) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    return HistogramMetricFamily(PREFIX + name, help, buckets=durations.cumulated(), sum_value=durations.seconds)


def of_program(
    command: str, version: str, health: Health, log: Callable[[], Mapping[str, int]], reloads: Reloads | None
) -> Iterator[Metric]:
    yield _metric(GAUGE, "build_info", "Always 1.", ("version", "command"), [((version, command), 1)])
    yield _gauge("healthy", "1 if the main loop moved recently (/healthz).", not health.why_dead())
    yield _gauge("ready", "1 if it takes traffic (/readyz).", not health.why_not_ready())
    yield _counter("log_lines_dropped", "Lines that standard error never got.", log()["dropped"])
    if reloads is not None:
        yield _gauge("reload_failures", "Things that the last SIGHUP did not reload.", len(reloads.failed))


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
        values = [
            ([str(part.family or "keys"), part.side, part.direction, part.counts, part.filter], getattr(state, field))
            for part, state in last.parts.items()
        ]
        yield _metric(GAUGE, name, help, PART, values)


def of_restoring(durations: Callable[[], Durations]) -> Iterator[Metric]:
    yield _histogram("restore_seconds", "Search for the super hosts of a window.", durations())


def of_merging(durations: Durations) -> Iterator[Metric]:
    yield _histogram("merge_seconds", "Merging of one sketch into the union of its window.", durations)


def of_scan(scan: Scan, reasons: Iterable[str]) -> Iterator[Metric]:
    counters = scan.counters
    yield _counter("packets", "Packets, or rows and records of flows, that were read.", counters.packets)
    yield _counter("pairs", "Pairs of host and peer, repeats included.", counters.pairs)
    not_counted = {name: getattr(counters, name) for name in reasons}
    yield _counters("packets_not_counted", "Packets that were read and do not count.", "reason", not_counted)
    dropped = {"capture": counters.drops, "receiver": _sum(counters.exports, "kernel_drops")}
    help = "Lost here, as the kernel had no room: packets of a capture, datagrams of a receiver of flows."
    yield _counters("dropped", help, "where", dropped)
    lost = {unit: _sum(counters.exports, f"lost_{unit}") for unit in ("records", "datagrams")}
    yield _counters("exports_lost", "Flow exports lost before they arrived, by sequence number.", "unit", lost)
    fullness = [full for source in scan.sources if (full := source.fullness()) is not None]
    if fullness:
        yield _gauge("ring_fullness_ratio", "How full the fullest ring of a live capture is.", max(fullness))


def _sum(exports: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(each.get(name) or 0 for each in exports)


def of_edge(counters: EdgeCounters) -> Iterator[Metric]:
    lost = {"disk": counters.lost, "killed": counters.interrupted}
    yield _counters("windows_lost", "Windows of live input that never reached the spool.", "reason", lost)
    yield _counter("clock_jumps", "Times that the clock of the packets was set.", counters.jumps)


def of_spool(spool: Spool) -> Iterator[Metric]:
    oldest = spool.oldest()
    age = 0.0 if oldest is None else max(time.time() - oldest, 0.0)
    yield _gauge("spool_sketches", "Sketches that wait for the hub.", len(spool.waiting()))
    yield _gauge("spool_bytes", "Bytes in the spool, with those set aside.", spool.size())
    yield _gauge("spool_oldest_age_seconds", "Age of the oldest sketch that waits; 0 if none does.", age)
    yield _counters("spooled_sketches", "What became of sketches.", "outcome", vars(spool.counters))


def of_backlogs(backlogs: Mapping[str, Backlog]) -> Iterator[Metric]:
    left = {name: backlog.left() for name, backlog in backlogs.items()}
    counts = [((name,), count) for name, (count, _) in left.items()]
    sizes = [((name,), size) for name, (_, size) in left.items()]
    yield _metric(GAUGE, "backlog", "What waited at the start and is not done yet.", ("of",), counts)
    yield _metric(GAUGE, "backlog_bytes", "Bytes of these.", ("of",), sizes)


def of_link(counters: Any) -> Iterator[Metric]:
    yield _gauge("link_up", "1 if the link to the other side works.", not why_no_link(counters))


def why_no_link(counters: Any) -> str:
    """Return why a link does not work; empty if it does."""
    if counters.down:
        return f"the link does not work: {counters.down}"
    return "" if getattr(counters, "connects", 1) else "the link is not connected yet"


def of_destinations(found: Callable[[], Mapping[str, Sequence[Destination]]]) -> Iterator[Metric]:
    """Destinations, which are found by purpose: rows or alerts."""
    values: list[tuple[list[str], dict[str, int]]] = []
    for purpose, destinations in found().items():
        for number, each in enumerate(destinations, 1):
            status = each.status()
            sent = status.get("delivered", status["reports"])  # without a queue, what is written is sent
            values.append(([purpose, each.kind, str(number)], {**status, "sent": sent, "bytes": each.queued_bytes}))
    for kind, name, help, key in (
        (GAUGE, "destination_queued", "Batches that wait.", "waiting"),
        (GAUGE, "destination_queued_bytes", "Bytes of the batches that wait.", "bytes"),
        (COUNTER, "destination_sent", "Batches that were taken.", "sent"),
        (COUNTER, "destination_failed", "Attempts that failed.", "failures"),
        (COUNTER, "destination_dropped", "Batches that it will never get.", "dropped"),
    ):
        yield _metric(kind, name, help, DESTINATION, [(labels, each[key]) for labels, each in values])


def of_alerts(desk: AlertDesk) -> Iterator[Metric]:
    states = desk.states()
    yield _gauge("alerts_open", "Alerts that are open.", states.pop("open"))
    yield _counters("alerts", "What became of rows: alerts opened, and so on.", "event", states)


def of_intake(intake: Intake) -> Iterator[Metric]:
    found = {name: getattr(intake.counters, name) for name in ("accepted", "repeated", "refused", "corrupt")}
    yield _counters("sketches", "Sketches that arrived, by what became of them.", "outcome", found)
    yield _counter("sketches_ahead", "Sketches of windows in the future.", intake.counters.ahead)


def of_sites(sites: Sites) -> Iterator[Metric]:
    yield _gauge("sites_reporting", "Sites in the last window.", len(sites.reporting))
    yield _gauge("sites_missing", "Sites that the last window lacked.", len(sites.missing))
    help = "1 if the site was in the last window, 0 if it was missing."
    present = [((site,), float(is_there)) for site, is_there in sites.present()[:MOST_SITES]]
    yield _metric(GAUGE, "site_reporting", help, ("site",), present)
    help = "When the last sketch of the site was accepted, since the start of the hub."
    seen = [((site,), when) for site, when in sites.seen()[:MOST_SITES]]
    yield _metric(GAUGE, "site_last_seen_timestamp_seconds", help, ("site",), seen)


def of_roster(roster: Roster) -> Iterator[Metric]:
    sites = list(roster.status().items())[:MOST_SITES]
    for kind, name, help, field in (
        (GAUGE, "site_clock_offset_seconds", "Seconds that the site's clock is ahead of the hub's.", "clock"),
        (GAUGE, "site_spool_sketches", "Sketches that wait at the site, as it told last.", "spool_sketches"),
        (GAUGE, "site_spool_bytes", "Bytes of these.", "spool_bytes"),
        (COUNTER, "site_refused", "Sketches of the site that were refused.", "refused"),
        (COUNTER, "site_slowed", "Times that the site had to wait, being over its quota.", "slowed"),
    ):
        yield _metric(kind, name, help, ("site",), [((site,), facts[field]) for site, facts in sites])


def of_hub(hub: Hub, kept: Callable[[], int]) -> Iterator[Metric]:
    counters, status = hub.counters, hub.status()
    yield _counter("reports_revised", "Reports of windows that were reported before.", counters.revisions)
    yield _counter("reports_incomplete", "First reports of windows that lacked sites.", counters.incomplete)
    yield _counter("hub_waits", "Attempts at the disk or a destination that failed.", counters.waits)
    yield _counter("sketches_damaged", "Sketches left out, being damaged or of other settings.", counters.damaged)
    yield _gauge("hub_windows", "Windows that the hub keeps.", kept())
    yield _gauge("hub_stuck", "Work that failed at the last attempt (trouble in status.json).", len(status["stuck"]))
    yield _gauge("hub_clock_doubted", "1 if the hub does not trust its clock.", status["clock"] is not None)
    yield _counter("hub_set_aside", "Files that were set aside for an operator.", status["aside"]["count"])


class PartState(NamedTuple):
    """How full one part of a sketch was. What is not known of its kind or state is None."""

    exact: bool | None = None  # False: it estimates, from bits
    pairs: int | None = None  # distinct, counted or estimated
    capacity: float | None = None  # while it is exact: share of the pairs that it can count exactly
    fill: float | None = None  # of bits: the share that is set
    saturated: int | None = None  # columns of bits without a zero


def state_of(detector: object) -> PartState:
    """Return how full a detector is. An exact cube is not asked for its bits: making them takes memory."""
    if isinstance(detector, Cube) and (pairs := detector.exact_count()) is not None:
        return PartState(True, pairs, pairs / detector.geometry.exact_pairs)
    if isinstance(detector, ColumnSketch):
        fill = detector.fill()
        return PartState(False, fill.pairs, None, fill.mean, fill.saturated)
    return PartState(exact=True) if isinstance(detector, Exact) else PartState()


def states_of(sketch: Sketch) -> dict[Part, PartState]:
    return {part: state_of(detector) for part, detector in sketch.parts.items()}


class LastWindow:
    """What is known of the window that closed last. One thread notes; any thread reads."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self.closed = 0  # windows, each counted once
        self.hosts = 0  # super hosts of the last one
        self.at: float | None = None  # when it was closed, in seconds since 1970
        self.window: Window | None = None
        self.parts: dict[Part, PartState] = {}
        self._wall = wall

    def note(self, window: Window, hosts: int, *, is_new: bool = True) -> None:
        """Note a window that has closed. One that is reported again (not `is_new`) is not counted."""
        self.closed += is_new
        if self.window is None or window.end >= self.window.end:
            self.window, self.hosts, self.at = window, hosts, self._wall()

    def note_sketch(self, sketch: Sketch) -> None:
        self.parts = states_of(sketch)

    @property
    def end(self) -> float | None:
        """The end of the last window, in seconds since 1970; None if there is none, or it has no time."""
        return self.window.end / SECOND if self.window is not None and self.window.is_timed else None

    @property
    def seconds(self) -> float | None:
        return (self.window.end - self.window.start) / SECOND if self.window is not None else None


class Sites:
    """Which sites of a hub took part in its last window, and when a sketch of each was accepted. Any thread reads."""

    def __init__(self, taken: Callable[[], Mapping[str, float]], expected: Sequence[str] = ()) -> None:
        """`taken` returns when a sketch of each site was accepted last. `expected`: the sites that were named."""
        self.reporting: Sequence[str] = ()
        self.missing: Sequence[str] = tuple(expected)
        self._taken = taken
        self._end = 0

    def note(self, window: Window | None, reporting: Sequence[str], missing: Sequence[str]) -> None:
        """Note a report. One of an earlier window changes nothing."""
        end = 0 if window is None else window.end
        if end >= self._end:
            self._end, self.reporting, self.missing = end, tuple(reporting), tuple(missing)

    def present(self) -> list[tuple[str, bool]]:
        return [(site, False) for site in sorted(self.missing)] + [(site, True) for site in sorted(self.reporting)]

    def seen(self) -> list[tuple[str, float]]:
        """Return each site of which a sketch was accepted, and when, the last one first."""
        return sorted(self._taken().items(), key=lambda item: -item[1])
