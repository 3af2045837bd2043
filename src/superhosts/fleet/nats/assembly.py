"""Assembles the pieces of sketches that a hub receives, hands complete sketches to the intake, and gives receipts.

A piece leaves the server's queue when it is on this disk. That guarantees nothing: the guarantee is the receipt for the
whole sketch, without which the edge asks, and sends again what a hub that was killed has lost.

A site that sends invalid data harms only itself. It has its own share of the queue, of the sketches that may arrive at
once and of the turns at the intake. What is refused or deferred too often leaves the queue, and so does what a site has
sent that is no longer admitted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import nats.errors
from nats.aio.msg import Msg

from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import printable
from superhosts.core.units import SECOND, format_size
from superhosts.errors import UsageError
from superhosts.fleet.intake import Intake
from superhosts.fleet.link import MAX_REASON, MERGED, REFUSED, RESEND, Receipt, retry_delay
from superhosts.fleet.names import SketchId
from superhosts.fleet.nats import messages
from superhosts.fleet.nats.connection import Link
from superhosts.fleet.nats.messages import Chunk
from superhosts.fleet.sites import Quotas

ACK, NEVER = b"+ACK", b"+TERM"
MAX_ARRIVING = 32  # sketches of one site that may arrive at once
MAX_LARGE = 4  # how many of them may have the largest size: an edge sends that many at once
SILENCE = 5.0  # seconds without a new piece, after which a question suggests that pieces are lost
AT_ONCE = 2  # sketches to hand in at once
ANSWERS_AT_ONCE = 2  # for all sites; Python has few threads for disk access
TRIES = 6  # deliveries of a piece that exceeds its site's share; then it leaves the queue
LONGEST = 300.0  # longest time in seconds before a piece is delivered again
LONGEST_SLOWED = 60.0  # longest time in seconds before a piece is delivered again that is over its site's quota
LONGEST_RETRY = 60.0  # longest time in seconds before a complete sketch is handed in again
UNFINISHED = "has not sent the rest of it; waiting until it is sent again"

Admitted = Callable[[], Collection[str] | None]  # the sites that may send; None for all


@dataclass(frozen=True)
class Patience:
    """How long a hub waits for the pieces of a sketch, in seconds."""

    abandon: float = 3600.0  # without a new piece, until a sketch is given up
    stale: float = 60.0  # without a new piece, until another sketch of the site may replace it
    pause: float = 5.0  # before a piece is delivered again, growing


DEFAULT_PATIENCE = Patience()


@dataclass
class ReceiveCounters:
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


@dataclass
class Assembly:
    path: Path  # of its own, as a sketch may begin again while an earlier file of it is removed
    site: str
    name: str
    step: int
    size: int
    touched: float  # when the last new piece arrived
    retry: float | None = None  # when to hand it in again, after a failure
    failures: int = 0

    def __post_init__(self) -> None:
        self.missing = -(-self.size // self.step)
        self.have = bytearray(self.missing)

    @property
    def whole(self) -> bool:
        return self.missing == 0

    @property
    def handed_in(self) -> bool:
        """Return True if it is complete, and with the intake."""
        return self.whole and self.retry is None

    def write(self, chunk: Chunk, data: bytes) -> None:
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            offset, view = chunk.number * chunk.step, memoryview(data)
            while view:
                written = os.pwrite(handle, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(handle)

    def hand_in(self, intake: Intake) -> Receipt:
        """Flush the complete file to disk and hand it to the intake; remove what the intake does not keep."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        receipt = intake.accept(self.path, self.name, self.site)
        self.path.unlink(missing_ok=True)
        return receipt


