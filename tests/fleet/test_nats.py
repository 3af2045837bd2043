"""The link over NATS, against the real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nats
import nats.errors
import pytest
import trustme
from nats.aio.client import Client

from brokers import (
    MIB,
    NEVER,
    QUICK,
    KeepingIntake,
    accepts,
    as_client,
    as_site,
    eventually,
    make_broker,
    make_receiver,
    make_spool,
    noise,
    pieces,
    publish,
    queued,
    receiving,
    running,
    server_pid,
    settle,
)
from fleets import make_sketch
from processes import DEADLINE
from superhosts.errors import UsageError
from superhosts.fleet.link import LinkStatus, Receipt
from superhosts.fleet.nats import send
from superhosts.fleet.nats.broker import Broker, Tls
from superhosts.fleet.nats.credentials import NatsOptions, make_key
from superhosts.fleet.nats.enrolment import enroll
from superhosts.fleet.nats.messages import decode_receipts
from superhosts.fleet.nats.receive import Identity, NatsReceiver, own_identity
from superhosts.fleet.nats.send import NatsSender
from superhosts.fleet.spool import Spool

CHUNK = 512 << 10


def make_sender(broker: Broker, site: str, said: list[str] | None = None, **options: Any) -> NatsSender:
    say = (said if said is not None else []).append
    link = NatsOptions(broker.options.url, timing=QUICK)
    return NatsSender(link, site, say, **{"ask_every": NEVER, **options})


def fill(spool: Spool, site: str, count: int, size: int) -> dict[str, bytes]:
    paths = [noise(spool.folder, site, number, size) for number in range(count)]
    return {path.name: path.read_bytes() for path in paths}


def contents(intake: KeepingIntake) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in intake.kept.iterdir()}


def listen(broker: Broker, site: str, during: Callable[[], None], count: int) -> list[Receipt]:
    """Return the first receipts that a site gets while something happens."""

    async def work(client: Client, errors: list[str]) -> list[Receipt]:
        found = await client.subscribe(f"superhosts.to.{site}")
        await settle(client)
        await asyncio.to_thread(during)
        return [decode_receipts((await found.next_msg(DEADLINE)).data)[0] for _ in range(count)]

    return list(as_client(broker.options, work))


def wait_for_answers(broker: Broker, receiver: NatsReceiver) -> None:
    """Wait until a hub answers questions: a little later than it takes pieces."""

    async def work(client: Client, errors: list[str]) -> bool:
        try:
            await client.request("superhosts.from.ams.ask", b"[]", timeout=DEADLINE)
        except nats.errors.NoRespondersError:
            return False
        return True

    eventually(lambda: receiver.counters.connects)
    eventually(lambda: as_client(broker.options, work, "_INBOX.ams"))
    receiver.counters.questions = 0


def test_sketches_of_several_sites_arrive_as_they_were(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    spools = {site: make_spool(tmp_path / site, site) for site in ("ams", "fra")}
    sent = fill(spools["ams"], "ams", 3, 2_500_000) | fill(spools["fra"], "fra", 12, 1000)
    receiver = make_receiver(broker)
    senders = {site: make_sender(broker, site, look_every=NEVER) for site in spools}
    with (
        running(receiver.run, intake),
        running(senders["ams"].run, spools["ams"]),
        running(senders["fra"].run, spools["fra"]),
    ):
        eventually(lambda: not any(spool.waiting() for spool in spools.values()))
        late = spools["ams"].put(make_sketch("ams", 99))
        sent[late.name] = late.read_bytes()
        eventually(lambda: not spools["ams"].waiting())  # woken, not found by looking
    assert contents(intake) == sent
    assert sorted(intake.calls) == sorted((name, name.split("-")[2]) for name in sent)
    assert list(intake.folder.iterdir()) == []
    eventually(lambda: queued(broker) == {})
    assert [senders[site].counters.sketches for site in spools] == [4, 12]
    assert [senders[site].counters.receipts for site in spools] == [4, 12]
    assert [spool.counters.delivered for spool in spools.values()] == [4, 12]
    assert receiver.counters.sketches == 16
    assert receiver.counters.chunks == senders["ams"].counters.chunks + senders["fra"].counters.chunks == 28


def test_the_oldest_sketches_go_first(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    spool = make_spool(tmp_path / "spool", "ams")
    sent = fill(spool, "ams", 11, 1000)
    receiver, sender = make_receiver(broker), make_sender(broker, "ams", together=1)
    with running(receiver.run, intake), running(sender.run, spool):
        eventually(lambda: not spool.waiting())
    assert [name for name, _ in intake.calls] == sorted(sent)


def test_pieces_twice_and_in_any_order(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    first, second = noise(tmp_path, "ams", 0, 300_000), noise(tmp_path, "ams", 1, 200_000)
    chunks = pieces(first, 70_000)
    receiver = make_receiver(broker)
    with receiving(receiver, intake):
        receipts = listen(
            broker,
            "ams",
            lambda: publish(broker, "ams", [*chunks[:0:-1], *chunks[3:], *pieces(second, 90_000), chunks[0]]),
            2,
        )
        again = listen(broker, "ams", lambda: publish(broker, "ams", chunks, "1"), 1)  # after the receipt
        eventually(lambda: queued(broker) == {})
    assert sorted(receipts) == sorted(Receipt(path.name, "merged") for path in (first, second))
    assert again == [Receipt(first.name, "merged")]
    assert contents(intake) == {path.name: path.read_bytes() for path in (first, second)}
    assert len(intake.calls) == 2
    assert receiver.counters.duplicates == 2 + 5


@pytest.mark.slow
def test_a_corrupt_piece_is_asked_for_again(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    spool = make_spool(tmp_path / "spool", "ams")
    (name, data), *_ = fill(spool, "ams", 1, 1_300_000).items()
    chunks = pieces(spool.folder / name, CHUNK)
    bad = bytearray(chunks[1][1])
    bad[1000] ^= 1
    receiver, sender = make_receiver(broker), make_sender(broker, "ams")
    intake.gate.clear()
    with receiving(receiver, intake):
        # As if the edge's first copy had been damaged on the way: the server drops the right one as a duplicate.
        async def work(client: Client, errors: list[str]) -> None:
            for chunk, piece in [chunks[0], (chunks[1][0], bytes(bad)), chunks[2]]:
                js = client.jetstream(timeout=DEADLINE)
                await js.publish("superhosts.from.ams.chunk", piece, headers=chunk.headers("0"))

        as_client(broker.options, work)
        eventually(lambda: receiver.counters.chunks == 3)
        with running(sender.run, spool):
            eventually(lambda: sender.counters.sketches == 1)
            intake.gate.set()
            eventually(lambda: not spool.waiting())
    assert contents(intake) == {name: data}
    assert (receiver.counters.corrupt, receiver.counters.sketches) == (1, 1)
    assert (sender.counters.resends, sender.counters.sketches) == (1, 2)
    assert spool.counters.damaged == 0


def test_a_sketch_of_which_a_hub_had_a_part_arrives_at_the_next(tmp_path, broker, intake) -> None:
    spool = make_spool(tmp_path / "spool", "ams")
    path = noise(spool.folder, "ams", 0, 3 * CHUNK)
    sent, receiver = path.read_bytes(), make_receiver(broker)
    with receiving(receiver, intake):
        publish(broker, "ams", pieces(path, CHUNK)[:2])
        eventually(lambda: queued(broker) == {})  # a piece on the hub's disk leaves the queue
    again, sender = make_receiver(broker), make_sender(broker, "ams")
    with running(again.run, intake), running(sender.run, spool):
        eventually(lambda: not spool.waiting())
    assert contents(intake) == {path.name: sent}


def test_a_hub_killed_between_storing_and_receipt_tells_the_edge(tmp_path, broker, intake) -> None:
    spool = make_spool(tmp_path / "spool", "ams")
    (name, data), *_ = fill(spool, "ams", 1, 1000).items()
    (intake.kept / name).write_bytes(data)  # merged; the receipt was never sent
    receiver, sender = make_receiver(broker), make_sender(broker, "ams")
    with running(receiver.run, intake):
        wait_for_answers(broker, receiver)
        with running(sender.run, spool):
            eventually(lambda: not spool.waiting())
    assert sender.counters.chunks == 0  # it asked first
    assert receiver.counters.questions >= 1
    assert intake.calls == []


@pytest.mark.slow
def test_sketches_that_the_broker_has_lost_are_sent_again(tmp_path, broker, intake) -> None:
    """The edge asks when it connects again."""

    async def lose(client: Client, errors: list[str]) -> None:
        await client.jetstream(timeout=DEADLINE).purge_stream("superhosts")

    spool = make_spool(tmp_path / "spool", "ams")
    sent = fill(spool, "ams", 2, 1000)
    receiver, sender = make_receiver(broker), make_sender(broker, "ams")
    with receiving(receiver, intake):
        pass
    with running(sender.run, spool):
        eventually(lambda: sender.counters.sketches == 2)
        assert len(spool.waiting()) == 2  # that the server has them is not enough
    as_client(broker.options, lose)
    with running(receiver.run, intake):
        wait_for_answers(broker, receiver)
        with running(sender.run, spool):
            eventually(lambda: not spool.waiting())
    assert contents(intake) == sent
    assert sender.counters.resends == receiver.counters.lost == 2


@pytest.mark.slow
def test_a_full_disk_at_the_hub_is_waited_for(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    spool = make_spool(tmp_path / "spool", "ams")
    sent = fill(spool, "ams", 1, 1000)
    heard: list[str] = []
    intake.failures = 1
    receiver, sender = make_receiver(broker, heard), make_sender(broker, "ams")
    with running(receiver.run, intake), running(sender.run, spool):
        eventually(lambda: receiver.counters.failures == 1)
        assert len(spool.waiting()) == 1
        intake.gate.set()
        eventually(lambda: not spool.waiting())
    assert contents(intake) == sent
    assert len(heard) == 1
    assert "cannot be stored now: No space left on device" in heard[0]


@pytest.mark.slow
def test_a_full_queue_makes_the_edge_wait(tmp_path: Path, intake: KeepingIntake) -> None:
    said: list[str] = []
    with make_broker(tmp_path / "broker", said, cap=4 * MIB) as broker:
        spool = make_spool(tmp_path / "spool", "ams")
        sent = fill(spool, "ams", 8, 1_500_000)
        receiver, sender = make_receiver(broker), make_sender(broker, "ams", said)
        with receiving(receiver, intake):
            pass
        with running(sender.run, spool):
            eventually(lambda: any("the hub's queue is full; 8 windows wait" in line for line in said))
            assert sender.counters.full
            assert len(spool.waiting()) == 8
            with running(receiver.run, intake):
                eventually(lambda: not spool.waiting())
                eventually(lambda: said[-1].endswith("works again"))
        assert contents(intake) == sent


@pytest.mark.slow
@pytest.mark.parametrize("cap", [4 * MIB, 64 * MIB], ids=["smaller", "larger"])
def test_another_cap_changes_the_queue_and_keeps_what_is_in_it(tmp_path: Path, intake: KeepingIntake, cap: int) -> None:
    path, said = noise(tmp_path, "ams", 0, 12 * MIB), list[str]()
    with make_broker(tmp_path / "broker", [], cap=32 * MIB) as broker:
        receiver = make_receiver(broker)
        with receiving(receiver, intake):
            pass
        publish(broker, "ams", pieces(path, CHUNK)[:14])
    with make_broker(tmp_path / "broker", [], cap=cap) as broker:
        receiver, ready = make_receiver(broker, said), list[int]()

        async def size(client: Client, _errors: list[str]) -> int:
            return int((await client.jetstream().stream_info("superhosts")).config.max_bytes)

        with running(lambda intake, stop: receiver.run(intake, stop, lambda: ready.append(1)), intake):
            eventually(lambda: receiver.counters.chunks >= 14 or said)
            publish(broker, "ams", pieces(path, CHUNK)[14:])
            eventually(lambda: intake.names() == {path.name})
        assert as_client(broker.options, size) == cap
    assert ready == [1]
    assert said == []


def test_a_server_without_room_for_the_queue_is_said_with_the_option_and_the_hub_is_not_ready(tmp_path, intake) -> None:
    class SmallBroker(Broker):
        def config(self, sites: dict[str, list[str]] | None) -> dict[str, Any]:
            config = super().config(sites)
            config["jetstream"]["max_file_store"] = 8 * MIB
            return config

    said: list[str] = []
    with make_broker(tmp_path / "broker", [], SmallBroker) as broker:
        receiver = make_receiver(broker, said)
        with running(lambda intake, stop: receiver.run(intake, stop, lambda: said.append("ready")), intake):
            eventually(lambda: said)
    assert len(said) == 1
    assert "the server has too little space for --broker-cap 64 MiB: " in said[0]


def test_half_sketches_do_not_block_each_other_for_ever(tmp_path: Path, intake: KeepingIntake) -> None:
    with make_broker(tmp_path / "broker", [], cap=4 * MIB) as broker:
        paths = [noise(tmp_path, "ams", number, 2 * CHUNK) for number in range(10)]
        cut = [pieces(path, CHUNK) for path in paths]
        receiver = make_receiver(broker)
        with receiving(receiver, intake):
            for half in cut:  # the first halves of all are more than the server has room for
                publish(broker, "ams", half[:1])
                eventually(lambda: sum(queued(broker).values()) <= 4)
            for half in cut:
                publish(broker, "ams", half[1:])
                eventually(lambda: sum(queued(broker).values()) <= 4)
            eventually(lambda: len(intake.names()) == 10)
        assert contents(intake) == {path.name: path.read_bytes() for path in paths}


def test_a_sketch_larger_than_any_of_this_hub_is_refused_before_it_takes_room(tmp_path, broker, intake) -> None:
    spool = make_spool(tmp_path / "spool", "ams")
    small, large = noise(spool.folder, "ams", 0, 1000), noise(spool.folder, "ams", 1, 30_000)
    heard: list[str] = []
    receiver = make_receiver(broker, heard, largest=20_000)
    with running(receiver.run, intake), running(make_sender(broker, "ams").run, spool):
        eventually(lambda: not spool.waiting())
        eventually(lambda: queued(broker) == {})
    assert intake.calls == [(small.name, "ams")]
    assert [path.name for path in (spool.folder / "refused").glob("*.cube")] == [large.name]
    assert receiver.counters.refused == 1
    assert heard[0].startswith(f"REFUSED: {large.name}: ")
    assert "is more than any sketch of this hub's --memory or --geometry can have" in heard[0]
    assert list(intake.folder.iterdir()) == []


def test_a_sketch_in_the_name_of_another_site_is_refused(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    path, heard = noise(tmp_path, "ams", 0, 1000), list[str]()
    receiver = make_receiver(broker, heard)
    with receiving(receiver, intake):
        receipts = listen(broker, "fra", lambda: publish(broker, "fra", pieces(path, path.stat().st_size)), 1)
        eventually(lambda: queued(broker) == {})
    assert receipts == [Receipt(path.name, "refused", "fra may not send for ams")]
    assert (receiver.counters.refused, intake.calls, list(intake.folder.iterdir())) == (1, [], [])
    assert heard[-1].startswith(f"REFUSED: {path.name}: ")


def waits(broker: Broker) -> bool:
    """Whether a hub has asked for pieces."""

    async def work(client: Client, errors: list[str]) -> int | None:
        return (await client.jetstream(timeout=DEADLINE).consumer_info("superhosts", "hub")).num_waiting

    return bool(as_client(broker.options, work))


@pytest.mark.slow
def test_a_second_hub_is_refused_and_waits_until_the_first_is_gone(tmp_path, broker, intake) -> None:
    spool = make_spool(tmp_path / "spool", "ams")
    theirs = KeepingIntake(tmp_path / "second")
    heard: list[str] = []
    first = make_receiver(broker, owner=Identity("1", "one"))
    second = make_receiver(broker, heard, owner=Identity("2", "two"))
    with contextlib.ExitStack() as rest:
        with running(first.run, intake):
            eventually(lambda: first.counters.connects and waits(broker))
            with pytest.raises(UsageError, match=r"^--nats nats://\S+: another hub on one reads the queue there"):
                second.check_no_other_hub()
            first.check_no_other_hub()  # the same hub
            rest.enter_context(running(second.run, theirs))
            eventually(lambda: heard)
            assert "does not work: another hub on one reads the queue there" in heard[0]
            sent = fill(spool, "ams", 3, 1000)
            with running(make_sender(broker, "ams").run, spool):
                eventually(lambda: not spool.waiting())
            assert contents(intake) == sent
            assert (first.counters.connects, second.counters.connects) == (1, 0)
        eventually(lambda: second.counters.connects)
        assert heard[1] == "took over the queue of a hub on one that no longer runs"
        assert heard[2].endswith("works again")
        second.check_no_other_hub()
    first.check_no_other_hub()  # nobody is there any more: whoever lost its state can have the queue


def test_a_hub_is_known_by_its_state_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first = own_identity(tmp_path)
    assert own_identity(tmp_path) == first
    assert own_identity(tmp_path / "other").mark != first.mark
    (tmp_path / "identity.json").write_text("{")
    assert own_identity(tmp_path).mark not in ("", first.mark)
    assert Identity.parse(first.metadata) == first


def test_a_link_that_fails_in_two_ways_in_turn_is_said_twice() -> None:
    said: list[str] = []
    status = LinkStatus("the link to nats://hub:4222", said.append, send.SendCounters())
    for reason in ("one", "two", "one", "two", "one"):
        status.down(reason)
    assert [line.split(": ")[1].split(";")[0] for line in said] == ["one", "two"]
    status.up()
    status.up()
    assert said[2:] == ["the link to nats://hub:4222 works again"]
    status.down("one")
    assert len(said) == 4


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_confirmation_that_died_with_a_server_is_not_waited_for(monkeypatch, confirmed) -> None:
    """The server has everything when it gives a sign of life, on a slow connection late; a confirmation follows."""
    monkeypatch.setattr(send, "CONFIRMED", 0.01)
    arrived, signs = asyncio.Event(), list[float]()

    async def publish(*_: Any, **__: Any) -> None:
        await arrived.wait()

    async def flush(timeout: float) -> None:
        signs.append(timeout)
        if confirmed and len(signs) == 2:
            arrived.set()

    link: Any = SimpleNamespace(jetstream=SimpleNamespace(publish=publish), client=SimpleNamespace(flush=flush))
    work = NatsSender(NatsOptions("nats://here"), "ams", print)._store(link, b"", {})
    if confirmed:
        asyncio.run(work)
    else:
        with pytest.raises(nats.errors.TimeoutError):
            asyncio.run(work)
    assert signs == [send.STORED] * 2  # the first may overtake the piece


def test_a_key_of_another_site_is_said(tmp_path: Path, guarded: Broker, intake: KeepingIntake) -> None:
    spool = make_spool(tmp_path / "spool", "fra")
    fill(spool, "fra", 1, 1000)
    heard: list[str] = []
    receiver = make_receiver(guarded)
    sender = NatsSender(as_site(guarded, "ams"), "fra", heard.append)
    with running(receiver.run, intake), running(sender.run, spool):
        eventually(lambda: heard)
    assert "the server does not allow this key to send for site fra" in heard[0]
    assert len(spool.waiting()) == 1


def test_a_wrong_key_is_said_until_the_server_knows_it(tmp_path: Path, guarded: Broker, intake: KeepingIntake) -> None:
    spool = make_spool(tmp_path / "spool", "lon")
    fill(spool, "lon", 1, 1000)
    seed = tmp_path / "lon.nk"
    seed.write_text(make_key()[0])
    heard: list[str] = []
    receiver = make_receiver(guarded)
    sender = NatsSender(NatsOptions(guarded.options.url, nkey=seed, timing=QUICK), "lon", heard.append)
    with running(receiver.run, intake), running(sender.run, spool):
        eventually(lambda: (guarded.folder / "nats.log").read_text().count("authentication error") >= 3)
        assert len(heard) == 1
        assert "does not accept these credentials" in heard[0]
        seed.write_text(enroll(guarded.folder, "lon").read_text())
        eventually(lambda: not spool.waiting())
    assert heard[-1] == f"the link to {guarded.options.url} works again"
    # A server may hang up while it learns of the key, also on one who is in already.
    assert all("does not work" in line or "works again" in line for line in heard)


def test_user_and_password_in_the_address_are_used_and_never_shown(tmp_path, broker, intake) -> None:
    config = json.loads((broker.folder / "nats.conf").read_text())
    config["accounts"]["hub"]["users"] = [{"user": "hub", "password": "geheim"}]
    del config["no_auth_user"]
    (broker.folder / "nats.conf").write_text(json.dumps(config))
    pid = server_pid(broker)
    os.kill(pid, signal.SIGHUP)
    eventually(lambda: not accepts(broker, None))
    url = broker.options.url.replace("nats://", "nats://hub:geheim@")
    spool = make_spool(tmp_path / "spool", "ams")
    fill(spool, "ams", 1, 1000)
    heard: list[str] = []
    wrong = NatsSender(NatsOptions(url.replace("geheim", "geraten"), timing=QUICK), "ams", heard.append)
    with running(wrong.run, spool):
        eventually(lambda: heard)
    assert "credentials" in heard[0]
    assert "geraten" not in heard[0]
    right = NatsOptions(url, timing=QUICK)
    receiver, sender = NatsReceiver(right, print, cap=broker.cap), NatsSender(right, "ams", print)
    with running(receiver.run, intake), running(sender.run, spool):
        eventually(lambda: not spool.waiting())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("ours", "others"):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / f"{name}-ca.pem")
        for end, identity in (("server", "127.0.0.1"), ("edge", "ams.example")):
            issued = authority.issue_cert(identity)
            issued.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}-{end}.pem")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("mutual", [False, True])
def test_over_tls(tmp_path: Path, intake: KeepingIntake, certificates: Path, mutual: bool) -> None:
    server, edge, ca = (certificates / f"ours-{name}.pem" for name in ("server", "edge", "ca"))
    spool = make_spool(tmp_path / "spool", "ams")
    sent = fill(spool, "ams", 1, 1_000_000)
    seed = enroll(tmp_path / "broker", "ams")
    with make_broker(tmp_path / "broker", [], tls=Tls(server, server, ca if mutual else None)) as broker:
        url = broker.options.url
        assert url.startswith("tls://")
        plain = NatsOptions(url, nkey=seed, tls_ca=ca, timing=QUICK)
        right = replace(plain, tls_cert=edge, tls_key=edge) if mutual else plain
        wrong = [(replace(plain, tls_ca=certificates / "others-ca.pem"), "certificate is not trusted")]
        if mutual:
            other = certificates / "others-edge.pem"
            wrong.append((plain, "certificate"))
            wrong.append((replace(plain, tls_cert=other, tls_key=other), "certificate"))
        receiver = make_receiver(broker)
        with running(receiver.run, intake):
            for options, reason in wrong:
                heard: list[str] = []
                with running(NatsSender(options, "ams", heard.append).run, spool):
                    eventually(lambda heard=heard: heard)
                assert reason in heard[0]
            assert len(spool.waiting()) == 1
            with running(NatsSender(right, "ams", print).run, spool):
                eventually(lambda: not spool.waiting())
    assert contents(intake) == sent


def test_nothing_is_said_in_the_clear_when_tls_was_asked_for(tmp_path: Path, broker: Broker) -> None:
    spool = make_spool(tmp_path / "spool", "ams")
    heard: list[str] = []
    sender = NatsSender(NatsOptions(broker.options.url.replace("nats:", "tls:"), timing=QUICK), "ams", heard.append)
    with running(sender.run, spool):
        eventually(lambda: heard)
    assert "the server offers no TLS, and TLS was requested" in heard[0]
    assert sender.counters.connects == 0


def test_options_that_cannot_be(tmp_path: Path) -> None:
    url = "nats://localhost:4222"
    some = tmp_path / "file"
    some.write_text("hello")
    for options, text in [
        (NatsOptions("http://localhost"), "--nats 'http://localhost'"),
        (NatsOptions("nats://"), "--nats"),
        (NatsOptions(url, creds=some, nkey=some), "--creds and --nkey"),
        (NatsOptions(url, tls_cert=some), "--tls-cert and --tls-key"),
        (NatsOptions(url, tls_ca=tmp_path / "none"), "--tls-ca .*none: cannot be read"),
        (NatsOptions(url, nkey=some), "not an nkey seed"),
        (NatsOptions(url, creds=some), "--creds .* not a user's credentials"),
        (NatsOptions(url, tls_ca=some), "--tls-ca .* not a certificate"),
        (NatsOptions(url, tls_cert=some, tls_key=some), "--tls-cert"),
    ]:
        with pytest.raises(UsageError, match=text):
            NatsSender(options, "ams", print)
    with pytest.raises(UsageError, match="--site"):
        NatsSender(NatsOptions(url), "a.b", print)


def test_addresses_of_servers() -> None:
    for url in ("hub", "hub.example:4222", "tls://[2001:db8::1]:4222", "nats://u:p@127.0.0.1:1,nats://b:65535"):
        NatsOptions(url).check()
    for end in ("[::1", "127.0.0.1:99999", "127.0.0.1:1x", "127.0.0.1:0", "127.0.0.1:-1", "a..b:4222", "", ":4222"):
        for url in (f"nats://{end}", f"nats://hub.example:4222,tls://ams:geheim@{end}"):
            with pytest.raises(UsageError, match="not an address like") as failed:
                NatsOptions(url).check()
            assert f"://{end}'" in str(failed.value)
            assert "geheim" not in str(failed.value)
            with pytest.raises(UsageError, match=r"^--up '"):
                NatsOptions(url, up=True).check()


def test_options_towards_a_higher_hub_have_their_own_names(tmp_path: Path) -> None:
    for option, name in {"nkey": "--up-nkey", "tls_ca": "--up-ca"}.items():
        with pytest.raises(UsageError, match=f"^{name} .*none: cannot be read"):
            NatsOptions("nats://hub", **{option: tmp_path / "none"}, up=True).check()
    with pytest.raises(UsageError, match=r"^--up-cert and --up-key: give both"):
        NatsOptions("nats://hub", tls_cert=tmp_path / "none", up=True).check()


def test_both_ends_stop_when_told(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    stop = threading.Event()
    stop.set()
    sender, receiver = make_sender(broker, "ams"), make_receiver(broker)
    sender.run(make_spool(tmp_path / "spool", "ams"), stop)
    receiver.run(intake, stop)
    assert (sender.counters.connects, receiver.counters.connects) == (0, 0)
