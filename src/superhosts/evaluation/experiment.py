"""The paper's experiment: windows of traffic, every detector fed the same pairs, scored against the truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import fmean, stdev
from typing import Any

from superhosts.detectors.base import Detector
from superhosts.evaluation.panel import Make, Outcome, Panel
from superhosts.evaluation.scores import known
from superhosts.pairs import HostFormat, Part, Window
from superhosts.pipeline.scan import Counters, Scan
from superhosts.pipeline.settings import Settings
from superhosts.synthetic.traffic import Traffic, window_flows, window_packets
from superhosts.times import iso_time
from superhosts.units import SECOND

Makers = Callable[[int], Mapping[str, Make]]  # for hosts of so many bits
BATCH = 1 << 20  # pairs of one update


@dataclass(frozen=True)
class Row:
    """One detector in one window, as tables and files show it. Rates are None where no super host was there."""

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


COLUMNS = tuple(column.name for column in fields(Row))


def make_row(window: str, outcome: Outcome) -> Row:
    """Return the row of an outcome."""
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
    )


def on_synthetic(
    traffic: Traffic, makers: Mapping[str, Make], threshold: float, on_window: Callable[[int], None] | None = None
) -> Iterator[list[Row]]:
    """Run over synthetic windows: packets in trains, as on a link."""
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
        yield [make_row(time, outcome) for outcome in panel.outcomes(threshold)]
        panel.clear()


@dataclass(frozen=True)
class PanelSettings(Settings):
    """A scan whose windows are seen by panels, of what `makers` gives for hosts of so many bits.

    IPv4 alone, unless told otherwise: the rivals know no other hosts.
    """

    makers: Makers = field(default=lambda _bits: {})
    families: tuple[int, ...] = (4,)

    @property
    def parts(self) -> list[Part]:
        """The parts of these families."""
        return [part for part in super().parts if part.family in self.families]

    def make_detector(self, part: Part) -> Detector:
        """Return a panel."""
        host = HostFormat(4, 32) if part.family == 4 else HostFormat(6, self.ipv6_prefix)
        panel = Panel(self.makers(host.key_bits), host.key_bits)
        for detector in (panel, *panel.detectors.values()):
            detector.format = host
        return panel


def panels_of(run: Scan) -> Iterator[tuple[Window, Panel]]:
    """Run over captures, cut into windows as `scan` does. The settings of the run are `PanelSettings`."""
    for result in run:
        for panel in result.sketch.parts.values():
            assert isinstance(panel, Panel)
            yield result.window, panel


def on_inputs(run: Scan) -> Iterator[list[Row]]:
    """Compare detectors over captures."""
    settings = run.settings
    assert isinstance(settings, PanelSettings)
    least = settings.least_peers or 1.0
    Panel(settings.makers(32)).warm_up(least)  # every window has detectors of its own, compiled code serves them all
    for window, panel in panels_of(run):
        yield [make_row(iso_time(window.start), outcome) for outcome in panel.outcomes(least)]


def why_nothing(counters: Counters) -> str:
    """Say why a run over captures gave no pairs at all."""
    if not counters.packets:
        return "no packet was read"
    taken = counters.ipv4 + counters.ipv6 - counters.skipped_family
    if not taken and counters.skipped_family:
        return "all IP packets are IPv6, which these detectors do not take"
    if not taken:
        return "no packet is IP with whole addresses"
    if counters.no_inner_end:
        return "no packet has a monitored end"
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


def averages(rows: Sequence[Row]) -> list[Mean]:
    """Return the means of every detector, in the order in which they came."""
    means = []
    for name in dict.fromkeys(row.detector for row in rows):
        mine = [row for row in rows if row.detector == name]
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
                **numbers,
            )
        )
    return means


def _mean(rows: Sequence[Row], column: str) -> float | None:
    """Return the mean over the windows that have a value."""
    values = [value for row in rows if (value := getattr(row, column)) is not None]
    return fmean(values) if values else None
