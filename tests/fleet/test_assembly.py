"""Sketches that arrive at a hub in pieces: given up, thrown out, turns of sites, and delays before a retry."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from brokers import Heard, KeepingIntake, message, noise, pieces, window
from faults import fill_disk, system_call
from hubs import FakeTime
from processes import DEADLINE
from superhosts.fleet.link import retry_delay
from superhosts.fleet.names import SketchId
from superhosts.fleet.nats.assembly import DEFAULT_PATIENCE, MAX_ARRIVING, MAX_LARGE, TRIES, Patience
from superhosts.fleet.nats.credentials import NatsOptions
from superhosts.fleet.nats.messages import Chunk
from superhosts.fleet.nats.receive import NatsReceiver
from superhosts.fleet.sites import LINES_PER_MINUTE
from taken import little_memory

CHUNK = "superhosts.from.ams.chunk"
ALL = frozenset({"ams", "fra"})


class Held:
    """A system call that waits, in the thread that makes it, until a test lets it go on."""

    def __init__(self) -> None:
        self._reached, self._go_on = threading.Event(), threading.Event()

    def __call__(self, *_: Any, **__: Any) -> None:
        self._reached.set()
        assert self._go_on.wait(DEADLINE)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, DEADLINE)

    def go_on(self) -> None:
        self._go_on.set()


class Arrival:
    """A receiver without a server."""

    def __init__(self, folder: Path) -> None:
        self.intake = KeepingIntake(folder)
        self.admitted = ALL
        self.time = FakeTime()
        self.said: list[str] = []
        self.receiver = NatsReceiver(
            NatsOptions("nats://127.0.0.1:1"),
            self.said.append,
            largest=1 << 20,
            admitted=self.who,
            clock=self.time.source.steady,
            patience=Patience(pause=7.0),
        )
        self.link: Any = Heard()
        self.number = 0

    def who(self) -> frozenset[str]:
        return self.admitted

    def begin(self) -> None:
        self.receiver.assembler.begin(self.intake)
        self.receiver.assembler.link = self.link

    async def take(self, piece: tuple[Chunk, bytes], site: str = "ams") -> None:
        self.number += 1
        chunk, data = piece
        await self.receiver.assembler.take(
            message(self.number, f"superhosts.from.{site}.chunk", chunk.headers("0"), data)
        )

    def check_empty(self) -> None:
        """Nothing is arriving, and nothing lies about."""
        assert self.receiver.assembler.assemblies == {}
        assert list(self.intake.folder.iterdir()) == []


@pytest.fixture
def arrival(tmp_path: Path) -> Arrival:
    return Arrival(tmp_path / "hub")


def test_a_sketch_may_begin_again_while_its_first_beginning_is_removed(tmp_path: Path, arrival: Arrival) -> None:
    path = noise(tmp_path, "ams", 0, 20_000)
    first, *others = pieces(path, 8000)

    async def main() -> None:
        arrival.begin()
        await arrival.take(first)
        old, removal = arrival.receiver.assembler.assemblies[path.name], Held()
        with system_call("unlink", removal):
            giving_up = asyncio.create_task(arrival.receiver.assembler.give_up(old))
            await removal.reached()
        await arrival.take(first)
        removal.go_on()
        await giving_up
        for piece in others:
            await arrival.take(piece)
        await arrival.receiver.assembler.finish()

    asyncio.run(main())
    assert arrival.receiver.counters.corrupt == 0
    assert (arrival.intake.kept / path.name).read_bytes() == path.read_bytes()
    arrival.check_empty()


@pytest.mark.parametrize("step", [8000, 1 << 20], ids=["a piece of several", "the whole sketch"])
def test_a_site_that_is_revoked_while_a_piece_is_written_leaves_nothing(tmp_path, arrival, step) -> None:
    path = noise(tmp_path, "ams", 0, 20_000)
    first = pieces(path, min(step, path.stat().st_size))[0]

    async def main() -> None:
        arrival.begin()
        writing = Held()
        with system_call("pwrite", writing):
            taking = asyncio.create_task(arrival.take(first))
            await writing.reached()
        arrival.admitted = frozenset({"fra"})
        await arrival.receiver.assembler.look_after()
        writing.go_on()
        await taking
        await arrival.receiver.assembler.finish()

    asyncio.run(main())
    assert arrival.intake.calls == []
    arrival.check_empty()


def beginning(number: int, size: int) -> tuple[Chunk, bytes]:
    """Return the first piece of a sketch that claims to have `size` bytes."""
    return Chunk(SketchId("ams", window(0), f"{number:016x}").name, 0, 4096, size), bytes(4096)


def test_a_site_cannot_exceed_its_limit_with_sketches_that_begin_again_larger(arrival: Arrival) -> None:
    arrivals = arrival.receiver.assembler
    limit = MAX_LARGE * arrivals.largest

    async def main() -> None:
        arrival.begin()
        for number in range(MAX_ARRIVING):
            await arrival.take(beginning(number, 8192))
        for number in range(MAX_ARRIVING):
            await arrival.take(beginning(number, arrivals.largest))
            assert sum(each.size for each in arrivals.of("ams")) <= limit

    asyncio.run(main())
    assert arrival.receiver.counters.put_off > 0
    assert [data for _, data in arrival.link.said if data.startswith(b"-NAK")]
    assert len(arrivals.of("ams")) == MAX_ARRIVING  # what has begun is not lost


def test_a_sketch_that_begins_again_larger_takes_the_place_of_stale_ones(arrival: Arrival) -> None:
    arrivals = arrival.receiver.assembler
    largest = arrivals.largest

    async def main() -> None:
        arrival.begin()
        for number, size in enumerate([8192, largest - 8192, *[largest] * (MAX_LARGE - 1)]):
            await arrival.take(beginning(number, size))
            arrival.time.now += 1.0
        arrival.time.now += DEFAULT_PATIENCE.stale
        await arrival.take(beginning(0, largest))

    asyncio.run(main())
    assert arrival.receiver.counters.abandoned == 1
    assert {each.name: each.size for each in arrivals.of("ams")} == {
        beginning(number, largest)[0].name: largest for number in (0, *range(2, MAX_LARGE + 1))
    }


def test_a_sketch_that_is_never_finished_is_given_up(tmp_path: Path, arrival: Arrival) -> None:
    async def main() -> None:
        arrival.begin()
        for piece in pieces(noise(tmp_path, "ams", 0, 20_000), 8000)[:2]:
            await arrival.take(piece)
        for seconds, given_up in ((DEFAULT_PATIENCE.abandon, 0), (1.0, 1)):
            arrival.time.now += seconds
            await arrival.receiver.assembler.look_after()
            assert arrival.receiver.counters.abandoned == given_up

    asyncio.run(main())
    arrival.check_empty()


def test_pieces_of_too_many_beginnings_leave_the_queue(arrival: Arrival) -> None:
    answers = take_often(arrival, TRIES, others=MAX_ARRIVING)[MAX_ARRIVING:]
    assert [answer[:4] for answer in answers] == [b"-NAK"] * (TRIES - 1) + [b"+TER"]
    assert (arrival.receiver.counters.put_off, arrival.receiver.counters.dropped) == (TRIES, 1)
    assert len(list(arrival.intake.folder.iterdir())) == MAX_ARRIVING
    words = f"ams has begun {MAX_ARRIVING} sketches and does not finish them; further ones wait"
    assert arrival.said == [words] * LINES_PER_MINUTE


def take_often(arrival: Arrival, times: int, others: int = 0) -> list[bytes]:
    """Deliver one piece so often, after pieces of other sketches; return the answers to the server."""
    chunk, data = beginning(others, 8192)

    async def main() -> None:
        arrival.begin()
        for number in range(others):
            await arrival.take(beginning(number, 8192))
        for delivery in range(1, times + 1):
            reply = f"$JS.ACK.superhosts.hub.{delivery}.1.1.0.0"
            await arrival.receiver.assembler.take(message(1, CHUNK, chunk.headers("0"), data, reply))

    asyncio.run(main())
    return [data for _, data in arrival.link.said]


def test_a_piece_stays_in_the_queue_while_the_disk_fails(arrival: Arrival) -> None:
    again = b'-NAK {"delay": 7000000000}'
    with system_call("pwrite", fill_disk):
        assert take_often(arrival, 3) == [again] * 3
    arrival.intake.known = Mock(side_effect=OSError(errno.EIO, "Input/output error"))
    assert take_often(arrival, 3 * TRIES) == [again] * (3 + 3 * TRIES)
    assert arrival.receiver.counters.dropped == 0
    assert arrival.said == [
        f"{CHUNK}: OSError: [Errno 28] No space left on device; it will be delivered again",
        f"{CHUNK}: OSError: [Errno 5] Input/output error; it will be delivered again",
    ]


def test_a_piece_that_fails_for_another_reason_leaves_the_queue_and_the_log_says_so(arrival: Arrival) -> None:
    arrival.intake.known = Mock(side_effect=ValueError("unexpected"))
    answers = take_often(arrival, TRIES)
    assert [answer[:4] for answer in answers] == [b"-NAK"] * (TRIES - 1) + [b"+TER"]
    assert arrival.said == [
        f"{CHUNK}: ValueError: unexpected; it will be delivered again",
        f"{CHUNK}: ValueError: unexpected; it is removed from the queue",
    ]


MANY = 5000  # a float cannot hold 2 to this power


def test_pauses_double_up_to_a_limit() -> None:
    assert [retry_delay(attempts, 0.5, 3.0) for attempts in (0, 1, 2, 3, 4, 5)] == [0.5, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert retry_delay(MANY, 0.5, 60.0) == 60.0


@pytest.mark.slow
def test_interleaved_pieces_of_300_sites_take_little_memory(tmp_path: Path, arrival: Arrival) -> None:
    paths = {f"site{number:03d}": noise(tmp_path, f"site{number:03d}", 0, 100_000) for number in range(300)}
    arrival.admitted = frozenset(paths)
    size, step = next(iter(paths.values())).stat().st_size, 8000

    async def main() -> None:
        arrival.begin()
        for number in range(-(-size // step)):
            for site, path in paths.items():
                with path.open("rb") as file:
                    file.seek(number * step)
                    await arrival.take((Chunk(path.name, number, step, size), file.read(step)), site)
        await arrival.receiver.assembler.finish()

    with little_memory(300 * size // 6):
        asyncio.run(main())
    assert arrival.intake.names() == {path.name for path in paths.values()}
    arrival.check_empty()
