"""How long one kind of work takes, over the life of a program: a histogram that other threads may read.

One thread adds; any thread reads, and gets numbers of about the same moment. Nothing is locked.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BOUNDS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds


class Durations:
    """Seconds of one kind of work. `on_add` is called each time it is done: a long series of it makes progress."""

    def __init__(self) -> None:
        self.seconds = 0.0  # in all
        self.counts = [0] * (len(BOUNDS) + 1)  # by bound; the last is for what takes longer
        self.on_add: Callable[[], None] | None = None

    @property
    def count(self) -> int:
        """How often the work was done."""
        return sum(self.counts)

    def add(self, seconds: float) -> None:
        """Count work that took this long."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds
        if self.on_add is not None:
            self.on_add()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the work of a `with` block, unless it fails."""
        begun = time.perf_counter()
        yield
        self.add(time.perf_counter() - begun)

    def cumulated(self) -> list[tuple[str, float]]:
        """Return how often the work took at most each bound, the last for any time: as Prometheus counts."""
        total, found = 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found
