"""The hub's side of the link over NATS: puts sketches together, hands them in, and gives receipts.

A piece is acknowledged to the server when its sketch has been handed in, so that the server delivers it again to a hub
that was killed on the way. This is a convenience, not the guarantee: the guarantee is the receipt, without which the
edge asks and sends again. So when sketches that are not yet whole fill half of the server's room, further pieces are
acknowledged at once; otherwise a hundred half sketches could fill the queue and wait for each other for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass

import nats.errors
from nats.aio.msg import Msg

from superhosts.errors import UsageError
from superhosts.fleet.link import MERGED, REFUSED, RESEND, Desk, Receipt, Say
from superhosts.fleet.nats.assembly import ENDING, Assembly
from superhosts.fleet.nats.connect import Link, LinkDownError, NatsOptions, Tidings, connect, keep_connected, race
from superhosts.fleet.nats.identity import NOBODY, Identity
from superhosts.fleet.nats.stream import Queue, TakenError, check_alone, prepare, pull
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
from superhosts.units import format_size

INBOX = "_HUBBOX"  # no site may listen here
AT_ONCE = 2  # sketches that are handed in at once
ARRIVING = 32  # sketches of one site that may be arriving at once
LARGE = 4  # and how many of the largest size: all that an edge sends at once
NOTES = 10_000  # names that are remembered
PATIENCE = 5.0  # seconds without a new piece, after which a question is a hint that some are lost
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
    ) -> None:
        """Prepare to receive: as this hub, with a queue of `cap` bytes, sketches of at most `largest` bytes."""
        options.check()
        self.counters = ReceiveCounters()
        self._options = options
        self._say = say
        self._queue = Queue(cap, max_age, ack_wait, owner)
        self._largest, self._abandon = largest, abandon
        self._tidings = Tidings(options, say)
        self._assemblies: dict[str, Assembly] = {}
        self._link: Link | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reminded: dict[tuple[str, str], float] = {}
        self._unknown: dict[str, float] = {}  # names asked for, not here, perhaps still in the queue
        self._last_trouble = ""

    def check_alone(self) -> None:
        """Refuse a server where another hub reads the queue. For one that cannot be reached now `run` waits."""

        async def look() -> None:
            async with connect(self._options, INBOX, lambda text: None) as link:
                await check_alone(link.jetstream, self._queue.owner)

        try:
            asyncio.run(look())
        except TakenError as error:
            raise UsageError(f"--nats {self._options.shown}: {error}") from None
        except LinkDownError:
            return

    def run(self, desk: Desk, stop: threading.Event) -> None:
        """Receive until told to stop. A link that is down is said, and tried again."""
        for left in desk.folder.glob(f"*{ENDING}"):  # its pieces come again
            left.unlink(missing_ok=True)
        asyncio.run(self._run(desk, stop))

    async def _run(self, desk: Desk, stop: threading.Event) -> None:
        self._desk = desk
        self._accepting = asyncio.Semaphore(AT_ONCE)
        self._assemblies.clear()
        self._held = 0  # bytes of pieces that the server keeps until their sketch is handed in
        await keep_connected(lambda: self._session(stop), stop, self._tidings)
        await asyncio.gather(*self._tasks)

    async def _session(self, stop: threading.Event) -> None:
        async with connect(self._options, INBOX, self._complain) as link:
            before = await prepare(link.jetstream, self._queue)
            if before is not None:
                self._say(f"took over the queue of a hub{f' on {before.host}' if before.host else ''} that is gone")
            self.counters.connects += 1
            self._tidings.up()
            await link.client.subscribe(QUESTIONS, cb=self._question)
            self._link = link
            try:
                await race(stop, link, pull(link, self._take), self._tick())
                if self._tasks:  # receipts for what is being handed in
                    await asyncio.wait(self._tasks, timeout=10)
                await link.client.flush()
            finally:
                self._link = None

    async def _take(self, message: Msg) -> None:
        """Put a piece where it belongs."""
        self.counters.chunks += 1
        try:
            site = site_of(message.subject)
            chunk = Chunk.parse(message.headers, len(message.data))
        except UsageError as error:
            self.counters.malformed += 1
            self._trouble(f"{message.subject}: {error}")
            await self._publish(message.reply, NEVER)
            return
        if (named := Parcel.parse(chunk.name).site) != site:
            self.counters.refused += 1
            self._trouble(f"REFUSED: {chunk.name}: {site} sends a sketch of {named}")
            await self._remind(site, Receipt(chunk.name, REFUSED, f"{site} may not send for {named}"))
            await self._publish(message.reply, NEVER)
            return
        assembly = self._assemblies.get(chunk.name)
        if chunk.size > self._largest:
            self.counters.refused += 1
            reason = f"{format_size(chunk.size)} is more than any sketch of this hub's --memory or --geometry can have"
            self._trouble(f"REFUSED: {chunk.name}: {reason}")
            await self._remind(site, Receipt(chunk.name, REFUSED, reason))
            await self._publish(message.reply, NEVER)
            return
        if assembly is None:
            if (receipt := await asyncio.to_thread(self._desk.known, chunk.name)) is not None:
                self.counters.duplicates += 1
                await self._remind(site, receipt)
                await self._publish(message.reply, ACK)
                return
            if not self._has_room(site, chunk.size):
                await self._publish(message.reply, b'-NAK {"delay": 5000000000}')  # when others are done
                return
            assembly = self._assemblies[chunk.name] = Assembly.begin(self._desk.folder, chunk, site)
        await self._add(assembly, chunk, message)

    def _has_room(self, site: str, size: int) -> bool:
        """Say whether a site may begin one more sketch: it must not fill the disk with beginnings."""
        sizes = [each.size for each in self._assemblies.values() if each.site == site]
        return len(sizes) < ARRIVING and sum(sizes) + size <= LARGE * self._largest

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
                self._trouble(f"{assembly.path}: {error.strerror or error}; the sketch waits with the server")
                await self._publish(message.reply, b'-NAK {"delay": 5000000000}')
                return
            assembly.mark(chunk)
            self._unknown.pop(chunk.name, None)
        await self._hold(assembly, message)
        if assembly.whole and not assembly.handed_in and assembly.retry is None:
            self._hand_in(assembly)

    async def _hold(self, assembly: Assembly, message: Msg) -> None:
        """Keep the address for the acknowledgement, as long as that leaves the server room."""
        place, size = message.metadata.sequence.stream, len(message.data)
        if place in assembly.held:  # delivered a second time
            assembly.held[place] = (message.reply, size)
        elif self._held + size > self._queue.cap // 2:
            await self._publish(message.reply, ACK)
        else:
            assembly.held[place] = (message.reply, size)
            self._held += size

    def _hand_in(self, assembly: Assembly) -> None:
        assembly.handed_in, assembly.retry = True, None
        task = asyncio.get_running_loop().create_task(self._finish(assembly))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, assembly: Assembly) -> None:
        """Hand a whole sketch in, give the receipt, then let the server forget the pieces."""
        async with self._accepting:
            try:
                receipt = await asyncio.to_thread(assembly.hand_in, self._desk)
            except Exception as error:  # a hub goes on, whatever is wrong with one sketch
                self.counters.failures += 1
                said = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
                self._trouble(f"{assembly.name} cannot be stored now: {said}; trying again")
                if assembly.path.exists():
                    assembly.failures += 1
                    assembly.retry = time.monotonic() + min(2.0**assembly.failures, 60.0)
                    assembly.handed_in = False
                else:  # the desk has it, or nobody: the pieces tell when they come again
                    self._forget(assembly)
                return
        self._forget(assembly)
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
                self._reminded = {key: at for key, at in self._reminded.items() if at > old}
                self._unknown = {name: at for name, at in self._unknown.items() if at > old}
                if len(self._reminded) + len(self._unknown) > NOTES:  # somebody makes names up
                    self._reminded, self._unknown = {}, {}

    async def _give_up(self, assembly: Assembly) -> None:
        self.counters.abandoned += 1
        self._say(f"{assembly.name}: {assembly.site} has not sent the rest of it; waiting until it is sent again")
        self._forget(assembly)
        await asyncio.to_thread(assembly.path.unlink, missing_ok=True)
        for reply, _ in assembly.held.values():
            await self._publish(reply, ACK)

    def _forget(self, assembly: Assembly) -> None:
        del self._assemblies[assembly.name]
        self._held -= sum(size for _, size in assembly.held.values())

    async def _question(self, message: Msg) -> None:
        """Answer what became of sketches; those that are neither here nor on their way are asked for again."""
        site = site_of(message.subject)
        if not message.reply.startswith(f"_INBOX.{site}."):
            return  # the hub has all rights: it must not be made to speak where the site may not
        self.counters.questions += 1
        names = decode_names(message.data, site)
        arriving = set(filter(self._is_arriving, names))
        receipts = await asyncio.to_thread(lambda: {name: self._desk.known(name) for name in names})
        answer = [receipt for receipt in receipts.values() if receipt is not None]
        unknown = [name for name in names if receipts[name] is None and name not in arriving]
        if unknown:
            queued, now = await self._queued(), time.monotonic()
            for name in unknown:
                if self._is_arriving(name):  # since we looked
                    continue
                since = self._unknown.setdefault(name, now)
                if not queued or now - since > self._queue.ack_wait + 30:
                    self._unknown.pop(name)
                    self.counters.lost += 1
                    answer.append(Receipt(name, RESEND, "not here"))
        await self._publish(message.reply, encode_receipts(answer))

    def _is_arriving(self, name: str) -> bool:
        found = self._assemblies.get(name)
        return found is not None and (found.whole or time.monotonic() - found.touched < PATIENCE)

    async def _queued(self) -> bool:
        """Say whether the server has pieces that were not put away here."""
        assert self._link is not None
        info = await self._link.jetstream.consumer_info(STREAM, CONSUMER)
        held = sum(len(assembly.held) for assembly in self._assemblies.values())
        return (info.num_pending or 0) + (info.num_ack_pending or 0) > held

    async def _remind(self, site: str, receipt: Receipt) -> None:
        """Give a receipt again: once a second, not for every piece."""
        now, key = time.monotonic(), (site, receipt.name)
        if now - self._reminded.get(key, -1.0) >= 1.0:
            self._reminded[key] = now
            await self._publish(f"superhosts.to.{site}", encode_receipt(receipt))

    async def _publish(self, subject: str, data: bytes) -> None:
        """Send if there is a connection; whatever is not heard is asked for or delivered again."""
        if self._link is not None:
            with contextlib.suppress(nats.errors.Error, OSError):
                await self._link.client.publish(subject, data)

    def _trouble(self, text: str) -> None:
        if text != self._last_trouble:
            self._last_trouble = text
            self._say(text)

    def _complain(self, text: str) -> None:
        self._trouble(f"{self._options.shown}: {text}")
