"""The paper's experiment: windows of traffic, every detector fed the same pairs, scored against the truth.

A panel is the exact detector and others that see the same pairs, each timed separately. A scan takes panels for its
detectors, so that every input can be compared on.
"""

from __future__ import annotations

import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from superhosts.core.pairs import Addresses, Part, Window
from superhosts.core.text import named, setting
from superhosts.core.times import iso_time
from superhosts.core.units import SECOND
from superhosts.cubefile.header import WrittenPart, compose_header, write_parts
from superhosts.detectors.detector import Detector
from superhosts.detectors.exact import Exact
from superhosts.detectors.lock import locked
from superhosts.lab.own import Adapted
from superhosts.lab.rivals.base import Rival
from superhosts.lab.scores import Estimates, Truth, ask_all, known, score
from superhosts.pipeline.scan import Counters, RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.sketch.sketch import Sketch
from superhosts.sources.base import Source
from superhosts.sources.synthetic.traffic import Traffic, window_flows, window_packets

WARM = 1000  # hosts of a first, untimed update
MOST_WARM = 1 << 17  # peers of its largest host
RESTORES = 3  # repetitions of a quick search
QUICK = 0.5  # seconds
Contestant = Detector | Adapted
Make = Callable[[], Contestant]
Makers = Mapping[str, Make]  # by the names that tables show


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
    restore_ms: float  # the best of a few
    memory: int
    wire: int  # bytes of its .cube file, or of such a file with the arrays of a rival
    flows: int  # distinct pairs of the window
    memory_given: int | None = None  # what the detector was told to use; None: as its paper, or we, set it


COLUMNS = tuple(column.name for column in fields(Row))


class Judged(NamedTuple):
    row: Row
    estimates: Estimates  # of the true super hosts


