"""Real brokers, and stand-ins for both ends of a link, for the tests of the link over NATS."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
import nats.errors
import nats.js.errors
import numpy as np
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import StreamConfig, StreamInfo, StreamState

from fleets import window
from processes import DEADLINE, free_port, wait_for
from superhosts.cubefile import container as sketchfile
from superhosts.cubefile.container import CubeReader
from superhosts.errors import SketchFileError
from superhosts.fleet.link import MERGED, RESEND, Receipt
from superhosts.fleet.names import SketchId
from superhosts.fleet.nats.broker import Broker
from superhosts.fleet.nats.credentials import NatsOptions, Timing
from superhosts.fleet.nats.messages import Chunk
from superhosts.fleet.nats.receive import NatsReceiver
from superhosts.fleet.nats.send import NO_ROOM
from superhosts.fleet.spool import Spool

MIB = 1 << 20
NEVER = 3600.0  # seconds: what a test does not speak of does not happen in it, however slow the machine is
ANSWER = 10.0  # seconds after which `queued` asks again


# Attempts follow each other quickly, and a slow answer does not count as a link that does not work.
QUICK = Timing(reply=int(DEADLINE), first_pause=0.1, last_pause=0.3, answer=DEADLINE, look=0.2)


def make_broker(folder: Path, said: list[str], kind: type[Broker] = Broker, **options: Any) -> Broker:
    defaults = {"listen": f"127.0.0.1:{free_port()}", "cap": 64 * MIB, "timing": QUICK}
    return kind(folder, said.append, **{**defaults, **options})


def server_pid(broker: Broker) -> int | None:
    """Return the process id of the server, or None while it is writing the file."""
    return int((broker.folder / "nats.pid").read_text() or 0) or None


def as_client(options: NatsOptions, work: Callable[[Client, list[str]], Awaitable[Any]], inbox: str = "_INBOX") -> Any:
    """Run `work` over a connection. Its list collects the errors that the server reports."""

    async def main() -> Any:
        errors: list[str] = []

        async def seen(error: Exception) -> None:
            errors.append(str(error))

        client = nats.NATS()
        try:
            await client.connect(
                options.url,
                error_cb=seen,
                inbox_prefix=inbox,
                allow_reconnect=False,
                connect_timeout=int(DEADLINE),
                nkeys_seed=str(options.nkey) if options.nkey else None,
            )
            connected.append(client)
            return await work(client, errors)
        finally:
            await client.close()

    connected: list[Client] = []
    while True:
        try:
            return asyncio.run(main())
        except (ConnectionResetError, nats.errors.UnexpectedEOF):
            if connected:  # Otherwise the server was reloading its configuration.
                raise


def accepts(broker: Broker, seed: Path | None) -> bool:
    async def nothing(client: Client, errors: list[str]) -> bool:
        return True

    try:
        return bool(as_client(NatsOptions(broker.options.url, nkey=seed), nothing))
    except nats.errors.Error as error:
        if "Authorization" not in str(error):
            raise
        return False


def as_site(broker: Broker, site: str) -> NatsOptions:
    return NatsOptions(broker.options.url, nkey=broker.folder / "seeds" / f"{site}.nk", timing=QUICK)


def make_receiver(broker: Broker, said: list[str] | None = None, **options: Any) -> NatsReceiver:
    say = (said if said is not None else []).append
    defaults = {"cap": broker.cap, "ack_wait": NEVER, "admitted": broker.admitted}
    return NatsReceiver(broker.options, say, **{**defaults, **options})


def queued(broker: Broker) -> dict[str, int]:
    """The pieces that wait in the queue, by subject."""

    async def work(client: Client, errors: list[str]) -> dict[str, int]:
        info = await client.jetstream(timeout=ANSWER).stream_info("superhosts", subjects_filter=">")
        return dict(info.state.subjects or {})

    for _ in range(int(DEADLINE / ANSWER)):
        try:
            found: dict[str, int] = as_client(broker.options, work)
        except nats.js.errors.ServiceUnavailableError:  # for a moment, while the server reads its new configuration
            return {"unknown": -1}
        except nats.errors.TimeoutError:  # it may also drop a question then
            continue
        return found
    raise AssertionError("the server does not answer")


def publish(broker: Broker, site: str, chunks: list[tuple[Chunk, bytes]], attempt: str = "0") -> None:
    """Send pieces as an edge does: where a site's share of the queue is full, again a moment later."""

    async def work(client: Client, errors: list[str]) -> None:
        js = client.jetstream(timeout=DEADLINE)
        for place, (chunk, data) in enumerate(chunks):
            while not await try_to_send(js, data, chunk.headers(f"{attempt}-{place}")):
                await asyncio.sleep(0.02)

    async def try_to_send(js: JetStreamContext, data: bytes, headers: dict[str, str]) -> bool:
        try:
            await js.publish(f"superhosts.from.{site}.chunk", data, headers=headers)
        except nats.js.errors.ServiceUnavailableError as error:
            if error.err_code not in NO_ROOM:
                raise
            return False
        return True

    options = as_site(broker, site)
    is_enrolled = options.nkey is not None and options.nkey.exists()
    as_client(options if is_enrolled else broker.options, work, f"_INBOX.{site}")


