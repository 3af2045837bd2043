"""Sliding windows: the union of the last panes, a new one for every pane that closes.

A pane is a tumbling window as long as the slide, with a sketch of its own. How few merges do, what is kept in memory,
and when unions are made dense: "Windows that overlap" in docs/explanation/decisions.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from superhosts.core.pairs import Part, Window
from superhosts.core.results import SuperHosts
from superhosts.detectors.cube import Cube
from superhosts.jit.memory import Reuse
from superhosts.pipeline.builder import WindowResult
from superhosts.pipeline.settings import MOST_KEPT
from superhosts.sketch.sketch import Sketch


class _Union(NamedTuple):
    whole: Sketch
    densified: frozenset[Part] = frozenset()  # parts that were made dense early: their pairs may fit
    oldest: Sketch | None = None  # the oldest pane, if it is needed to make an exact union


class PaneQueue:
    """The sketches of consecutive panes, first in, first out, with the union of all of them at any time.

    A queue of two stacks. While windows are dense, the unions of both are made dense early; a window whose pairs may
    fit again is made of the exact panes, which are kept for that. Sketches of panes never change here.
    """

    def __init__(self) -> None:
        self.merges = 0
        self._front: list[_Union] = []  # for each pane the union of it and those below it; the oldest pane is last
        self._back: list[Sketch] = []  # younger panes, the youngest last
        self._whole_back: _Union | None = None  # the union of the back
        self._dense: frozenset[Part] = frozenset()  # parts of the last window with too many pairs to be exact
        self._doubtful: frozenset[Part] = frozenset()  # those of which a dense union cannot tell that
        self._reuse: Reuse | None = None  # while there are such parts: every window has new cubes, as large as the last

    def __len__(self) -> int:
        return len(self._front) + len(self._back)

    def push(self, pane: Sketch) -> None:
        self._back.append(pane)
        if self._whole_back is None:
            self._whole_back = self._densified(_Union(pane))  # if it is the pane, it is replaced before it would change
        elif self._whole_back.whole is self._back[0]:
            self._whole_back = _Union(self._united(self._back[0], pane))
        else:
            self._whole_back.whole.merge(pane)
            self.merges += 1

    def pop(self) -> None:
        if not self._front:
            self._turn()
        self._front.pop()

    def _turn(self) -> None:
        self._whole_back = None
        kept, densifies = 0, True
        while self._back:
            pane = self._back.pop()
            if not self._front or not self._back:  # The union of all panes is not needed: it leaves at once.
                self._front.append(_Union(pane))
                continue
            self._front.append(self._with_older(self._front[-1], pane, densifies=densifies))
            kept += 0 if self._front[-1].oldest is None else pane.memory
            # Panes with the same pairs take more than their union.
            if kept and kept > MOST_KEPT * self._front[-1].whole.memory:
                self._make_exact()
                kept, densifies = 0, False

    def _with_older(self, union: _Union, pane: Sketch, *, densifies: bool) -> _Union:
        begun = self._densified(union) if densifies else union
        if begun is union:
            whole = self._united(union.whole, pane)
        else:
            whole = begun.whole.merge(pane)
            self.merges += 1
        early = frozenset(part for part in begun.densified if _may_fit(whole, part))
        return _Union(whole, early, pane if early else None)

    def _densified(self, union: _Union) -> _Union:
        """Copy the union and densify the parts that were dense in the last window; the union itself if none were."""
        wanted = self._dense - self._doubtful
        early = frozenset(part for part, cube in _cubes(union.whole) if part in wanted and cube.exact)
        if not early:
            return union
        whole = union.whole.copy()
        for part, cube in _cubes(whole):
            if part in early:
                cube.densify()
        return _Union(whole, union.densified | early)

    def _make_exact(self) -> None:
        for place, union in enumerate(self._front):
            if union.oldest is not None:
                self._front[place] = _Union(self._united(self._front[place - 1].whole, union.oldest))
        if self._whole_back is not None and self._whole_back.densified:
            self._whole_back = _Union(self._united(*self._back))

    def union(self, without: int = 0) -> Sketch:
        left = len(self._front) - without
        if left < 0:
            return self._united(*self._back[-left:])
        unions = self._unions(left)
        whole = self._united(*(union.whole for union in unions))
        densified = frozenset(part for union in unions for part in union.densified)
        if any(_may_fit(whole, part) for part in densified):
            self._make_exact()  # Only the exact panes can tell.
            whole = self._united(*(union.whole for union in self._unions(left)))
            # Few hosts with most of the pairs fill their columns, so the bits do not show how many pairs there are.
            self._doubtful |= densified
        self._dense = frozenset(part for part, cube in _cubes(whole) if not cube.exact)
        self._doubtful &= self._dense
        # If panes take less memory than cubes do, there is room for cubes that wait to be used.
        are_small = bool(self._back) and all(cube.exact for _, cube in _cubes(self._back[-1]))
        self._reuse = (self._reuse or Reuse(len(self) + 2)) if self._dense and are_small else None
        return whole

    def _unions(self, left: int) -> list[_Union]:
        return [*self._front[left - 1 : left], *([] if self._whole_back is None else [self._whole_back])]

    def _united(self, *members: Sketch) -> Sketch:
        """Return the union of sketches as a new one, made from the largest: copying is cheaper than merging."""
        first, *others = sorted(members, key=lambda each: each.memory, reverse=True) or [Sketch()]
        whole = first | others[0] if others else first.copy()
        for member in others[1:]:
            whole.merge(member)
        self.merges += len(others)
        return whole


def _cubes(sketch: Sketch) -> list[tuple[Part, Cube]]:
    return [(part, detector) for part, detector in sketch if isinstance(detector, Cube)]


def _may_fit(sketch: Sketch, part: Part) -> bool:
    cube = sketch.parts[part]
    return isinstance(cube, Cube) and not cube.surely_exceeds_exact()


Find = Callable[[Sketch, Window, int], WindowResult]


class _Pane(NamedTuple):
    number: int
    packets: int
    drops: int | None


class SlidingPanes:
    """Turns panes into windows that end with them. `find` looks for the super hosts of a window's sketch.

    Panes come in order of time. An empty pane may be left out: the windows that end with it are made when the next one
    comes. With `keeps_all` a window ends with every pane, which shows in live traffic that the program is alive.
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


class SlidingAhead:
    """Makes the window of one pane in a thread of its own, while the packets of the next pane are counted.

    Only for inputs that end, which keep all cores busy. All methods are for the thread that counts.
    """

    def __init__(self, sliding: SlidingPanes) -> None:
        self._sliding = sliding
        self._thread = ThreadPoolExecutor(1, "superhosts-windows")
        self._begun: Future[list[WindowResult]] | None = None

    def add(self, pane: WindowResult) -> Iterator[WindowResult]:
        """Begin with the window of a pane. Yield those that come before it."""
        for _, detector in pane.sketch:
            detector.flush()  # while the window before is still being made
        yield from self.finish()
        yield from self._sliding.advance(self._sliding.number_of(pane))  # one by one: each takes the memory of a sketch
        self._begun = self._thread.submit(lambda: list(self._sliding.add(pane)))

    def done(self) -> Iterator[WindowResult]:
        if self._begun is not None and self._begun.done():
            yield from self.finish()

    def finish(self) -> Iterator[WindowResult]:
        begun, self._begun = self._begun, None
        if begun is not None:
            yield from begun.result()

    def wait(self) -> None:
        if self._begun is not None:
            wait([self._begun])

    def close(self) -> None:
        self._thread.shutdown()
        self._begun = None
