"""Limits on what one site can use of a hub, and on how much the hub logs about it.

An enrolled site may still be broken or hostile. Whatever it sends, the other sites are served: each site has its own
share of the queue, of the windows, of the disk and of the log. `docs/guides/fleet/hostile.md` lists these limits.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from superhosts.core.pairs import Window
from superhosts.core.text import counted
from superhosts.core.units import SECOND, format_size
from superhosts.errors import UsageError
from superhosts.fleet.parcels import Parcel, parse_window_name, site_of
from superhosts.fleet.receipts import Say
from superhosts.fleet.store import WindowStore

RECOUNT = 60.0  # seconds before the disk usage of a site at its limit is measured again
FUTURE = 600.0  # seconds that a window may end in the future before some clock must be wrong

LINES_PER_MINUTE = 5  # in the log, about one site and kind of problem
MINUTE = 60.0
MAX_SUBJECTS = 1_000  # pairs of site and kind that are counted separately; more must be invented names


@dataclass(frozen=True)
class Limits:
    """What one site may use of a hub's store."""

    windows: int = 20_000  # that the hub keeps at a time
    windows_ahead: int = 1_000  # of these, in the future: the site's clock is wrong, or it invents them
    sketches: int = 1_000  # of one window: restarts, revisions of a downstream hub
    disk_part: int = 4  # at most a quarter of the state's file system


DEFAULT_LIMITS = Limits()


@dataclass
class _Account:
    since: float
    said: int = 0
    left_out: int = 0


def start_timer(seconds: float, work: Callable[[], None]) -> None:
    """Do some work later, in a thread that does not keep the process alive."""
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()


class LimitedSay:
    """Logs the first few lines about a site and a kind of problem, then how many more there were in that minute."""

    def __init__(
        self,
        say: Say,
        *,
        clock: Callable[[], float] = time.monotonic,
        start_timer: Callable[[float, Callable[[], None]], None] = start_timer,
    ) -> None:
        self._say, self._clock, self._start_timer = say, clock, start_timer
        self._lock = threading.Lock()
        self._accounts: dict[tuple[str, str], _Account] = {}
        self._has_timer = False

    def __call__(self, site: str, kind: str, text: str) -> None:
        """Log a line about a site, or count it."""
        self.flush()
        with self._lock:
            subject = (site, kind)
            if subject not in self._accounts and len(self._accounts) >= MAX_SUBJECTS:
                subject = ("other sites", kind)
            account = self._accounts.setdefault(subject, _Account(self._clock()))
            if account.said >= LINES_PER_MINUTE:
                account.left_out += 1
                self._wake()
                return
            account.said += 1
        self._say(text)

    def flush(self) -> None:
        """Log how many lines were left out in the minutes that have ended."""
        with self._lock:
            over = [subject for subject, each in self._accounts.items() if self._clock() - each.since >= MINUTE]
            left_out = {subject: self._accounts.pop(subject).left_out for subject in over}
            self._wake()
        for (site, kind), count in left_out.items():
            if count:
                self._say(f"{site}: {count:,} more in a minute: {kind}")

    def _wake(self) -> None:
        """Start a timer that logs at the end of the minute what was left out, even when no more lines come."""
        if self._has_timer:
            return
        if ends := [each.since + MINUTE for each in self._accounts.values() if each.left_out]:
            with contextlib.suppress(RuntimeError):  # If no thread can be started now, the next line tries again.
                self._start_timer(max(0.0, min(ends) - self._clock()), self._ring)
                self._has_timer = True

    def _ring(self) -> None:
        with self._lock:
            self._has_timer = False
        self.flush()


class Shares:
    """What each site uses of a store. The caller holds the store's lock."""

    def __init__(self, store: WindowStore, limits: Limits = DEFAULT_LIMITS) -> None:
        self._store, self._limits = store, limits
        self._windows: dict[str, set[str]] = defaultdict(set)  # by site; may contain windows that are gone
        for window in store.windows():
            for site in map(site_of, store.ledger(window).known):
                self._windows[site].add(window)
        self._count()

    def check(self, parcel: Parcel, size: int) -> None:
        """Refuse a sketch of a site that has used up its share (UsageError; OSError if the sketch can come later)."""
        if self._store.count_of(parcel) >= self._limits.sketches:
            raise UsageError(
                f"{parcel.site} has sent {counted(self._limits.sketches, 'sketch', 'sketches')} of this window already"
            )
        self._check_windows(parcel)
        share = shutil.disk_usage(self._store.incoming).total // self._limits.disk_part
        if self._bytes[parcel.site] + size > share and self._store.times.steady() - self._counted >= RECOUNT:
            self._count()
        if self._bytes[parcel.site] + size > share:
            text = f"the sketches of {parcel.site} have used up their share of this disk, {format_size(share)}"
            raise OSError(errno.EDQUOT, text)

    def add(self, parcel: Parcel, size: int) -> None:
        """Count a sketch that was accepted."""
        self._windows[parcel.site].add(parcel.window_name)
        self._bytes[parcel.site] += size

    def _check_windows(self, parcel: Parcel) -> None:
        mine, most, now = self._windows[parcel.site], self._limits, self._store.times.wall()
        if parcel.window_name in mine or len(mine) < min(most.windows, most.windows_ahead):
            return
        mine &= set(self._store.windows())
        if len(mine) >= most.windows:
            raise UsageError(f"{parcel.site} has {counted(most.windows, 'window')} here, the limit for one site")
        if seconds_ahead(parcel.window, now) > FUTURE:
            windows = [window for name in mine if (window := parse_window_name(name)) is not None]
            if sum(seconds_ahead(window, now) > FUTURE for window in windows) >= most.windows_ahead:
                raise UsageError(
                    f"{parcel.site} has {counted(most.windows_ahead, 'window')} in the future: is its clock wrong?"
                )

    def _count(self) -> None:
        """Measure the disk usage of each site. Between two measurements new sketches are added to it."""
        self._bytes: dict[str, int] = defaultdict(int)
        self._counted = self._store.times.steady()
        for window in self._store.windows():
            for path in self._store.sketches(window):
                with contextlib.suppress(FileNotFoundError):  # merged and removed meanwhile
                    self._bytes[site_of(path.name)] += path.lstat().st_size


def seconds_ahead(window: Window, now: float) -> float:
    """Return how many seconds after `now` a window ends."""
    return window.end / SECOND - now
