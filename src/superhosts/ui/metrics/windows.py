"""The last window of a program: when it ended and was closed, and how full its sketch was."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from superhosts.core.pairs import Part, Window
from superhosts.core.units import SECOND
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.cube import Cube
from superhosts.detectors.exact import Exact
from superhosts.sketch.sketch import Sketch


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
    """Return how full each part of a sketch is."""
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
        """Note how full a sketch is."""
        self.parts = states_of(sketch)

    @property
    def end(self) -> float | None:
        """The end of the last window, in seconds since 1970; None if there is none, or it has no time."""
        return self.window.end / SECOND if self.window is not None and self.window.is_timed else None

    @property
    def seconds(self) -> float | None:
        """The length of the last window."""
        return (self.window.end - self.window.start) / SECOND if self.window is not None else None