async def settle(client: Client) -> None:
    """Wait until the server has processed everything that was sent and its answers have arrived."""
    for _ in range(2):  # The first request may overtake earlier messages.
        await client.flush(int(DEADLINE))


def make_spool(folder: Path, site: str) -> Spool:
    return Spool(folder, site, cap=1 << 30, say=lambda text: None)


def noise(folder: Path, site: str, number: int = 0, size: int = 100_000) -> Path:
    """Write a file of `size` random bytes and a valid checksum, under the name of a sketch."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / ".noise.tmp"
    data = np.random.default_rng([number, *site.encode()]).integers(0, 256, size, np.uint8)
    sketchfile.write(fresh, {"window": list(window(number))}, {"noise": data})
    target = folder / SketchId.of(fresh, site, window(number)).name
    fresh.replace(target)
    return target


def pieces(path: Path, step: int) -> list[tuple[Chunk, bytes]]:
    data = path.read_bytes()
    starts = range(0, len(data), step)
    return [(Chunk(path.name, i, step, len(data)), data[at : at + step]) for i, at in enumerate(starts)]


class KeepingIntake:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "incoming"
        self.kept = folder / "kept"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.kept.mkdir(exist_ok=True)
        self.calls: list[tuple[str, str]] = []
        self.failures = 0  # how many calls report a full disk; each of them clears the gate
        self.gate = threading.Event()  # no sketch is accepted while this is clear
        self.gate.set()

    def accept(self, path: Path, name: str, site: str) -> Receipt:
        assert self.gate.wait(DEADLINE)
        self.calls.append((name, site))
        if self.failures:
            self.failures -= 1
            self.gate.clear()
            raise OSError(28, "No space left on device")
        try:
            with CubeReader(path):
                sketch_id = SketchId.parse(name)
                if SketchId.of(path, site, sketch_id.window) != sketch_id:
                    return Receipt(name, RESEND, "another checksum")
        except SketchFileError as error:
            return Receipt(name, RESEND, str(error))
        path.replace(self.kept / name)
        return Receipt(name, MERGED)

    def known(self, name: str) -> Receipt | None:
        return Receipt(name, MERGED) if (self.kept / name).exists() else None

    def names(self) -> set[str]:
        return {path.name for path in self.kept.iterdir()}


@contextmanager
def running(run: Callable[[Any, threading.Event], None], other: Any) -> Iterator[None]:
    stop, failures = threading.Event(), []

    def target() -> None:
        try:
            run(other, stop)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert failures == []


@contextmanager
def receiving(receiver: NatsReceiver, intake: Any) -> Iterator[None]:
    """Run the hub's end of a link during the block, from the moment in which it is connected."""
    with running(receiver.run, intake):
        eventually(lambda: receiver.counters.connects)
        yield


def eventually(condition: Callable[[], Any]) -> None:
    wait_for(condition, "what the test waits for")


class Heard:
    def __init__(self) -> None:
        self.said: list[tuple[str, bytes]] = []
        self.client = self
        self.jetstream = self

    async def publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.said.append((subject, data))

    async def stream_info(self, *names: str, **options: Any) -> StreamInfo:
        return StreamInfo(StreamConfig(), StreamState(0, 0, 0, 0, 0))  # an empty queue


def message(number: int, subject: str, headers: dict[str, str] | None, data: bytes, reply: str | None = None) -> Msg:
    address = f"$JS.ACK.superhosts.hub.1.{number}.{number}.0.0" if reply is None else reply
    return Msg(_client=None, subject=subject, reply=address, data=data, headers=headers)  # type: ignore[arg-type]
