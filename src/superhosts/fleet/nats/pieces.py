"""What a hub does with the pieces of sketches: assembles them, hands complete sketches in, and sends receipts.

A piece is acknowledged to the server when its sketch has been handed in, so that the server delivers it again to a hub
that was killed before. This saves work but guarantees nothing: the guarantee is the receipt, without which the edge
asks and sends again. So when incomplete sketches fill half of the queue, further pieces are acknowledged at once;
otherwise a hundred incomplete sketches could fill the queue and wait for each other forever.

A site that sends invalid data harms only itself. It has its own share of the queue, of the sketches that may arrive at
once and of the turns at the intake. What is refused or deferred too often leaves the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import nats.errors
from nats.aio.msg import Msg

from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import printable
from superhosts.core.units import SECOND, format_size
from superhosts.errors import UsageError
from superhosts.fleet.link import Acceptor
from superhosts.fleet.nats.arrivals import Arrivals
from superhosts.fleet.nats.assembly import Assembly
from superhosts.fleet.nats.reception import ACK, AGAIN, NEVER, PROGRESS, Reception
from superhosts.fleet.nats.telling import edge_mismatch, parse_wire
from superhosts.fleet.nats.wire import MIN_STEP, Chunk, site_of
from superhosts.fleet.parcels import Parcel
from superhosts.fleet.pauses import growing_pause
from superhosts.fleet.receipts import MAX_REASON, MERGED, REFUSED, Receipt

AT_ONCE = 2  # sketches to hand in at once
TRIES = 6  # deliveries of a piece that exceeds its site's share; then it leaves the queue
LONGEST = 300.0  # longest time in seconds before a piece is delivered again
LONGEST_SLOWED = 60.0  # longest time in seconds before a piece is delivered again that is over its site's quota
LONGEST_RETRY = 60.0  # longest time in seconds before a complete sketch is handed in again
UNFINISHED = "has not sent the rest of it; waiting until it is sent again"


@dataclass(frozen=True)
class Patience:
    """How long a hub waits for the pieces of a sketch, in seconds."""

    abandon: float = 3600.0  # without a new piece, until a sketch is given up
    stale: float = 60.0  # without a new piece, until another sketch of the site may replace it
    pause: float = 5.0  # before a piece is delivered again, growing


DEFAULT_PATIENCE = Patience()


class Pieces:
    """Assembles the sketches of all sites for an intake."""

    def __init__(
        self,
        reception: Reception,
        arrivals: Arrivals,
        intake: Acceptor,
        on_piece: Callable[[str, str], None],
        *,
        at_once: int = AT_ONCE,
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        """Hand in `at_once` sketches at once. `on_piece` gets the site and the sketch of every new piece."""
        self.arrivals = arrivals
        self._reception, self._intake, self._on_piece = reception, intake, on_piece
        self._patience = patience
        self._accepting = asyncio.Semaphore(at_once)

    async def take(self, message: Msg) -> None:
        """Process a piece. No error stops the processing of the next one."""
        self._reception.counters.chunks += 1
        try:
            await self._place(message)
        except Exception as error:
            self._reception.counters.failures += 1
            subject = printable(message.subject)
            said = printable(f"{type(error).__name__}: {error}", MAX_REASON)
            # A disk that fails is not the site's fault: the piece stays in the queue until the disk works.
            stays = await self._put_off(message, tries=None if isinstance(error, OSError) else TRIES)
            outcome = "it will be delivered again" if stays else "it is removed from the queue"
            self._reception.complain(subject, "pieces that could not be taken", f"{subject}: {said}; {outcome}")

    async def _place(self, message: Msg) -> None:
        try:
            site = site_of(message.subject)
            if await self._is_foreign(site, message) or await self._is_slowed(site, message):
                return
            chunk = Chunk.parse(message.headers, len(message.data))
        except UsageError as error:
            self._reception.counters.malformed += 1
            subject = printable(message.subject)
            self._reception.complain(subject, "messages that are not pieces of sketches", f"{subject}: {error}")
            await self._reception.replies.publish(message.reply, NEVER)
            return
        if not self._reception.is_admitted(site):
            self._reception.counters.expelled += 1
            await self._reception.replies.publish(message.reply, NEVER)
            return
        if (named := Parcel.parse(chunk.name).site) != site:
            self._reception.complain(
                site,
                "refused sketches",
                Notice(f"REFUSED: {chunk.name}: {site} sends a sketch of {named}", "refused", WARNING),
            )
            await self._refuse(message, site, Receipt(chunk.name, REFUSED, f"{site} may not send for {named}"))
            return
        if chunk.size > self.arrivals.largest:
            reason = f"{format_size(chunk.size)} is more than any sketch of this hub's --memory or --geometry can have"
            self._reception.complain(
                site, "refused sketches", Notice(f"REFUSED: {chunk.name}: {reason}", "refused", WARNING)
            )
            await self._refuse(message, site, Receipt(chunk.name, REFUSED, reason))
            return
        assembly = self.arrivals.assemblies.get(chunk.name)
        if assembly is None and (receipt := await asyncio.to_thread(self._intake.known, chunk.name)) is not None:
            self._reception.counters.duplicates += 1
            await self._reception.replies.remind(site, receipt)
            await self._reception.replies.publish(message.reply, ACK)
            return
        begins = assembly is None or not (assembly.whole or assembly.fits(chunk))
        if begins and not await self._make_room(site, chunk.size, instead=assembly):
            await self._wait_for_room(site, message)
            return
        if begins and await self._is_slowed(site, message, sketches=1):
            return
        if assembly is None:
            assembly = self.arrivals.assemblies[chunk.name] = Assembly.begin(
                self._intake.folder, chunk, site, self._reception.clock()
            )
        await self._add(assembly, chunk, message)

    async def _is_foreign(self, site: str, message: Msg) -> bool:
        """Return True if a piece is of a version of the link that this hub does not speak; it leaves the queue.

        The edge keeps its sketch, and learns the reason from the answer to its next question.
        """
        if not self._reception.is_admitted(site):
            return False
        why = edge_mismatch(parse_wire(message.headers), site)
        self._reception.roster.mismatched(site, why)
        if why:
            self._reception.counters.malformed += 1
            await self._reception.replies.publish(message.reply, NEVER)
        return bool(why)

    async def _is_slowed(self, site: str, message: Msg, sketches: int = 0) -> bool:
        """Return True if a site is over its quota; the piece, or whatever it is, comes again later.

        Pieces stay in the queue, where a site has its share, and are never dropped for this.
        """
        if not self._reception.is_admitted(site):
            return False
        size = max(len(message.data), MIN_STEP)  # tiny messages cost work, too
        if self._reception.quotas.allows(site, bytes=0 if sketches else size, sketches=sketches):
            return False
        if sketches:
            self._reception.quotas.give_back(site, size)  # it will be counted when it comes again
        self._reception.counters.slowed += 1
        self.arrivals.slow(site, (message.headers or {}).get("Superhosts-Name", ""), self._reception.clock())
        await self._deliver_again(message, growing_pause(_deliveries(message), self._patience.pause, LONGEST_SLOWED))
        return True

    async def _refuse(self, message: Msg, site: str, receipt: Receipt) -> None:
        self._reception.roster.refused(site)
        self._reception.counters.refused += 1
        await self._reception.replies.remind(site, receipt)
        await self._reception.replies.publish(message.reply, NEVER)

    async def _make_room(self, site: str, size: int, instead: Assembly | None) -> bool:
        """Allow one more sketch of a site, if necessary in place of stale ones; return False if that is impossible.

        A sketch that begins again with another size is `instead`.
        """
        mine = [each for each in self.arrivals.of(site) if not each.whole and each is not instead]
        now = self._reception.clock()
        for assembly in sorted(mine, key=lambda each: each.touched):
            if self.arrivals.has(site, size, instead) or now - assembly.touched < self._patience.stale:
                break
            await self.give_up(assembly)
        return self.arrivals.has(site, size, instead)

    async def _wait_for_room(self, site: str, message: Msg) -> None:
        """Defer a piece until its site has finished other sketches; after several attempts it leaves the queue."""
        self._reception.counters.put_off += 1
        mine = self.arrivals.of(site)
        text = f"{site} has begun {len(mine)} sketches and does not finish them; further ones wait"
        self._reception.say(site, "sketches that wait for others of their site", text)
        ours = any(each.whole for each in mine)  # these wait for this hub's disk, which is not the site's fault
        await self._put_off(message, tries=None if ours else TRIES)

    async def _put_off(self, message: Msg, tries: int | None = TRIES) -> bool:
        """Let the server deliver a piece again, with growing delays; after `tries` times it leaves the queue.

        Returns True if it stays in the queue.
        """
        times = _deliveries(message)
        if tries is not None and times >= tries:
            self._reception.counters.dropped += 1
            await self._reception.replies.publish(message.reply, NEVER)
            return False
        await self._deliver_again(message, growing_pause(times, self._patience.pause, LONGEST))
        return True

    async def _deliver_again(self, message: Msg, pause: float) -> None:
        """Let the server deliver a piece again after some seconds."""
        await self._reception.replies.publish(message.reply, AGAIN % int(pause * SECOND))

    async def _add(self, assembly: Assembly, chunk: Chunk, message: Msg) -> None:
        if not assembly.whole and not assembly.fits(chunk):
            assembly.restart(chunk)
        if assembly.whole or assembly.have[chunk.number]:
            self._reception.counters.duplicates += 1
        else:
            assembly.touched = self._reception.clock()  # so that it is not given up during the write
            try:
                await asyncio.to_thread(assembly.write, chunk, message.data)
            except OSError as error:
                self._reception.counters.failures += 1
                text = f"{assembly.path}: {error.strerror or error}; the sketch waits at the server"
                self._reception.complain(assembly.site, "pieces that could not be stored", text)
                await self._deliver_again(message, self._patience.pause)
                return
            if not self.arrivals.is_current(assembly):  # its site was removed during the write
                await self._remove(assembly)
                await self._put_off(message)
                return
            assembly.mark(chunk, self._reception.clock())
            self._on_piece(assembly.site, chunk.name)
        if assembly.whole and not assembly.handed_in and assembly.retry is None:
            self._hand_in(assembly)  # before any await: from now on it is not given up
        await self._hold(assembly, message)

    async def _hold(self, assembly: Assembly, message: Msg) -> None:
        """Keep the address for a later acknowledgement, or acknowledge now if the queue is too full."""
        if not self.arrivals.hold(assembly, message.metadata.sequence.stream, message.reply, len(message.data)):
            await self._reception.replies.publish(message.reply, ACK)

    def _hand_in(self, assembly: Assembly) -> None:
        assembly.handed_in, assembly.retry = True, None
        self._reception.jobs.start(self._finish(assembly))

    async def _finish(self, assembly: Assembly) -> None:
        """Hand in a complete sketch, send the receipt, then acknowledge the pieces."""
        async with self._reception.jobs.turn("hand in", assembly.site), self._accepting:
            try:
                receipt = await asyncio.to_thread(assembly.hand_in, self._intake)
            except Exception as error:  # no sketch may stop the hub
                self._reception.counters.failures += 1
                said = printable(getattr(error, "strerror", None) or f"{type(error).__name__}: {error}", MAX_REASON)
                text = Notice(f"{assembly.name} cannot be stored now: {said}; retrying", "trouble", WARNING)
                self._reception.complain(assembly.site, "sketches that could not be stored", text)
                if assembly.path.exists():
                    assembly.failures += 1
                    assembly.retry = self._reception.clock() + growing_pause(assembly.failures, 2.0, LONGEST_RETRY)
                    assembly.handed_in = False
                else:  # whether the intake has it will show when its pieces are delivered again
                    self.arrivals.forget(assembly)
                return
        self.arrivals.forget(assembly)
        if receipt.verdict == MERGED:
            self._reception.counters.sketches += 1
            self._reception.complain.over()
        elif receipt.verdict == REFUSED:
            self._reception.counters.refused += 1
        else:
            self._reception.counters.corrupt += 1
        await self._reception.replies.give_receipt(assembly.site, receipt)
        for reply, _ in assembly.held.values():
            await self._reception.replies.publish(reply, ACK)

    async def give_up(self, assembly: Assembly, why: str = UNFINISHED) -> None:
        """Give up a sketch that is arriving, and remove its file."""
        if not self.arrivals.is_current(assembly):
            return
        self._reception.counters.abandoned += 1
        text = f"{assembly.name}: {assembly.site} {why}"
        self._reception.say(assembly.site, "sketches that are not sent to the end", text)
        self.arrivals.forget(assembly)
        await self._remove(assembly)
        for reply, _ in assembly.held.values():
            await self._reception.replies.publish(reply, ACK)

    async def _remove(self, assembly: Assembly) -> None:
        """Remove the file of a sketch, which may begin again during the disk access."""
        gone = assembly.step_aside()
        await asyncio.to_thread(gone.unlink, missing_ok=True)

    async def look_after(self, now: float) -> None:
        """Hand in again what failed, and give up what has been incomplete for too long."""
        for assembly in list(self.arrivals.assemblies.values()):
            if assembly.retry is not None and assembly.retry <= now:
                self._hand_in(assembly)
            elif not assembly.whole and now - assembly.touched > self._patience.abandon:
                await self.give_up(assembly)

    async def extend_timeouts(self) -> None:
        """Tell the server that the pieces which it has delivered are still being worked on."""
        for assembly in list(self.arrivals.assemblies.values()):
            for reply, _ in list(assembly.held.values()):
                await self._reception.replies.publish(reply, PROGRESS)


def _deliveries(message: Msg) -> int:
    """Return how often the server has delivered a piece."""
    try:
        return max(1, message.metadata.num_delivered)
    except (nats.errors.Error, ValueError):  # not a reply address of the server
        return 1
