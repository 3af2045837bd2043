"""Sketches that are arriving at a hub while others are given up or thrown out. Every step waits for the one before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brokers import Heard, KeepingIntake, message, noise, pieces
from superhosts.fleet.nats import receive
from superhosts.fleet.nats.connect import NatsOptions
from superhosts.fleet.nats.receive import NatsReceiver
from superhosts.fleet.nats.wire import Chunk

CHUNK = "superhosts.from.ams.chunk"
ALL = frozenset({"ams", "fra"})


class Arrival:
    """A receiver without a server. Work that it has done in a thread can be held up by its name."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.intake = KeepingIntake(folder)
        self.admitted = ALL
        self.receiver = NatsReceiver(NatsOptions("nats://127.0.0.1:1"), lambda text: None, admitted=self.who)
        self.link: Any = Heard()
        self.number = 0
        self.gates: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}
        self._to_thread = asyncio.to_thread
        monkeypatch.setattr(asyncio, "to_thread", self.to_thread)
        monkeypatch.setattr(receive, "expel", self.expel)

    def who(self) -> frozenset[str]:
        return self.admitted

    async def expel(self, *_: Any) -> dict[str, int]:
        return {}

    async def to_thread(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if getattr(work, "__name__", "") in self.gates:
            reached, go = self.gates[work.__name__]
            reached.set()
            await go.wait()
        return await self._to_thread(work, *arguments, **named)

    def hold_up(self, name: str) -> tuple[asyncio.Event, asyncio.Event]:
        """Return what is set when the work begins, and what lets it go on."""
        self.gates[name] = (asyncio.Event(), asyncio.Event())
        return self.gates[name]

    def begin(self) -> None:
        self.receiver.begin(self.intake)
        self.receiver._link = self.link

    async def take(self, piece: tuple[Chunk, bytes]) -> None:
        self.number += 1
        chunk, data = piece
        await self.receiver._take(message(self.number, CHUNK, chunk.headers("0"), data))

    async def finish(self) -> None:
        while self.receiver._tasks:
            await asyncio.gather(*self.receiver._tasks)

    def check_empty(self) -> None:
        """Nothing is arriving, and nothing is counted or lies about."""
        assert self.receiver._assemblies == {}
        assert (self.receiver._arrivals._held, self.receiver._arrivals._held_of.total()) == (0, 0)
        assert list(self.intake.folder.iterdir()) == []


@pytest.fixture
def arrival(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Arrival:
    return Arrival(tmp_path / "hub", monkeypatch)


def test_a_sketch_may_begin_again_while_its_first_beginning_is_removed(tmp_path: Path, arrival: Arrival) -> None:
    path = noise(tmp_path, "ams", 0, 20_000)
    first, *others = pieces(path, 8000)

    async def main() -> None:
        arrival.begin()
        await arrival.take(first)
        reached, go = arrival.hold_up("unlink")
        giving_up = asyncio.create_task(arrival.receiver._give_up(arrival.receiver._assemblies[path.name]))
        await reached.wait()
        await arrival.take(first)
        go.set()
        await giving_up
        for piece in others:
            await arrival.take(piece)
        await arrival.finish()

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
        old = arrival.receiver._assemblies[path.name]
        await arrival.receiver._give_up(old)
        await arrival.take(first)
        await arrival.receiver._give_up(old)
        for piece in others:
            await arrival.take(piece)
        await arrival.finish()

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
        reached, go = arrival.hold_up("write")
        taking = asyncio.create_task(arrival.take(first))
        await reached.wait()
        arrival.admitted = frozenset({"fra"})
        await arrival.receiver._expel()
        go.set()
        await taking
        await arrival.finish()

    asyncio.run(main())
    assert arrival.intake.calls == []
    arrival.check_empty()
