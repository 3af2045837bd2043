"""Hostile sites against the real server and the hub's side of the link."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import socket
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nats
import nats.errors
import nats.js.errors
import nkeys
import pytest
import trustme
from nats.aio.client import Client
from nats.aio.msg import Msg

from brokers import (
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
    settle,
)
from hubs import WatchedIntake
from processes import DEADLINE, ending, make_edge, make_hub, status_of, wait_for
from superhosts.core.units import parse_host_port
from superhosts.errors import UsageError
from superhosts.fleet.link import Receipt
from superhosts.fleet.nats import connection, receive
from superhosts.fleet.nats.assembly import AT_ONCE, Patience
from superhosts.fleet.nats.broker import Broker, Tls
from superhosts.fleet.nats.connection import UnfitServerError, check_version
from superhosts.fleet.nats.credentials import NatsOptions
from superhosts.fleet.nats.enrolment import enroll, unenroll
from superhosts.fleet.nats.messages import Chunk
from superhosts.fleet.nats.send import NatsSender

CHUNK, ASK = "superhosts.from.ams.chunk", "superhosts.from.ams.ask"


@pytest.fixture
def broker(guarded: Broker) -> Broker:
    return guarded


def one_piece(path: Path) -> tuple[dict[str, str], bytes]:
    data = path.read_bytes()
    return Chunk(path.name, 0, len(data), len(data)).headers("0"), data


def deliver(broker: Broker, site: str, path: Path) -> None:
    publish(broker, site, pieces(path, path.stat().st_size))


class Raw:
    """A client that says what it likes."""

    def __init__(self, broker: Broker, site: str) -> None:
        host, port = parse_host_port(broker.options.url.removeprefix("nats://"))
        self._socket = socket.create_connection((host, port), DEADLINE)
        self._file = self._socket.makefile("rb")
        info = json.loads(self._file.readline().removeprefix(b"INFO "))
        seed = nkeys.from_seed(bytearray((broker.folder / "seeds" / f"{site}.nk").read_bytes().strip()))
        signature = base64.urlsafe_b64encode(seed.sign(info["nonce"].encode())).rstrip(b"=").decode()
        hello = {"verbose": False, "nkey": seed.public_key.decode(), "sig": signature, "headers": True, "lang": "raw"}
        try:
            self.say(b"CONNECT " + json.dumps(hello).encode() + b"\r\n")
            self.settle()
        except ConnectionError:
            self.close()
            raise

    def say(self, data: bytes) -> None:
        self._socket.sendall(data)

    def publish(self, subject: bytes, headers: bytes, data: bytes, reply: bytes = b"") -> None:
        total = len(headers) + len(data)
        line = b" ".join(filter(None, (b"HPUB", subject, reply, b"%d %d" % (len(headers), total))))
        self.say(line + b"\r\n" + headers + data + b"\r\n")

    def settle(self) -> list[bytes]:
        """Wait until the server has read all of it; return its complaints."""
        self.say(b"PING\r\n")
        said = []
        while (line := self._file.readline()) != b"PONG\r\n":
            if not line:
                raise ConnectionResetError("the server has hung up")
            said.append(line)
        return said

    def close(self) -> None:
        self._file.close()
        self._socket.close()


# What a site's key is good for

OF_OTHERS = ("superhosts.to.fra", "superhosts.from.fra.chunk", "superhosts.from.fra.ask", "_INBOX.fra.x", "_HUBBOX.x")
DANGEROUS = (  # requests to the queue
    *(f"STREAM.{verb}.superhosts" for verb in ("PURGE", "DELETE", "MSG.DELETE")),
    *(f"CONSUMER.{verb}.superhosts.hub" for verb in ("DELETE", "MSG.NEXT")),
)


def test_the_servers_word_cannot_be_sent_to_others(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    """A message names the subject to which the server says "stored"; no right restricts that name."""
    receiver = make_receiver(broker)
    heard: list[tuple[str, bytes]] = []
    targets = [*OF_OTHERS, *(f"$JS.API.{name}" for name in DANGEROUS), "$SYS.REQ.SERVER.PING"]
    headers, data = one_piece(noise(tmp_path, "ams", 0, 1000))

    async def attack(client: Client, errors: list[str]) -> None:
        for number, reply in enumerate(targets):
            await client.publish(CHUNK, data, reply=reply, headers={**headers, "Nats-Msg-Id": str(number)})
        await settle(client)

    async def watch(client: Client, errors: list[str]) -> None:
        async def seen(message: Msg) -> None:
            heard.append((message.subject, message.data))

        for subject in ("superhosts.to.fra", "_INBOX.fra.>"):
            await client.subscribe(subject, cb=seen)
        await settle(client)
        await asyncio.to_thread(as_client, as_site(broker, "ams"), attack, "_INBOX.ams")
        # Nothing is purged, nothing deleted, nothing sent in fra's name.
        await asyncio.to_thread(eventually, lambda: queued(broker) == {CHUNK: len(targets)})
        await settle(client)

    with receiving(receiver, intake):
        pass
    as_client(as_site(broker, "fra"), watch, "_INBOX.fra")
    assert heard == []
    with running(receiver.run, intake):
        eventually(lambda: queued(broker) == {})
    assert receiver.counters.malformed == 0


def test_the_interface_of_the_queue_is_not_a_sites(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    receiver = make_receiver(broker)
    others = ("INFO", "STREAM.CREATE.mine", "STREAM.UPDATE.superhosts", "STREAM.MSG.GET.superhosts")
    others += ("DIRECT.GET.superhosts", "CONSUMER.CREATE.superhosts.mine", "CONSUMER.DURABLE.CREATE.superhosts.mine")
    others += ("CONSUMER.PAUSE.superhosts.hub",)
    publishing = [*OF_OTHERS, *(f"$JS.API.{name}" for name in (*DANGEROUS, *others))]
    publishing += ["$JS.ACK.superhosts.hub.1.1.1.1.0", "$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.PING.CONNZ"]
    publishing += ["superhosts.from.ams.other", "superhosts.to.ams", "_INBOX.ams.x"]
    listening = ["superhosts.to.fra", "superhosts.to.*", "superhosts.from.>", CHUNK, "_INBOX.fra.>", "_HUBBOX.>"]
    listening += [">", "*.*", "$JS.>", "$SYS.>", "_R_.>", "superhosts.to.ams.>"]

    async def attack(client: Client, errors: list[str]) -> None:
        for subject in publishing:
            errors.clear()
            await client.publish(subject, b'{"keep": 0}', reply="_INBOX.ams.answer")
            await settle(client)
            assert "permissions violation for publish" in errors[0], subject
        for subject in listening:
            errors.clear()
            with contextlib.suppress(nats.errors.Error):
                await client.subscribe(subject)
            await settle(client)
            assert "permissions violation for subscription" in errors[0], subject

    path = noise(tmp_path, "fra", 0, 1000)
    with receiving(receiver, intake):
        pass
    deliver(broker, "fra", path)
    as_client(as_site(broker, "ams"), attack, "_INBOX.ams")
    assert queued(broker) == {"superhosts.from.fra.chunk": 1}
    with running(receiver.run, intake):
        eventually(lambda: intake.names() == {path.name})


def test_a_site_has_few_connections(broker: Broker) -> None:
    opened: list[Raw] = []
    try:
        for _ in range(16):
            opened.append(Raw(broker, "ams"))
        with pytest.raises(ConnectionError):
            opened.append(Raw(broker, "ams"))
        opened.append(Raw(broker, "fra"))
    finally:
        for each in opened:
            each.close()


ODD_HEADERS = [
    b"NATS/1.0",
    b"NATS/1.0 \xff\xfe\xfd\r\n\r\n",
    b"NATS/1.0 404 \xff\xff\r\n\r\n",
    b"NATS/1.0 404 No Messages\r\n\r\n",
    b"NATS/1.0 503\r\nSuperhosts-Name: \xff\r\n\r\n",
    b"NATS/1.0\r\nSuperhosts-Name\r\n: \r\n\xff\r\n\r\n",
    b"NATS/1.0\r\n\r\n",
]


def test_headers_that_no_library_expects_do_not_make_the_hub_deaf(tmp_path, broker, intake) -> None:
    receiver = make_receiver(broker)
    with receiving(receiver, intake):
        for number, headers in enumerate(ODD_HEADERS, 1):
            raw, path = Raw(broker, "ams"), noise(tmp_path, "fra", number, 1000)
            raw.publish(CHUNK.encode(), headers, b"x")
            raw.publish(ASK.encode(), headers, b"[]", b"_INBOX.ams.\xff")
            raw.settle()
            raw.close()
            deliver(broker, "fra", path)
            eventually(lambda path=path: path.name in intake.names())
            eventually(lambda: queued(broker) == {})
            assert (receiver.counters.connects, receiver.counters.malformed) == (1, number), headers


# Shares of the queue, of the intake, of the answers


def flood(broker: Broker, site: str, count: int) -> None:
    raw = Raw(broker, site)
    for number in range(count):
        raw.publish(f"superhosts.from.{site}.chunk".encode(), b"NATS/1.0\r\nx: %d\r\n\r\n" % number, b"tiny")
    raw.settle()
    raw.close()


def test_a_flood_of_tiny_messages_keeps_to_its_sites_share(tmp_path, broker, intake) -> None:
    said: list[str] = []
    receiver = make_receiver(broker, said)
    with receiving(receiver, intake):
        pass
    share = receive.MIN_PIECES
    flood(broker, "ams", 3000)
    eventually(lambda: queued(broker).get(CHUNK, 0) == share)
    path = noise(tmp_path, "fra", 0, 100_000)
    deliver(broker, "fra", path)
    assert queued(broker) == {CHUNK: share, "superhosts.from.fra.chunk": 1}
    with running(receiver.run, intake):
        eventually(lambda: intake.names() == {path.name})
        eventually(lambda: queued(broker) == {})
    assert receiver.counters.malformed == share  # so many went before the other site's
    assert len(said) == 1  # the same line again is not said again


@pytest.mark.slow
def test_what_a_revoked_site_has_sent_leaves_the_queue(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    said: list[str] = []
    receiver = make_receiver(broker, said, patience=Patience(pause=0.2))
    begun = [pieces(noise(tmp_path, "ams", number, 20_000), 8000)[0] for number in range(40)]
    path = noise(tmp_path, "fra", 0, 20_000)
    with receiving(receiver, intake):
        publish(broker, "ams", begun)
        publish(broker, "fra", pieces(path, 8000)[:1])
        eventually(lambda: receiver.counters.chunks >= 41)
        unenroll(broker.folder, "ams")
        eventually(lambda: queued(broker) == {})
        eventually(lambda: [each.name.startswith(path.name) for each in intake.folder.iterdir()] == [True])
        publish(broker, "fra", pieces(path, 8000)[1:])
        eventually(lambda: intake.names() == {path.name})
    assert any("ams is not enrolled" in line for line in said)
    assert not [line for line in said if "waiting until it is sent again" in line]


def test_questions_of_one_site_do_not_keep_the_others(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    receiver = make_receiver(broker)
    gate, waiting = threading.Event(), threading.Event()
    theirs, mine = noise(tmp_path, "fra").name, noise(tmp_path, "ams").name

    def slow(name: str) -> Receipt | None:
        if name == mine:
            waiting.set()
            assert gate.wait(DEADLINE)
        return intake.known(name)

    watched = WatchedIntake(intake, intake.accept, slow)

    async def attack(client: Client, errors: list[str]) -> None:
        for _ in range(500):
            await client.publish(ASK, json.dumps([mine]).encode(), reply="_INBOX.ams.x")
        await settle(client)

    async def ask(client: Client, errors: list[str]) -> bytes:
        question = json.dumps([theirs]).encode()
        return (await client.request("superhosts.from.fra.ask", question, timeout=DEADLINE)).data

    with receiving(receiver, watched):
        as_client(as_site(broker, "ams"), attack, "_INBOX.ams")
        assert waiting.wait(DEADLINE)
        assert b"not here" in as_client(as_site(broker, "fra"), ask, "_INBOX.fra")
        gate.set()
    assert receiver.counters.unanswered + receiver.counters.questions == 501
    assert receiver.counters.unanswered > 400


def test_sites_take_turns_at_the_intake(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    receiver = make_receiver(broker)
    mine = [noise(tmp_path, "ams", number, 1000) for number in range(20)]
    theirs = noise(tmp_path, "fra", 0, 1000)
    entered: list[str] = []

    def enter(path: Path, name: str, site: str) -> Receipt:
        entered.append(site)
        return intake.accept(path, name, site)

    intake.gate.clear()
    with running(receiver.run, WatchedIntake(intake, enter)):
        eventually(lambda: receiver.counters.connects)
        for path in mine:
            deliver(broker, "ams", path)
        deliver(broker, "fra", theirs)
        eventually(lambda: len(entered) == AT_ONCE)
        assert entered == ["ams", "fra"]
        intake.gate.set()
        eventually(lambda: len(intake.names()) == 21)


# Which servers do


def test_versions() -> None:
    for good in ("2.12.0", "2.15.1", "v2.12.3", "3.0.0-beta", "2.100.0"):
        check_version(good)
    for bad in ("2.11.9", "2.10.0", "1.4.1", "", "None", "x.y", "v2"):
        with pytest.raises(UnfitServerError, match=r"2\.12 or a later one is needed"):
            check_version(bad, "/usr/bin/nats-server")


def test_a_server_that_is_not_strict_is_refused(tmp_path: Path, intake: KeepingIntake) -> None:
    class LenientBroker(Broker):
        def config(self, sites: dict[str, list[str]] | None) -> dict[str, Any]:
            config = super().config(sites)
            config["jetstream"]["strict"] = False
            return config

    said: list[str] = []
    with make_broker(tmp_path / "broker", [], LenientBroker) as broker:
        receiver = make_receiver(broker, said)
        with pytest.raises(UsageError, match=r"^--nats nats://\S+: the server accepts requests .*strict: true"):
            receiver.check_no_other_hub()
        with running(receiver.run, intake):
            eventually(lambda: said)
        assert "a site could empty the queue" in said[0]
        assert "a site could empty the queue" in receiver.counters.down
        assert receiver.counters.connects == 0


def test_an_old_server_is_refused_and_named(tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedded one, and one of one's own."""
    monkeypatch.setattr(connection, "MIN_VERSION", (99, 0))
    with pytest.raises(UsageError, match=r"/nats-server is nats-server 2\.\S+; 99\.0 or a later one is needed"):
        make_broker(tmp_path / "other", []).start()
    with pytest.raises(UsageError, match=r"^--nats nats://\S+: the server is nats-server 2\.\S+; 99\.0 or a later one"):
        make_receiver(broker).check_no_other_hub()


