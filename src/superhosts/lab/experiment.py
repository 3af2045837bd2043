"""The paper's experiment: windows of traffic, every detector fed the same pairs, scored against the truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, stdev
from typing import Any

from superhosts.core.text import setting
from superhosts.core.times import iso_time
from superhosts.core.units import SECOND
from superhosts.lab.panel import Contestant, Makers, Outcome, Panel, Panels
from superhosts.lab.scores import known
from superhosts.pipeline.scan import Counters, Scan
from superhosts.sources.synthetic.traffic import Traffic, window_flows, window_packets

BATCH = 1 << 20  # pairs of one update


@dataclass(frozen=True)
class Row:
    """One detector in one window, as tables and files show it. Rates are None if there was no super host."""

    window: str
    detector: str
    true: int
    missed: int
    false: int
    fnr: float | None
    fpr: float | None
    ftr: float | None
    phantoms: int
    error: float | None  # mean relative error of the true super hosts' estimates
    coverage: float | None  # share of 95 % intervals that hold the truth
    saturated: int
    update_rate: float  # pairs a second
    restore_ms: float
    memory: int
    wire: int
    flows: int  # distinct pairs of the window
    memory_given: int | None = None  # what the detector was told to use; None: as its paper, or we, set it


COLUMNS = tuple(column.name for column in fields(Row))


def make_row(window: str, outcome: Outcome, memory: int | None = None) -> Row:
    """Return the row of an outcome of a detector that was given a memory, or None."""
    score, estimates = outcome.score, outcome.estimates
    return Row(
        window=window,
        detector=outcome.detector,
        true=score.true,
        missed=score.missed,
        false=score.false,
        fnr=known(score.fnr),
        fpr=known(score.fpr),
        ftr=known(score.ftr),
        phantoms=score.phantoms,
        error=known(estimates.mean_error),
        coverage=known(estimates.coverage),
        saturated=int(estimates.saturated.sum()),
        update_rate=outcome.pairs / max(outcome.update_seconds, 1e-9),
        restore_ms=1e3 * outcome.restore_seconds,
        memory=outcome.memory,
        wire=outcome.wire,
        flows=outcome.flows,
        memory_given=memory,
    )


def on_synthetic(
    traffic: Traffic, makers: Makers[Contestant], threshold: float, on_window: Callable[[int], None] | None = None
) -> Iterator[tuple[str, list[Outcome]]]:
    """Run over synthetic windows, packets in trains as on a link; yield each window's time and outcomes."""
    panel = Panel(makers)
    panel.warm_up(threshold)
    for window in range(traffic.windows):
        if on_window is not None:
            on_window(window)
        hosts, peers = window_flows(traffic, window)
        picks = window_packets(traffic, window)
        for start in range(0, len(picks), BATCH):
            some = picks[start : start + BATCH]
            panel.update(hosts[some], peers[some])
        time = iso_time(traffic.first_window + window * traffic.window_seconds * SECOND)
        yield time, panel.outcomes(threshold)
        panel.clear()


def on_inputs(run: Scan, panels: Panels[Contestant], threshold: float) -> Iterator[tuple[str, list[Outcome]]]:
    """Compare detectors over inputs, those of the run's panels; yield each window's time and outcomes."""
    panels.warm_up(threshold)
    for window, panel in panels.of(run):
        yield iso_time(window.start), panel.outcomes(threshold)


def why_nothing(counters: Counters) -> str:
    """Return why a run over inputs gave no pairs."""
    if not counters.packets:
        return "no packet was read"
    taken = counters.ipv4 + counters.ipv6 - counters.skipped_family
    if not taken and counters.skipped_family:
        return "all IP packets are IPv6, which these detectors do not take"
    if not taken:
        return "no packet is IP with whole addresses"
    if counters.no_inner_end:
        return "no packet has a monitored end"
    if counters.special_ends:
        no_hosts = "all ends are multicast, broadcast or unspecified addresses, which are no hosts"
        return f"{no_hosts} unless {setting('special', 'keep')}"
    return "no packet goes from one address to another"


@dataclass(frozen=True)
class Mean:
    """A detector over all windows: means, and the standard error of the total false rate.

    Rates are means over the windows that have super hosts; None where no window has any.
    """

    detector: str
    windows: int
    rated: int  # windows that have super hosts
    unrated_false: int  # hosts reported in all other windows
    true: float
    fnr: float | None
    fpr: float | None
    ftr: float | None
    ftr_error: float | None
    phantoms: float
    error: float | None
    coverage: float | None
    saturated: float
    update_rate: float
    restore_ms: float
    memory: int
    wire: float
    memory_given: int | None


def averages(rows: Sequence[Row]) -> list[Mean]:
    """Return the means of every detector and given memory, in the order in which they came."""
    means = []
    for name, given in dict.fromkeys((row.detector, row.memory_given) for row in rows):
        mine = [row for row in rows if (row.detector, row.memory_given) == (name, given)]
        plain = ("true", "phantoms", "saturated", "restore_ms", "wire")
        numbers: dict[str, Any] = {column: fmean(getattr(row, column) for row in mine) for column in plain}
        numbers |= {column: _mean(mine, column) for column in ("fnr", "fpr", "ftr", "error", "coverage")}
        totals = [row.ftr for row in mine if row.ftr is not None]
        means.append(
            Mean(
                detector=name,
                windows=len(mine),
                rated=len(totals),
                unrated_false=sum(row.false for row in mine if not row.true),
                ftr_error=stdev(totals) / math.sqrt(len(totals)) if len(totals) > 1 else 0.0 if totals else None,
                update_rate=len(mine) / sum(1 / row.update_rate for row in mine),
                memory=max(row.memory for row in mine),
                memory_given=given,
                **numbers,
            )
        )
    return means


def _mean(rows: Sequence[Row], column: str) -> float | None:
    """Return the mean over the windows that have a value."""
    values = [value for row in rows if (value := getattr(row, column)) is not None]
    return fmean(values) if values else None
