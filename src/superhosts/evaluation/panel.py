"""A panel of detectors that see the same pairs, each timed separately, and the exact answer."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superhosts.detectors.base import Detector, Place
from superhosts.detectors.exact import Exact
from superhosts.detectors.kinds import Kind
from superhosts.detectors.locking import locked
from superhosts.engines.arrays import Arrays
from superhosts.engines.geometry import ArrayShape
from superhosts.evaluation.scores import Estimates, Score, Truth, ask_all, score
from superhosts.pairs import Addresses, Part, format_for
from superhosts.pipeline.building import MakeDetector
from superhosts.pipeline.settings import Settings
from superhosts.results import SuperHosts
from superhosts.sketches.bundle import Sketch

WARM = 1000  # pairs of a first, untimed update
RESTORES = 3  # repetitions of a quick search
QUICK = 0.5  # seconds
Make = Callable[[], Detector]
Makers = Callable[[int], Mapping[str, Make]]  # for hosts of this many bits


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


class Panel(Detector):
    """Detectors that see the same pairs, and the exact one, which knows the truth. `Scan` takes it as a detector."""

    name = Exact.name
    takes_ipv6 = True

    def __init__(self, makers: Mapping[str, Make], key_bits: int = 32) -> None:
        self.format = format_for(key_bits)
        self.truth = Exact(key_bits=key_bits, device="cpu")
        self.threads = self.truth.threads
        self.detectors: dict[str, Detector] = {name: make() for name, make in makers.items()}
        self.seconds = dict.fromkeys(makers, 0.0)
        self.pairs = 0

    @locked
    def warm_up(self, threshold: float) -> None:
        """Run every detector on a few pairs, so that nothing is compiled while it is timed."""
        hosts, peers = np.arange(2 * WARM, dtype=np.uint32).reshape(2, WARM)
        for detector in self.detectors.values():
            detector.update(hosts, peers)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                detector.super_hosts(threshold)
            detector.clear()

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self.pairs += len(hosts)
        self.truth.update(hosts, peers)
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
        self.truth.clear()
        for name, detector in self.detectors.items():
            detector.clear()
            self.seconds[name] = 0.0
        self.pairs = 0

    @locked
    def outcomes(self, threshold: float) -> list[Outcome]:
        """Ask every detector, and compare its answers with the truth."""
        self.flush()
        truth = Truth.of(self.truth)
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
            estimates=ask_all(detector, truth, threshold),
            pairs=self.pairs,
            update_seconds=self.seconds[name],
            restore_seconds=min(runs),
            memory=detector.memory,
            wire=wire_size(detector),
        )

    # As a detector, a panel answers as the exact one among them.

    @property
    def kind(self) -> Kind:
        """What another panel must have in common with this one to be merged."""
        return self.truth.kind

    def header(self) -> dict[str, Any]:
        """Describe the exact detector for a file."""
        return self.truth.header()

    @classmethod
    def make_empty(cls, kind: Kind, secret: bytes, place: Place) -> Panel:
        """Return a panel of the exact detector alone."""
        return cls({}, kind.format.key_bits)

    @classmethod
    def array_shapes(cls, kind: Kind) -> dict[str, ArrayShape]:
        """Return the arrays of the exact detector."""
        return Exact.array_shapes(kind)

    @classmethod
    def loaded_memory(cls, kind: Kind, lengths: Mapping[str, Sequence[int]]) -> int:
        """Return the bytes of the exact detector."""
        return Exact.loaded_memory(kind, lengths)

    def _merge(self, other: Panel) -> None:
        self.truth.merge(other.truth)
        for name, detector in self.detectors.items():
            detector.merge(other.detectors[name])

    def _super_hosts(self, threshold: float) -> SuperHosts:
        return self.truth.super_hosts(threshold)

    def _top(self, count: int) -> SuperHosts:
        return self.truth.top(count)

    def _estimate_many(self, hosts: Addresses) -> SuperHosts:
        return self.truth.estimate_many(hosts)

    def _memory(self) -> int:
        return self.truth.memory + sum(detector.memory for detector in self.detectors.values())

    def _arrays(self) -> Arrays:
        return self.truth.arrays()

    def _load_arrays(self, arrays: Arrays) -> None:
        self.truth.load_arrays(arrays)


def panel_maker(makers: Makers, settings: Settings) -> MakeDetector:
    """Return the `make_detector` of a scan that compares detectors over its windows."""

    def make(part: Part) -> Panel:
        host = settings.host_format(part)
        panel = Panel(makers(host.key_bits), host.key_bits)
        for detector in (panel, panel.truth, *panel.detectors.values()):
            detector.format = host
        return panel

    return make


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
