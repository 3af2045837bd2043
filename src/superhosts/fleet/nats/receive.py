"""The hub's side of the link over NATS: puts sketches together, hands them in, and gives receipts.

A piece is acknowledged to the server when its sketch has been handed in, so that the server delivers it again to a hub
that was killed on the way. This is a convenience, not the guarantee: the guarantee is the receipt, without which the
edge asks and sends again. So when sketches that are not yet whole fill half of the server's room, further pieces are
acknowledged at once; otherwise a hundred half sketches could fill the queue and wait for each other for ever.

A site that sends nonsense harms itself only. It has its own share of the queue, of the sketches that may be arriving,
of the turns at the intake and of the answers. What is refused or put off too often leaves the queue, and so does all of
a site that is not admitted any more.
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

from superhosts.durable import make_way
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
from superhosts.fleet.nats.stream import Queue, TakenError, check_alone, expel, prepare, pull
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
from superhosts.units import format_size

INBOX = "_HUBBOX"  # no site may listen here
AT_ONCE = 2  # sketches that are handed in at once
STALE = 60.0  # seconds without a new piece, after which a sketch gives way to another of its site
TRIES = 6  # times that a piece is offered for which its site has no room; then it leaves the queue
PAUSE, LONGEST = 5.0, 300.0  # seconds before a piece is offered again, growing
QUESTIONS_AT_ONCE = 16  # of one site that wait for an answer; an edge asks one after the other
ANSWERS_AT_ONCE = 2  # to all sites; Python has few threads for all that waits for disks
NOTES = 10_000  # names that are remembered
PATIENCE = 5.0  # seconds without a new piece, after which a question is a hint that some are lost
UNFINISHED = "has not sent the rest of it; waiting until it is sent again"
ACK, PROGRESS, NEVER = b"+ACK", b"+WPI", b"+TERM"


@dataclass
class ReceiveCounters:
    """What the hub's link has done."""

    connects: int = 0
    sketches: int = 0  # merged
    chunks: int = 0
    duplicates: int = 0  # pieces that were here before
    corrupt: int = 0  # sketches that did not arrive as they were sent
    refused: int = 0
    malformed: int = 0  # messages that are no pieces of sketches
    questions: int = 0
    lost: int = 0  # sketches that an edge has sent and that are not here: asked for again
    failures: int = 0  # times that a piece or a sketch could not be stored
    abandoned: int = 0  # sketches that were never sent to the end
    put_off: int = 0  # times that a site had too many sketches arriving, so that a piece had to wait
    dropped: int = 0  # pieces that left the queue because they were put off too often
    expelled: int = 0  # pieces that left the queue because their site is not enrolled
    unanswered: int = 0  # questions of sites that ask faster than they are answered
    down: str = ""  # why the link does not work; nothing while it does