class Assembler:
    """Assembles the sketches of all sites; holds what the parts of one receiver share: counters, log, link."""

    def __init__(
        self,
        quotas: Quotas,
        admitted: Admitted,
        clock: Callable[[], float],
        *,
        largest: int,
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        """No sketch has more than `largest` bytes."""
        self.quotas, self.roster, self.admitted, self.clock = quotas, quotas.roster, admitted, clock
        self.counters = ReceiveCounters()
        self.say = self.roster.log
        self.link: Link | None = None
        self.largest, self._patience = largest, patience
        self._last_complaint = ""

    def begin(self, intake: Intake) -> None:
        """Forget all arriving sketches, and hand in to this intake from now on."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of sites; those in use
        self.assemblies: dict[str, Assembly] = {}  # by the name of the sketch
        self._intake, self._begun = intake, 0
        self._accepting, self._answering = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(ANSWERS_AT_ONCE)
        self._asking: set[str] = set()  # sites with a question that is being answered; an edge asks one at a time

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, timeout: float | None = None) -> None:
        """Wait until the sketches that are being handed in have their receipts, and questions their answers."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    def is_admitted(self, site: str) -> bool:
        admitted = self.admitted()
        return admitted is None or site in admitted

    def complain(self, site: str, kind: str, text: str) -> None:
        """Log a problem, unless the line repeats the last one."""
        if text != self._last_complaint:
            self._last_complaint = text
            self.say(site, kind, text)

    async def publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        """Publish if there is a connection; otherwise the edge will ask, or the server will deliver again."""
        if self.link is not None:
            with contextlib.suppress(nats.errors.Error, OSError):
                await self.link.client.publish(subject, data, headers=headers)

    async def _give_receipt(self, site: str, receipt: Receipt) -> None:
        await self.publish(f"superhosts.to.{site}", messages.encode_receipt(receipt))

    def of(self, site: str) -> list[Assembly]:
        return [each for each in self.assemblies.values() if each.site == site]

    def is_arriving(self, name: str) -> bool:
        """Return True if a sketch is complete, or a piece of it came a moment ago."""
        found = self.assemblies.get(name)
        return found is not None and (found.whole or self.clock() - found.touched < SILENCE)

    async def take(self, message: Msg) -> None:
        """Process a piece and tell the server what to do with it. No error stops the processing of the next one."""
        self.counters.chunks += 1
        try:
            answer = await self._place(message)
        except Exception as error:
            self.counters.failures += 1
            if isinstance(error, OSError):  # a disk that fails is not the site's fault: the piece stays in the queue
                answer = _again(self._patience.pause)
            else:
                answer = self._put_off(message, TRIES)
            said = printable(f"{type(error).__name__}: {error}", MAX_REASON)
            outcome = "it is removed from the queue" if answer == NEVER else "it will be delivered again"
            subject = printable(message.subject)
            self.complain(subject, "pieces that could not be taken", f"{subject}: {said}; {outcome}")
        await self.publish(message.reply, answer)

    async def _place(self, message: Msg) -> bytes:
        """Store a piece, refuse it or defer it; return the answer to the server."""
        size = max(len(message.data), messages.MIN_STEP)  # tiny messages cost work, too
        try:
            site = messages.site_of(message.subject)
            if not self.is_admitted(site):
                self.counters.expelled += 1
                return NEVER
            # The edge keeps a sketch of another version, and learns the reason from the answer to its next question.
            why = messages.mismatch(messages.parse_wire(message.headers), "this hub", f"the edge of {site}")
            self.roster.mismatched(site, why)
            if why:
                self.counters.malformed += 1
                return NEVER
            if not self.quotas.allows(site, bytes=size):
                return self._slow(message)
            chunk = Chunk.parse(message.headers, len(message.data))
        except UsageError as error:
            self.counters.malformed += 1
            subject = printable(message.subject)
            self.complain(subject, "messages that are not pieces of sketches", f"{subject}: {error}")
            return NEVER
        if (named := SketchId.parse(chunk.name).site) != site:
            return await self._refuse(site, chunk, f"{site} may not send for {named}")
        if chunk.size > self.largest:
            limit = "is more than any sketch of this hub's --memory or --geometry can have"
            return await self._refuse(site, chunk, f"{format_size(chunk.size)} {limit}")
        assembly = self.assemblies.get(chunk.name)
        if assembly is None and (receipt := await asyncio.to_thread(self._intake.known, chunk.name)) is not None:
            self.counters.duplicates += 1
            if chunk.number == 0:
                await self._give_receipt(site, receipt)
            return ACK
        # A sketch may also be sent again with other sizes.
        if assembly is None or not (assembly.whole or (chunk.step, chunk.size) == (assembly.step, assembly.size)):
            if not await self._make_room(site, chunk.size, instead=assembly):
                return self._wait_for_room(site, message)
            if not self.quotas.allows(site, sketches=1):
                self.quotas.give_back(site, size)  # it will be counted when it comes again
                return self._slow(message)
            if assembly is not None:
                await self._discard(assembly)
            self._begun += 1
            path = self._intake.folder / f"{chunk.name}.{self._begun}.part"
            assembly = Assembly(path, site, chunk.name, chunk.step, chunk.size, self.clock())
            self.assemblies[chunk.name] = assembly
        return await self._add(assembly, chunk, message)

    def _slow(self, message: Msg) -> bytes:
        """Defer a message of a site that is over its quota: it stays in the queue, where a site has its share."""
        self.counters.slowed += 1
        return _again(retry_delay(_deliveries(message), self._patience.pause, LONGEST_SLOWED))

    async def _refuse(self, site: str, chunk: Chunk, reason: str) -> bytes:
        self.complain(site, "refused sketches", Notice(f"REFUSED: {chunk.name}: {reason}", "refused", WARNING))
        self.roster.refused(site)
        self.counters.refused += 1
        if chunk.number == 0:
            await self._give_receipt(site, Receipt(chunk.name, REFUSED, reason))
        return NEVER

    async def _make_room(self, site: str, size: int, instead: Assembly | None) -> bool:
        """Allow one more sketch of a site, if necessary in place of stale ones; return False if that is impossible.

        A site must not fill the disk with unfinished sketches. One that begins again with another size is `instead`:
        what it has used so far does not count.
        """
        others = sorted((each for each in self.of(site) if each is not instead), key=lambda each: each.touched)
        stale = [each for each in others if not each.whole and self.clock() - each.touched >= self._patience.stale]
        while len(others) >= MAX_ARRIVING or sum(each.size for each in others) + size > MAX_LARGE * self.largest:
            if not stale:
                return False
            others.remove(stale[0])
            await self.give_up(stale.pop(0))
        return True

    def _wait_for_room(self, site: str, message: Msg) -> bytes:
        """Defer a piece until its site has finished other sketches; after several attempts it leaves the queue."""
        self.counters.put_off += 1
        mine = self.of(site)
        text = f"{site} has begun {len(mine)} sketches and does not finish them; further ones wait"
        self.say(site, "sketches that wait for others of their site", text)
        ours = any(each.whole for each in mine)  # these wait for this hub's disk, which is not the site's fault
        return self._put_off(message, None if ours else TRIES)

    def _put_off(self, message: Msg, tries: int | None) -> bytes:
        """Let the server deliver a piece again, with growing delays; after `tries` times it leaves the queue."""
        times = _deliveries(message)
        if tries is not None and times >= tries:
            self.counters.dropped += 1
            return NEVER
        return _again(retry_delay(times, self._patience.pause, LONGEST))

    async def _add(self, assembly: Assembly, chunk: Chunk, message: Msg) -> bytes:
        if assembly.whole or assembly.have[chunk.number]:
            self.counters.duplicates += 1
            return ACK
        assembly.touched = self.clock()  # so that it is not given up during the write
        await asyncio.to_thread(assembly.write, chunk, message.data)
        if self.assemblies.get(chunk.name) is not assembly:  # its site was removed during the write
            await self._discard(assembly)
            return self._put_off(message, TRIES)
        assembly.have[chunk.number] = 1
        assembly.missing -= 1
        assembly.touched = self.clock()
        if assembly.missing == 0:
            self._hand_in(assembly)
        return ACK

    def _hand_in(self, assembly: Assembly) -> None:
        assembly.retry = None
        self._start(self._finish(assembly))

    async def _finish(self, assembly: Assembly) -> None:
        """Hand in a complete sketch, and send the receipt."""
        turn = self._turns.setdefault(assembly.site, asyncio.Lock())
        async with turn, self._accepting:
            try:
                receipt = await asyncio.to_thread(assembly.hand_in, self._intake)
            except Exception as error:  # no sketch may stop the hub
                self.counters.failures += 1
                said = printable(getattr(error, "strerror", None) or f"{type(error).__name__}: {error}", MAX_REASON)
                text = Notice(f"{assembly.name} cannot be stored now: {said}; retrying", "trouble", WARNING)
                self.complain(assembly.site, "sketches that could not be stored", text)
                if assembly.path.exists():
                    assembly.failures += 1
                    assembly.retry = self.clock() + retry_delay(assembly.failures, 2.0, LONGEST_RETRY)
                else:  # whether the intake has it will show when the edge asks
                    del self.assemblies[assembly.name]
                return
        del self.assemblies[assembly.name]
        if receipt.verdict == MERGED:
            self.counters.sketches += 1
            self._last_complaint = ""  # the same problem is news if it occurs again
        elif receipt.verdict == REFUSED:
            self.counters.refused += 1
        else:
            self.counters.corrupt += 1
        await self._give_receipt(assembly.site, receipt)

    async def give_up(self, assembly: Assembly, why: str = UNFINISHED) -> None:
        if self.assemblies.get(assembly.name) is assembly:
            self.counters.abandoned += 1
            text = f"{assembly.name}: {assembly.site} {why}"
            self.say(assembly.site, "sketches that are not sent to the end", text)
            await self._discard(assembly)

    async def _discard(self, assembly: Assembly) -> None:
        if self.assemblies.get(assembly.name) is assembly:
            del self.assemblies[assembly.name]
        await asyncio.to_thread(assembly.path.unlink, missing_ok=True)

    async def look_after(self) -> None:
        """Hand in again what failed; give up what has been incomplete for too long, or is of a revoked site."""
        now = self.clock()
        for assembly in list(self.assemblies.values()):
            if not assembly.handed_in and not self.is_admitted(assembly.site):
                await self.give_up(assembly, "is not enrolled; its pieces are discarded")
            elif assembly.retry is not None and assembly.retry <= now:
                self._hand_in(assembly)
            elif not assembly.whole and now - assembly.touched > self._patience.abandon:
                await self.give_up(assembly)

    async def take_question(self, message: Msg) -> None:
        """Answer an edge that asks for missing receipts, in the background, unless its site asks too fast."""
        try:
            site = messages.site_of(message.subject)
        except UsageError:
            return
        # The hub has all permissions, so a site must not be able to choose where it publishes. A server that isolates
        # sites in accounts replaces the address by one of its own (_R_), which no client can use.
        if not message.reply.startswith((f"_INBOX.{site}.", "_R_.")) or not self.is_admitted(site):
            return
        edge = messages.PeerInfo.parse(message.headers)
        self.roster.told(site, edge.version, edge.sent, edge.spool)
        self.roster.mismatched(site, messages.mismatch(edge.wire, "this hub", f"the edge of {site}"))
        if site in self._asking:
            self.counters.unanswered += 1
        else:
            self._asking.add(site)
            self._start(self._answer(site, message))

    async def _answer(self, site: str, message: Msg) -> None:
        try:
            async with self._answering:
                self.counters.questions += 1
                receipts = await self._receipts(site, messages.decode_names(message.data, site))
                self.counters.lost += sum(receipt.verdict == RESEND for receipt in receipts)
                headers = messages.own_info(notice=self.quotas.notice(site)).headers()
                await self.publish(message.reply, messages.encode_receipts(receipts), headers)
        except Exception as error:  # the edge will ask again
            self.counters.failures += 1
            said = printable(f"{type(error).__name__}: {error}", MAX_REASON)
            self.complain(site, "questions that could not be answered", f"a question of {site}: {said}")
        finally:
            self._asking.discard(site)

    async def _receipts(self, site: str, names: list[str]) -> list[Receipt]:
        """Return what became of sketches; those that are neither here nor on their way are asked for again."""
        arriving = set(filter(self.is_arriving, names))
        known = await asyncio.to_thread(lambda: {name: self._intake.known(name) for name in names})
        answer = [receipt for receipt in known.values() if receipt is not None]
        unknown = [name for name in names if known[name] is None and name not in arriving]
        if unknown and self.link is not None:
            # The queue has what was sent and is not on this disk.
            subject = f"superhosts.from.{site}.chunk"
            queue = (await self.link.jetstream.stream_info(messages.STREAM, subjects_filter=subject)).state
            if not queue.subjects:
                lost = (name for name in unknown if not self.is_arriving(name))  # it may have begun to arrive meanwhile
                answer += [Receipt(name, RESEND, "not here") for name in lost]
        return answer


def _again(pause: float) -> bytes:
    return b'-NAK {"delay": %d}' % int(pause * SECOND)


def _deliveries(message: Msg) -> int:
    try:
        return max(1, message.metadata.num_delivered)
    except (nats.errors.Error, ValueError):  # not a reply address of the server
        return 1
