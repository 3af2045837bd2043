"""The queue at the server: the stream that keeps pieces of sketches, and the consumer through which a hub reads it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from superhosts.fleet.nats.connect import Link, LinkDownError
from superhosts.fleet.nats.wire import CHUNK, CHUNKS, CONSUMER, HEADERS, STREAM

BATCH = 32  # pieces on their way from the server at once: 16 MiB of memory
PULL = 20.0  # seconds that a request for pieces stands
DUPLICATES = 600.0  # seconds in which the server takes a piece of an attempt once


async def prepare(js: JetStreamContext, cap: int, max_age: float, ack_wait: float) -> None:
    """Make the stream or change it to what is wanted, and make the consumer anew.

    A new consumer gets at once all that was not acknowledged: also what the server has sent into a connection that was
    dying, which an old one would get only when the server has lost its patience.
    """
    wanted: dict[str, Any] = {
        "subjects": [CHUNKS],
        "retention": RetentionPolicy.WORK_QUEUE,
        "storage": StorageType.FILE,
        "discard": DiscardPolicy.NEW,  # nothing is lost in silence: an edge waits
        "max_bytes": cap,
        "max_age": max_age,
        "max_msg_size": CHUNK + HEADERS,
        "duplicate_window": min(DUPLICATES, max_age),
    }
    try:
        config = (await js.stream_info(STREAM)).config
    except NotFoundError:
        await js.add_stream(StreamConfig(name=STREAM, **wanted))
    else:
        if config.evolve(**wanted) != config:
            await js.update_stream(config.evolve(**wanted))
    with contextlib.suppress(NotFoundError):
        await js.delete_consumer(STREAM, CONSUMER)
    consumer = ConsumerConfig(
        durable_name=CONSUMER,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait,
        max_ack_pending=-1,
        filter_subject=CHUNKS,
    )
    await js.add_consumer(STREAM, consumer)


async def pull(link: Link, take: Callable[[Msg], Awaitable[None]]) -> None:
    """Ask for pieces, a few at a time, and have each put away before asking for more."""
    inbox = link.client.new_inbox()
    queue: asyncio.Queue[Msg] = asyncio.Queue()
    await link.client.subscribe(inbox, cb=queue.put)
    request = json.dumps({"batch": BATCH, "expires": int(PULL * 1e9)}).encode()
    while True:
        await link.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}", request, reply=inbox)
        for _ in range(BATCH):
            try:
                async with asyncio.timeout(PULL + 5):
                    message = await queue.get()
            except TimeoutError:
                break
            if message.subject == inbox:  # the server's word on the request, not a piece
                status = (message.headers or {}).get("Status", "")
                if status not in ("404", "408"):
                    raise LinkDownError(f"the queue is gone (status {status})")
                break
            await take(message)
