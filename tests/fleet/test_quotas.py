"""A site that sends too much waits; the others do not."""

from __future__ import annotations

import contextlib
from pathlib import Path
from threading import Event

import pytest
from nats.aio.client import Client

from brokers import (
    QUICK,
    KeepingIntake,
    as_client,
    as_site,
    eventually,
    make_spool,
    noise,
    receiving,
    running,
)
from commands import process
from fleets import make_sketch, write_parcel
from hubs import FakeTime, Node
from processes import COMMON, ending, make_hub, status_of, wait_for
from superhosts.fleet.filelink import FileReceiver
from superhosts.fleet.names import SketchId
from superhosts.fleet.nats.assembly import Patience
from superhosts.fleet.nats.broker import Broker
from superhosts.fleet.nats.credentials import NatsOptions
from superhosts.fleet.nats.receive import NatsReceiver
from superhosts.fleet.nats.send import NatsSender
from superhosts.fleet.sites import MOST_SITES, NO_QUOTA, Quota, Quotas, Roster
from superhosts.pipeline.settings import Settings

MIB = 1 << 20
SMALL = Quota(bytes=MIB, sketches=5)


@pytest.fixture
def clock() -> FakeTime:
    return FakeTime(1000.0)


def test_a_minute_can_be_saved_up_and_not_more(clock: FakeTime) -> None:
    said: list[str] = []
    quotas = Quotas(SMALL, Roster(said.append, clock.source))
    clock.now += 3600
    assert [quotas.allows("ams", sketches=1) for _ in range(7)] == [True] * 5 + [False] * 2
    assert quotas.allows("fra", sketches=1)
    assert said == ["SLOWED: ams is over its quota, 1 MiB and 5 sketches a minute; the rest waits"] * 2
    assert quotas.roster.status()["ams"]["slowed"] == 2
    assert "fra" not in quotas.roster.status()
    assert quotas.notice("fra") == ""
    assert quotas.notice("ams") == "this site is over its quota, 1 MiB and 5 sketches a minute: its sketches wait"
    clock.now += 12.1
    assert [quotas.allows("ams", sketches=1) for _ in range(2)] == [True, False]
    clock.now += 60
    assert quotas.notice("ams") == ""


def test_one_sketch_may_be_larger_than_a_minute_allows(clock: FakeTime) -> None:
    quotas = Quotas(SMALL, Roster(times=clock.source))
    assert quotas.allows("ams", bytes=3 * MIB)
    for seconds, allowed in [(60, False), (60, False), (61, True)]:  # three minutes later another one
        clock.now += seconds
        assert quotas.allows("ams", bytes=3 * MIB) == allowed
    assert not quotas.allows("ams", bytes=1)
    quotas.give_back("ams", 3 * MIB)
    assert quotas.allows("ams", bytes=1)


def test_without_a_quota_nothing_waits_and_nothing_is_kept() -> None:
    quotas = Quotas(NO_QUOTA, Roster())
    assert all(quotas.allows("ams", bytes=1 << 60, sketches=1) for _ in range(1000))
    assert quotas._accounts == {}
    limited = Quotas(SMALL, Roster())
    for number in range(2 * MOST_SITES):
        assert limited.allows(f"s{number}", sketches=1)
    assert len(limited._accounts) <= MOST_SITES


@pytest.fixture
def broker(guarded: Broker) -> Broker:
    return guarded


def sites_of(intake: KeepingIntake) -> list[str]:
    return [SketchId.parse(name).site for name in intake.names()]


