"""The hub's end of the link over NATS: assembles sketches, hands them in, and sends receipts.

A piece is acknowledged to the server when its sketch has been handed in, so that the server delivers it again to a hub
that was killed before. This saves work but guarantees nothing: the guarantee is the receipt, without which the edge
asks and sends again. So when incomplete sketches fill half of the queue, further pieces are acknowledged at once;
otherwise a hundred incomplete sketches could fill the queue and wait for each other forever.

A site that sends invalid data harms only itself. It has its own share of the queue, of the sketches that may arrive at
once, of the turns at the intake and of the answers. What is refused or deferred too often leaves the queue, and so does
everything of a site that is no longer admitted.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

import nats.errors
from nats.aio.msg import Msg

from superhosts.durable import remove_or_set_aside
from superhosts.errors import UsageError
from superhosts.fleet.limits import LimitedSay
from superhosts.fleet.link import Acceptor
from superhosts.fleet.nats.answers import Answers
from superhosts.fleet.nats.arrivals import Arrivals
from superhosts.fleet.nats.assembly import ENDING, Assembly
from superhosts.fleet.nats.connect import (
    Link,
    LinkDownError,
    LinkStatus,
    NatsOptions,
    UnfitServerError,
    connect,
    keep_connected,
    race,
)
from superhosts.fleet.nats.identity import NOBODY, Identity
from superhosts.fleet.nats.stream import Queue, TakenError, check_no_other_hub, expel, prepare, pull
from superhosts.fleet.nats.wire import (
    CONSUMER,
    LARGEST,
    QUESTIONS,
    STREAM,
    Chunk,
    decode_names,
    encode_receipt,
    encode_receipts,
    site_of,
)
from superhosts.fleet.parcels import Parcel
from superhosts.fleet.receipts import MERGED, MOST_REASON, REFUSED, RESEND, Receipt, Say
from superhosts.text import printable
from superhosts.units import SECOND, format_size

INBOX = "_HUBBOX"  # no site may subscribe to it
AT_ONCE = 2  # sketches to hand in at once
STALE = 60.0  # seconds without a new piece, after which another sketch of the site may replace it
TRIES = 6  # deliveries of a piece that exceeds its site's share; then it leaves the queue
PAUSE, LONGEST = 5.0, 300.0  # seconds before a piece is delivered again, growing
QUESTIONS_AT_ONCE = 16  # questions of one site that may wait; an edge asks one at a time
ANSWERS_AT_ONCE = 2  # for all sites; Python has few threads for disk access
NOTES = 10_000  # names to remember
PATIENCE = 5.0  # seconds without a new piece, after which a question suggests that pieces are lost
UNFINISHED = "has not sent the rest of it; waiting until it is sent again"
ACK, PROGRESS, NEVER = b"+ACK", b"+WPI", b"+TERM"


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
    dropped: int = 0  # pieces that left the queue because they were deferred too often
    expelled: int = 0  # pieces that left the queue because their site is not enrolled
    unanswered: int = 0  # questions dropped because their site asks too fast
    down: str = ""  # why the link does not work; empty while it does


Admitted = Callable[[], Collection[str] | None]  # the sites that may send; None for all


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
        abandon: float = 3600.0,
        admitted: Admitted = lambda: None,
    ) -> None:
        """Receive as hub `owner`, with a queue of `cap` bytes, sketches of at most `largest` bytes.

        Pieces of sites that are not `admitted` are discarded.
        """
        options.check()
        self.counters = ReceiveCounters()
        self._options = options
        self._say = LimitedSay(say)
        self._queue = Queue(cap, max_age, ack_wait, owner)
        self._largest, self._abandon, self._stale = largest, abandon, STALE
        self._admitted = admitted
        self._status = LinkStatus(options, say, self.counters)
        self._arrivals = Arrivals(self._queue, largest)
        self._assemblies = self._arrivals.assemblies
        self._link: Link | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reminded: dict[tuple[str, str], float] = {}
        self._last_trouble = ""
        self._expelled_for: Collection[str] | None = None  # the admitted sites when others were last removed

    def check_no_other_hub(self) -> None:
        """Refuse an unsuitable server, or one whose queue another hub reads. A server that is down is accepted."""

        async def look() -> None:
            async with connect(self._options, INBOX, lambda text: None) as link:
                await link.check_strict()
                await check_no_other_hub(link.jetstream, self._queue.owner)
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
        if trouble or self._link is not None:
            self.counters.down = trouble

    def senders(self) -> Collection[str]:
        """Return the sites that may send; empty if every site may."""
        return self._admitted() or ()

    def run(self, intake: Acceptor, stop: threading.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Receive until told to stop. Reports a broken link and retries; calls `ready` once the queue is there."""
        self._ready = ready
        with contextlib.suppress(OSError):  # an unreadable folder is reported when a sketch arrives
            for left in list(intake.folder.glob(f"*{ENDING}")):  # its pieces will be delivered again
                remove_or_set_aside(left)
        asyncio.run(self._run(intake, stop))

    def begin(self, intake: Acceptor) -> None:
        """Forget all arriving sketches, and hand in to this intake from now on."""
        self._intake = intake
        self._accepting = asyncio.Semaphore(AT_ONCE)
        self._answering = asyncio.Semaphore(ANSWERS_AT_ONCE)
        self._turns: dict[tuple[str, str], asyncio.Lock] = {}  # by purpose and site: one job of a site at a time
        self._answers = Answers(intake, self._is_arriving, self._queued, self._queue.ack_wait + 30)
        self._asking: Counter[str] = Counter()  # questions being answered, by site
        self._arrivals.clear()

    async def _run(self, intake: Acceptor, stop: threading.Event) -> None:
        self.begin(intake)
        await keep_connected(lambda: self._session(stop), stop, self._status)
        await asyncio.gather(*self._tasks)

    async def _session(self, stop: threading.Event) -> None:
        async with connect(self._options, INBOX, self._complain) as link:
            await link.check_strict()
            before = await prepare(link.jetstream, self._queue)
            if before is not None:
                where = f" on {printable(before.host)}" if before.host else ""
                self._say("", "queues", f"took over the queue of a hub{where} that no longer runs")
            self._expelled_for = None
            await link.client.subscribe(QUESTIONS, cb=self._question)
            self.counters.connects += 1
            self._status.up()
            if self.counters.connects == 1:
                self._ready()
            self._link = link
            try:
                await race(stop, link, pull(link, self._take), self._tick())
                if self._tasks:  # wait for the receipts of sketches being handed in
                    await asyncio.wait(self._tasks, timeout=10)
                await link.client.flush()
            finally:
                self._link = None

    async def _take(self, message: Msg) -> None:
        """Process a piece. No error stops the processing of the next one."""
        self.counters.chunks += 1
        try:
            await self._place(message)
        except Exception as error:
            self.counters.failures += 1
            subject = printable(message.subject)
            said = printable(f"{type(error).__name__}: {error}", MOST_REASON)
            self._trouble(subject, "pieces that could not be taken", f"{subject}: {said}; it will be delivered again")
            await self._put_off(message)

    async def _place(self, message: Msg) -> None:
        try:
            site = site_of(message.subject)
            chunk = Chunk.parse(message.headers, len(message.data))
        except UsageError as error:
            self.counters.malformed += 1
            subject = printable(message.subject)
            self._trouble(subject, "messages that are not pieces of sketches", f"{subject}: {error}")
            await self._publish(message.reply, NEVER)
            return
        if not self._is_admitted(site):
            self.counters.expelled += 1
            await self._publish(message.reply, NEVER)
            return
        if (named := Parcel.parse(chunk.name).site) != site:
            self._trouble(site, "refused sketches", f"REFUSED: {chunk.name}: {site} sends a sketch of {named}")
            await self._refuse(message, site, Receipt(chunk.name, REFUSED, f"{site} may not send for {named}"))
            return
        if chunk.size > self._largest:
            reason = f"{format_size(chunk.size)} is more than any sketch of this hub's --memory or --geometry can have"
            self._trouble(site, "refused sketches", f"REFUSED: {chunk.name}: {reason}")
            await self._refuse(message, site, Receipt(chunk.name, REFUSED, reason))
            return
        assembly = self._assemblies.get(chunk.name)
        if assembly is None:
            if (receipt := await asyncio.to_thread(self._intake.known, chunk.name)) is not None:
                self.counters.duplicates += 1
                await self._remind(site, receipt)
                await self._publish(message.reply, ACK)
                return
            if not await self._make_room(site, chunk.size):
                await self._wait_for_room(site, message)
                return
            assembly = self._assemblies[chunk.name] = Assembly.begin(self._intake.folder, chunk, site)
        await self._add(assembly, chunk, message)

    async def _refuse(self, message: Msg, site: str, receipt: Receipt) -> None:
        self.counters.refused += 1
        await self._remind(site, receipt)
        await self._publish(message.reply, NEVER)

    def _is_admitted(self, site: str) -> bool:
        admitted = self._admitted()
        return admitted is None or site in admitted

    async def _make_room(self, site: str, size: int) -> bool:
        """Allow one more sketch of a site, if necessary in place of stale ones; return False if that is impossible."""
        mine = [each for each in self._arrivals.of(site) if not each.whole]
        for assembly in sorted(mine, key=lambda each: each.touched):
            if self._arrivals.has(site, size) or time.monotonic() - assembly.touched < self._stale:
                break
            await self._give_up(assembly)
        return self._arrivals.has(site, size)

    async def _wait_for_room(self, site: str, message: Msg) -> None:
        """Defer a piece until its site has finished other sketches; after several attempts it leaves the queue."""
        self.counters.put_off += 1
        mine = self._arrivals.of(site)
        text = f"{site} has begun {len(mine)} sketches and does not finish them; further ones wait"
        self._say(site, "sketches that wait for others of their site", text)
        ours = any(each.whole for each in mine)  # these wait for this hub's disk, which is not the site's fault
        await self._put_off(message, tries=None if ours else TRIES)

    async def _put_off(self, message: Msg, tries: int | None = TRIES) -> None:
        """Let the server deliver a piece again, with growing delays; after `tries` times it leaves the queue."""
        times = _deliveries(message)
        if tries is not None and times >= tries:
            self.counters.dropped += 1
            await self._publish(message.reply, NEVER)
            return
        delay = min(PAUSE * 2.0 ** min(times - 1, 10), LONGEST)
        await self._publish(message.reply, b'-NAK {"delay": %d}' % int(delay * SECOND))

    async def _add(self, assembly: Assembly, chunk: Chunk, message: Msg) -> None:
        if not assembly.whole and not assembly.fits(chunk):
            assembly.restart(chunk)
        if assembly.whole or assembly.have[chunk.number]:
            self.counters.duplicates += 1
        else:
            assembly.touched = time.monotonic()  # so that it is not given up during the write
            try:
                await asyncio.to_thread(assembly.write, chunk, message.data)
            except OSError as error:
                self.counters.failures += 1
                text = f"{assembly.path}: {error.strerror or error}; the sketch waits at the server"
                self._trouble(assembly.site, "pieces that could not be stored", text)
                await self._publish(message.reply, b'-NAK {"delay": 5000000000}')
                return
            if not self._arrivals.is_current(assembly):  # its site was removed during the write
                await self._remove(assembly)
                await self._put_off(message)
                return
            assembly.mark(chunk)
            self._answers.found(assembly.site, chunk.name)
        if assembly.whole and not assembly.handed_in and assembly.retry is None:
            self._hand_in(assembly)  # before any await: from now on it is not given up
        await self._hold(assembly, message)

    async def _hold(self, assembly: Assembly, message: Msg) -> None:
        """Keep the address for a later acknowledgement, or acknowledge now if the queue is too full."""
        if not self._arrivals.hold(assembly, message.metadata.sequence.stream, message.reply, len(message.data)):
            await self._publish(message.reply, ACK)

    def _hand_in(self, assembly: Assembly) -> None:
        assembly.handed_in, assembly.retry = True, None
        self._start(self._finish(assembly))

    async def _finish(self, assembly: Assembly) -> None:
        """Hand in a complete sketch, send the receipt, then acknowledge the pieces."""
        async with self._turn("hand in", assembly.site), self._accepting:
            try:
                receipt = await asyncio.to_thread(assembly.hand_in, self._intake)
            except Exception as error:  # no sketch may stop the hub
                self.counters.failures += 1
                said = printable(getattr(error, "strerror", None) or f"{type(error).__name__}: {error}", MOST_REASON)
                text = f"{assembly.name} cannot be stored now: {said}; retrying"
                self._trouble(assembly.site, "sketches that could not be stored", text)
                if assembly.path.exists():
                    assembly.failures += 1
                    assembly.retry = time.monotonic() + min(2.0**assembly.failures, 60.0)
                    assembly.handed_in = False
                else:  # whether the intake has it will show when its pieces are delivered again
                    self._arrivals.forget(assembly)
                return
        self._arrivals.forget(assembly)
        if receipt.verdict == MERGED:
            self.counters.sketches += 1
            self._last_trouble = ""
        elif receipt.verdict == REFUSED:
            self.counters.refused += 1
        else:
            self.counters.corrupt += 1
        await self._publish(f"superhosts.to.{assembly.site}", encode_receipt(receipt))
        for reply, _ in assembly.held.values():
            await self._publish(reply, ACK)

    async def _tick(self) -> None:
        """Do periodic work: extend the server's timeouts, retry failed sketches, give up incomplete ones."""
        told = time.monotonic()
        while True:
            await asyncio.sleep(0.5)
            now = time.monotonic()
            await self._expel()
            for assembly in list(self._assemblies.values()):
                if assembly.retry is not None and assembly.retry <= now:
                    self._hand_in(assembly)
                elif not assembly.whole and now - assembly.touched > self._abandon:
                    await self._give_up(assembly)
            if now - told > self._queue.ack_wait / 3:
                told = now
                for assembly in list(self._assemblies.values()):
                    for reply, _ in list(assembly.held.values()):
                        await self._publish(reply, PROGRESS)
                old = now - 10 * self._queue.ack_wait - 60
                self._reminded = {receipt: at for receipt, at in self._reminded.items() if at > old}
                self._answers.forget(old)
                self._turns = {whose: turn for whose, turn in self._turns.items() if turn.locked()}
                if len(self._reminded) > NOTES:  # some site invents names
                    self._reminded = {}

    async def _give_up(self, assembly: Assembly, why: str = UNFINISHED) -> None:
        """Give up a sketch that is arriving, and remove its file."""
        if not self._arrivals.is_current(assembly):
            return
        self.counters.abandoned += 1
        text = f"{assembly.name}: {assembly.site} {why}"
        self._say(assembly.site, "sketches that are not sent to the end", text)
        self._arrivals.forget(assembly)
        await self._remove(assembly)
        for reply, _ in assembly.held.values():
            await self._publish(reply, ACK)

    async def _remove(self, assembly: Assembly) -> None:
        """Remove the file of a sketch, which may begin again during the disk access."""
        gone = assembly.step_aside()
        await asyncio.to_thread(gone.unlink, missing_ok=True)

    async def _expel(self) -> None:
        """When the admitted sites have changed, remove what other sites have sent or are sending."""
        admitted = self._admitted()
        if admitted is None or admitted == self._expelled_for or self._link is None:
            return
        for assembly in list(self._assemblies.values()):
            if assembly.site not in admitted and not assembly.handed_in:
                await self._give_up(assembly, "is not enrolled; its pieces are discarded")
        try:
            gone = await expel(self._link.jetstream, admitted)
        except nats.errors.Error:
            return  # try again next time
        self._expelled_for = admitted
        for site, count in gone.items():
            self.counters.expelled += count
            text = f"{site} is not enrolled: {count:,} pieces of its sketches were removed from the queue"
            self._say(site, "pieces of a site that is not enrolled", text)

    async def _question(self, message: Msg) -> None:
        """Answer a question in the background, unless its site asks too fast."""
        try:
            site = site_of(message.subject)
        except UsageError:
            return
        # The hub has all permissions, so a site must not be able to choose where it publishes. A server that isolates
        # sites in accounts replaces the address by one of its own (_R_), which no client can use.
        if not message.reply.startswith((f"_INBOX.{site}.", "_R_.")) or not self._is_admitted(site):
            return
        if self._asking[site] >= QUESTIONS_AT_ONCE:
            self.counters.unanswered += 1
            return
        self._asking[site] += 1
        self._start(self._answer(site, message))

    def _turn(self, what: str, site: str) -> asyncio.Lock:
        return self._turns.setdefault((what, site), asyncio.Lock())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, site: str, message: Msg) -> None:
        try:
            async with self._turn("ask", site), self._answering:
                self.counters.questions += 1
                receipts = await self._answers.receipts(site, decode_names(message.data, site))
                self.counters.lost += sum(receipt.verdict == RESEND for receipt in receipts)
                await self._publish(message.reply, encode_receipts(receipts))
        except Exception as error:  # the edge will ask again
            self.counters.failures += 1
            said = printable(f"{type(error).__name__}: {error}", MOST_REASON)
            self._trouble(site, "questions that could not be answered", f"a question of {site}: {said}")
        finally:
            self._asking[site] -= 1
            if not self._asking[site]:
                del self._asking[site]

    def _is_arriving(self, name: str) -> bool:
        found = self._assemblies.get(name)
        return found is not None and (found.whole or time.monotonic() - found.touched < PATIENCE)

    async def _queued(self) -> bool:
        """Return True if the server has pieces that this hub has not processed."""
        if self._link is None:
            return True
        info = await self._link.jetstream.consumer_info(STREAM, CONSUMER)
        held = sum(len(assembly.held) for assembly in self._assemblies.values())
        return (info.num_pending or 0) + (info.num_ack_pending or 0) > held

    async def _remind(self, site: str, receipt: Receipt) -> None:
        """Send a receipt again, at most once per second."""
        now, reminder = time.monotonic(), (site, receipt.name)
        if now - self._reminded.get(reminder, -1.0) >= 1.0:
            self._reminded[reminder] = now
            await self._publish(f"superhosts.to.{site}", encode_receipt(receipt))

    async def _publish(self, subject: str, data: bytes) -> None:
        """Publish if there is a connection; otherwise the edge will ask, or the server will deliver again."""
        if self._link is not None:
            with contextlib.suppress(nats.errors.Error, OSError):
                await self._link.client.publish(subject, data)

    def _trouble(self, site: str, kind: str, text: str) -> None:
        """Log a problem of a site, unless it repeats the last log line."""
        if text != self._last_trouble:
            self._last_trouble = text
            self._say(site, kind, text)

    def _complain(self, text: str) -> None:
        self._trouble("", "errors from the server", f"{self._options.shown}: {text}")


def _deliveries(message: Msg) -> int:
    """Return how often the server has delivered a piece."""
    try:
        return max(1, message.metadata.num_delivered)
    except (nats.errors.Error, ValueError):  # not a reply address of the server
        return 1