def test_a_server_without_keys_is_said(tmp_path: Path, broker: Broker) -> None:
    said: list[str] = []
    with make_broker(tmp_path / "open", []) as free:
        make_receiver(free, said).check_no_other_hub()
    assert said == [
        f"the link to {free.options.url}: the server requires no credentials: every client can send for any site"
    ]
    make_receiver(broker, said).check_no_other_hub()
    assert len(said) == 1


# Keys, certificates, rights


def test_a_new_site_can_send_at_once(tmp_path: Path, broker: Broker, intake: KeepingIntake) -> None:
    receiver = make_receiver(broker)
    spool = make_spool(tmp_path / "spool", "lon")
    path = noise(spool.folder, "lon", 0, 1000)
    with receiving(receiver, intake):
        seed = enroll(broker.folder, "lon")
        broker.reload()
        assert broker.admitted() == {"ams", "fra", "lon"}
        with running(NatsSender(NatsOptions(broker.options.url, nkey=seed, timing=QUICK), "lon", print).run, spool):
            eventually(lambda: not spool.waiting())
    assert intake.names() == {path.name}
    assert receiver.counters.connects == 1  # the others' connections live on


def certificate(folder: Path, authority: trustme.CA, name: str, **options: Any) -> Path:
    path = folder / f"{name}.pem"
    path.unlink(missing_ok=True)
    authority.issue_cert("127.0.0.1", **options).private_key_and_cert_chain_pem.write_to_path(path)
    path.chmod(0o600)
    return path


