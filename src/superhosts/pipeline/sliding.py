"""Sliding windows: the union of the last panes, a new one for every pane that closes.

A pane is a tumbling window as long as the slide. Its packets are counted once, into a sketch of its own; sketches
merge, so every window is a union of panes, and has the rows that a scan of its packets alone would have.

A window with exactly the packets of the window before it, as over a gap in the traffic, is skipped and counted. So the
work is linear in the panes with packets, however long the gaps are.

In memory are at most as many sketches as a window has panes, and MORE_SKETCHES (panes.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from superhosts.core.pairs import Window
from superhosts.core.results import SuperHosts
from superhosts.pipeline.building import WindowResult
from superhosts.pipeline.panes import PaneQueue
from superhosts.sketch.sketch import Sketch

Find = Callable[[Sketch, Window, int], WindowResult]


class _Pane(NamedTuple):
    """What is known of a pane besides its sketch."""

    number: int
    packets: int
    drops: int | None


class SlidingPanes:
    """Turns panes into windows that end with them. `find` looks for the super hosts of a window's sketch.

    Panes come in order of time. A pane in which nothing came may be left out: the windows that end with it are made
    when the next one comes. A window without any packet is yielded only for an empty pane that came. With `keeps_all`,
    windows are not skipped: of live traffic one ends with every pane, which shows that the program is alive.
    """

    def __init__(self, length: int, slide: int, find: Find, *, keeps_all: bool = False) -> None:
        self._length, self._slide, self._find, self._keeps_all = length, slide, find, keeps_all
        self._queue = PaneQueue()
        self._panes: deque[_Pane] = deque()  # those in the queue
        self._next: int | None = None  # the pane after the last one
        self.skipped = 0  # windows
        self._skips: list[range] = []  # the panes that these end with

    def add(self, pane: WindowResult) -> Iterator[WindowResult]:
        """Take the next pane; yield the window that ends with it, after those that end with the empty panes before."""
        index = self.number_of(pane)
        if self._next is not None and index < self._next:
            yield self._reopened(pane)
            return
        yield from self.advance(index)
        self._next = index + 1
        has_changed = self._expire(index) or bool(pane.packets or pane.drops)
        if not has_changed and not self._keeps_all:
            self._skip(index, index + 1)
            return
        self._queue.push(pane.sketch)
        self._panes.append(_Pane(index, pane.packets, pane.drops))
        yield self._window(index, pane.sketch)

    def advance(self, index: int) -> Iterator[WindowResult]:
        """Yield the windows with packets that end with empty panes before pane `index`."""
        first = index if self._next is None else self._next
        empty, last = first, min(index, first + self._length // self._slide)
        while empty < last:
            has_changed = self._expire(empty)
            if has_changed or self._keeps_all:
                if self._has_packets():
                    yield self._window(empty, None)
                empty += 1
            else:  # nothing changes before the oldest pane leaves
                following = self._panes[0].number + self._length // self._slide if self._panes else last
                self._skip(empty, min(following, last))
                empty = min(following, last)
        self._next = max(index, first)

    def was_skipped(self, index: int) -> bool:
        """Return True if the window that ends with pane `index` has the packets of the one before and was skipped."""
        place = bisect_right(self._skips, index, key=lambda each: each.start)
        return place > 0 and index in self._skips[place - 1]

    def _skip(self, first: int, last: int) -> None:
        if self._has_packets():
            self._skips.append(range(first, last))
            self.skipped += last - first

    def _has_packets(self) -> bool:
        return any(pane.packets for pane in self._panes)

    def number_of(self, pane: WindowResult) -> int:
        """Return the number of a pane: how many slides its start is after the time 0."""
        return pane.window.start // self._slide

    def peek(self, pane: WindowResult) -> WindowResult:
        """Return the window that ends with a pane that is open, as it is now. Nothing changes."""
        first = self._first(self.number_of(pane))
        kept = [each for each in self._panes if each.number >= first]
        whole = self._queue.union(len(self._panes) - len(kept)).merge(pane.sketch)
        return self._found(whole, pane.window.end, sum(each.packets for each in kept) + pane.packets)

    def clear(self) -> None:
        """Forget all panes: the next one is of another time."""
        self._queue, self._next = PaneQueue(), None
        self._panes.clear()

    def _reopened(self, pane: WindowResult) -> WindowResult:
        """Return a pane that came again, with other packets: its windows are out, and their rows stay as they are."""
        window = Window(pane.window.end - self._length, pane.window.end)
        result = WindowResult(window, SuperHosts.none(), pane.sketch, pane.packets)
        result.slides, result.pane, result.drops = True, pane.sketch, pane.drops
        return result

    def _first(self, index: int) -> int:
        """Return the first pane of the window that ends with pane `index`."""
        return index + 1 - self._length // self._slide

    def _expire(self, index: int) -> bool:
        """Drop the panes that are not in the window that ends with pane `index`; return True if any had packets."""
        had_packets = False
        while self._panes and self._panes[0].number < self._first(index):
            pane = self._panes.popleft()
            had_packets = had_packets or bool(pane.packets or pane.drops)
            self._queue.pop()
        return had_packets

    def _window(self, index: int, pane: Sketch | None) -> WindowResult:
        """Return the window that ends with pane `index`."""
        packets = sum(each.packets for each in self._panes)
        result = self._found(self._queue.union(), (index + 1) * self._slide, packets)
        drops = [each.drops for each in self._panes if each.drops is not None]
        result.drops, result.pane = sum(drops) if drops else None, pane
        return result

    def _found(self, sketch: Sketch, end: int, packets: int) -> WindowResult:
        sketch.window = Window(end - self._length, end)
        result = self._find(sketch, sketch.window, packets)
        result.slides = True
        return result
