"""Sliding windows: the union of the last panes, a new one for every pane that closes.

A pane is a tumbling window as long as the slide. Its packets are counted once, into a sketch of its own; sketches
merge, so every window is a union of panes, and has the rows that a scan of its packets alone would have.

In memory are at most as many sketches as a window has panes, and MORE_SKETCHES (panes.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from superhosts.pairs import Window
from superhosts.pipeline.building import WindowResult
from superhosts.pipeline.panes import PaneQueue
from superhosts.results import SuperHosts
from superhosts.sketches.bundle import Sketch

Find = Callable[[Sketch, Window, int], WindowResult]


class _Pane(NamedTuple):
    """What is known of a pane besides its sketch."""

    number: int
    packets: int
    drops: int | None


class SlidingPanes:
    """Turns panes into windows that end with them. `find` looks for the super hosts of a window's sketch.

    Panes come in order of time. A pane in which nothing came may be left out: the windows that end with it are made
    when the next one comes. A window without any packet is yielded only for an empty pane that came.
    """

    def __init__(self, length: int, slide: int, find: Find) -> None:
        self._length, self._slide, self._find = length, slide, find
        self._queue = PaneQueue()
        self._panes: deque[_Pane] = deque()  # those in the queue
        self._next: int | None = None  # the pane after the last one

    def add(self, pane: WindowResult) -> Iterator[WindowResult]:
        """Take the next pane; yield the window that ends with it, after those that end with the empty panes before."""
        index = self.number_of(pane)
        if self._next is not None and index < self._next:
            yield self._reopened(pane)
            return
        yield from self.advance(index)
        self._next = index + 1
        self._expire(index)
        self._queue.push(pane.sketch)
        self._panes.append(_Pane(index, pane.packets, pane.drops))
        yield self._window(index, pane.sketch)

    def advance(self, index: int) -> Iterator[WindowResult]:
        """Yield the windows with packets that end with empty panes before pane `index`."""
        first = index if self._next is None else self._next
        for empty in range(first, min(index, first + self._length // self._slide)):
            self._expire(empty)
            if any(pane.packets for pane in self._panes):
                yield self._window(empty, None)
        self._next = max(index, first)

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

    def _expire(self, index: int) -> None:
        """Drop the panes that are not in the window that ends with pane `index`."""
        while self._panes and self._panes[0].number < self._first(index):
            self._panes.popleft()
            self._queue.pop()

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
