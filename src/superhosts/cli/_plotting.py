"""Figures of saved sketches: what stands under them."""

from __future__ import annotations

import sys

from superhosts.cli._console import command_line
from superhosts.core.results import Selection
from superhosts.core.text import counted
from superhosts.core.units import format_size
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.lab.drawing import Note, caption, key_words
from superhosts.sketch.sketch import Sketch


class SketchFacts:
    """What a figure of sketches depends on, gathered sketch by sketch."""

    def __init__(self) -> None:
        self._windows: set[object] = set()
        self._keys: set[str] = set()
        self._memory: set[int] = set()
        self._flows = 0.0  # of the fullest part of a sketch

    def add(self, sketch: Sketch) -> None:
        """Take note of one sketch."""
        self._windows.add(sketch.window)
        for detector in sketch.parts.values():
            if detector.kind.key is not None:
                self._keys.add(detector.kind.key)
            if isinstance(detector, ColumnSketch):
                self._memory.add(detector.geometry.memory)
                self._flows = max(self._flows, detector.fill().pairs)

    def note(self, *first: str, windows: int | None = None) -> Note:
        """Return the text under the figure, and the command. `windows` are given if not all sketches were added."""
        known = windows is None and self._flows
        flows = f" of up to {counted(float(f'{self._flows:.3g}'), 'flow')}" if known else ""
        seen = f"{counted(windows or len(self._windows), 'window')}{flows}"
        memory = " and ".join(map(format_size, sorted(self._memory)))
        return Note(caption(*first, seen, memory, key_words(self._keys)), command_line(sys.argv))


def selected(selection: Selection) -> str:
    """Say which hosts are drawn."""
    least = "" if selection.threshold is None else f"θ = {selection.threshold:,g}"
    most = "" if selection.top is None else f"top {selection.top}"
    return ", ".join(filter(None, (most, least)))
