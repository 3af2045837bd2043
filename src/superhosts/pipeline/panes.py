"""A queue of panes: the sketches of consecutive times, with the union of all of them at any time.

A queue of two stacks keeps the number of merges constant, whatever the number of panes in a window. New panes go to the
back, which has one union of all its panes. The front has, for each of its panes, the union of that pane and all younger
ones of the front; the oldest pane leaves with its union, and nothing has to be taken out of any other. When the front
is empty, the panes of the back become the front, one merge each. So a pane is merged at most twice, and a window takes
one more merge.

While windows have more pairs than are counted exactly, the unions of both stacks are dense before they have to be: the
pairs of a pane are then written once for each stack. Otherwise all pairs of an exact union would be written again for
every window. A window whose pairs may fit again is made of exact unions, which takes the panes themselves; so the front
keeps the youngest panes, as long as all their pairs may fit.

Sketches of panes never change once they are here: who gets one to save or to send it sees what was counted.
"""

from __future__ import annotations

from typing import NamedTuple

from superhosts.core.pairs import Part
from superhosts.detectors.cube import Cube
from superhosts.jit.pool import Reuse
from superhosts.sketch.sketch import Sketch

MOST_KEPT = 2  # sketches whose memory the panes may take that the front keeps besides its unions
MORE_SKETCHES = 4 + MOST_KEPT  # besides the panes: union of the back, last window, next window, pane that is open


class _Union(NamedTuple):
    """The union of some panes."""

    whole: Sketch
    hastened: frozenset[Part] = frozenset()  # parts that are dense, though their pairs may fit
    oldest: Sketch | None = None  # the oldest pane, if it is needed to make an exact union


class PaneQueue:
    """The sketches of consecutive panes, first in, first out, with the union of all of them at any time."""

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
        """Add the youngest pane."""
        self._back.append(pane)
        if self._whole_back is None:
            self._whole_back = self._hastened(_Union(pane))  # if it is the pane, it is replaced before it would change
        elif self._whole_back.whole is self._back[0]:
            self._whole_back = _Union(self._united(self._back[0], pane))
        else:
            self._whole_back.whole.merge(pane)
            self.merges += 1

    def pop(self) -> None:
        """Remove the oldest pane."""
        if not self._front:
            self._turn()
        self._front.pop()

    def _turn(self) -> None:
        """Make the panes of the back the front."""
        self._whole_back = None
        kept, hastens = 0, True
        while self._back:
            pane = self._back.pop()
            if not self._front or not self._back:  # The union of all panes is not needed: it leaves at once.
                self._front.append(_Union(pane))
                continue
            self._front.append(self._with_older(self._front[-1], pane, hastens=hastens))
            kept += 0 if self._front[-1].oldest is None else pane.memory
            if kept > MOST_KEPT * self._front[-1].whole.memory:  # Panes with the same pairs take more than their union.
                self._make_exact()
                kept, hastens = 0, False

    def _with_older(self, union: _Union, pane: Sketch, *, hastens: bool) -> _Union:
        """Return the union of some panes and the one before them."""
        begun = self._hastened(union) if hastens else union
        if begun is union:
            whole = self._united(union.whole, pane)
        else:
            whole = begun.whole.merge(pane)
            self.merges += 1
        early = frozenset(part for part in begun.hastened if _may_fit(whole, part))
        return _Union(whole, early, pane if early else None)

    def _hastened(self, union: _Union) -> _Union:
        """Return a copy of which the parts are dense that are dense in windows; the union itself if there are none."""
        wanted = self._dense - self._doubtful
        early = frozenset(part for part, cube in _cubes(union.whole) if part in wanted and cube.exact)
        if not early:
            return union
        whole = union.whole.copy()
        for part, cube in _cubes(whole):
            if part in early:
                cube.densify()
        return _Union(whole, union.hastened | early)

    def _make_exact(self) -> None:
        """Make all unions again that are dense too early."""
        for place, union in enumerate(self._front):
            if union.oldest is not None:
                self._front[place] = _Union(self._united(self._front[place - 1].whole, union.oldest))
        if self._whole_back is not None and self._whole_back.hastened:
            self._whole_back = _Union(self._united(*self._back))

    def union(self, without: int = 0) -> Sketch:
        """Return the union of all panes, or of those that are left without some of the oldest, as a new sketch."""
        left = len(self._front) - without
        if left < 0:
            return self._united(*self._back[-left:])
        unions = self._unions(left)
        whole = self._united(*(union.whole for union in unions))
        if any(_may_fit(whole, part) for union in unions for part in union.hastened):
            hastened = frozenset(part for union in unions for part in union.hastened)
            self._make_exact()  # Only the exact panes can tell.
            whole = self._united(*(union.whole for union in self._unions(left)))
            # Few hosts with most of the pairs fill their columns, so the bits do not show how many pairs there are.
            self._doubtful |= frozenset(part for part in hastened if _is_dense(whole, part))
        self._dense = frozenset(part for part, _ in _cubes(whole) if _is_dense(whole, part))
        self._doubtful &= self._dense
        self._reuse = (self._reuse or Reuse(len(self) + 2)) if self._dense and self._panes_are_small() else None
        return whole

    def _panes_are_small(self) -> bool:
        """Return True if panes take less memory than cubes do: then there is room for cubes that wait to be used."""
        return bool(self._back) and all(cube.exact for _, cube in _cubes(self._back[-1]))

    def _unions(self, left: int) -> list[_Union]:
        """Return the unions of all panes but those of the front from place `left` on."""
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
    """Return the parts that count exactly as long as their pairs fit."""
    return [(part, detector) for part, detector in sketch if isinstance(detector, Cube)]


def _is_dense(sketch: Sketch, part: Part) -> bool:
    """Return True if a part has become dense."""
    cube = sketch.parts[part]
    return isinstance(cube, Cube) and not cube.exact


def _may_fit(sketch: Sketch, part: Part) -> bool:
    """Return True if the pairs of a dense part may be few enough to be exact."""
    cube = sketch.parts[part]
    return isinstance(cube, Cube) and not cube.surely_exceeds_exact()
