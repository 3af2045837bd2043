"""Pauses between attempts grow up to a limit, however long the trouble lasts."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from brokers import Heard, KeepingIntake, message, noise, pieces
from hubs import FakeTime, WatchedIntake, full
from superhosts.core.notices import Notice
from superhosts.fleet.filelink import LONGEST, FileReceiver
from superhosts.fleet.hub import LONGEST_REST, Retries
from superhosts.fleet.link import retry_delay
from superhosts.fleet.nats.credentials import NatsOptions
from superhosts.fleet.nats.receive import NatsReceiver

MANY = 5000  # a float cannot hold 2 to this power


def test_pauses_double_up_to_a_limit() -> None:
    assert [retry_delay(attempts, 0.5, 3.0) for attempts in (0, 1, 2, 3, 4, 5)] == [0.5, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert retry_delay(MANY, 0.5, 60.0) == 60.0


def test_a_window_that_never_works_is_tried_again_forever() -> None:
    clock = FakeTime(0.0)
    troubles = Retries(lambda text: None, lambda: None, clock.source.steady)

    def fail() -> None:
        raise ValueError("no")

    for _ in range(MANY):
        clock.now += LONGEST_REST
        assert not troubles.is_resting("window")
        assert troubles.attempt(Notice("NOT REPORTED: window", "not-reported"), fail, "window")
    assert troubles.is_resting("window")


@pytest.mark.slow
def test_a_file_that_can_never_be_taken_is_tried_again_forever(tmp_path: Path) -> None:
    clock, intake = FakeTime(0.0), KeepingIntake(tmp_path / "hub")
    path = noise(tmp_path / "link" / "ams", "ams", 0, 1000)
    receiver = FileReceiver(tmp_path / "link", lambda text: None, clock=clock.source.steady)
    for _ in range(1100):
        clock.now += LONGEST
        receiver.look(WatchedIntake(intake, full), threading.Event())
    clock.now += LONGEST
    receiver.look(intake, threading.Event())
    assert intake.calls == [(path.name, "ams")]


def test_a_sketch_that_could_not_be_stored_for_a_day_is_handed_in_again(tmp_path: Path) -> None:
    clock, intake = FakeTime(0.0), KeepingIntake(tmp_path / "hub")
    path = noise(tmp_path, "ams", 0, 1000)
    options = NatsOptions("nats://127.0.0.1:1")
    receiver = NatsReceiver(options, lambda text: None, admitted=lambda: None, clock=clock.source.steady)

    async def main() -> None:
        receiver.begin(intake)
        link: object = Heard()
        receiver.context.link = link  # type: ignore[assignment]
        intake.failures = 2
        ((chunk, data),) = pieces(path, path.stat().st_size)
        await receiver.assembler.take(message(1, "superhosts.from.ams.chunk", chunk.headers("0"), data))
        await receiver.jobs.finish()
        receiver.arrivals.assemblies[path.name].failures = MANY
        for _ in range(2):
            intake.gate.set()
            clock.now += 60.0
            await receiver.assembler.look_after(clock.now)
            await receiver.jobs.finish()

    asyncio.run(main())
    assert len(intake.calls) == 3
    assert (intake.kept / path.name).read_bytes()
