"""A panel: the exact detector, and others that see the same pairs, each timed separately."""

from __future__ import annotations

import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from superhosts.core.pairs import Addresses, Part, Window
from superhosts.core.results import SuperHosts
from superhosts.cubefile.header import WrittenPart, compose_header, write_parts
from superhosts.detectors.detector import Detector
from superhosts.detectors.exact import Exact
from superhosts.detectors.lock import locked
from superhosts.lab.own import Adapted
from superhosts.lab.rivals.base import Rival
from superhosts.lab.scores import Estimates, Score, Truth, ask_all, score
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings
from superhosts.sketch.sketch import Sketch

WARM = 1000  # hosts of a first, untimed update
MOST_WARM = 1 << 17  # peers of its largest host
RESTORES = 3  # repetitions of a quick search
QUICK = 0.5  # seconds
Contestant = Detector | Rival | Adapted
Compared = TypeVar("Compared", bound=Contestant)
Make = Callable[[], Compared]
Makers = Mapping[str, Callable[[], Compared]]  # by the names that tables show


class Outcome(NamedTuple):
    """What one detector did in one window."""

    detector: str
    score: Score
    estimates: Estimates
    pairs: int
    update_seconds: float
    restore_seconds: float  # the best of a few
    memory: int
    wire: int  # bytes of its .cube file, or of such a file with the arrays of a rival
    flows: int = 0  # distinct pairs of the window


class Panel(Exact, Generic[Compared]):
    """An exact detector, which knows the truth, and the detectors to compare with it, which see the same pairs."""

    def __init__(self, makers: Makers[Compared], key_bits: int = 32) -> None:
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
        for name, detector in self.detectors.items():
            start = time.perf_counter()
            detector.update(hosts, peers)
            self.seconds[name] += time.perf_counter() - start

    def _flush(self) -> None:
        """Write the pairs that wait, which counts as updating."""
        for name, detector in self.detectors.items():
            start = time.perf_counter()
            detector.flush()
            self.seconds[name] += time.perf_counter() - start

    def _clear(self) -> None:
        """Forget all pairs and times."""
        super()._clear()
        for detector in self.detectors.values():
            detector.clear()
        self.seconds = dict.fromkeys(self.detectors, 0.0)
        self.pairs = 0

    @locked
    def outcomes(self, threshold: float) -> list[Outcome]:
        """Ask every detector, and compare its answers with the truth."""
        self.flush()
        truth = Truth.of(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a comparison shows the effect of a low threshold; a warning adds nothing
            return [self._outcome(name, truth, threshold) for name in self.detectors]

    def _outcome(self, name: str, truth: Truth, threshold: float) -> Outcome:
        detector = self.detectors[name]
        runs: list[float] = []
        while len(runs) < RESTORES and sum(runs) < QUICK:
            start = time.perf_counter()
            found = detector.super_hosts(threshold)
            runs.append(time.perf_counter() - start)
        return Outcome(
            detector=name,
            score=score(found, truth, threshold),
            estimates=self._estimates(detector, truth, threshold, found),
            pairs=self.pairs,
            update_seconds=self.seconds[name],
            restore_seconds=min(runs),
            memory=detector.memory,
            wire=wire_size(detector),
            flows=truth.pairs,
        )

    @staticmethod
    def _estimates(detector: Contestant, truth: Truth, threshold: float, found: SuperHosts) -> Estimates:
        if isinstance(detector, Adapted):
            return detector.estimates(truth, threshold, found)
        return ask_all(detector, truth, threshold)

    def _memory(self) -> int:
        return super()._memory() + sum(detector.memory for detector in self.detectors.values())


class Panels(Generic[Compared]):
    """Makes the panels of a run, one for each part of a window, and hands them out as the windows close.

    `makers` returns the functions that make the detectors to compare, for hosts of this many bits. The run takes `make`
    as its `make_detector`.
    """

    def __init__(self, makers: Callable[[int], Makers[Compared]], settings: Settings) -> None:
        self._makers, self._settings = makers, settings
        self._open: dict[int, Panel[Compared]] = {}  # by identity, because a sketch knows its parts as detectors only

    def warm_up(self, threshold: float) -> None:
        """Compile what the detectors need. Every window has new detectors, which share the compiled code."""
        Panel(self._makers(32)).warm_up(threshold)

    def make(self, part: Part) -> Detector:
        """Return the panel of a part of a new window."""
        host = self._settings.host_format(part)
        panel = Panel(self._makers(host.key_bits), host.key_bits)
        for detector in (panel, *panel.detectors.values()):
            if isinstance(detector, Detector):
                detector.format = host
        self._open[id(panel)] = panel
        return panel

    def of(self, run: Scan) -> Iterator[tuple[Window, Panel[Compared]]]:
        """Yield the panels of all windows of the run."""
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
