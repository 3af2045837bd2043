"""What carries sketches from an edge to a hub: receipts, retry delays, and how far what waited is done.

A link delivers at least once; its two ends are `LinkSender` (spool.py) and `LinkReceiver` (intake.py). Duplicates and
any order are harmless, since merging is the union.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import printable
from superhosts.core.units import format_size

DOUBLINGS = 64  # more would exceed every limit, and eventually the range of a float
MERGED = "merged"  # the hub's disk has it in its window's folder; the union is computed from that folder
REFUSED = "refused"  # another key, geometry or version: sending it again would not help
RESEND = "resend"  # it did not arrive whole, or was lost on the way
MAX_REASON = 400  # characters of a reason: it may quote text made up by a site, and goes to the logs of hub and edge
MAX_SAID = 500  # characters of a reason in a log line
Say = Callable[[str], None]  # writes one line for the operator
EVERY = 30.0  # seconds between two lines


class Receipt(NamedTuple):
    """The hub's verdict on one sketch.

    An edge keeps its copy of a sketch until the hub itself has given a receipt for it; that a broker or a folder has
    the sketch is not enough.
    """

    name: str
    verdict: str
    reason: str = ""


def decode_json(data: bytes, most: int | None = None) -> Any:
    """Parse JSON that somebody else has written; None if it is invalid, or longer than `most` bytes."""
    try:
        return json.loads(data) if most is None or len(data) <= most else None
    except (RecursionError, ValueError):
        return None


def decode_receipt(content: Any, name: str) -> Receipt | None:
    """Return the receipt for a sketch in parsed JSON; None if it is invalid. Its reason is shown to people."""
    if not isinstance(content, dict) or content.get("verdict") not in (MERGED, REFUSED, RESEND):
        return None
    return Receipt(name, content["verdict"], printable(content.get("reason", ""), MAX_REASON))


class LinkStatus:
    """Logs changes of a link: each reason why it is down once, and when it works again.

    `counters.down` has the last reason, and is empty while the link works.
    """

    def __init__(self, name: str, say: Say, counters: Any) -> None:
        self._name, self._say, self._counters = name, say, counters
        self._reasons: set[str] = set()  # logged since it last worked: one cause may lead to several errors in turn

    def down(self, reason: str, waiting: str = "", more: str = "") -> None:
        """Log a reason, and what waits for the link; `more` is for the counters alone."""
        self._counters.down = reason + more
        if reason not in self._reasons:
            self._reasons.add(reason)
            text = f"{self._name} does not work: {reason}{waiting}; retrying until it does"
            self._say(Notice(text, "link-down", WARNING))

    def up(self) -> None:
        self._counters.down = ""
        if self._reasons:
            self._reasons.clear()
            self._say(Notice(f"{self._name} works again", "recovered"))


class Backlog:
    """How far a service is with what waited on disk when it started, by names, with their bytes.

    A service with gigabytes that wait is ready at once. None of them is read to count them.
    """

    def __init__(
        self,
        what: str,
        waiting: Callable[[], Mapping[str, int] | None],
        say: Say,
        *,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`waiting` returns all that waits now; None: that is not known yet."""
        self._what, self._waiting, self._say = what, waiting, say
        self._every, self._clock = every, clock
        self._first: frozenset[str] | None = None
        self._next = clock() + every
        self.left()

    def left(self) -> tuple[int, int]:
        """Return how many of the first things are left, and their bytes."""
        now = self._waiting()
        if now is None:
            return 0, 0
        if self._first is None:
            self._first = frozenset(now)
        sizes = [size for name, size in now.items() if name in self._first]
        return len(sizes), sum(sizes)

    def tell(self) -> None:
        """Say how far it is, from time to time, until all is done. Costs nothing between two lines."""
        if self._first is None:
            self.left()  # what waits is known from the first moment in which it can be
        if self._clock() < self._next or not self._first:
            return
        self._next = self._clock() + self._every
        left, size = self.left()
        total = len(self._first)
        if left:
            text = f"{self._what}: {total - left:,} of {total:,} done, {format_size(size)} left"
        else:
            text = f"{self._what}: all {total:,} done"
            self._first = frozenset()
        self._say(Notice(text, "backlog", done=total - left, total=total, bytes_left=size))


def retry_delay(attempts: int, first: float, longest: float) -> float:
    """Return the seconds to wait after so many attempts: `first` after one, then twice as long each, up to a limit."""
    return min(first * 2.0 ** min(max(attempts - 1, 0), DOUBLINGS), longest)
