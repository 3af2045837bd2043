"""The hub's end of the link over NATS: the connection, and the periodic work.

`pieces` takes the pieces of sketches, `answers` the questions of edges. Everything of a site that is no longer admitted
leaves the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Collection

import nats.errors
from nats.js.api import StreamState

from superhosts.core.files import remove_or_set_aside
from superhosts.core.text import counted, printable
from superhosts.errors import UsageError
from superhosts.fleet.link import Acceptor
from superhosts.fleet.nats.answers import Questions
from superhosts.fleet.nats.arrivals import Arrivals
from superhosts.fleet.nats.assembly import ENDING
from superhosts.fleet.nats.connect import (
    Link,
    LinkDownError,
    LinkStatus,
    UnfitServerError,
    connect,
    keep_connected,
    race,
)
from superhosts.fleet.nats.identity import NOBODY, Identity
from superhosts.fleet.nats.jobs import Jobs
from superhosts.fleet.nats.options import NatsOptions
from superhosts.fleet.nats.pieces import AT_ONCE, DEFAULT_PATIENCE, Patience, Pieces
from superhosts.fleet.nats.reception import Admitted, Reception
from superhosts.fleet.nats.stream import Queue, TakenError, check_no_other_hub, expel, prepare, pull
from superhosts.fleet.nats.wire import LARGEST, QUESTIONS, STREAM
from superhosts.fleet.quotas import Quotas
from superhosts.fleet.receipts import Say

LOOK_EVERY = 10.0  # seconds between two looks at how much is left of what waited at the start
INBOX = "_HUBBOX"  # no site may subscribe to it
ANSWER_PATIENCE = 30.0  # seconds, besides the server's own timeout, until a sketch that does not come counts as lost


class NatsReceiver:
    """Receives the sketches of all sites."""

    def __init__(
        self,
        options: NatsOptions,
        say: Say,
        *,
        owner: Identity = NOBODY,
        cap: int = 4 << 30,
        largest: int = LARGEST,
        max_age: float = 7 * 86400.0,
        ack_wait: float = 60.0,
        at_once: int = AT_ONCE,
        patience: Patience = DEFAULT_PATIENCE,
        admitted: Admitted = lambda: None,
        quotas: Quotas | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Receive as hub `owner`, with a queue of `cap` bytes, sketches of at most `largest` bytes.

        Pieces of sites that are not `admitted` are discarded. What sites tell about themselves goes to the roster of
        their `quotas`.
        """
        options.check()
        self.reception = Reception(say, admitted, clock, quotas)
        self.counters = self.reception.counters
        self.queue = Queue(cap, max_age, ack_wait, owner)
        self.arrivals = Arrivals(self.queue, largest)
        self._options, self._at_once, self._patience = options, at_once, patience
        self._status = LinkStatus(options, say, self.counters)
        self._earlier: tuple[StreamState, StreamState] | None = None  # of the queue: at the start, and now
        self._expelled_for: Collection[str] | None = None  # the admitted sites when others were last removed

    def check_no_other_hub(self) -> None:
        """Refuse an unsuitable server, or one whose queue another hub reads. A server that is down is accepted."""

        async def look() -> None:
            async with connect(self._options, INBOX, lambda text: None) as link:
                await link.check_strict()
                await check_no_other_hub(link.jetstream, self.queue.owner, self._options.timing.look)
                if link.is_open:
                    self._status.say("the server requires no credentials: every client can send for any site")

        try:
            asyncio.run(look())
        except (TakenError, UnfitServerError) as error:
            raise UsageError(f"--nats {self._options.shown}: {error}") from None
        except LinkDownError as error:
            self.counters.down = str(error)

    def note_reach(self, trouble: str) -> None:
        """Record why a new connection fails, or that it works; an open connection may continue meanwhile."""
        if trouble or self.reception.replies.link is not None:
            self.counters.down = trouble

    def senders(self) -> Collection[str]:
        """Return the sites that may send; empty if every site may."""
        return self.reception.admitted() or ()

    def earlier(self) -> dict[str, int] | None:
        """Return the pieces that are left of those that waited in the queue at the start, each with its bytes."""
        if self._earlier is None:
            return None
        first, now = self._earlier
        removed = first.messages + now.last_seq - first.last_seq - now.messages  # the oldest leave first
        size = first.bytes // max(first.messages, 1)
        return dict.fromkeys(map(str, range(max(removed, 0), first.messages)), size)

    async def _look_at_queue(self, link: Link) -> None:
        now = (await link.jetstream.stream_info(STREAM)).state
        self._earlier = (now if self._earlier is None else self._earlier[0]), now

    def run(self, intake: Acceptor, stop: threading.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Receive until told to stop. Reports a broken link and retries; calls `ready` once the queue is there."""
        self._ready = ready
        with contextlib.suppress(OSError):  # an unreadable folder is reported when a sketch arrives
            for left in list(intake.folder.glob(f"*{ENDING}")):  # its pieces will be delivered again
                remove_or_set_aside(left)
        asyncio.run(self._run(intake, stop))

    def begin(self, intake: Acceptor) -> None:
        """Forget all arriving sketches, and hand in to this intake from now on."""
        self.arrivals.clear()
        self.jobs = self.reception.jobs = Jobs()
        self.questions = Questions(self.reception, self.arrivals, intake, self.queue.ack_wait + ANSWER_PATIENCE)
        self.pieces = Pieces(
            self.reception,
            self.arrivals,
            intake,
            self.questions.found,
            at_once=self._at_once,
            patience=self._patience,
        )

    async def _run(self, intake: Acceptor, stop: threading.Event) -> None:
        self.begin(intake)
        timing = self._options.timing
        await keep_connected(lambda: self._session(stop), stop, self._status, timing=timing)
        await self.jobs.finish()

    async def _session(self, stop: threading.Event) -> None:
        async with connect(self._options, INBOX, self._complain) as link:
            await link.check_strict()
            before = await prepare(link.jetstream, self.queue, self._options.timing.look)
            if before is not None:
                where = f" on {printable(before.host)}" if before.host else ""
                self.reception.say("", "queues", f"took over the queue of a hub{where} that no longer runs")
            self._expelled_for = None
            await self._look_at_queue(link)
            await link.client.subscribe(QUESTIONS, cb=self.questions.take)
            self.counters.connects += 1
            self._status.up()
            if self.counters.connects == 1:
                self._ready()
            self.reception.replies.link = link
            try:
                await race(stop, link, pull(link, self.pieces.take), self._tick())
                await self.jobs.wait(10.0)  # for the receipts of sketches being handed in
                await link.client.flush()
            finally:
                self.reception.replies.link = None

    async def _tick(self) -> None:
        """Do periodic work: extend the server's timeouts, retry failed sketches, give up incomplete ones."""
        told = looked = self.reception.clock()
        while True:
            await asyncio.sleep(0.5)
            now = self.reception.clock()
            await self.expel()
            await self.pieces.look_after(now)
            link = self.reception.replies.link
            if now - looked > LOOK_EVERY and link is not None and self.earlier():
                looked = now
                with contextlib.suppress(nats.errors.Error):  # the next look tells
                    await self._look_at_queue(link)
            if now - told > self.queue.ack_wait / 3:
                told = now
                await self.pieces.extend_timeouts()
                old = now - 10 * self.queue.ack_wait - 60
                self.reception.replies.forget(old)
                self.questions.forget(old)

    async def expel(self) -> None:
        """When the admitted sites have changed, remove what other sites have sent or are sending."""
        admitted, link = self.reception.admitted(), self.reception.replies.link
        if admitted is None or admitted == self._expelled_for or link is None:
            return
        for assembly in list(self.arrivals.assemblies.values()):
            if assembly.site not in admitted and not assembly.handed_in:
                await self.pieces.give_up(assembly, "is not enrolled; its pieces are discarded")
        try:
            gone = await expel(link.jetstream, admitted)
        except nats.errors.Error:
            return  # try again next time
        self._expelled_for = admitted
        for site, count in gone.items():
            self.counters.expelled += count
            text = f"{site} is not enrolled: removed {counted(count, 'piece')} of its sketches from the queue"
            self.reception.say(site, "pieces of a site that is not enrolled", text)

    def _complain(self, text: str) -> None:
        self.reception.complain("", "errors from the server", f"{self._options.shown}: {text}")