@pytest.mark.slow
def test_a_site_that_floods_the_hub_waits_and_the_other_does_not(
    tmp_path: Path, broker: Broker, clock: FakeTime
) -> None:
    """The clock of the quota stands still until the test sets it."""
    intake, said = KeepingIntake(tmp_path / "hub"), list[str]()
    quotas = Quotas(SMALL, Roster(said.append, clock.source))
    receiver = NatsReceiver(
        broker.options,
        said.append,
        cap=broker.cap,
        admitted=broker.admitted,
        quotas=quotas,
        patience=Patience(pause=0.05),
    )
    many, few = make_spool(tmp_path / "many", "ams"), make_spool(tmp_path / "few", "fra")
    for number in range(20):
        noise(many.folder, "ams", number, 1000)
    heard: list[str] = []
    flood = NatsSender(as_site(broker, "ams"), "ams", heard.append, ask_every=0.2)
    with running(receiver.run, intake), contextlib.ExitStack() as later:
        eventually(lambda: receiver.counters.connects)
        later.enter_context(running(flood.run, many))
        eventually(lambda: sites_of(intake).count("ams") == 5 and receiver.counters.slowed >= 15)
        for number in range(3):
            noise(few.folder, "fra", number, 100_000)
        later.enter_context(running(NatsSender(as_site(broker, "fra"), "fra", print).run, few))
        eventually(lambda: not few.waiting())
        assert sites_of(intake).count("ams") == 5
        eventually(lambda: any("the hub says: this site is over its quota" in line for line in heard))
        assert flood.counters.resends == 0  # what waits in the queue is not asked for again
        for minute in range(2, 5):
            clock.now += 60.5
            eventually(lambda minute=minute: sites_of(intake).count("ams") == 5 * minute)
        eventually(lambda: not many.waiting())
    found = receiver.assembler.roster.status()
    assert found["ams"]["slowed"] >= 15
    assert found["fra"]["slowed"] == 0
    assert any(line.startswith("SLOWED: ams is over its quota") for line in said)
    assert not any("fra" in line for line in said)


def test_messages_that_are_no_pieces_count_too(tmp_path: Path, broker: Broker, clock: FakeTime) -> None:
    intake = KeepingIntake(tmp_path / "hub")
    quotas = Quotas(Quota(bytes=40 * 4096), Roster(times=clock.source))
    receiver = NatsReceiver(
        broker.options, print, cap=broker.cap, admitted=broker.admitted, quotas=quotas, patience=Patience(pause=0.05)
    )

    async def flood(client: Client, errors: list[str]) -> None:
        for number in range(60):
            await client.jetstream().publish("superhosts.from.ams.chunk", b"junk", headers={"Nats-Msg-Id": str(number)})

    with receiving(receiver, intake):
        as_client(as_site(broker, "ams"), flood, "_INBOX.ams")
        eventually(lambda: receiver.counters.slowed >= 20)
        assert receiver.counters.malformed == 40
        clock.now += 60.5
        eventually(lambda: receiver.counters.malformed == 60)


def test_files_of_a_site_over_its_quota_wait_in_the_folder(tmp_path: Path, clock: FakeTime) -> None:
    node, said = Node(tmp_path, sites=("ams", "fra")), list[str]()
    roster = Roster(said.append, clock.source)
    quotas = Quotas(Quota(sketches=2), roster)
    receiver = FileReceiver(tmp_path / "link", said.append, settle=0.0, quotas=quotas)
    for number in range(4):
        write_parcel(make_sketch("ams", number), tmp_path / "link" / "ams")
    write_parcel(make_sketch("fra"), tmp_path / "link" / "fra")
    taken = []
    for _ in range(3):
        receiver.step(node.intake, Event())
        taken.append([len(list((tmp_path / "link" / site).glob("*.cube"))) for site in ("ams", "fra")])
        clock.now += 60
    assert taken == [[2, 0], [0, 0], [0, 0]]
    assert (roster.status()["ams"]["slowed"], "fra" in roster.status()) == (2, False)
    assert node.intake.counters.accepted == 5


@pytest.mark.slow
def test_a_hub_takes_its_quotas_from_the_command_line_and_lists_who_is_slowed(tmp_path: Path) -> None:
    hub, link = make_hub(tmp_path, "--quota-sketches", "2", "--threshold", "500", sites=("ams",))
    settings = Settings(memory=COMMON[1], device="cpu", threads=1)
    spool = make_spool(tmp_path / "spool", "ams")
    for number in range(4):
        write_parcel(make_sketch("ams", number, settings=settings), spool.folder)
    with ending(hub):
        hub.start()
        hub.wait_ready()
        sender = NatsSender(NatsOptions(link[1], timing=QUICK), "ams", print)
        with running(sender.run, spool):
            wait_for(lambda: "SLOWED: ams is over its quota, 4 GiB and 2 sketches a minute" in hub.words, "it is said")
            wait_for(
                lambda: status_of(tmp_path / "hub").get("sites", {}).get("ams", {}).get("slowed", 0) > 0,
                "and in the status",
            )
            listed = process("site", "list", "--state", tmp_path / "hub", "--json").rows
            assert (listed[0]["site"], listed[0]["slowed"] > 0) == ("ams", True)
        assert hub.end() == 0
