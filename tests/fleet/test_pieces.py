"""Sketches that are arriving at a hub while others are given up or thrown out. Every step waits for the one before."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from brokers import Heard, KeepingIntake, message, noise, pieces
from faults import system_call
from processes import DEADLINE
from superhosts.fleet.nats.options import NatsOptions
from superhosts.fleet.nats.receive import NatsReceiver
from superhosts.fleet.nats.wire import Chunk

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
        self.receiver = NatsReceiver(NatsOptions("nats://127.0.0.1:1"), lambda text: None, admitted=self.who)
        self.link: Any = Heard()
        self.number = 0

    def who(self) -> frozenset[str]:
        return self.admitted

    def begin(self) -> None:
        self.receiver.begin(self.intake)
        self.receiver.reception.replies.link = self.link

    async def take(self, piece: tuple[Chunk, bytes]) -> None:
        self.number += 1
        chunk, data = piece
        await self.receiver.pieces.take(message(self.number, CHUNK, chunk.headers("0"), data))

    def check_empty(self) -> None:
        """Nothing is arriving, and nothing is counted or lies about."""
        arrivals = self.receiver.arrivals
        assert arrivals.assemblies == {}
        assert (arrivals.held_bytes, arrivals.held_pieces.total()) == (0, 0)
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
        old, removal = arrival.receiver.arrivals.assemblies[path.name], Held()
        with system_call("unlink", removal):
            giving_up = asyncio.create_task(arrival.receiver.pieces.give_up(old))
            await removal.reached()
        await arrival.take(first)
        removal.go_on()
        await giving_up
        for piece in others:
            await arrival.take(piece)
        await arrival.receiver.jobs.finish()

    asyncio.run(main())
    assert arrival.receiver.counters.corrupt == 0
    assert (arrival.intake.kept / path.name).read_bytes() == path.read_bytes()
    arrival.check_empty()


def test_who_gives_up_an_old_beginning_twice_does_not_harm_the_new_one(tmp_path: Path, arrival: Arrival) -> None:
    path = noise(tmp_path, "ams", 0, 20_000)
    first, *others = pieces(path, 8000)

    async def main() -> None:
        arrival.begin()
        await arrival.take(first)
        old = arrival.receiver.arrivals.assemblies[path.name]
        await arrival.receiver.pieces.give_up(old)
        await arrival.take(first)
        await arrival.receiver.pieces.give_up(old)
        for piece in others:
            await arrival.take(piece)
        await arrival.receiver.jobs.finish()

    asyncio.run(main())
    assert arrival.receiver.counters.abandoned == 1
    assert (arrival.intake.kept / path.name).read_bytes() == path.read_bytes()
    arrival.check_empty()


@pytest.mark.parametrize("step", [8000, 1 << 20], ids=["a piece of several", "the whole sketch"])
def test_a_site_that_is_revoked_while_a_piece_is_written_leaves_nothing(
    tmp_path: Path, arrival: Arrival, step: int
) -> None:
    path = noise(tmp_path, "ams", 0, 20_000)
    first = pieces(path, min(step, path.stat().st_size))[0]

    async def main() -> None:
        arrival.begin()
        writing = Held()
        with system_call("pwrite", writing):
            taking = asyncio.create_task(arrival.take(first))
            await writing.reached()
        arrival.admitted = frozenset({"fra"})
        await arrival.receiver.expel()
        writing.go_on()
        await taking
        await arrival.receiver.jobs.finish()

    asyncio.run(main())
    assert arrival.intake.calls == []
    arrival.check_empty()
