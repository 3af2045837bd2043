"""Times that jump while traffic runs: a clock that was wrong and is set right, or the other way round.

A packet is off its time if its window is closed already (behind), or if it lies far ahead of both the traffic before it
and this machine's clock. Off-time packets wait. If nearly all packets that follow are off in the same direction, the
traffic has jumped, and the packets that waited go to their windows. If the traffic goes on where it was, they count as
late or stray and are dropped.

Both conditions of "ahead" matter. The clock that stamps packets may differ from this machine's by any amount, and old
captures may be read: only a jump within the traffic is suspicious. Traffic may also pause for hours: then it lies ahead
of the traffic before, but not of this machine's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import PacketBatch, Window
from superhosts.core.units import SECOND
from superhosts.pipeline.windows.held import LIMITS, Held, Limits, is_far_behind

AHEAD, BEHIND = 1, -1
NEARLY_ALL = 0.9  # share of the last packets that a jump needs
SLOW_PACKETS = 10  # packets that are enough in slow traffic, after a window's length by the clock
MARGIN = 60 * SECOND  # less than this is never far ahead


class Jump(NamedTuple):
    """The traffic's clock was set."""

    by: int  # nanoseconds; negative: back
    window: Window  # the earliest one that the traffic has jumped to


class OffTime:
    """The packets off their time, in both directions, until it is known what they are."""

    def __init__(self, length: int, settle: int, wall: Callable[[], int], limits: Limits = LIMITS) -> None:
        """`settle`: packets over which a jump is judged. `wall`: this machine's clock, in nanoseconds."""
        self.late = 0  # behind; those that wait included
        self.stray = 0  # ahead, or more than a year behind
        self.newest: int | None = None  # the latest window that the traffic has come to
        self._length, self._settle, self._wall, self._limits = length, settle, wall, limits
        self._needed = max(1, round(NEARLY_ALL * settle))
        self._margin = -(-max(length, MARGIN) // length)  # in windows
        self._reset()

    def _reset(self) -> None:
        self._groups = {AHEAD: Held(self._length), BEHIND: Held(self._length)}
        self._far = 0  # packets that wait more than a year behind
        self._last = np.empty(0, np.int8)  # directions of the last packets, from the first on that waits; 0: in time
        self._tails: set[int] = set()  # directions of the last packets of each family
        self._seen: set[int] = set()  # directions in which the traffic has jumped
        self._since: int | None = None  # when the clock first saw that packets wait

    def horizon(self) -> int | None:
        """Return the time up to which packets are believed; None before the first."""
        if self.newest is None:
            return None
        return (max(self.newest, self._wall() // self._length) + self._margin + 1) * self._length

    def is_ahead(self, index: int) -> bool:
        """Return True if a window is far ahead of the traffic and of the clock. Else the traffic has come to it."""
        if self.newest is not None and index > self.newest + self._margin:
            ahead = index > self._wall() // self._length + self._margin
            if ahead:
                return True
        if self.newest is None or index > self.newest:
            self.newest = index
        return False

    def wait(self, direction: int, index: int, piece: PacketBatch, frontier: int | None) -> None:
        """Let packets wait until `jumped`, or until they are dropped."""
        group = self._groups[direction]
        if group.count + len(piece) > self._limits.off_time or group.pieces >= self._limits.pieces:
            self._drop(direction)
            group = self._groups[direction]
        group.add(index, piece)
        far = direction == BEHIND and frontier is not None and is_far_behind(index, frontier, self._length)
        if far:
            self._far += len(piece)
        if far or direction == AHEAD:
            self.stray += len(piece)
        else:
            self.late += len(piece)

    def look(self, batches: list[PacketBatch], frontier: int | None) -> None:
        """Note in which directions the packets of a block lie; the pieces of the block have found their place."""
        self._tails = set()
        if not self.waiting:
            return
        for batch in batches:
            index = batch.time // self._length
            ahead = index > self.newest if self.newest is not None else np.zeros(len(index), bool)
            behind = index < frontier if frontier is not None else np.zeros(len(index), bool)
            directions = ahead.astype(np.int8) - behind.astype(np.int8)
            if not len(self._last):  # what came before the first that waits says nothing
                directions = directions[np.argmax(directions != 0) :] if directions.any() else directions[:0]
            last = np.concatenate([self._last, directions])
            self._seen |= {direction for direction in self._groups if self._most(last == direction) >= self._needed}
            self._last = last[-self._settle :]
            self._tails |= set(directions[-1:].tolist())

    def _most(self, packets: NDArray[np.bool_]) -> int:
        """Return how many of as many packets in a row as a jump is judged by are of a kind, at most."""
        sums = np.concatenate([[0], np.cumsum(packets)])
        return int((sums[self._settle :] - sums[: -self._settle]).max() if len(packets) >= self._settle else sums[-1])

    def jumped(self) -> int | None:
        """Return a direction in which the traffic has jumped, judged by packets in a row."""
        return next((d for d in (BEHIND, AHEAD) if d in self._seen and self._groups[d].count), None)

    def jumped_by(self, time: int) -> int | None:
        """Return the direction in which slow traffic has jumped: no other packets came for a window's length."""
        if not self.waiting:
            return None
        if self._since is None:
            self._since = time
        if time - self._since < self._length:
            return None
        return self._dominant(self._last, SLOW_PACKETS)

    def jumped_at_end(self) -> int | None:
        """Return the direction in which the traffic has ended."""
        return self._dominant(self._last[-SLOW_PACKETS:], 1)

    def _dominant(self, last: NDArray[np.int8], least: int) -> int | None:
        for direction, group in self._groups.items():
            count = int((last == direction).sum())
            if group.count and count >= least and count >= NEARLY_ALL * len(last):
                return direction
        return None

    def take(self, direction: int) -> Held:
        """Hand out the packets of a jump; those of the other direction are dropped unless they have jumped, too."""
        group, other = self._groups[direction], -direction
        if direction == BEHIND:
            self.stray -= self._far
            self.late -= group.count - self._far
        else:
            self.stray -= group.count
        kept, far = self._groups[other], self._far
        has_jumped = other in self._seen
        self._reset()
        if has_jumped:
            self._groups[other], self._far, self._seen = kept, far if other == BEHIND else 0, {other}
        return group

    def drop_passed(self) -> None:
        """Drop the packets of directions in which the traffic did not go on: another window has closed meanwhile."""
        for direction, group in self._groups.items():
            if group.count and direction not in self._tails:
                self._drop(direction)

    def _drop(self, direction: int) -> None:
        self._groups[direction] = Held(self._length)
        self._seen.discard(direction)
        if direction == BEHIND:
            self._far = 0
        if not self.waiting:
            self._reset()

    def returning(self) -> int | None:
        """Return the earliest window behind to which the traffic seems to have gone back. For any thread."""
        group = self._groups[BEHIND]
        return next((group.first(year) for year in group.years[:1]), None) if BEHIND in self._tails else None

    @property
    def waiting(self) -> int:
        """Packets that wait."""
        return sum(group.count for group in self._groups.values())
