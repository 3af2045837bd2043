"""Which windows a hub takes and reports: of one length, or made of panes and sliding by a pane.

Panes and windows begin at multiples of a pane's length since 1970, at all sites. A pane and the window that ends with
it have the same number.
"""

from __future__ import annotations

from typing import NamedTuple

from superhosts.core.pairs import Window
from superhosts.core.times import window_name
from superhosts.core.units import format_duration
from superhosts.errors import UsageError
from superhosts.fleet.parcels import parse_window_name


class Grid(NamedTuple):
    """Lengths in nanoseconds: of a window, and of a pane, by which windows slide."""

    length: int
    slide: int

    @property
    def panes(self) -> int:
        """How many panes a window has; 1 unless windows overlap."""
        return self.length // self.slide

    def check(self, window: Window) -> None:
        """Refuse (UsageError) a window that is not a pane of this grid."""
        length, pane = window.end - window.start, format_duration(self.slide)
        if self.panes > 1:
            wanted = f"panes of {pane} (--window {format_duration(self.length)} --slide {pane})"
            way = f"start its edge with --slide {pane}"
        else:
            wanted, way = f"windows of {pane} (--window)", f"start its edge with --window {pane}"
        if length != self.slide:
            raise UsageError(f"a window of {format_duration(length)}, and this hub takes {wanted}: {way}")
        if window.start % self.slide:
            raise UsageError(f"does not begin at a multiple of {pane}, and this hub takes {wanted}")

    def number(self, pane: str) -> int | None:
        """Return the number of a pane; None for a window that is not a pane of this grid."""
        window = parse_window_name(pane)
        if window is None or window.end - window.start != self.slide or window.start % self.slide:
            return None
        return window.start // self.slide

    def pane(self, number: int) -> str:
        """Return the name of a pane."""
        return window_name(Window(number * self.slide, (number + 1) * self.slide))

    def number_of_window(self, window: str) -> int:
        """Return the number of a window."""
        span = parse_window_name(window)
        assert span is not None
        return span.end // self.slide - 1

    def window(self, number: int) -> Window:
        """Return the window that ends with a pane."""
        end = (number + 1) * self.slide
        return Window(end - self.length, end)

    def panes_of(self, number: int) -> range:
        """Return the panes of a window, oldest first."""
        return range(number + 1 - self.panes, number + 1)

    def windows_of(self, number: int) -> range:
        """Return the windows that a pane is in, oldest first."""
        return range(number, number + self.panes)

    def neighbours(self, number: int) -> range:
        """Return the panes that are in one window with a pane, itself included."""
        return range(number + 1 - self.panes, number + self.panes)
