"""Sliding windows: the union of the last panes, a new one for every pane that closes.

A pane is a tumbling window as long as the slide. Its packets are counted once, into a sketch of its own; sketches
merge, so every window is a union of panes, and has the rows that a scan of its packets alone would have.

A queue of two stacks keeps the number of merges constant, whatever the number of panes in a window. New panes go to the
back, which has one union of all its panes. The front has, for each of its panes, the union of that pane and all younger
ones of the front; the oldest pane leaves with its union, and nothing has to be taken out of any other. When the front
is empty, the panes of the back become the front, one merge each. So a pane is merged at most twice, and a window takes
one more merge. In memory are at most as many sketches as a window has panes, the union of the back, and the window that
was asked for last.

Sketches of panes never change once they are here: who gets one to save or to send it sees what was counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from superhosts.detectors.cube import Cube
from superhosts.pairs import Part, Window
from superhosts.pipeline.building import WindowResult
from superhosts.results import SuperHosts
from superhosts.sketches.bundle import Sketch

Find = Callable[[Sketch, Window, int], WindowResult]


class PaneQueue:
    """The sketches of consecutive panes, first in, first out, with the union of all of them at any time."""

    def __init__(self) -> None:
        self.merges = 0
        self._front: list[Sketch] = []  # for each pane the union of it and those below it; the oldest pane is last
        self._back: list[Sketch] = []  # younger panes, the youngest last
        self._whole_back: Sketch | None = None  # the union of the back
        self._dense: set[Part] = set()  # parts of the last window with too many pairs to be exact
        self._hastened: set[Part] = set()  # parts of the back's union that are dense, though their pairs may fit

    def __len__(self) -> int:
        return len(self._front) + len(self._back)

    def push(self, pane: Sketch) -> None:
        """Add the youngest pane."""
        self._back.append(pane)
        if self._whole_back is None:
            self._whole_back = self._begun(pane)
        elif self._whole_back is self._back[0]:
            self._whole_back = self._united(self._whole_back, pane)
        else:
            self._whole_back.merge(pane)
            self.merges += 1

    def _begun(self, pane: Sketch) -> Sketch:
        """Return the union of a back with one pane: the pane itself, which is replaced before it would change.

        If windows are dense, it is a dense copy, to which the pairs of each later pane are written once. Otherwise all
        pairs of an exact back would be written for every window.
        """
        self._hastened = {part for part, cube in _cubes(pane) if part in self._dense and cube.exact}
        if not self._hastened:
            return pane
        whole = self._united(pane)
        for part, cube in _cubes(whole):
            if part in self._hastened:
                cube.densify()
        return whole

    def pop(self) -> None:
        """Remove the oldest pane."""
        if not self._front:
            self._turn()
        self._front.pop()

    def _turn(self) -> None:
        """Make the panes of the back the front."""
        self._whole_back, self._hastened = None, set()
        while self._back:
            pane = self._back.pop()
            # The union of all panes is not needed: it leaves at once.
            is_last = not self._back
            self._front.append(pane if not self._front or is_last else self._united(self._front[-1], pane))

    def union(self, without: int = 0) -> Sketch:
        """Return the union of all panes, or of those that are left without some of the oldest, as a new sketch."""
        left = len(self._front) - without
        if left < 0:
            return self._united(*self._back[-left:])
        top = self._front[left - 1 : left]
        whole = self._united(*top, *([] if self._whole_back is None else [self._whole_back]))
        if any(part in self._hastened and not cube.surely_exceeds_exact() for part, cube in _cubes(whole)):
            # Perhaps the pairs fit again: only the exact panes can tell.
            self._whole_back, self._hastened = self._united(*self._back), set()
            whole = self._united(*top, self._whole_back)
        self._dense = {part for part, cube in _cubes(whole) if not cube.exact}
        return whole

    def _united(self, *members: Sketch) -> Sketch:
        """Return the union of sketches as a new one. Copying is cheaper than merging, so the largest is copied."""
        whole = Sketch()
        for member in sorted(members, key=lambda each: each.memory, reverse=True):
            whole.merge(member)
        self.merges += max(len(members) - 1, 0)
        return whole


def _cubes(sketch: Sketch) -> list[tuple[Part, Cube]]:
    """Return the parts that count exactly as long as their pairs fit."""
    return [(part, detector) for part, detector in sketch if isinstance(detector, Cube)]


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
        index = pane.window.start // self._slide
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

    def peek(self, pane: WindowResult) -> WindowResult:
        """Return the window that ends with a pane that is open, as it is now. Nothing changes."""
        first = self._first(pane.window.start // self._slide)
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
