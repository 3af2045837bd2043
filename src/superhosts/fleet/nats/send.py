"""An edge's end of the link over NATS: sends the sketches in the spool, and waits for the hub's receipts.

A sketch stays in the spool when the server has stored all of its pieces, until the hub gives its receipt. If no receipt
comes, the edge asks; the hub answers, or requests the sketch again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import secrets
import threading
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

import nats.errors
import nats.js.errors
from nats.aio.msg import Msg

from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import counted
from superhosts.core.units import SECOND
from superhosts.fleet.link import RESEND, LinkStatus, Receipt, Say, retry_delay
from superhosts.fleet.names import check_site
from superhosts.fleet.nats import messages
from superhosts.fleet.nats.connection import Link, LinkDownError, connect, keep_connected, race
from superhosts.fleet.nats.credentials import NatsOptions
from superhosts.fleet.sites import WRONG
from superhosts.fleet.spool import Spool

TOGETHER = 4  # sketches to send at once
FIRST_ASK = 1.0  # seconds before the second question over a connection; then twice as long each time
LOOK_EVERY = 1.0  # seconds between two looks at the spool, unless it has a new sketch
SPOOL_POLL = 0.1  # seconds between two looks at the number of sketches that were spooled
IN_TRANSIT = 8  # pieces in transit at once
STORED = 300.0  # seconds for a piece to reach the server, over the slowest connection
CONFIRMED = 15.0  # seconds for the server to confirm a piece that it has
ATTEMPTS = 3  # attempts to send a piece before the connection is given up
LONGEST = 60.0  # longest time in seconds before a sketch is sent again
NO_ROOM = (10077, 10023, 10047, 10122)  # error codes for a stream at its limit, and for a full disk
BUSY = 10167  # error code for more pieces at once than the server buffers for a stream


@dataclass
class SendCounters:
    connects: int = 0
    sketches: int = 0  # sent completely, as confirmed by the server
    chunks: int = 0
    receipts: int = 0
    resends: int = 0  # sketches that the hub requested again
    full: int = 0  # times that the hub's queue was full
    clock: float = 0.0  # seconds that this machine's clock is ahead of the hub's
    down: str = ""  # why the link does not work; empty while it does


@dataclass
class _Progress:
    attempt: str = "0"  # a sketch that is sent again needs a new mark, or the server drops it as a duplicate
    resends: int = 0
    due: float = 0.0
    sending: bool = False
    sent: float | None = None  # when the server had stored all pieces


class _UnreadableError(Exception):
    """A sketch in the spool that cannot be read."""


class NatsSender:
    def __init__(
        self,
        options: NatsOptions,
        site: str,
        say: Say,
        *,
        ask_every: float = 15.0,
        look_every: float = LOOK_EVERY,
        together: int = TOGETHER,
    ) -> None:
        """Send `together` sketches at once; ask for missing receipts, and look at the spool, every so many seconds."""
        options.check()
        self.site = check_site(site)
        self._ask_subject = f"superhosts.from.{site}.ask"
        self.counters = SendCounters()
        self._options, self._say = options, say
        self._ask_every, self._look_every, self._together = ask_every, look_every, together
        self._status = LinkStatus(f"the link to {options.shown}", say, self.counters)
        self._progress: dict[str, _Progress] = {}
        self._is_clock_wrong = False
        self._notice = ""  # the last one of the hub

    def run(self, spool: Spool, stop: threading.Event) -> None:
        asyncio.run(self._run(spool, stop))

    async def _run(self, spool: Spool, stop: threading.Event) -> None:
        self._spool, self._wake = spool, asyncio.Event()
        await keep_connected(
            lambda: self._session(stop), stop, self._status, lambda: _windows(spool), self._options.timing
        )

    async def _session(self, stop: threading.Event) -> None:
        for each in self._progress.values():  # the tasks of the last connection have ended
            each.sending = False
        self._room = asyncio.Semaphore(IN_TRANSIT)
        self._denied: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        async with connect(self._options, f"_INBOX.{self.site}", self._complain) as link:
            self.counters.connects += 1
            await link.client.subscribe(f"superhosts.to.{self.site}", cb=self._take_receipts)
            await race(stop, link, self._work(link), self._ask_often(link), self._until_denied())
            # Tell the hub what still waits here when the edge stops; nothing waits for its answer.
            with contextlib.suppress(nats.errors.Error, OSError):
                headers = messages.own_info(await asyncio.to_thread(self._spool.backlog)).headers()
                await link.client.publish(self._ask_subject, b"[]", link.client.new_inbox(), headers)
                await link.client.flush(1)

    async def _work(self, link: Link) -> None:
        await self._ask(link, [path.name for path in await asyncio.to_thread(self._spool.waiting)])
        await link.client.flush()  # missing permissions are known by then
        if self._denied.done():
            raise LinkDownError(self._denied.result())
        self._status.up()
        async with asyncio.TaskGroup() as group:
            sending: dict[str, asyncio.Task[None]] = {}
            while True:
                self._wake.clear()
                spooled = self._spool.counters.spooled
                for name in [name for name, task in sending.items() if task.done()]:
                    del sending[name]
                paths = await asyncio.to_thread(self._spool.waiting)
                for name in self._progress.keys() - {path.name for path in paths} - sending.keys():
                    del self._progress[name]
                for path in self._due(paths, self._together - len(sending)):
                    sending[path.name] = group.create_task(self._send(link, path))
                await self._wait_for_work(spooled)

    async def _wait_for_work(self, spooled: int) -> None:
        """Wait for a receipt, for the end of a transfer, for a new sketch in the spool, or for the next look at it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._look_every
        while not self._wake.is_set() and self._spool.counters.spooled == spooled and loop.time() < until:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), SPOOL_POLL)

    def _due(self, paths: list[Path], room: int) -> list[Path]:
        """Return the sketches to send now, oldest first."""
        now = asyncio.get_running_loop().time()
        found: list[Path] = []
        for path in paths:
            state = self._progress.setdefault(path.name, _Progress())
            if len(found) < room and not state.sending and state.sent is None and state.due <= now:
                state.sending = True
                found.append(path)
        return found

    async def _send(self, link: Link, path: Path) -> None:
        """Send one sketch until the server has stored all of it. A sketch that has left the spool is skipped."""
        state = self._progress[path.name]
        loop = asyncio.get_running_loop()
        try:
            if not await asyncio.to_thread(self._spool.check, path):
                return
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                step = max(1, min(messages.CHUNK, link.client.max_payload - messages.HEADERS, size))
                async with asyncio.TaskGroup() as group:
                    for number in range(-(-size // step)):
                        await self._room.acquire()
                        group.create_task(self._send_chunk(link, file, messages.Chunk(path.name, number, step, size)))
            state.sent = loop.time()
            self.counters.sketches += 1
        except FileNotFoundError:
            state.due = loop.time() + 1.0  # delivered or dropped meanwhile
        except ExceptionGroup as group:
            if group.subgroup(_UnreadableError) is None:
                raise
            state.due = loop.time() + LONGEST
            self._say(Notice(f"{path.name}: cannot be read from the spool; retrying in a minute", "trouble", WARNING))
        finally:
            state.sending = False
            self._wake.set()

    async def _send_chunk(self, link: Link, file: BinaryIO, chunk: messages.Chunk) -> None:
        attempt = self._progress[chunk.name].attempt
        try:
            data = await asyncio.to_thread(_read, file, chunk)
            for tries in count(1):
                try:
                    await self._store(link, data, chunk.headers(attempt))
                except nats.js.errors.NoStreamResponseError:
                    self._status.down("the hub has not created its queue there: is it running?", _windows(self._spool))
                except nats.js.errors.APIError as error:
                    if error.err_code not in (BUSY, *NO_ROOM):
                        raise LinkDownError(f"the server refuses sketches: {error.description}") from None
                    self.counters.full += 1
                    if error.err_code != BUSY:
                        self._status.down("the hub's queue is full", _windows(self._spool))
                except nats.errors.TimeoutError:
                    if tries >= ATTEMPTS:
                        raise LinkDownError("it does not answer") from None
                else:
                    self.counters.chunks += 1
                    self._status.up()
                    return
                await asyncio.sleep(retry_delay(tries, 0.2, 5.0) * random.random())  # many edges may retry at once
        finally:
            self._room.release()

    async def _store(self, link: Link, data: bytes, headers: dict[str, str]) -> None:
        """Publish and wait for the confirmation, in a task of its own: the library swallows cancellations.

        A confirmation may die with one server of a cluster. So if none comes, the server at the other end is asked for
        a sign of life, which it gives after everything that was sent before it, however slow the connection is.
        """
        subject = f"superhosts.from.{self.site}.chunk"
        task = asyncio.ensure_future(link.jetstream.publish(subject, data, timeout=STORED, headers=headers))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            done, _ = await asyncio.wait({task}, timeout=CONFIRMED)
            if not done:
                for _ in range(2):  # the first may overtake pieces that wait in this client
                    await link.client.flush(int(STORED))
                done, _ = await asyncio.wait({task}, timeout=CONFIRMED)
            if not done:
                raise nats.errors.TimeoutError
            task.result()
        finally:
            task.cancel()

    async def _ask_often(self, link: Link) -> None:
        """Ask periodically about sketches that were sent a while ago and have no receipt."""
        for asked in count(1):  # soon at first: the hub judges a clock by several messages
            await asyncio.sleep(retry_delay(asked, FIRST_ASK, self._ask_every))
            since = asyncio.get_running_loop().time() - self._ask_every
            await self._ask(
                link, [n for n, each in self._progress.items() if each.sent is not None and each.sent <= since]
            )

    async def _ask(self, link: Link, names: list[str]) -> None:
        """Ask about sketches, and exchange with the hub what each end tells about itself; names may be missing."""
        spool = await asyncio.to_thread(self._spool.backlog)
        for start in range(0, len(names) or 1, messages.QUESTION):
            question, telling = json.dumps(names[start : start + messages.QUESTION]).encode(), messages.own_info(spool)
            timeout = self._options.timing.answer
            try:
                answer = await link.client.request(self._ask_subject, question, timeout, headers=telling.headers())
            except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
                return  # no hub is connected now; send the sketches nevertheless
            hub = messages.PeerInfo.parse(answer.headers)
            if why := messages.mismatch(hub.wire, "this edge", "the hub"):
                raise LinkDownError(why)
            self.look_at_hub(hub, telling.sent or 0, time.time_ns())
            await self._take_receipts(answer)

    def look_at_hub(self, hub: messages.PeerInfo, asked: int, answered: int) -> None:
        """Compare clocks, and pass on the hub's notice; `asked` and `answered` by this machine's clock (ns)."""
        if hub.notice and hub.notice != self._notice:
            self._say(f"the hub says: {hub.notice}")
        self._notice = hub.notice
        if hub.sent is None:
            return
        ahead, trip = ((asked + answered) / 2 - hub.sent) / SECOND, (answered - asked) / SECOND
        self.counters.clock = round(ahead, 3)
        wrong = abs(ahead) - abs(trip) / 2 > WRONG  # the answer was written somewhere between both moments
        if wrong and not self._is_clock_wrong:
            way = "ahead of" if ahead > 0 else "behind"
            text = f"this machine's is {abs(ahead):,.0f} s {way} the hub's; one of them is wrong: use NTP"
            self._say(Notice(f"CLOCK: {text}", "clock", WARNING))
        elif self._is_clock_wrong and not wrong:
            self._say("this machine's clock agrees with the hub's again")
        self._is_clock_wrong = wrong

    async def _take_receipts(self, message: Msg) -> None:
        for receipt in messages.decode_receipts(message.data):
            await self._settle(receipt)

    async def _settle(self, receipt: Receipt) -> None:
        state = self._progress.setdefault(receipt.name, _Progress())
        if receipt.verdict == RESEND:
            if state.sending:
                return  # it is being sent again already
            state.attempt = secrets.token_hex(4)
            if state.sent is None:
                return  # this process has not sent it yet, and will
            state.sent = None
            state.resends += 1
            state.due = asyncio.get_running_loop().time() + retry_delay(state.resends, 0.5, LONGEST)
            self.counters.resends += 1
        self.counters.receipts += 1
        try:
            await asyncio.to_thread(self._spool.settle, receipt)
        except OSError as error:
            self._say(
                Notice(f"{receipt.name}: the spool cannot be changed: {error.strerror or error}", "trouble", WARNING)
            )
        self._wake.set()

    def _complain(self, text: str) -> None:
        if "permissions violation" in text.lower() and not self._denied.done():
            self._denied.set_result(text)

    async def _until_denied(self) -> None:
        text = await self._denied
        raise LinkDownError(f"the server does not allow this key to send for site {self.site} ({text})")


def _read(file: BinaryIO, chunk: messages.Chunk) -> bytes:
    try:
        data = os.pread(file.fileno(), chunk.length, chunk.number * chunk.step)
    except OSError as error:
        raise _UnreadableError from error
    if len(data) != chunk.length:
        raise _UnreadableError
    return data


def _windows(spool: Spool) -> str:
    return f"; {counted(len(spool.waiting()), 'window waits', 'windows wait')}"