Admitted = Callable[[], Collection[str] | None]  # the sites that may send; None: all


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
        """Prepare to receive: as this hub, with a queue of `cap` bytes, sketches of at most `largest` bytes.

        Pieces of sites that are not `admitted` are thrown away.
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
        self._expelled_for: Collection[str] | None = None  # the admitted sites when others were last thrown out

    def check_alone(self) -> None:
        """Refuse a server that does not do, or where another hub reads the queue. One that is away is waited for."""

        async def look() -> None:
            async with connect(self._options, INBOX, lambda text: None) as link:
                await link.check_strict()
                await check_alone(link.jetstream, self._queue.owner)
                if link.is_open:
                    self._status.say("the server lets anybody in: whoever reaches it may speak for any site")

        try:
            asyncio.run(look())
        except (TakenError, UnfitServerError) as error:
            raise UsageError(f"--nats {self._options.shown}: {error}") from None
        except LinkDownError as error:
            self.counters.down = str(error)

    def note_reach(self, trouble: str) -> None:
        """Note why a new connection does not work, or that one does; an open one may go on meanwhile."""
        if trouble or self._link is not None:
            self.counters.down = trouble

    def senders(self) -> Collection[str]:
        """Return the sites that may send; none where everybody may."""
        return self._admitted() or ()

    def run(self, intake: Acceptor, stop: threading.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Receive until told to stop. Reports a broken link and retries; calls `ready` once the queue is there."""
        self._ready = ready
        with contextlib.suppress(OSError):  # a folder that cannot be read is said when a sketch arrives
            for left in list(intake.folder.glob(f"*{ENDING}")):  # its pieces come again
                make_way(left)
        asyncio.run(self._run(intake, stop))

    def begin(self, intake: Acceptor) -> None:
        """Forget all that was arriving, and take what comes for this intake from now on."""
        self._intake = intake
        self._accepting = asyncio.Semaphore(AT_ONCE)
        self._answering = asyncio.Semaphore(ANSWERS_AT_ONCE)
        self._turns: dict[tuple[str, str], asyncio.Lock] = {}  # of each site: one after the other, so all have turns
        self._answers = Answers(intake, self._is_arriving, self._queued, self._queue.ack_wait + 30)
        self._asking: Counter[str] = Counter()  # questions of each site that are being answered
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
                self._say("", "queues", f"took over the queue of a hub{where} that is gone")
            self._expelled_for = None
            await link.client.subscribe(QUESTIONS, cb=self._question)
            self.counters.connects += 1
            self._status.up()
            if self.counters.connects == 1:
                self._ready()
            self._link = link
            try:
                await race(stop, link, pull(link, self._take), self._tick())
                if self._tasks:  # receipts for what is being handed in
                    await asyncio.wait(self._tasks, timeout=10)
                await link.client.flush()
            finally:
                self._link = None

    async def _take(self, message: Msg) -> None:
        """Put a piece where it belongs. Whatever it is, the next one is taken."""
        self.counters.chunks += 1
        try:
            await self._place(message)
        except Exception as error:
            self.counters.failures += 1
            subject = printable(message.subject)
            said = printable(f"{type(error).__name__}: {error}", MOST_REASON)
            self._trouble(subject, "pieces that could not be taken", f"{subject}: {said}; offered again")
            await self._put_off(message)

    async def _place(self, message: Msg) -> None:
        try:
            site = site_of(message.subject)
            chunk = Chunk.parse(message.headers, len(message.data))
        except UsageError as error:
            self.counters.malformed += 1
            subject = printable(message.subject)
            self._trouble(subject, "messages that are no pieces of sketches", f"{subject}: {error}")
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
        """Let one more sketch of a site begin, in the place of those that it does not go on with."""
        mine = [each for each in self._arrivals.of(site) if not each.whole]
        for assembly in sorted(mine, key=lambda each: each.touched):
            if self._arrivals.has(site, size) or time.monotonic() - assembly.touched < self._stale:
                break
            await self._give_up(assembly)
        return self._arrivals.has(site, size)

    async def _wait_for_room(self, site: str, message: Msg) -> None:
        """Put a piece off until its site has finished others; one that has waited in vain leaves the queue."""
        self.counters.put_off += 1
        mine = self._arrivals.of(site)
        text = f"{site} has begun {len(mine)} sketches and does not finish them; further ones wait"
        self._say(site, "sketches that wait for others of their site", text)
        ours = any(each.whole for each in mine)  # these wait for our disk: the site is not to blame
        await self._put_off(message, tries=None if ours else TRIES)

    async def _put_off(self, message: Msg, tries: int | None = TRIES) -> None:
        """Have a piece offered again, ever later; after so many times it leaves the queue, and its edge asks for it."""
        times = _deliveries(message)
        if tries is not None and times >= tries:
            self.counters.dropped += 1
            await self._publish(message.reply, NEVER)
            return
        delay = min(PAUSE * 2.0 ** min(times - 1, 10), LONGEST)
        await self._publish(message.reply, b'-NAK {"delay": %d}' % int(delay * 1e9))

    async def _add(self, assembly: Assembly, chunk: Chunk, message: Msg) -> None:
        if not assembly.whole and not assembly.fits(chunk):
            assembly.recut(chunk)
        if assembly.whole or assembly.have[chunk.number]:
            self.counters.duplicates += 1
        else:
            assembly.touched = time.monotonic()  # it must not be given up while this is written
            try:
                await asyncio.to_thread(assembly.write, chunk, message.data)
            except OSError as error:
                self.counters.failures += 1
                text = f"{assembly.path}: {error.strerror or error}; the sketch waits with the server"
                self._trouble(assembly.site, "pieces that could not be stored", text)
                await self._publish(message.reply, b'-NAK {"delay": 5000000000}')
                return
            if not self._arrivals.is_current(assembly):  # its site was thrown out while this was written
                await self._remove(assembly)
                await self._put_off(message)
                return
            assembly.mark(chunk)
            self._answers.found(assembly.site, chunk.name)
        if assembly.whole and not assembly.handed_in and assembly.retry is None:
            self._hand_in(assembly)  # before anything is waited for: from now on it is not given up
        await self._hold(assembly, message)

    async def _hold(self, assembly: Assembly, message: Msg) -> None:
        """Keep the address for the acknowledgement, as long as that leaves the server room."""
        if not self._arrivals.hold(assembly, message.metadata.sequence.stream, message.reply, len(message.data)):
            await self._publish(message.reply, ACK)

    def _hand_in(self, assembly: Assembly) -> None:
        assembly.handed_in, assembly.retry = True, None
        self._start(self._finish(assembly))

    async def _finish(self, assembly: Assembly) -> None:
        """Hand a whole sketch in, give the receipt, then let the server forget the pieces."""
        async with self._turn("hand in", assembly.site), self._accepting:
            try:
                receipt = await asyncio.to_thread(assembly.hand_in, self._intake)
            except Exception as error:  # a hub goes on, whatever is wrong with one sketch
                self.counters.failures += 1
                said = printable(getattr(error, "strerror", None) or f"{type(error).__name__}: {error}", MOST_REASON)
                text = f"{assembly.name} cannot be stored now: {said}; trying again"
                self._trouble(assembly.site, "sketches that could not be stored", text)
                if assembly.path.exists():
                    assembly.failures += 1
                    assembly.retry = time.monotonic() + min(2.0**assembly.failures, 60.0)
                    assembly.handed_in = False
                else:  # the intake has it, or nobody: the pieces tell when they come again
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
        """Keep what takes its time: tell the server, try desks again, give up what nobody sends any more."""
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
                if len(self._reminded) > NOTES:  # somebody makes names up
                    self._reminded = {}

    async def _give_up(self, assembly: Assembly, why: str = UNFINISHED) -> None:
        """Forget a sketch that is arriving, and remove what there is of it."""
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
        """Remove the file of a sketch that may begin again while this waits for the disk."""
        gone = assembly.step_aside()
        await asyncio.to_thread(gone.unlink, missing_ok=True)

    async def _expel(self) -> None:
        """When the admitted sites have changed, throw out what others have sent and what is arriving from them."""
        admitted = self._admitted()
        if admitted is None or admitted == self._expelled_for or self._link is None:
            return
        for assembly in list(self._assemblies.values()):
            if assembly.site not in admitted and not assembly.handed_in:
                await self._give_up(assembly, "is not enrolled; what came of it is thrown away")
        try:
            gone = await expel(self._link.jetstream, admitted)
        except nats.errors.Error:
            return  # at the next turn
        self._expelled_for = admitted
        for site, count in gone.items():
            self.counters.expelled += count
            text = f"{site} is not enrolled: {count:,} pieces of its sketches were thrown out of the queue"
            self._say(site, "pieces of a site that is not enrolled", text)

    async def _question(self, message: Msg) -> None:
        """Have a question answered, unless its site asks faster than that goes."""
        try:
            site = site_of(message.subject)
        except UsageError:
            return
        # The hub has all rights: it must not be made to speak where the site may not. A server that keeps sites in
        # accounts of their own puts an address of its own, which no client may use.
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
        except Exception as error:  # the edge asks again
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
        """Say whether the server has pieces that were not put away here."""
        if self._link is None:
            return True
        info = await self._link.jetstream.consumer_info(STREAM, CONSUMER)
        held = sum(len(assembly.held) for assembly in self._assemblies.values())
        return (info.num_pending or 0) + (info.num_ack_pending or 0) > held

    async def _remind(self, site: str, receipt: Receipt) -> None:
        """Give a receipt again: once a second, not for every piece."""
        now, reminder = time.monotonic(), (site, receipt.name)
        if now - self._reminded.get(reminder, -1.0) >= 1.0:
            self._reminded[reminder] = now
            await self._publish(f"superhosts.to.{site}", encode_receipt(receipt))

    async def _publish(self, subject: str, data: bytes) -> None:
        """Send if there is a connection; whatever is not heard is asked for or delivered again."""
        if self._link is not None:
            with contextlib.suppress(nats.errors.Error, OSError):
                await self._link.client.publish(subject, data)

    def _trouble(self, site: str, kind: str, text: str) -> None:
        """Say what is wrong with something of a site, unless that was the last thing said."""
        if text != self._last_trouble:
            self._last_trouble = text
            self._say(site, kind, text)

    def _complain(self, text: str) -> None:
        self._trouble("", "complaints of the server", f"{self._options.shown}: {text}")


def _deliveries(message: Msg) -> int:
    """Return how often the server has offered a piece."""
    try:
        return max(1, message.metadata.num_delivered)
    except (nats.errors.Error, ValueError):  # not the server's own address for the answer
        return 1
