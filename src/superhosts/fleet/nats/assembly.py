"""Assembles the pieces of sketches that a hub receives, hands complete sketches to the intake, and sends receipts.

A piece is acknowledged to the server when its sketch has been handed in, so that the server delivers it again to a hub
that was killed before. This saves work but guarantees nothing: the guarantee is the receipt, without which the edge
asks and sends again. So when incomplete sketches fill half of the queue, further pieces are acknowledged at once.

A site that sends invalid data harms only itself. It has its own share of the queue, of the sketches that may arrive at
once and of the turns at the intake. What is refused or deferred too often leaves the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import nats.errors
from nats.aio.msg import Msg

from superhosts.core.files import remove_or_set_aside
from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import printable
from superhosts.core.units import SECOND, format_size
from superhosts.errors import UsageError
from superhosts.fleet.intake import Intake
from superhosts.fleet.link import MAX_REASON, MERGED, REFUSED, Receipt, Say, retry_delay
from superhosts.fleet.names import SketchId, site_named
from superhosts.fleet.nats.connection import Link
from superhosts.fleet.nats.messages import MIN_STEP, Chunk, encode_receipt, mismatch, parse_wire, site_of
from superhosts.fleet.sites import Quotas, SiteLog

ACK, PROGRESS, NEVER = b"+ACK", b"+WPI", b"+TERM"
AGAIN = b'-NAK {"delay": %d}'  # in nanoseconds
MAX_REMINDED = 10_000  # receipts to remember as sent again; more must be for invented names
PART_SUFFIX = ".part"
REMOVED_SUFFIX = f".gone{PART_SUFFIX}"
MAX_ARRIVING = 32  # sketches of one site that may arrive at once
MAX_LARGE = 4  # how many of them may have the largest size: an edge sends that many at once
SILENCE = 5.0  # seconds without a new piece, after which a question suggests that pieces are lost
SLOWED = 150.0  # seconds for which a sketch that waits for a quota counts as arriving; its pieces come again sooner
MAX_SLOWED = 100_000  # sketches that are remembered so
AT_ONCE = 2  # sketches to hand in at once
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


class Jobs:
    """The tasks that are running, and the turns of sites."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()  # those in use

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def turn(self, purpose: str, site: str) -> asyncio.Lock:
        """Return the lock that lets one job of a site run at a time, for each purpose."""
        return self._turns.setdefault((purpose, site), asyncio.Lock())

    async def wait(self, timeout: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    async def finish(self) -> None:
        """Wait until all work is done, and raise its errors."""
        while self._tasks:
            await asyncio.gather(*self._tasks)


@dataclass
class Assembly:
    path: Path
    name: str
    site: str
    step: int
    size: int
    have: bytearray
    missing: int
    touched: float  # when the last new piece arrived
    held: dict[int, tuple[str, int]] = field(default_factory=dict)  # position in the stream → (address, bytes)
    handed_in: bool = False  # complete, and with the intake
    retry: float | None = None  # when to hand it in again, after a failure
    failures: int = 0

    @property
    def whole(self) -> bool:
        return self.missing == 0

    def fits(self, chunk: Chunk) -> bool:
        """Return True if a piece has the same sizes as the others; a sketch may be sent again with other sizes."""
        return (chunk.step, chunk.size) == (self.step, self.size)

    def restart(self, chunk: Chunk) -> None:
        self.step, self.size = chunk.step, chunk.size
        self.have, self.missing = bytearray(chunk.pieces), chunk.pieces
        self.path.unlink(missing_ok=True)

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
    """Assembles the sketches of all sites; holds what the parts of one receiver share: counters, log, jobs, link."""

    def __init__(
        self,
        say: Say,
        quotas: Quotas,
        admitted: Admitted,
        clock: Callable[[], float],
        *,
        cap: int,
        site_pieces: int,
        largest: int,
        at_once: int = AT_ONCE,
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        """Divide a queue of `cap` bytes, with `site_pieces` of each site; no sketch has more than `largest` bytes.

        Hand in `at_once` sketches at once.
        """
        self.quotas, self.roster, self.admitted, self.clock = quotas, quotas.roster, admitted, clock
        self.counters = ReceiveCounters()
        self.say = SiteLog(say, clock=clock)
        self.link: Link | None = None
        self.largest = largest
        self._cap, self._site_pieces, self._at_once, self._patience = cap, site_pieces, at_once, patience
        self._slowed: dict[str, float] = {}  # sketches of which a piece waits for its site's quota, and since when
        self._reminded: dict[tuple[str, str], float] = {}
        self._last_complaint = ""

    def begin(self, intake: Intake, on_piece: Callable[[str, str], None]) -> None:
        """Forget all arriving sketches, and hand in to this intake from now on.

        `on_piece` gets the site and the sketch of every new piece.
        """
        self.jobs = Jobs()
        self.assemblies: dict[str, Assembly] = {}  # by the name of the sketch
        self.held_bytes = 0  # bytes of pieces that are acknowledged when their sketch is handed in
        self.held_pieces: Counter[str] = Counter()  # the number of these pieces, by site
        self._intake, self._on_piece = intake, on_piece
        self._accepting = asyncio.Semaphore(self._at_once)

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
        await self.publish(f"superhosts.to.{site}", encode_receipt(receipt))

    async def _remind(self, site: str, receipt: Receipt) -> None:
        """Send a receipt again, at most once per second."""
        now, reminder = self.clock(), (site, receipt.name)
        if now - self._reminded.get(reminder, -1.0) >= 1.0:
            self._reminded[reminder] = now
            await self._give_receipt(site, receipt)

    def forget_reminders(self, old: float) -> None:
        self._reminded = {receipt: at for receipt, at in self._reminded.items() if at > old}
        if len(self._reminded) > MAX_REMINDED:
            self._reminded = {}

    def of(self, site: str) -> list[Assembly]:
        return [each for each in self.assemblies.values() if each.site == site]

    def _has_room(self, site: str, size: int, instead: Assembly | None) -> bool:
        """Return True if a site may begin one more sketch, or one anew: it must not fill the disk with unfinished ones.

        A sketch that begins anew is `instead`: what it has used so far does not count.
        """
        sizes = [each.size for each in self.of(site) if each is not instead]
        return len(sizes) < MAX_ARRIVING and sum(sizes) + size <= MAX_LARGE * self.largest

    def is_arriving(self, name: str) -> bool:
        """Return True if a sketch is complete, or a piece of it came a moment ago, or waits for its site's quota."""
        now = self.clock()
        if now - self._slowed.get(name, -SLOWED) < SLOWED:
            return True
        found = self.assemblies.get(name)
        return found is not None and (found.whole or now - found.touched < SILENCE)

    def slow(self, site: str, name: str) -> None:
        """Note that a piece of a sketch waits for its site's quota. A site can name no sketch of another."""
        if site_named(name) != site:
            return
        if len(self._slowed) >= MAX_SLOWED:
            self._slowed.clear()
        self._slowed[name] = self.clock()

    async def _hold(self, assembly: Assembly, message: Msg) -> None:
        """Keep the address for a later acknowledgement, or acknowledge now if the queue would become too full."""
        place, size = message.metadata.sequence.stream, len(message.data)
        if place not in assembly.held:  # otherwise it was delivered a second time
            of_site = self.held_pieces[assembly.site]
            if self.held_bytes + size > self._cap // 2 or of_site >= self._site_pieces // 2:
                await self.publish(message.reply, ACK)
                return
            self.held_bytes += size
            self.held_pieces[assembly.site] += 1
        assembly.held[place] = (message.reply, size)

    def _is_current(self, assembly: Assembly) -> bool:
        """Return True unless a sketch was handed in or given up; it may have begun again meanwhile."""
        return self.assemblies.get(assembly.name) is assembly

    def _forget(self, assembly: Assembly) -> None:
        """Release the resources of a sketch that was handed in or given up."""
        if self._is_current(assembly):
            del self.assemblies[assembly.name]
            self.held_bytes -= sum(size for _, size in assembly.held.values())
            self.held_pieces[assembly.site] -= len(assembly.held)

    async def take(self, message: Msg) -> None:
        """Process a piece. No error stops the processing of the next one."""
        self.counters.chunks += 1
        try:
            await self._place(message)
        except Exception as error:
            self.counters.failures += 1
            subject = printable(message.subject)
            said = printable(f"{type(error).__name__}: {error}", MAX_REASON)
            # A disk that fails is not the site's fault: the piece stays in the queue until the disk works.
            stays = await self._put_off(message, tries=None if isinstance(error, OSError) else TRIES)
            outcome = "it will be delivered again" if stays else "it is removed from the queue"
            self.complain(subject, "pieces that could not be taken", f"{subject}: {said}; {outcome}")

    async def _place(self, message: Msg) -> None:
        try:
            site = site_of(message.subject)
            if not self.is_admitted(site):
                self.counters.expelled += 1
                await self.publish(message.reply, NEVER)
                return
            if await self._is_foreign(site, message) or await self._is_slowed(site, message):
                return
            chunk = Chunk.parse(message.headers, len(message.data))
        except UsageError as error:
            self.counters.malformed += 1
            subject = printable(message.subject)
            self.complain(subject, "messages that are not pieces of sketches", f"{subject}: {error}")
            await self.publish(message.reply, NEVER)
            return
        if (named := SketchId.parse(chunk.name).site) != site:
            await self._refuse(message, site, chunk.name, f"{site} may not send for {named}")
            return
        if chunk.size > self.largest:
            reason = f"{format_size(chunk.size)} is more than any sketch of this hub's --memory or --geometry can have"
            await self._refuse(message, site, chunk.name, reason)
            return
        assembly = self.assemblies.get(chunk.name)
        if assembly is None and (receipt := await asyncio.to_thread(self._intake.known, chunk.name)) is not None:
            self.counters.duplicates += 1
            await self._remind(site, receipt)
            await self.publish(message.reply, ACK)
            return
        begins = assembly is None or not (assembly.whole or assembly.fits(chunk))
        if begins and not await self._make_room(site, chunk.size, instead=assembly):
            await self._wait_for_room(site, message)
            return
        if begins and await self._is_slowed(site, message, sketches=1):
            return
        if assembly is None:
            path = self._intake.folder / (chunk.name + PART_SUFFIX)
            remove_or_set_aside(path)
            have = bytearray(chunk.pieces)
            assembly = Assembly(path, chunk.name, site, chunk.step, chunk.size, have, chunk.pieces, self.clock())
            self.assemblies[chunk.name] = assembly
        await self._add(assembly, chunk, message)

    async def _is_foreign(self, site: str, message: Msg) -> bool:
        """Return True if a piece is of a version of the link that this hub does not speak; it leaves the queue.

        The edge keeps its sketch, and learns the reason from the answer to its next question.
        """
        why = mismatch(parse_wire(message.headers), "this hub", f"the edge of {site}")
        self.roster.mismatched(site, why)
        if why:
            self.counters.malformed += 1
            await self.publish(message.reply, NEVER)
        return bool(why)

    async def _is_slowed(self, site: str, message: Msg, sketches: int = 0) -> bool:
        """Return True if a site is over its quota; the piece, or whatever it is, comes again later.

        Pieces stay in the queue, where a site has its share, and are never dropped for this.
        """
        size = max(len(message.data), MIN_STEP)  # tiny messages cost work, too
        if self.quotas.allows(site, bytes=0 if sketches else size, sketches=sketches):
            return False
        if sketches:
            self.quotas.give_back(site, size)  # it will be counted when it comes again
        self.counters.slowed += 1
        self.slow(site, (message.headers or {}).get("Superhosts-Name", ""))
        await self._deliver_again(message, retry_delay(_deliveries(message), self._patience.pause, LONGEST_SLOWED))
        return True

    async def _refuse(self, message: Msg, site: str, name: str, reason: str) -> None:
        self.complain(site, "refused sketches", Notice(f"REFUSED: {name}: {reason}", "refused", WARNING))
        self.roster.refused(site)
        self.counters.refused += 1
        await self._remind(site, Receipt(name, REFUSED, reason))
        await self.publish(message.reply, NEVER)

    async def _make_room(self, site: str, size: int, instead: Assembly | None) -> bool:
        """Allow one more sketch of a site, if necessary in place of stale ones; return False if that is impossible.

        A sketch that begins again with another size is `instead`.
        """
        mine = [each for each in self.of(site) if not each.whole and each is not instead]
        now = self.clock()
        for assembly in sorted(mine, key=lambda each: each.touched):
            if self._has_room(site, size, instead) or now - assembly.touched < self._patience.stale:
                break
            await self.give_up(assembly)
        return self._has_room(site, size, instead)

    async def _wait_for_room(self, site: str, message: Msg) -> None:
        """Defer a piece until its site has finished other sketches; after several attempts it leaves the queue."""
        self.counters.put_off += 1
        mine = self.of(site)
        text = f"{site} has begun {len(mine)} sketches and does not finish them; further ones wait"
        self.say(site, "sketches that wait for others of their site", text)
        ours = any(each.whole for each in mine)  # these wait for this hub's disk, which is not the site's fault
        await self._put_off(message, tries=None if ours else TRIES)

    async def _put_off(self, message: Msg, tries: int | None = TRIES) -> bool:
        """Let the server deliver a piece again, with growing delays; after `tries` times it leaves the queue.

        Returns True if it stays in the queue.
        """
        times = _deliveries(message)
        if tries is not None and times >= tries:
            self.counters.dropped += 1
            await self.publish(message.reply, NEVER)
            return False
        await self._deliver_again(message, retry_delay(times, self._patience.pause, LONGEST))
        return True

    async def _deliver_again(self, message: Msg, pause: float) -> None:
        await self.publish(message.reply, AGAIN % int(pause * SECOND))

    async def _add(self, assembly: Assembly, chunk: Chunk, message: Msg) -> None:
        if not assembly.whole and not assembly.fits(chunk):
            assembly.restart(chunk)
        if assembly.whole or assembly.have[chunk.number]:
            self.counters.duplicates += 1
        else:
            assembly.touched = self.clock()  # so that it is not given up during the write
            try:
                await asyncio.to_thread(assembly.write, chunk, message.data)
            except OSError as error:
                self.counters.failures += 1
                text = f"{assembly.path}: {error.strerror or error}; the sketch waits at the server"
                self.complain(assembly.site, "pieces that could not be stored", text)
                await self._deliver_again(message, self._patience.pause)
                return
            if not self._is_current(assembly):  # its site was removed during the write
                await self._remove(assembly)
                await self._put_off(message)
                return
            assembly.have[chunk.number] = 1
            assembly.missing -= 1
            assembly.touched = self.clock()
            self._on_piece(assembly.site, chunk.name)
        if assembly.whole and not assembly.handed_in and assembly.retry is None:
            self._hand_in(assembly)  # before any await: from now on it is not given up
        await self._hold(assembly, message)

    def _hand_in(self, assembly: Assembly) -> None:
        assembly.handed_in, assembly.retry = True, None
        self.jobs.start(self._finish(assembly))

    async def _finish(self, assembly: Assembly) -> None:
        """Hand in a complete sketch, send the receipt, then acknowledge the pieces."""
        async with self.jobs.turn("hand in", assembly.site), self._accepting:
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
                    assembly.handed_in = False
                else:  # whether the intake has it will show when its pieces are delivered again
                    self._forget(assembly)
                return
        self._forget(assembly)
        if receipt.verdict == MERGED:
            self.counters.sketches += 1
            self._last_complaint = ""  # the same problem is news if it occurs again
        elif receipt.verdict == REFUSED:
            self.counters.refused += 1
        else:
            self.counters.corrupt += 1
        await self._give_receipt(assembly.site, receipt)
        for reply, _ in assembly.held.values():
            await self.publish(reply, ACK)

    async def give_up(self, assembly: Assembly, why: str = UNFINISHED) -> None:
        if not self._is_current(assembly):
            return
        self.counters.abandoned += 1
        text = f"{assembly.name}: {assembly.site} {why}"
        self.say(assembly.site, "sketches that are not sent to the end", text)
        self._forget(assembly)
        await self._remove(assembly)
        for reply, _ in assembly.held.values():
            await self.publish(reply, ACK)

    async def _remove(self, assembly: Assembly) -> None:
        """Remove the file of a sketch, renamed first: the same sketch may begin again during the disk access."""
        gone = assembly.path.with_name(assembly.name + REMOVED_SUFFIX)
        with contextlib.suppress(FileNotFoundError):
            assembly.path.replace(gone)
        await asyncio.to_thread(gone.unlink, missing_ok=True)

    async def look_after(self, now: float) -> None:
        """Hand in again what failed, and give up what has been incomplete for too long."""
        for assembly in list(self.assemblies.values()):
            if assembly.retry is not None and assembly.retry <= now:
                self._hand_in(assembly)
            elif not assembly.whole and now - assembly.touched > self._patience.abandon:
                await self.give_up(assembly)

    async def extend_timeouts(self) -> None:
        """Tell the server that the pieces which it has delivered are still being worked on."""
        for assembly in list(self.assemblies.values()):
            for reply, _ in list(assembly.held.values()):
                await self.publish(reply, PROGRESS)


def _deliveries(message: Msg) -> int:
    try:
        return max(1, message.metadata.num_delivered)
    except (nats.errors.Error, ValueError):  # not a reply address of the server
        return 1
