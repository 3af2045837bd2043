"""The hub's end of the link over NATS: the queue at the server, and the connection.

`assembly` turns the pieces of sketches into sketches, and answers the questions of edges.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError

from superhosts.core.files import os_errors, read_json, write_json
from superhosts.core.text import printable
from superhosts.core.units import SECOND, format_size
from superhosts.errors import UsageError
from superhosts.fleet.intake import Intake
from superhosts.fleet.link import LinkStatus, Say
from superhosts.fleet.nats import messages
from superhosts.fleet.nats.assembly import DEFAULT_PATIENCE, Admitted, Assembler, Patience
from superhosts.fleet.nats.connection import Link, LinkDownError, UnfitServerError, connect, keep_connected, race
from superhosts.fleet.nats.credentials import NatsOptions
from superhosts.fleet.sites import NO_QUOTA, Quotas, Roster

BATCH = 32  # pieces requested from the server at once: 16 MiB of memory
PULL = 20.0  # seconds that a request for pieces is valid
MAX_AGE = 7 * 86400.0  # seconds that a piece stays in the queue
DUPLICATES = 2.0  # seconds in which the server drops duplicates; it keeps their names in memory
SHARE = 4  # one site's pieces take at most a quarter of the queue
MIN_PIECES = 64  # pieces of one site that even the smallest queue takes
NO_ROOM = {10002, 10023, 10047}  # error codes of a server that has less space than the stream needs
IDENTITY_FILE = "identity.json"  # in the hub's state folder
CHECKS = 6  # of another hub's queue before it counts as abandoned
LOOK_EVERY = 10.0  # seconds between two looks at how much is left of what waited at the start
INBOX = "_HUBBOX"  # no site may subscribe to it


class Identity(NamedTuple):
    """A hub: a random mark in its state folder, and the name of its machine. Both must match: the folder may be a copy.

    It is stored with the queue, so that two hubs with the same server do not take each other's sketches.
    """

    mark: str = ""
    host: str = ""

    @property
    def metadata(self) -> dict[str, str]:
        return {"superhosts-hub": self.mark, "superhosts-host": self.host}

    @classmethod
    def parse(cls, metadata: Mapping[str, str] | None) -> Identity:
        """Read an identity stored at the server; older hubs stored none."""
        found = metadata or {}
        return cls(found.get("superhosts-hub", ""), found.get("superhosts-host", ""))


NOBODY = Identity()


def own_identity(state: Path) -> Identity:
    """Return the identity of the hub with this state folder; the mark is created at the first start."""
    path = state / IDENTITY_FILE
    with os_errors(str(path)):
        mark = read_json(path)
        if not isinstance(mark, str) or not mark:
            mark = secrets.token_hex(8)
            write_json(path, mark)
    return Identity(mark, socket.gethostname())


class TakenError(LinkDownError):
    """Another hub reads the queue."""


async def check_no_other_hub(js: JetStreamContext, me: Identity, look: float) -> Identity | None:
    """Refuse a queue that another hub reads: each would take the other's sketches. Check every `look` seconds.

    A running hub has requested pieces, or has received some since the last check. Return the previous owner of an
    abandoned queue, else None.
    """
    seen: int | None = None
    other = None
    for _ in range(CHECKS):
        try:
            info = await js.consumer_info(messages.STREAM, messages.CONSUMER)
        except NotFoundError:
            return None
        other = Identity.parse(info.config.metadata)
        if other == me:
            return None
        given = info.delivered.consumer_seq if info.delivered else 0
        if info.num_waiting or given != (given if seen is None else seen):
            raise TakenError(
                f"another hub{f' on {other.host}' if other.host else ''} reads the queue there. Give each hub a server "
                "of its own, or end that one; if it is gone already, this one can have the queue in half a minute"
            )
        seen = given
        await asyncio.sleep(look)
    return other


async def prepare(js: JetStreamContext, owner: Identity, cap: int, ack_wait: float, look: float) -> Identity | None:
    """Create or update the stream, and create a new consumer; return the previous owner if it was another hub.

    A new consumer gets everything that was not acknowledged at once. An old one would get what the server has sent into
    a broken connection only after a timeout.
    """
    before = await check_no_other_hub(js, owner, look)
    piece = messages.CHUNK + messages.HEADERS
    wanted: dict[str, Any] = {
        "subjects": [messages.CHUNKS],
        "retention": api.RetentionPolicy.WORK_QUEUE,
        "storage": api.StorageType.FILE,
        "discard": api.DiscardPolicy.NEW,  # nothing is lost silently: the edge waits
        "max_bytes": cap,
        "max_msgs_per_subject": max(MIN_PIECES, cap // SHARE // piece),  # a site has one subject
        "discard_new_per_subject": True,
        "allow_rollup_hdrs": False,  # a message with such a header could empty the queue
        "max_age": MAX_AGE,
        "max_msg_size": piece,
        "duplicate_window": DUPLICATES,
    }
    try:
        try:
            config = (await js.stream_info(messages.STREAM)).config
        except NotFoundError:
            await js.add_stream(api.StreamConfig(name=messages.STREAM, **wanted))
        else:
            if config.evolve(**wanted) != config:
                await js.update_stream(config.evolve(**wanted))
    except APIError as error:
        if error.err_code not in NO_ROOM:
            raise
        size = format_size(cap)
        raise LinkDownError(f"the server has too little space for --broker-cap {size}: {error.description}") from None
    with contextlib.suppress(NotFoundError):
        await js.delete_consumer(messages.STREAM, messages.CONSUMER)
    consumer = api.ConsumerConfig(
        durable_name=messages.CONSUMER,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=ack_wait,
        max_ack_pending=-1,
        filter_subject=messages.CHUNKS,
        metadata=owner.metadata,
    )
    await js.add_consumer(messages.STREAM, consumer)
    return before


async def pull(link: Link, take: Callable[[Msg], Awaitable[None]]) -> None:
    """Request pieces, a few at a time, and process each before requesting more."""
    inbox = link.client.new_inbox()
    queue: asyncio.Queue[Msg] = asyncio.Queue()
    await link.client.subscribe(inbox, cb=queue.put)
    request = json.dumps({"batch": BATCH, "expires": int(PULL * SECOND)}).encode()
    while True:
        await link.client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{messages.STREAM}.{messages.CONSUMER}", request, reply=inbox
        )
        for _ in range(BATCH):
            try:
                async with asyncio.timeout(PULL + 5):
                    message = await queue.get()
            except TimeoutError:
                break
            if message.subject == inbox:  # the server's status for the request, not a piece
                status = (message.headers or {}).get("Status", "")
                if status not in ("404", "408"):
                    raise LinkDownError(f"the queue is gone (status {status})")
                break
            await take(message)


class NatsReceiver:
    def __init__(
        self,
        options: NatsOptions,
        say: Say,
        *,
        owner: Identity = NOBODY,
        cap: int = 4 << 30,
        largest: int = messages.LARGEST,
        ack_wait: float = 60.0,
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
        self._options, self._say = options, say
        self._owner, self._cap, self._ack_wait = owner, cap, ack_wait
        quotas = Quotas(NO_QUOTA, Roster(say)) if quotas is None else quotas
        self.assembler = Assembler(quotas, admitted, clock, largest=largest, patience=patience)
        self.counters = self.assembler.counters
        self._status = LinkStatus(f"the link to {options.shown}", say, self.counters)
        self._earlier: tuple[api.StreamState, api.StreamState] | None = None  # of the queue: at the start, and now

    def check_no_other_hub(self) -> None:
        """Refuse an unsuitable server, or one whose queue another hub reads. A server that is down is accepted."""

        async def look() -> None:
            async with connect(self._options, INBOX, lambda text: None) as link:
                await link.check_strict()
                await check_no_other_hub(link.jetstream, self._owner, self._options.timing.look)
                if link.is_open:
                    where = f"the link to {self._options.shown}"
                    self._say(f"{where}: the server requires no credentials: every client can send for any site")

        try:
            asyncio.run(look())
        except (TakenError, UnfitServerError) as error:
            raise UsageError(f"--nats {self._options.shown}: {error}") from None
        except LinkDownError as error:
            self.counters.down = str(error)

    def note_reach(self, trouble: str) -> None:
        """Record why a new connection fails, or that it works; an open connection may continue meanwhile."""
        if trouble or self.assembler.link is not None:
            self.counters.down = trouble

    def senders(self) -> Collection[str]:
        """Return the sites that may send; empty if every site may."""
        return self.assembler.admitted() or ()

    def earlier(self) -> dict[str, int] | None:
        """Return the pieces that are left of those that waited in the queue at the start, each with its bytes."""
        if self._earlier is None:
            return None
        first, now = self._earlier
        removed = first.messages + now.last_seq - first.last_seq - now.messages  # the oldest leave first
        size = first.bytes // max(first.messages, 1)
        return dict.fromkeys(map(str, range(max(removed, 0), first.messages)), size)

    async def _look_at_queue(self, link: Link) -> None:
        now = (await link.jetstream.stream_info(messages.STREAM)).state
        self._earlier = (now if self._earlier is None else self._earlier[0]), now

    def run(self, intake: Intake, stop: threading.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Receive until told to stop. Reports a broken link and retries; calls `ready` once the queue is there."""

        async def main() -> None:
            self.assembler.begin(intake)
            await keep_connected(lambda: self._session(stop, ready), stop, self._status, timing=self._options.timing)
            await self.assembler.finish()

        asyncio.run(main())

    async def _session(self, stop: threading.Event, ready: Callable[[], None]) -> None:
        async with connect(self._options, INBOX, self._complain) as link:
            await link.check_strict()
            look = self._options.timing.look
            before = await prepare(link.jetstream, self._owner, self._cap, self._ack_wait, look)
            if before is not None:
                where = f" on {printable(before.host)}" if before.host else ""
                self.assembler.say("", "queues", f"took over the queue of a hub{where} that no longer runs")
            await self._look_at_queue(link)
            await link.client.subscribe(messages.QUESTIONS, cb=self.assembler.take_question)
            self.counters.connects += 1
            self._status.up()
            if self.counters.connects == 1:
                ready()
            self.assembler.link = link
            try:
                await race(stop, link, pull(link, self.assembler.take), self._tick(link))
                await self.assembler.finish(10.0)  # for the receipts of sketches being handed in
                await link.client.flush()
            finally:
                self.assembler.link = None

    async def _tick(self, link: Link) -> None:
        """Do periodic work: retry failed sketches, give up incomplete ones, look at the queue."""
        looked = self.assembler.clock()
        while True:
            await asyncio.sleep(0.5)
            now = self.assembler.clock()
            await self.assembler.look_after()
            if now - looked > LOOK_EVERY and self.earlier():
                looked = now
                with contextlib.suppress(nats.errors.Error):  # the next look tells
                    await self._look_at_queue(link)

    def _complain(self, text: str) -> None:
        self.assembler.complain("", "errors from the server", f"{self._options.shown}: {text}")
