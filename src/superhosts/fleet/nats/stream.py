"""The queue at the server: a stream that stores pieces of sketches, and the consumer through which a hub reads it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError

from superhosts.core.text import printable
from superhosts.core.units import SECOND, format_size
from superhosts.fleet.nats.connect import Link, LinkDownError
from superhosts.fleet.nats.identity import Identity
from superhosts.fleet.nats.wire import CHUNK, CHUNKS, CONSUMER, HEADERS, STREAM

BATCH = 32  # pieces requested from the server at once: 16 MiB of memory
PULL = 20.0  # seconds that a request for pieces is valid
DUPLICATES = 2.0  # seconds in which the server drops duplicates; it keeps their names in memory
SHARE = 4  # one site's pieces take at most a quarter of the queue
MIN_PIECES = 64  # pieces of one site that even the smallest queue takes
NO_ROOM = {10002, 10023, 10047}  # error codes of a server that has less space than the stream needs
CHECKS = 6  # of another hub's queue before it counts as abandoned


class TakenError(LinkDownError):
    """Another hub reads the queue."""


@dataclass(frozen=True)
class Queue:
    """The settings of the queue, and the hub that reads it."""

    cap: int  # bytes
    max_age: float  # seconds
    ack_wait: float  # seconds
    owner: Identity

    @property
    def site_pieces(self) -> int:
        """How many pieces of one site the queue holds, whatever their size."""
        return max(MIN_PIECES, self.cap // SHARE // (CHUNK + HEADERS))


async def check_no_other_hub(js: JetStreamContext, me: Identity, look: float) -> Identity | None:
    """Refuse a queue that another hub reads: each would take the other's sketches. Check every `look` seconds.

    A running hub has requested pieces, or has received some since the last check. Return the previous owner of an
    abandoned queue, else None.
    """
    seen: int | None = None
    other = None
    for _ in range(CHECKS):
        try:
            info = await js.consumer_info(STREAM, CONSUMER)
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


async def prepare(js: JetStreamContext, queue: Queue, look: float) -> Identity | None:
    """Create or update the stream, and create a new consumer; return the previous owner if it was another hub.

    A new consumer gets everything that was not acknowledged at once. An old one would get what the server has sent into
    a broken connection only after a timeout.
    """
    before = await check_no_other_hub(js, queue.owner, look)
    wanted: dict[str, Any] = {
        "subjects": [CHUNKS],
        "retention": RetentionPolicy.WORK_QUEUE,
        "storage": StorageType.FILE,
        "discard": DiscardPolicy.NEW,  # nothing is lost silently: the edge waits
        "max_bytes": queue.cap,
        "max_msgs_per_subject": queue.site_pieces,  # a site has one subject
        "discard_new_per_subject": True,
        "allow_rollup_hdrs": False,  # a message with such a header could empty the queue
        "max_age": queue.max_age,
        "max_msg_size": CHUNK + HEADERS,
        "duplicate_window": min(DUPLICATES, queue.max_age),
    }
    try:
        await _make_stream(js, wanted)
    except APIError as error:
        if error.err_code not in NO_ROOM:
            raise
        size = format_size(queue.cap)
        raise LinkDownError(f"the server has too little space for --broker-cap {size}: {error.description}") from None
    with contextlib.suppress(NotFoundError):
        await js.delete_consumer(STREAM, CONSUMER)
    consumer = ConsumerConfig(
        durable_name=CONSUMER,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=queue.ack_wait,
        max_ack_pending=-1,
        filter_subject=CHUNKS,
        metadata=queue.owner.metadata,
    )
    await js.add_consumer(STREAM, consumer)
    return before


async def _make_stream(js: JetStreamContext, wanted: dict[str, Any]) -> None:
    try:
        config = (await js.stream_info(STREAM)).config
    except NotFoundError:
        await js.add_stream(StreamConfig(name=STREAM, **wanted))
    else:
        if config.evolve(**wanted) != config:
            await js.update_stream(config.evolve(**wanted))


async def pull(link: Link, take: Callable[[Msg], Awaitable[None]]) -> None:
    """Request pieces, a few at a time, and process each before requesting more."""
    inbox = link.client.new_inbox()
    queue: asyncio.Queue[Msg] = asyncio.Queue()
    await link.client.subscribe(inbox, cb=queue.put)
    request = json.dumps({"batch": BATCH, "expires": int(PULL * SECOND)}).encode()
    while True:
        await link.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}", request, reply=inbox)
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


async def expel(js: JetStreamContext, admitted: Collection[str]) -> dict[str, int]:
    """Remove the pieces of all other sites from the queue; return their numbers by site."""
    gone: dict[str, int] = {}
    subjects = (await js.stream_info(STREAM, subjects_filter=CHUNKS)).state.subjects or {}
    for subject, count in subjects.items():
        site = subject.split(".")[2]
        if site not in admitted:
            await js.purge_stream(STREAM, subject=subject)
            gone[printable(site)] = count
    return gone