def serial_of(broker: Broker, ca: Path) -> str:
    host, port = parse_host_port(broker.options.url.removeprefix("tls://"))
    context = ssl.create_default_context(cafile=ca)
    with socket.create_connection((host, port), DEADLINE) as plain:
        plain.recv(65536)  # the greeting comes before TLS
        with context.wrap_socket(plain, server_hostname=host) as secure:
            found = secure.getpeercert()
            return str(found["serialNumber"])


def test_certificates_are_taken_over_by_a_reload(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    cert = certificate(tmp_path, authority, "server")
    with make_broker(tmp_path / "broker", [], tls=Tls(cert, cert)) as broker:
        before = serial_of(broker, tmp_path / "ca.pem")
        certificate(tmp_path, authority, "server")
        broker.reload()
        after = serial_of(broker, tmp_path / "ca.pem")
        assert after != before
        cert.write_text("no certificate")
        with pytest.raises(UsageError):
            broker.reload()
        assert serial_of(broker, tmp_path / "ca.pem") == after
        assert broker.counters.reloads == 1


def test_a_configuration_that_the_server_refuses_is_taken_back(tmp_path: Path) -> None:
    class MistakenBroker(Broker):
        mistaken = False

        def config(self, sites: dict[str, list[str]] | None) -> dict[str, Any]:
            wrong = {"accounts": {"hub": {"users": [{"nkey": "no"}]}}} if self.mistaken else {}
            return {**super().config(sites), **wrong}

    for site in ("ams", "fra"):
        enroll(tmp_path / "broker", site)
    with make_broker(tmp_path / "broker", [], MistakenBroker) as broker:
        config = (broker.folder / "nats.conf").read_text()
        broker.mistaken = True
        with pytest.raises(UsageError, match=r"rejects its new configuration: .*nkey"):
            broker.reload()
        assert (broker.folder / "nats.conf").read_text() == config
        assert broker.admitted() == {"ams", "fra"}
        assert accepts(broker, broker.folder / "seeds" / "ams.nk")


def test_files_of_the_broker_are_its_owners_whatever_the_umask(tmp_path: Path, intake: KeepingIntake) -> None:
    folder = tmp_path / "broker"
    before = os.umask(0)
    try:
        enroll(folder, "ams")
        with make_broker(folder, []) as broker:
            receiver = make_receiver(broker)
            with receiving(receiver, intake):
                deliver(broker, "ams", noise(tmp_path, "ams"))
                eventually(lambda: len(intake.names()) == 1)
    finally:
        os.umask(before)
    found = [folder, *folder.rglob("*")]
    assert {path.name for path in found} >= {
        "nats.conf",
        "nats.log",
        "nats.err",
        "hub.nk",
        "ams.nk",
        "sites.json",
        "store",
    }
    assert [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


# The command


@pytest.mark.slow
def test_a_certificate_that_has_expired_at_a_reload_is_said_and_the_status_tells_until_it_is_mended(tmp_path) -> None:
    authority = trustme.CA()
    cert = certificate(tmp_path, authority, "server")
    enroll(tmp_path / "hub" / "broker", "ams")
    hub, _ = make_hub(tmp_path, "--tls-cert", str(cert), "--tls-key", str(cert))

    def trouble() -> tuple[bool, bool]:
        found = status_of(tmp_path / "hub")
        return bool(found["link"]["down"]), bool(found["trouble"]["not_reloaded"])

    with ending(hub):
        hub.start().wait_ready()
        certificate(tmp_path, authority, "server", not_after=datetime.now(UTC) - timedelta(days=1))
        hub.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "NOT RELOADED: sites and certificates" in hub.words, "it is said")
        assert f"the broker's certificate {cert} does not do: certificate has expired" in hub.words
        wait_for(lambda: status_of(tmp_path / "hub") and trouble() == (True, True), "the status tells")
        certificate(tmp_path, authority, "server")
        hub.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded: --output, sites and certificates" in hub.words, "the next one is taken")
        wait_for(lambda: trouble() == (False, False), "the status tells")
        assert hub.end() == 0


@pytest.mark.slow
def test_a_hub_that_starts_with_an_expired_certificate_says_so_and_its_status_too(tmp_path: Path) -> None:
    cert = certificate(tmp_path, trustme.CA(), "server", not_after=datetime.now(UTC) - timedelta(days=1))
    enroll(tmp_path / "hub" / "broker", "ams")
    hub, _ = make_hub(tmp_path, "--tls-cert", str(cert), "--tls-key", str(cert))
    with ending(hub):
        hub.start()
        down = wait_for(lambda: status_of(tmp_path / "hub").get("link", {}).get("down"), "the status tells")
        wait_for(lambda: "; waits for" in hub.words, "it has started")
        assert hub.end() == 0
    assert f"the broker's certificate {cert} does not do: certificate has expired" in down
    assert "NOT READY: the broker runs, but this hub cannot reach it" in hub.words
    assert "hub ready" not in hub.words


@pytest.mark.slow
def test_words_about_certificates_name_what_is_wrong(tmp_path: Path) -> None:
    junk = tmp_path / "hub.crt"
    junk.write_text("no certificate")
    with pytest.raises(UsageError, match=rf"^--tls-cert {junk}: is not a certificate"):
        make_broker(tmp_path / "junk", [], tls=Tls(junk, junk)).start()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    cert = certificate(tmp_path, authority, "server", not_after=datetime.now(UTC) - timedelta(days=1))
    heard: list[str] = []
    with make_broker(tmp_path / "broker", [], tls=Tls(cert, cert)) as broker:
        options = NatsOptions(broker.options.url, tls_ca=tmp_path / "ca.pem", timing=QUICK)
        with running(NatsSender(options, "ams", heard.append).run, make_spool(tmp_path / "spool", "ams")):
            eventually(lambda: heard)
    assert "its certificate has expired: the server needs another one, unless" in heard[0]
    assert "--tls-ca" not in heard[0]


@pytest.mark.slow
def test_a_hub_says_who_may_speak_and_which_secrets_are_none(tmp_path: Path) -> None:
    key, seed = tmp_path / "key", enroll(tmp_path / "keys", "ams")
    key.write_text("a secret of some length")
    key.chmod(0o644)
    hub, link = make_hub(tmp_path, "--key-file", str(key))
    edge = make_edge(tmp_path, "ams", link, "--key-file", str(key), "--nkey", str(seed))
    with ending(hub, edge):
        hub.start().wait_ready()
        assert "no site is enrolled: any process on this machine can send as any site" in hub.words
        assert (
            f"{key}: all users of this machine have access to this secret (mode 0644); run: chmod 600 {key}"
            in hub.words
        )
        key.chmod(0o600)
        seed.chmod(0o604)
        edge.start().wait_ready()
        assert f"{seed}: all users of this machine have access to this secret (mode 0604)" in edge.words
        assert f"{key}: all users" not in edge.words
        assert hub.end() == 0
