"""An input that ends and is shorter than a window is one window, even if a boundary of windows lies within it.

Whether it is shows only at its end. Until then, or until the input is known to be longer, the first two windows stay
open side by side, each with a sketch of its own (tumbling.py). At the end the two are merged, which gives the bits of
one window over all packets; a longer input goes on with windows at multiples of their length, as at all sites.
"""

from __future__ import annotations

from collections.abc import Iterable

from superhosts.core.pairs import Window


class ShortInput:
    """The times of the packets of each window, as long as all of them may belong to one."""

    def __init__(self, length: int) -> None:
        self.first: int | None = None  # index of the window that stays open beside the current one
        self._length = length
        self._spans: dict[int, tuple[int, int]] = {}

    def note(self, index: int, span: tuple[int, int]) -> None:
        """Note the earliest and latest time of some packets of a window."""
        first, last = self._spans.get(index, span)
        self._spans[index] = min(first, span[0]), max(last, span[1])

    def hull(self, indexes: Iterable[int]) -> Window:
        """Return the window from the first packet of these windows to the last."""
        spans = [self._spans[index] for index in indexes]
        return Window(min(first for first, _ in spans), max(last for _, last in spans))

    def is_over(self, indexes: Iterable[int]) -> bool:
        """Return True if these windows are too far apart for one: the input is not short."""
        hull = self.hull(indexes)
        return hull.end - hull.start >= self._length
