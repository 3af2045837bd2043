"""What is known of hosts from earlier windows: how many peers they usually have, and when they were seen.

`Past` has the last windows of a host, which `times-usual`, `new`, `persistent` and `rises` of a rule ask for. `Week`
has the peers of a host by the hour of the week, over some weeks, as small histograms. Both are bounded, depend on the
windows alone, and are stored by `store.py`.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import log2
from statistics import median
from typing import NamedTuple

from superhosts.core.pairs import Window
from superhosts.core.units import SECOND

WINDOWS = 12  # of which the median is taken
LEARNING = 6  # windows before anything is known of any host
MOST_HOSTS = 65_536  # whose past is kept
MOST_WINDOWS = 288  # for which it is kept whether a host was seen in them


class Seen(NamedTuple):
    """When a host had about as many peers as a rule asks for."""

    first: int  # start of the first window, nanoseconds
    last: int  # end of the last one
    number: int  # of the last one
    windows: int  # a bit for each window, the lowest for the last one

    def after(self, number: int) -> int:
        """Return the bits as they are in the window of a later number."""
        shift = number - self.number
        return self.windows << shift & (1 << MOST_WINDOWS) - 1 if 0 <= shift < MOST_WINDOWS else 0


class Past:
    """The last windows of hosts, by a key that names rule and host.

    A window without a host counts as one without peers. Of hosts beyond the bound, those that were seen longest ago are
    forgotten: they are new when they come again.
    """

    def __init__(self, *, hosts: int = MOST_HOSTS, windows: int = 0, began: int = 0) -> None:
        self.windows = windows  # taken so far
        self.began = began  # start of the first window in which it was noted who was seen; 0: there is none
        self.changed: set[str] = set()  # keys whose values are to be stored, or removed if they were forgotten
        self._most = hosts
        self._values: OrderedDict[str, list[tuple[int, int]]] = OrderedDict()  # (number of the window, peers)
        self._seen: dict[str, Seen] = {}

    def __len__(self) -> int:
        return len(self._values)

    @property
    def knows(self) -> bool:
        """False as long as nothing can be called usual."""
        return self.windows >= LEARNING

    def usual(self, key: str) -> float:
        known = min(self.windows, WINDOWS)
        values = [peers for number, peers in self._values.get(key, ()) if number >= self.windows - known]
        return float(median([*values, *[0] * (known - len(values))])) if known else 0.0

    def before(self, key: str) -> int | None:
        """Return the peers in the window before this one; None if the host was not among its rows."""
        return next((peers for number, peers in self._values.get(key, ()) if number == self.windows - 1), None)

    def seen(self, key: str) -> Seen | None:
        return self._seen.get(key)

    def persistence(self, key: str, of: int) -> int:
        """Return in how many of the last windows a host was seen, of which this one is the last."""
        seen = self._seen.get(key)
        before = 0 if seen is None else seen.after(self.windows)
        return ((before | 1) & (1 << of) - 1).bit_count()

    def note(self, key: str, peers: int) -> None:
        values = [each for each in self._values.pop(key, []) if each[0] > self.windows - WINDOWS]
        self._values[key] = [*(each for each in values if each[0] != self.windows), (self.windows, peers)]
        self.changed.add(key)
        while len(self._values) > self._most:
            oldest, _ = self._values.popitem(last=False)
            self._seen.pop(oldest, None)
            self.changed.add(oldest)

    def see(self, key: str, window: Window) -> None:
        """Note that a host, whose peers were noted, was seen in this window."""
        if key in self._values:
            before = self._seen.get(key)
            bits = 0 if before is None else before.after(self.windows)
            first = window.start if before is None else before.first
            self._seen[key] = Seen(first, window.end, self.windows, bits | 1)

    def stored(self, key: str) -> str | None:
        return json.dumps(self._values[key]) if key in self._values else None

    def stored_seen(self, key: str) -> tuple[int, int, int, str] | None:
        seen = self._seen.get(key)
        return None if seen is None else (*seen[:3], f"{seen.windows:x}")

    def restore(self, rows: Iterable[tuple[str, str]], seen: Iterable[tuple[str, int, int, int, str]] = ()) -> None:
        """Take stored values, those that were seen longest ago first."""
        read = [(key, [(int(number), int(peers)) for number, peers in json.loads(text)]) for key, text in rows]
        for key, values in sorted(read, key=lambda each: max((number for number, _ in each[1]), default=0)):
            self._values[key] = values
        for key, first, last, number, bits in seen:
            if not all(isinstance(each, int) for each in (first, last, number)) or len(bits) > MOST_WINDOWS // 4:
                raise ValueError("when a host was seen is not a time")
            if key in self._values:
                self._seen[key] = Seen(first, last, number, int(bits, 16))


# What is usual in an hour of the week

HOURS = 7 * 24
DAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
FADE = 0.7  # what a week counts, of the week after it
FORGOTTEN = 0.5  # windows; a host that counts less is forgotten
MOST_CELLS = 8192  # hosts of which it is kept what is usual in one hour of the week
STEPS = 16  # of numbers in an octave: what is usual is known within 3 percent
ALL = ""  # the key of all windows
LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9  # shares of the windows, of which it is said what is usual


class Usual(NamedTuple):
    """How many peers a host has in most windows of an hour of the week."""

    low: int
    middle: int
    high: int


@dataclass
class Cell:
    """The windows of one hour of the week, of one host: how often it had about so many peers, by `_step`."""

    week: int
    now: dict[int, float] = field(default_factory=dict)  # of this week, which does not count yet
    older: dict[int, float] = field(default_factory=dict)  # of the weeks before, each faded

    @classmethod
    def of(cls, week: int, text: str) -> Cell:
        now, older = ({int(step): float(count) for step, count in each.items()} for each in json.loads(text))
        return cls(int(week), now, older)

    @property
    def text(self) -> str:
        return json.dumps([self.now, {step: round(count, 3) for step, count in self.older.items()}])

    def at(self, week: int) -> dict[int, float]:
        """Return what counts in a week: the weeks before it."""
        gone = week - self.week
        if gone <= 0:
            return self.older
        found = {step: count * FADE**gone for step, count in self.older.items()}
        for step, count in self.now.items():
            found[step] = found.get(step, 0.0) + count * FADE ** (gone - 1)
        return found

    def note(self, week: int, peers: int) -> None:
        if week > self.week:
            self.week, self.now, self.older = week, {}, self.at(week)
        counts, share = (self.now, 1.0) if week == self.week else (self.older, FADE ** (self.week - week - 1))
        step = _step(peers)
        counts[step] = counts.get(step, 0.0) + share


class Week:
    """How many peers hosts have in each hour of the week, in UTC, by a key that names the host and what is counted.

    Only the cells of one hour are in memory; `read` returns the stored ones of an hour. What is usual is that of the
    weeks before this one: in the first week nothing is.
    """

    def __init__(
        self,
        read: Callable[[int], Iterable[tuple[str, int, str]]] = lambda _: (),
        began: int = 0,
        ended: int = 0,
        taught: int = 0,
        *,
        most: int = MOST_CELLS,
    ) -> None:
        self.began, self.ended = began, ended  # of the time whose windows were noted
        self.taught = taught  # when saved sketches were learned last, perhaps by another program
        self.changed: dict[tuple[int, str], Cell | None] = {}  # what is to be stored, or removed
        self._read, self._most = read, most
        self._hour, self._week = -1, 0
        self._cells: dict[str, Cell] = {}

    def takes(self, window: Window) -> bool:
        """Return True if a window is not in the time whose windows were noted."""
        return window.start >= self.ended or window.end <= self.began

    def renew(self, began: int, ended: int, taught: int) -> None:
        """Take what other programs have stored meanwhile: the time that is learned, and perhaps other cells."""
        if taught != self.taught:
            self.taught, self._hour = taught, -1
        self.began, self.ended = min(began or self.began, self.began or began), max(ended, self.ended)

    def turn(self, window: Window) -> None:
        """Read what is known of the hour of a window."""
        hour, week = hour_of(window), _hours(window) // HOURS
        if hour == self._hour:
            self._week = week
            return
        found = {key: Cell.of(at, text) for key, at, text in self._read(hour)}
        found |= {key: cell for (of, key), cell in self.changed.items() if of == hour and cell is not None}
        self._hour, self._week, self._cells = hour, week, {}
        for key, cell in found.items():
            if week - cell.week < 2 or sum(cell.at(week).values()) >= FORGOTTEN:
                self._cells[key] = cell
            else:
                self.changed[hour, key] = None

    def note(self, window: Window, peers: Mapping[str, int]) -> None:
        """Note all hosts of a window; nothing, if what is known of its hour could not be read."""
        if hour_of(window) != self._hour:
            return
        self.began = min(self.began or window.start, window.start)
        self.ended = max(self.ended, window.end)
        for key, number in {ALL: 0, **peers}.items():
            if key not in self._cells and len(self._cells) >= self._most:
                continue
            cell = self._cells.setdefault(key, Cell(self._week))
            cell.note(self._week, number)
            self.changed[self._hour, key] = cell

    def usual(self, key: str, window: Window) -> Usual | None:
        """Return how many peers a host has in this hour of the week; None if no earlier week is known."""
        if hour_of(window) != self._hour or ALL not in self._cells:
            return None
        windows = sum(self._cells[ALL].at(self._week).values())
        if windows < FORGOTTEN:
            return None
        counts = self._cells[key].at(self._week) if key in self._cells else {}
        absent = max(windows - sum(counts.values()), 0.0)
        ranked = sorted({**counts, 0: counts.get(0, 0.0) + absent}.items())
        return Usual(*(_quantile(ranked, share) for share in (LOW, MIDDLE, HIGH)))


def _quantile(ranked: list[tuple[int, float]], share: float) -> int:
    """Return the least number that so many of the windows do not exceed."""
    least, below = share * sum(count for _, count in ranked), 0.0
    for step, count in ranked:
        below += count
        if below >= least - 1e-9:
            return round(2 ** (step / STEPS) - 1)
    return 0


def _step(peers: int) -> int:
    return round(STEPS * log2(max(peers, 0) + 1))


def _hours(window: Window) -> int:
    """Return the hours since a Monday: the epoch is a Thursday."""
    return window.start // (3600 * SECOND) + 3 * 24


def hour_of(window: Window) -> int:
    return _hours(window) % HOURS


def when_of(window: Window) -> str:
    """Return the hour of the week in words, for UTC: Mondays at 09:00."""
    day, hour = divmod(hour_of(window), 24)
    return f"{DAYS[day]} at {hour:02}:00"
