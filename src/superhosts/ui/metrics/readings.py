"""What Prometheus reads: the counters of a program's parts, under one name each.

Each function here reads one part (a scan, a spool, a hub) and returns a reading: a function that yields the metrics as
they are now. docs/reference/metrics.md lists them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from superhosts.core.pairs import Part
    from superhosts.core.profile import Durations
    from superhosts.fleet.backlog import Backlog
    from superhosts.fleet.edge import EdgeCounters
    from superhosts.fleet.hub import Hub
    from superhosts.fleet.intake import Intake
    from superhosts.fleet.roster import Roster
    from superhosts.fleet.spool import Spool
    from superhosts.output.alerts.desk import AlertDesk
    from superhosts.output.base import Destination
    from superhosts.pipeline.scan import Scan
    from superhosts.ui.metrics.health import Health
    from superhosts.ui.metrics.sites import Sites
    from superhosts.ui.metrics.windows import LastWindow, PartState

MOST_SITES = 1000  # sites that have metrics of their own: a hub without keys takes sketches of any name
PART = ("family", "side", "direction", "counts", "filter")  # labels of a part of a window
DESTINATION = ("purpose", "kind", "number")  # labels of a destination; its address may hold secrets
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Metric(NamedTuple):
    """One metric, with a value for each set of its labels, or with the durations of a histogram."""

    kind: str
    name: str
    help: str
    labels: Sequence[str] = ()
    values: Sequence[tuple[Sequence[str], float]] = ()
    durations: Durations | None = None


Reading = Callable[[], Iterator[Metric]]


def _counter(name: str, help: str, value: float) -> Metric:
    return Metric(COUNTER, name, help, values=[((), value)])


def _gauge(name: str, help: str, value: float) -> Metric:
    return Metric(GAUGE, name, help, values=[((), value)])


def _counters(name: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
    return Metric(COUNTER, name, help, (label,), [((word,), value) for word, value in values.items()])


def _known(values: Iterable[tuple[Sequence[str], float | None]]) -> list[tuple[Sequence[str], float]]:
    """Return the values that are known."""
    return [(labels, value) for labels, value in values if value is not None]


def _histogram(name: str, help: str, durations: Durations) -> Metric:
    return Metric(HISTOGRAM, name, help, durations=durations)


def of_program(command: str, version: str, health: Health) -> Reading:
    """Return the reading of the program itself."""

    def read() -> Iterator[Metric]:
        yield Metric(GAUGE, "build_info", "Always 1.", ("version", "command"), [((version, command), 1)])
        yield _gauge("healthy", "1 if the main loop moved recently (/healthz).", not health.why_dead())
        yield _gauge("ready", "1 if it takes traffic (/readyz).", not health.why_not_ready())

    return read


def of_log(status: Callable[[], Mapping[str, int]]) -> Reading:
    """Return the reading of the log."""

    def read() -> Iterator[Metric]:
        yield _counter("log_lines_dropped", "Lines that standard error never got.", status()["dropped"])

    return read


def of_reloads(failed: Callable[[], int]) -> Reading:
    """Return the reading of what the last SIGHUP could not reload."""

    def read() -> Iterator[Metric]:
        yield _gauge("reload_failures", "Things that the last SIGHUP did not reload.", failed())

    return read


def of_windows(last: LastWindow) -> Reading:
    """Return the reading of windows."""

    def parts(values: Callable[[PartState], float | None]) -> list[tuple[Sequence[str], float | None]]:
        return [(_labels(part), values(state)) for part, state in last.parts.items()]

    def read() -> Iterator[Metric]:
        yield _counter("windows_closed", "Windows that were closed; of a hub: reported, each once.", last.closed)
        if last.at is not None and last.seconds is not None:
            yield _gauge("window_seconds", "Length of the last window.", last.seconds)
            yield _gauge("last_window_hosts", "Super hosts of the last window.", last.hosts)
            yield _gauge("last_window_closed_timestamp_seconds", "When the last window was closed.", last.at)
            yield _gauge("last_window_end_timestamp_seconds", "End of the last window.", last.end or 0.0)
        for name, help, value in (
            ("part_exact", "1 if the part of the last window was counted exactly, 0 if estimated.", _exact),
            ("part_pairs", "Distinct pairs of the last window, counted or estimated.", lambda state: state.pairs),
            ("part_exact_ratio", "While exact: share of the pairs that it can hold.", lambda state: state.capacity),
            ("part_fill_ratio", "If estimated: share of the bits that are set.", lambda state: state.fill),
            ("part_saturated_columns", "If estimated: columns without a zero bit.", lambda state: state.saturated),
        ):
            yield Metric(GAUGE, name, help, PART, _known(parts(value)))

    return read


def _exact(state: PartState) -> float | None:
    return None if state.exact is None else float(state.exact)


def _labels(part: Part) -> list[str]:
    return [str(part.family or "keys"), part.side, part.direction, part.counts, part.filter]


def of_restoring(durations: Callable[[], Durations]) -> Reading:
    """Return the reading of how long the search for super hosts took."""

    def read() -> Iterator[Metric]:
        yield _histogram("restore_seconds", "Search for the super hosts of a window.", durations())

    return read


def of_merging(durations: Durations) -> Reading:
    """Return the reading of how long merging took."""

    def read() -> Iterator[Metric]:
        yield _histogram("merge_seconds", "Merging of one sketch into the union of its window.", durations)

    return read


def of_scan(scan: Scan, reasons: Iterable[str]) -> Reading:
    """Return the reading of packets. `reasons`: the counters of packets that do not count."""
    names = list(reasons)

    def read() -> Iterator[Metric]:
        counters = scan.counters
        yield _counter("packets", "Packets, or rows and records of flows, that were read.", counters.packets)
        yield _counter("pairs", "Pairs of host and peer, repeats included.", counters.pairs)
        not_counted = {name: getattr(counters, name) for name in names}
        yield _counters("packets_not_counted", "Packets that were read and do not count.", "reason", not_counted)
        dropped = {"capture": counters.drops, "receiver": _sum(counters.exports, "kernel_drops")}
        help = "Lost here, as the kernel had no room: packets of a capture, datagrams of a receiver of flows."
        yield _counters("dropped", help, "where", dropped)
        lost = {unit: _sum(counters.exports, f"lost_{unit}") for unit in ("records", "datagrams")}
        yield _counters("exports_lost", "Flow exports lost before they arrived, by sequence number.", "unit", lost)
        fullness = [full for source in scan.sources if (full := source.fullness()) is not None]
        if fullness:
            yield _gauge("ring_fullness_ratio", "How full the fullest ring of a live capture is.", max(fullness))

    return read


def _sum(exports: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(each.get(name) or 0 for each in exports)


def of_edge(counters: EdgeCounters) -> Reading:
    """Return the reading of an edge."""

    def read() -> Iterator[Metric]:
        lost = {"disk": counters.lost, "killed": counters.interrupted}
        yield _counters("windows_lost", "Windows of live input that never reached the spool.", "reason", lost)
        yield _counter("clock_jumps", "Times that the clock of the packets was set.", counters.jumps)

    return read


def of_spool(spool: Spool) -> Reading:
    """Return the reading of sketches that wait for the hub."""

    def read() -> Iterator[Metric]:
        oldest = spool.oldest()
        age = 0.0 if oldest is None else max(time.time() - oldest, 0.0)
        yield _gauge("spool_sketches", "Sketches that wait for the hub.", len(spool.waiting()))
        yield _gauge("spool_bytes", "Bytes in the spool, with those set aside.", spool.size())
        yield _gauge("spool_oldest_age_seconds", "Age of the oldest sketch that waits; 0 if none does.", age)
        yield _counters("spooled_sketches", "What became of sketches.", "outcome", vars(spool.counters))

    return read


def of_backlogs(backlogs: Mapping[str, Backlog]) -> Reading:
    """Return the reading of what waited when the program started."""

    def read() -> Iterator[Metric]:
        left = {name: backlog.left() for name, backlog in backlogs.items()}
        counts = [((name,), count) for name, (count, _) in left.items()]
        sizes = [((name,), size) for name, (_, size) in left.items()]
        yield Metric(GAUGE, "backlog", "What waited at the start and is not done yet.", ("of",), counts)
        yield Metric(GAUGE, "backlog_bytes", "Bytes of these.", ("of",), sizes)

    return read


def of_link(counters: Any) -> Reading:
    """Return the reading of an end of a link."""

    def read() -> Iterator[Metric]:
        yield _gauge("link_up", "1 if the link to the other side works.", not why_no_link(counters))

    return read


def why_no_link(counters: Any) -> str:
    """Return why a link does not work; empty if it does."""
    if counters.down:
        return f"the link does not work: {counters.down}"
    return "" if getattr(counters, "connects", 1) else "the link is not connected yet"


def of_destinations(found: Callable[[], Mapping[str, Sequence[Destination]]]) -> Reading:
    """Return the reading of destinations, which are found by purpose: rows or alerts."""

    def read() -> Iterator[Metric]:
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
            yield Metric(kind, name, help, DESTINATION, [(labels, each[key]) for labels, each in values])

    return read


def of_alerts(desk: AlertDesk) -> Reading:
    """Return the reading of alerts."""

    def read() -> Iterator[Metric]:
        states = desk.states()
        yield _gauge("alerts_open", "Alerts that are open.", states.pop("open"))
        yield _counters("alerts", "What became of rows: alerts opened, and so on.", "event", states)

    return read


def of_intake(intake: Intake) -> Reading:
    """Return the reading of sketches that arrive at a hub."""

    def read() -> Iterator[Metric]:
        names = ("accepted", "repeated", "refused", "corrupt")
        found = {name: getattr(intake.counters, name) for name in names}
        yield _counters("sketches", "Sketches that arrived, by what became of them.", "outcome", found)
        yield _counter("sketches_ahead", "Sketches of windows in the future.", intake.counters.ahead)

    return read


def of_sites(sites: Sites) -> Reading:
    """Return the reading of the sites of a hub."""

    def read() -> Iterator[Metric]:
        yield _gauge("sites_reporting", "Sites in the last window.", len(sites.reporting))
        yield _gauge("sites_missing", "Sites that the last window lacked.", len(sites.missing))
        help = "1 if the site was in the last window, 0 if it was missing."
        present = [((site,), float(is_there)) for site, is_there in sites.present()[:MOST_SITES]]
        yield Metric(GAUGE, "site_reporting", help, ("site",), present)
        help = "When the last sketch of the site was accepted, since the start of the hub."
        seen = [((site,), when) for site, when in sites.seen()[:MOST_SITES]]
        yield Metric(GAUGE, "site_last_seen_timestamp_seconds", help, ("site",), seen)

    return read


def of_roster(roster: Roster) -> Reading:
    """Return the reading of what a hub knows about each of its sites."""
    gauges = {
        "clock": ("site_clock_offset_seconds", "Seconds that the site's clock is ahead of the hub's."),
        "spool_sketches": ("site_spool_sketches", "Sketches that wait at the site, as it told last."),
        "spool_bytes": ("site_spool_bytes", "Bytes of these."),
    }
    counters = {
        "refused": ("site_refused", "Sketches of the site that were refused."),
        "slowed": ("site_slowed", "Times that the site had to wait, being over its quota."),
    }

    def read() -> Iterator[Metric]:
        sites = list(roster.status().items())[:MOST_SITES]
        for kind, metrics in ((GAUGE, gauges), (COUNTER, counters)):
            for field, (name, help) in metrics.items():
                yield Metric(kind, name, help, ("site",), _known(((site,), facts[field]) for site, facts in sites))

    return read


def of_hub(hub: Hub, kept: Callable[[], int]) -> Reading:
    """Return the reading of a hub's reports. `kept`: the windows that it keeps."""

    def read() -> Iterator[Metric]:
        counters, status = hub.counters, hub.status()
        yield _counter("reports_revised", "Reports of windows that were reported before.", counters.revisions)
        yield _counter("reports_incomplete", "First reports of windows that lacked sites.", counters.incomplete)
        yield _counter("hub_waits", "Attempts at the disk or a destination that failed.", counters.waits)
        yield _counter("sketches_damaged", "Sketches left out, being damaged or of other settings.", counters.damaged)
        yield _gauge("hub_windows", "Windows that the hub keeps.", kept())
        yield _gauge(
            "hub_stuck", "Work that failed at the last attempt (trouble in status.json).", len(status["stuck"])
        )
        yield _gauge("hub_clock_doubted", "1 if the hub does not trust its clock.", status["clock"] is not None)
        yield _counter("hub_set_aside", "Files that were set aside for an operator.", status["aside"]["count"])

    return read
