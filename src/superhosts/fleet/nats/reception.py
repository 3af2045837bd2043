"""What the parts of a hub's receiver share: counters, what it sends, what it logs, and the sites that it admits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import nats.errors

from superhosts.fleet.limits import LimitedSay
from superhosts.fleet.nats.connect import Link
from superhosts.fleet.nats.jobs import Jobs
from superhosts.fleet.nats.wire import encode_receipt
from superhosts.fleet.quotas import Quotas
from superhosts.fleet.receipts import Receipt, Say
from superhosts.fleet.roster import Roster

ACK, PROGRESS, NEVER = b"+ACK", b"+WPI", b"+TERM"
AGAIN = b'-NAK {"delay": %d}'  # in nanoseconds
MAX_REMINDED = 10_000  # receipts to remember as sent again; more must be for invented names

Admitted = Callable[[], Collection[str] | None]  # the sites that may send; None for all


@dataclass
class ReceiveCounters:
    """What the hub's link has done."""

    connects: int = 0
    sketches: int = 0  # merged
    chunks: int = 0
    duplicates: int = 0  # pieces received before
    corrupt: int = 0  # sketches that did not arrive intact
    refused: int = 0
    malformed: int = 0  # messages that are not pieces of sketches
    questions: int = 0
    lost: int = 0  # sketches that an edge has sent and that did not arrive: requested again
    failures: int = 0  # failed attempts to store a piece or a sketch
    abandoned: int = 0  # sketches that were never completed
    put_off: int = 0  # pieces deferred because their site had too many sketches arriving
    slowed: int = 0  # pieces deferred because their site is over its quota
    dropped: int = 0  # pieces that left the queue because they were deferred too often
    expelled: int = 0  # pieces that left the queue because their site is not enrolled
    unanswered: int = 0  # questions dropped because their site asks too fast
    down: str = ""  # why the link does not work; empty while it does


class Replies:
    """Sends receipts to edges and acknowledgements to the server, if a connection is open."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.link: Link | None = None
        self._clock = clock
        self._reminded: dict[tuple[str, str], float] = {}

    async def publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        """Publish if there is a connection; otherwise the edge will ask, or the server will deliver again."""
        if self.link is not None:
            with contextlib.suppress(nats.errors.Error, OSError):
                await self.link.client.publish(subject, data, headers=headers)

    async def give_receipt(self, site: str, receipt: Receipt) -> None:
        """Send a receipt to the edge of a site."""
        await self.publish(f"superhosts.to.{site}", encode_receipt(receipt))

    async def remind(self, site: str, receipt: Receipt) -> None:
        """Send a receipt again, at most once per second."""
        now, reminder = self._clock(), (site, receipt.name)
        if now - self._reminded.get(reminder, -1.0) >= 1.0:
            self._reminded[reminder] = now
            await self.give_receipt(site, receipt)

    def forget(self, old: float) -> None:
        """Forget reminders from before a given time."""
        self._reminded = {receipt: at for receipt, at in self._reminded.items() if at > old}
        if len(self._reminded) > MAX_REMINDED:
            self._reminded = {}


class Complaints:
    """Logs problems of sites, unless a line repeats the last one."""

    def __init__(self, say: LimitedSay) -> None:
        self._say = say
        self._last = ""

    def __call__(self, site: str, kind: str, text: str) -> None:
        """Log a problem."""
        if text != self._last:
            self._last = text
            self._say(site, kind, text)

    def over(self) -> None:
        """Note that something succeeded: the same problem is logged again if it returns."""
        self._last = ""


class Reception:
    """The shared parts of one receiver."""

    def __init__(self, say: Say, admitted: Admitted, clock: Callable[[], float], quotas: Quotas | None = None) -> None:
        self.quotas = Quotas(roster=Roster(say)) if quotas is None else quotas
        self.roster = self.quotas.roster
        self.counters = ReceiveCounters()
        self.say = LimitedSay(say, clock=clock)
        self.complain = Complaints(self.say)
        self.replies = Replies(clock)
        self.jobs = Jobs()
        self.admitted, self.clock = admitted, clock

    def is_admitted(self, site: str) -> bool:
        """Return True if a site may send."""
        admitted = self.admitted()
        return admitted is None or site in admitted
