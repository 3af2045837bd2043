"""What hub and edges tell each other: releases, spools, clocks, versions of the link, and who sends too much."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg

from brokers import (
    MIB,
    QUICK,
    KeepingIntake,
    as_client,
    as_site,
    eventually,
    make_receiver,
    make_spool,
    noise,
    pieces,
    receiving,
    running,
    settle,
)
from commands import process
from fleets import make_sketch, window, write_parcel
from hubs import FakeTime, Node
from processes import COMMON, ending, make_hub, status_of, wait_for
from superhosts.core.units import SECOND
from superhosts.fleet.clock import TimeSource
from superhosts.fleet.filelink import FileReceiver
from superhosts.fleet.names import SketchId
from superhosts.fleet.nats import messages
from superhosts.fleet.nats.assembly import Patience
from superhosts.fleet.nats.broker import Broker
from superhosts.fleet.nats.credentials import NatsOptions
from superhosts.fleet.nats.messages import EARLIEST, MAX_VERSION, WIRE, PeerInfo, mismatch, own_info
from superhosts.fleet.nats.receive import NatsReceiver
from superhosts.fleet.nats.send import NatsSender
from superhosts.fleet.sites import ENOUGH, MOST_SITES, NO_QUOTA, RECENT, Quota, Quotas, Roster
from superhosts.pipeline.settings import Settings

NOW = 1_794_657_600.0


@pytest.fixture
def clock() -> FakeTime:
    return FakeTime(NOW)


def tell_clock(roster: Roster, clock: FakeTime, ahead: float, delays: list[float], site: str = "fra") -> None:
    """Send one message for each delay, from a site whose clock is ahead."""
    for delay in delays:
        roster.told(site, "1", int((clock.source.wall() - delay + ahead) * SECOND), (0, 0))


@given(st.dictionaries(st.sampled_from(list(own_info((1, 2), "x").headers())), st.text()))
def test_whatever_a_header_says_it_is_something_or_nothing(headers: dict[str, str]) -> None:
    told = PeerInfo.parse(headers)
    longest = 10 * MAX_VERSION + 40  # \U00018d09 stands for one character; a note says how many there are in all
    assert told.version is None or (told.version.isprintable() and len(told.version) < longest)
    assert told.notice.isprintable()
    assert told.sent is None or 0 <= told.sent < 10**19
    assert all(0 <= number < 10**18 for number in told.spool or ())
    assert mismatch(told.wire, "this hub", "the edge of ams") == "" or told.wire[0] != WIRE[0]


def test_what_is_told_is_understood_and_what_is_new_is_ignored() -> None:
    telling = own_info((3, 1 << 40), "a notice")
    assert PeerInfo.parse({**telling.headers(), "Superhosts-New": "1"}) == telling
    assert PeerInfo.parse(None) == PeerInfo.parse({}) == PeerInfo(EARLIEST)
    assert mismatch(EARLIEST, "this hub", "x") == mismatch((WIRE[0], 999), "this hub", "x") == ""


def test_who_is_older_is_to_be_upgraded() -> None:
    newer, older = (WIRE[0] + 1, 0), (WIRE[0] - 1, 0)
    assert mismatch(newer, "this hub", "the edge of fra").endswith("upgrade this hub")
    assert mismatch(older, "this hub", "the edge of fra").endswith("upgrade the edge of fra")


def test_a_clock_that_is_wrong_is_named_once_and_when_it_is_right_again(clock: FakeTime) -> None:
    said: list[str] = []
    roster = Roster(said.append, clock.source)
    tell_clock(roster, clock, 0.0, [0.1] * RECENT, "ams")
    tell_clock(roster, clock, 3600.0, [0.1] * (ENOUGH - 1))
    assert (said, roster.wrong_clocks()) == ([], {})
    tell_clock(roster, clock, 3600.0, [0.1] * RECENT)
    assert said == [
        "CLOCK OF fra: 3,600 s ahead of this hub's; its windows are not those of the other sites: run NTP there"
    ]
    assert roster.wrong_clocks() == {"fra": 3599.9}
    assert roster.status()["fra"]["clock"] == pytest.approx(3599.9)
    tell_clock(roster, clock, 0.0, [0.1] * RECENT)
    assert said[1:] == ["the clock of fra agrees with this hub's again"]
    assert roster.wrong_clocks() == {}


def test_messages_that_come_late_make_no_clock_wrong(clock: FakeTime) -> None:
    said: list[str] = []
    roster = Roster(said.append, clock.source)
    tell_clock(roster, clock, 0.0, [300.0, 40.0, 0.2, 90.0, 900.0] * 3)
    assert said == []
    assert roster.status()["fra"]["clock"] == pytest.approx(-0.2)
    tell_clock(roster, clock, -60.0, [0.0, 300.0] * RECENT)  # but one that is behind
    assert "CLOCK OF fra: 60 s behind this hub's" in said[0]


def test_the_clock_of_the_hub_is_in_question_if_most_sites_differ(clock: FakeTime) -> None:
    said: list[str] = []
    roster = Roster(said.append, clock.source)
    for site in ("ams", "fra", "nyc"):
        tell_clock(roster, clock, 86_400.0, [0.1] * RECENT, site)
    assert "run NTP there" in said[0]
    assert (
        said[2] == "CLOCK OF nyc: 86,400 s ahead of this hub's; this hub's own clock may be wrong, as most sites differ"
    )


def test_a_hub_that_starts_again_knows_when_it_last_heard_of_a_site(clock: FakeTime) -> None:
    roster = Roster(times=clock.source)
    roster.accepted(SketchId("ams", window(0), "0" * 16))
    roster.told("ams", "0.1.0", None, (2, 500))
    roster.refused("ams")
    before = json.loads(json.dumps(roster.status()))
    again = Roster(times=clock.source)
    again.restore(before)
    assert again.status()["ams"] == {
        **before["ams"],
        **dict.fromkeys(("accepted", "refused"), 0),
        **dict.fromkeys(("spool_sketches", "spool_bytes")),
    }
    for odd in (None, [], {"ams": 5}, {"a b": {}}, {"ams": {"seen": "x", "version": [], "window_end": 1e300}}):
        empty = Roster()
        empty.restore(odd)
        assert all(each["seen"] is each["version"] is each["window_end"] is None for each in empty.status().values())


def test_invented_sites_do_not_fill_the_memory() -> None:
    roster = Roster()
    for number in range(MOST_SITES + 10):
        roster.refused(f"s{number}")
    assert len(roster.status()) == MOST_SITES


def test_the_intake_counts_for_each_site(tmp_path: Path) -> None:
    node = Node(tmp_path)
    path = write_parcel(make_sketch("ams"), tmp_path / "in")
    node.intake.accept(path, path.name, "ams")
    path = write_parcel(make_sketch("ams", 1), tmp_path / "in")
    node.intake.accept(path, path.name, "fra")
    found = node.intake.roster.status()
    assert (found["ams"]["accepted"], found["ams"]["refused"], found["fra"]["refused"]) == (1, 0, 1)
    assert found["ams"]["window_end"] == window(0).end / SECOND


def test_an_edge_that_ends_tells_what_still_waits(tmp_path: Path, broker: Broker) -> None:
    """It has asked before its sketches were taken, and would ask again much later."""
    said = list[str]()
    receiver = NatsReceiver(broker.options, said.append, cap=broker.cap)
    options, spool = NatsOptions(broker.options.url, timing=QUICK), make_spool(tmp_path / "spool", "ams")
    for number in range(3):
        noise(spool.folder, "ams", number, 5000)
    with running(receiver.run, KeepingIntake(tmp_path / "hub")):
        eventually(lambda: receiver.counters.connects)
        with running(NatsSender(options, "ams", said.append, ask_every=600.0).run, spool):
            eventually(lambda: not spool.waiting())
        eventually(lambda: receiver.assembler.roster.status()["ams"]["spool_sketches"] == 0)
    assert said == []


def test_pieces_of_another_version_are_not_taken_and_the_hub_says_which_end_to_upgrade(tmp_path, broker) -> None:
    intake, said = KeepingIntake(tmp_path / "hub"), list[str]()
    receiver = NatsReceiver(broker.options, said.append, cap=broker.cap)
    sent = noise(tmp_path / "sent", "fra", 0, 100)
    ((chunk, data),) = pieces(sent, sent.stat().st_size)

    async def send(client: Client, errors: list[str]) -> None:
        for number, wire in enumerate(["2.0", "0.9", "1.99", "nonsense"]):
            headers = {**chunk.headers(str(number)), "Superhosts-Wire": wire, "Superhosts-Unknown": "x"}
            await client.jetstream().publish("superhosts.from.fra.chunk", data, headers=headers)
            await settle(client)

    with receiving(receiver, intake):
        as_client(NatsOptions(broker.options.url), send)
        eventually(lambda: receiver.counters.chunks == 4)
        eventually(lambda: intake.names() == {chunk.name})  # a newer minor version is taken, what makes no sense is 1.0
    assert receiver.counters.malformed == 2
    assert said == [
        "NOT TAKEN from fra: the edge of fra speaks version 2.0 of the link, this hub 1.1: upgrade this hub; "
        "its sketches wait there",
        "NOT TAKEN from fra: the edge of fra speaks version 0.9 of the link, this hub 1.1: upgrade the edge of fra; "
        "its sketches wait there",
    ]
    assert receiver.assembler.roster.status()["fra"]["mismatch"] == ""


@contextmanager
def answering(broker: Broker, wire: str) -> Iterator[None]:
    """A hub that speaks another version of the link."""
    stop, ready = threading.Event(), threading.Event()

    async def answer(client: Client, errors: list[str]) -> None:
        async def reply(message: Msg) -> None:
            await client.publish(message.reply, b"[]", headers={"Superhosts-Wire": wire, "Superhosts-Version": "9.9"})

        await client.subscribe("superhosts.from.*.ask", cb=reply)
        await settle(client)
        ready.set()
        await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=as_client, args=(broker.options, answer))
    thread.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        ("2.0", "the hub speaks version 2.0 of the link, this edge 1.1: upgrade this edge"),
        ("0.7", "the hub speaks version 0.7 of the link, this edge 1.1: upgrade the hub"),
    ],
)
def test_an_edge_waits_for_a_hub_of_its_own_version(tmp_path: Path, broker: Broker, wire: str, words: str) -> None:
    said: list[str] = []
    spool = make_spool(tmp_path / "spool", "ams")
    noise(spool.folder, "ams", 0, 100)
    sender = NatsSender(NatsOptions(broker.options.url, timing=QUICK), "ams", said.append, ask_every=0.2)
    with contextlib.ExitStack() as later:
        with answering(broker, wire):
            later.enter_context(running(sender.run, spool))
            eventually(lambda: said)
            assert f"does not work: {words}; 1 window waits; retrying until it does" in said[0]
            assert (len(spool.waiting()), sender.counters.down) == (1, words)
        intake = KeepingIntake(tmp_path / "hub")
        receiver = NatsReceiver(broker.options, print, cap=broker.cap)
        with running(receiver.run, intake):
            eventually(lambda: not spool.waiting())
    assert any("works again" in line for line in said)


def test_the_hub_says_something_to_a_site_and_its_edge_says_it_once() -> None:
    said: list[str] = []
    sender = NatsSender(NatsOptions("nats://hub:4222"), "ams", said.append)
    for notice in ("a", "a", "b", "", "b"):
        sender.look_at_hub(own_info(notice=notice)._replace(sent=None), 0, 0)
    assert said == ["the hub says: a", "the hub says: b", "the hub says: b"]


def test_an_edge_whose_clock_is_not_the_hubs_says_so_and_when_it_is_again() -> None:
    said: list[str] = []
    sender = NatsSender(NatsOptions("nats://hub:4222"), "ams", said.append)
    hub = own_info()._replace(sent=int(NOW * SECOND))
    for behind in (9000, 9000, 0):
        asked = int((NOW - behind) * SECOND)
        sender.look_at_hub(hub, asked, asked + SECOND)
    assert said == [
        "CLOCK: this machine's is 9,000 s behind the hub's; one of them is wrong: use NTP",
        "this machine's clock agrees with the hub's again",
    ]


# A site that sends too much waits


SMALL = Quota(bytes=MIB, sketches=5)


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


def sites_of(intake: KeepingIntake) -> list[str]:
    return [SketchId.parse(name).site for name in intake.names()]


@pytest.mark.slow
def test_a_site_that_floods_the_hub_waits_and_the_other_does_not(tmp_path, guarded, intake, clock) -> None:
    """The clock of the quota stands still until the test sets it.

    The time of day is the machine's, as that of the edges: otherwise the roster says that their clocks are wrong.
    """
    said: list[str] = []
    quotas = Quotas(SMALL, Roster(said.append, TimeSource(steady=clock.source.steady)))
    receiver = make_receiver(guarded, said, quotas=quotas, patience=Patience(pause=0.05))
    many, few = make_spool(tmp_path / "many", "ams"), make_spool(tmp_path / "few", "fra")
    for number in range(20):
        noise(many.folder, "ams", number, 1000)
    heard: list[str] = []
    flood = NatsSender(as_site(guarded, "ams"), "ams", heard.append, ask_every=0.2)
    with running(receiver.run, intake), contextlib.ExitStack() as later:
        eventually(lambda: receiver.counters.connects)
        later.enter_context(running(flood.run, many))
        eventually(lambda: sites_of(intake).count("ams") == 5 and receiver.counters.slowed >= 15)
        for number in range(3):
            noise(few.folder, "fra", number, 100_000)
        later.enter_context(running(NatsSender(as_site(guarded, "fra"), "fra", print).run, few))
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


def test_messages_that_are_no_pieces_count_too(tmp_path, guarded, intake, clock) -> None:
    quotas = Quotas(Quota(bytes=40 * 4096), Roster(times=clock.source))
    receiver = make_receiver(guarded, quotas=quotas, patience=Patience(pause=0.05))

    async def flood(client: Client, errors: list[str]) -> None:
        for number in range(60):
            await client.jetstream().publish("superhosts.from.ams.chunk", b"junk", headers={"Nats-Msg-Id": str(number)})

    with receiving(receiver, intake):
        as_client(as_site(guarded, "ams"), flood, "_INBOX.ams")
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
def test_a_site_with_a_wrong_clock_is_named_in_the_log_the_status_and_the_list(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(messages, "time", SimpleNamespace(time_ns=lambda: time.time_ns() - 9000 * SECOND))
    hub, link = make_hub(tmp_path, sites=("ams",))
    with ending(hub):
        hub.start().wait_ready()
        sender = NatsSender(NatsOptions(link[1], timing=QUICK), "ams", print, ask_every=0.1)
        with running(sender.run, make_spool(tmp_path / "spool", "ams")):
            wait_for(lambda: status_of(tmp_path / "hub").get("trouble", {}).get("clocks"), "the status names the site")
        (ahead,) = status_of(tmp_path / "hub")["trouble"]["clocks"].values()
        assert -9100 < ahead <= -9000
        assert "CLOCK OF ams: 9,000 s behind this hub's" in hub.words
        assert "the clock of ams is 2.5 h behind the hub's" in process("site", "list", "--state", tmp_path / "hub").err
        assert hub.end() == 0


@pytest.mark.slow
def test_a_hub_takes_its_quotas_from_the_command_line_and_lists_who_is_slowed(tmp_path: Path) -> None:
    hub, link = make_hub(tmp_path, "--quota-sketches", "2", "--threshold", "500", sites=("ams",))
    settings = Settings(memory=COMMON[1], device="cpu", threads=1)
    spool = make_spool(tmp_path / "spool", "ams")
    for number in range(4):
        write_parcel(make_sketch("ams", number, settings=settings), spool.folder)
    with ending(hub):
        hub.start().wait_ready()
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
