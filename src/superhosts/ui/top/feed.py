"""Where the answers come from: the methods of a `View`, whether it is in this process or at a web address.

Answers may take seconds, so the screen asks in threads. Whoever follows a feed is told of changes from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from superhosts.errors import SuperhostsError
from superhosts.ui.views.view import View

Json = dict[str, Any]
Span = tuple[float, float]  # start and end of a window, in seconds since 1970
AGAIN = 15.0  # seconds after which the list of windows is asked for again, even if no window was added


class LinkError(SuperhostsError):
    """The other side does not answer. It is asked again."""


class Feed(Protocol):
    """What the screen asks. Methods may wait and raise SuperhostsError."""

    halted: str  # two words for the case that nothing new comes
    is_near: bool  # long answers cost nothing

    @property
    def lost(self) -> str:
        """Why nothing new comes at the moment; empty: it does."""

    def follow(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change, from any thread. It does not wait."""

    def close(self) -> None:
        """End what runs in the background."""

    def summary(self) -> Json:
        """Return what it is, and its newest window without rows."""

    def windows(self) -> list[Json]:
        """Return the windows, the oldest first, without rows."""

    def window(self, start: float | None = None, end: float | None = None) -> Json:
        """Return one window with its rows."""

    def host(self, host: str) -> Json:
        """Return one host: its newest row, its past, its alerts."""

    def list_alerts(self) -> Json:
        """Return open and closed alerts, and what is muted."""

    def list_sites(self) -> list[Json]:
        """Return what a hub knows of each site."""

    def mute(self, host: str, rule: str, seconds: float, why: str) -> None:
        """Want no alerts of a host for some time."""

    def unmute(self, host: str, rule: str) -> bool:
        """Want alerts again; False if none were muted."""


class LocalFeed:
    """A view in this process."""

    halted, is_near = "not counting", True

    def __init__(
        self, view: View, *, start: Callable[[], None] = lambda: None, close: Callable[[], None] = lambda: None
    ) -> None:
        """Show a view; `start` begins to fill its board when somebody follows, `close` ends that."""
        self._view, self._start, self._close = view, start, close
        self.summary, self.windows, self.window = view.summary, view.windows, view.window
        self.list_alerts, self.list_sites = view.list_alerts, view.list_sites
        self.mute, self.unmute = view.mute, view.unmute

    @property
    def lost(self) -> str:
        """Return nothing: this process is always there."""
        return ""

    def follow(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change of the board."""
        self._view.board.listeners.append(listener)
        self._start()

    def close(self) -> None:
        """End what fills the board."""
        self._view.board.listeners.clear()
        self._close()

    def host(self, host: str) -> Json:
        """Return one host."""
        return self._view.host(host)


class Snapshot(NamedTuple):
    """All that the main screen shows, of one moment."""

    summary: Json
    windows: list[Json]  # the oldest first, without rows
    shown: Json | None  # the window that is looked at, with rows; None: there is none yet
    alerts: tuple[str, ...] | None  # the hosts of open alerts; None: no alerts are kept
    taken: float = 0.0  # when, by the clock of `Looker`


class Looker:
    """Takes snapshots. The list of windows is long, and asked for only if a window was added."""

    def __init__(self, feed: Feed, clock: Callable[[], float] = time.monotonic) -> None:
        self.feed = feed
        self._clock = clock
        self._windows: list[Json] = []
        self._asked = float("-inf")
        self._has_skipped = False

    @property
    def is_due(self) -> bool:
        """Return True if the list of windows may have changed since it was asked for, and that is a while ago."""
        return self._has_skipped and self._clock() - self._asked >= AGAIN

    def look(self, wanted: Span | None = None) -> Snapshot:
        """Return what there is now; `wanted`: another window than the newest."""
        summary = self.feed.summary()
        taken = self._clock()
        newest: Json | None = summary.get("newest")
        now = self._clock()
        last = self._windows[-1] if self._windows else None
        is_same = newest is not None and last is not None and span_of(newest) == span_of(last)
        if newest is not None and is_same and not self.feed.is_near and now - self._asked < AGAIN:
            self._windows[-1], self._has_skipped = newest, True
        else:
            self._windows, self._asked, self._has_skipped = self.feed.windows(), now, False
        known = any(span_of(each) == wanted for each in self._windows)
        shown = None
        if newest is not None:
            shown = self.feed.window(*wanted) if wanted is not None and known else self.feed.window()
        alerts = None
        if summary.get("can", {}).get("alerts"):
            found = self.feed.list_alerts().get("alerts") or ()
            alerts = tuple(str(alert.get("host")) for alert in found if not alert.get("closed"))
        return Snapshot(summary, list(self._windows), shown, alerts, taken)


def span_of(window: Json) -> Span | None:
    """Return when a window begins and ends; None if it has no times."""
    start, end = window.get("start"), window.get("end")
    return None if start is None or end is None else (float(start), float(end))