class Panel(Exact):
    """An exact detector, which knows the truth, and the detectors to compare with it, which see the same pairs."""

    def __init__(self, makers: Makers, key_bits: int = 32) -> None:
        self.detectors = {name: make() for name, make in makers.items()}
        super().__init__(key_bits=key_bits, device="cpu")

    @locked
    def warm_up(self, threshold: float) -> None:
        """Run every detector on a few pairs and a host that it finds, so that nothing is compiled while it is timed."""
        count = WARM + min(math.ceil(2 * threshold), MOST_WARM)
        hosts, peers = np.zeros(count, np.uint32), np.arange(count, dtype=np.uint32)
        hosts[:WARM] = peers[:WARM]
        for detector in self.detectors.values():
            detector.update(hosts, peers)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                detector.super_hosts(threshold)
            detector.clear()

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self.pairs += len(hosts)
        super()._update(hosts, peers)
        self._on_each(lambda detector: detector.update(hosts, peers))

    def _flush(self) -> None:
        """Write the pairs that wait, which counts as updating."""
        self._on_each(lambda detector: detector.flush())

    def _on_each(self, work: Callable[[Contestant], None]) -> None:
        for name, detector in self.detectors.items():
            start = time.perf_counter()
            work(detector)
            self.seconds[name] += time.perf_counter() - start

    def _clear(self) -> None:
        super()._clear()
        for detector in self.detectors.values():
            detector.clear()
        self.seconds = dict.fromkeys(self.detectors, 0.0)
        self.pairs = 0

    @locked
    def judge(self, threshold: float, window: str, memory_given: int | None = None) -> list[Judged]:
        self.flush()
        truth = Truth.of(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a comparison shows the effect of a low threshold; a warning adds nothing
            return [self._judge(name, truth, threshold, window, memory_given) for name in self.detectors]

    def _judge(self, name: str, truth: Truth, threshold: float, window: str, memory_given: int | None) -> Judged:
        detector = self.detectors[name]
        runs: list[float] = []
        while len(runs) < RESTORES and sum(runs) < QUICK:
            start = time.perf_counter()
            found = detector.super_hosts(threshold)
            runs.append(time.perf_counter() - start)
        result = score(found, truth, threshold)
        if isinstance(detector, Adapted):
            estimates = detector.estimates(truth, threshold, found)
        else:
            estimates = ask_all(detector, truth, threshold)
        row = Row(
            window=window,
            detector=name,
            **result._asdict(),
            fnr=known(result.fnr),
            fpr=known(result.fpr),
            ftr=known(result.ftr),
            error=known(estimates.mean_error),
            coverage=known(estimates.coverage),
            saturated=int(estimates.saturated.sum()),
            update_rate=self.pairs / max(self.seconds[name], 1e-9),
            restore_ms=1e3 * min(runs),
            memory=detector.memory,
            wire=wire_size(detector),
            flows=truth.pairs,
            memory_given=memory_given,
        )
        return Judged(row, estimates)

    def _memory(self) -> int:
        return super()._memory() + sum(detector.memory for detector in self.detectors.values())


class Panels:
    """Makes the panels of a run, one for each part of a window, and hands them out as the windows close.

    `makers` returns the functions that make the detectors to compare, for hosts of this many bits.
    """

    def __init__(self, makers: Callable[[int], Makers], settings: Settings) -> None:
        self._makers, self._settings = makers, settings
        self._open: dict[int, Panel] = {}  # by identity, because a sketch knows its parts as detectors only

    def warm_up(self, threshold: float) -> None:
        """Compile what the detectors need. Every window has new detectors, which share the compiled code."""
        Panel(self._makers(32)).warm_up(threshold)

    def run(self, sources: Sequence[Source], **events: Any) -> Scan:
        """Return a run whose sketches are panels. `events` are those of `Scan`."""
        return Scan(sources, self._settings, RunOptions(find=False), make_detector=self._make, **events)

    def _make(self, part: Part) -> Detector:
        host = self._settings.host_format(part)
        panel = Panel(self._makers(host.key_bits), host.key_bits)
        for detector in (panel, *panel.detectors.values()):
            if isinstance(detector, Detector):
                detector.format = host
        self._open[id(panel)] = panel
        return panel

    def of(self, run: Scan) -> Iterator[tuple[Window, Panel]]:
        for result in run:
            for detector in result.sketch.parts.values():
                yield result.window, self._open.pop(id(detector))


def wire_size(detector: Contestant) -> int:
    """Return the bytes to send: a .cube file, or one with the arrays of a rival; 0 if nobody knows them."""
    if isinstance(detector, Adapted):
        return 0
    with tempfile.TemporaryFile() as file:
        if isinstance(detector, Rival):
            parts = [WrittenPart(Part(), {}, detector.arrays())]
            write_parts(file, compose_header(parts), parts)
        else:
            Sketch.of(detector).save(file)
        return file.tell()


BATCH = 1 << 20  # pairs of one update


def on_synthetic(
    traffic: Traffic,
    makers: Makers,
    threshold: float,
    memory_given: int | None,
    on_window: Callable[[int], None] | None = None,
) -> Iterator[list[Judged]]:
    """Run over synthetic windows, packets in trains as on a link; yield what each window gave."""
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
        yield panel.judge(
            threshold, iso_time(traffic.first_window + window * traffic.window_seconds * SECOND), memory_given
        )
        panel.clear()


def on_inputs(run: Scan, panels: Panels, threshold: float, memory_given: int | None) -> Iterator[list[Judged]]:
    """Compare detectors over inputs, those of the run's panels; yield what each window gave."""
    panels.warm_up(threshold)
    for window, panel in panels.of(run):
        yield panel.judge(threshold, iso_time(window.start), memory_given)


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
        return f"no packet has an address inside {named('inner')}"
    if counters.special_ends:
        no_hosts = "all ends are multicast, broadcast or unspecified addresses, which are not hosts"
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


MEANS = ("true", "fnr", "fpr", "ftr", "phantoms", "error", "coverage", "saturated", "restore_ms", "wire")


def averages(rows: Sequence[Row]) -> list[Mean]:
    """Return the means of every detector and given memory, in the order in which they came."""
    means = []
    for name, given in dict.fromkeys((row.detector, row.memory_given) for row in rows):
        mine = [row for row in rows if (row.detector, row.memory_given) == (name, given)]
        numbers: dict[str, Any] = {column: _mean(mine, column) for column in MEANS}
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
    values = [value for row in rows if (value := getattr(row, column)) is not None]
    return fmean(values) if values else None
