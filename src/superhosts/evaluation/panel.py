"""A panel of detectors that see the same pairs, each timed by itself, with the truth beside them."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from superhosts.detectors.base import Detector
from superhosts.detectors.exact import Exact
from superhosts.detectors.locking import locked
from superhosts.evaluation.scores import Estimates, Score, Truth, ask_all, score
from superhosts.pairs import Addresses
from superhosts.sketches.bundle import Sketch

WARM = 1000  # pairs of a first, untimed update
RESTORES = 3  # times that a quick answer is asked for
QUICK = 0.5  # seconds
Make = Callable[[], Detector]


class Outcome(NamedTuple):
    """What one detector did in one window."""

    detector: str
    score: Score
    estimates: Estimates
    pairs: int
    update_seconds: float
    restore_seconds: float  # the best of a few
    memory: int
    wire: int  # bytes of its .cube file


class Panel(Exact):
    """The exact detector, and beside it others that see the same pairs. Its own answers are the truth."""

    def __init__(self, makers: Mapping[str, Make], key_bits: int = 32) -> None:
        self.detectors: dict[str, Detector] = {}
        self.seconds = dict.fromkeys(makers, 0.0)
        self.pairs = 0
        super().__init__(key_bits=key_bits, device="cpu")
        self.detectors = {name: make() for name, make in makers.items()}

    @locked
    def warm_up(self, threshold: float) -> None:
        """Let every detector see a few pairs and answer, so that nothing is compiled while it is timed."""
        hosts, peers = np.arange(2 * WARM, dtype=np.uint32).reshape(2, WARM)
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
        """Write the pairs that wait; that is part of updating."""
        for name, detector in self.detectors.items():
            start = time.perf_counter()
            detector.flush()
            self.seconds[name] += time.perf_counter() - start

    def _clear(self) -> None:
        """Forget all pairs and times."""
        super()._clear()
        for name, detector in self.detectors.items():
            detector.clear()
            self.seconds[name] = 0.0
        self.pairs = 0

    @locked
    def outcomes(self, threshold: float) -> list[Outcome]:
        """Ask every detector, and hold its answers against the truth."""
        self.flush()
        truth = Truth.of(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a comparison shows what a threshold does; no need to say it
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
            estimates=ask_all(detector, truth, threshold),
            pairs=self.pairs,
            update_seconds=self.seconds[name],
            restore_seconds=min(runs),
            memory=detector.memory,
            wire=wire_size(detector),
        )


def wire_size(detector: Detector) -> int:
    """Return the bytes of a detector's .cube file."""
    handle, name = tempfile.mkstemp(suffix=".cube")
    os.close(handle)
    path = Path(name)
    try:
        Sketch.of(detector).save(path)
        return path.stat().st_size
    finally:
        path.unlink()
