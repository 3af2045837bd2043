"""Tokens: an edge that joins with one word, whose key is replaced or revoked while hub and edge run."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest
import trustme

from brokers import QUICK, KeepingIntake, accepts, eventually, make_broker, make_receiver, make_spool, noise, running
from commands import Run
from processes import COMMON, INNER
from superhosts.cli._link import join
from superhosts.cli.usage.fleet import Edge
from superhosts.errors import UsageError
from superhosts.fleet.nats.broker import Tls
from superhosts.fleet.nats.credentials import PREFIX, NatsOptions, Token, _check
from superhosts.fleet.nats.enrolment import enroll, rotate
from superhosts.fleet.nats.send import NatsSender
from superhosts.sketch.sketch import load

TOKEN = Token("ams", "tls://hub.example:4222", "SUABC", b"\x00a key\n", "-----BEGIN CERTIFICATE-----\nx\n")
TEXT = TOKEN.encode()
SYNTH = "synth:flows=4k,packets=8k,windows=2,super_hosts=2"


def forged(content: Any, version: int = 1) -> str:
    packed = zlib.compress(json.dumps(content).encode())
    data = len(packed).to_bytes(4, "big") + packed
    return f"{PREFIX}{version}_{base64.urlsafe_b64encode(data + _check(data)).decode().rstrip('=')}"


def test_a_token_that_is_cut_short_is_told_so() -> None:
    for length in range(len(TEXT)):
        begun = length > len(PREFIX) + 7  # its length is there
        with pytest.raises(UsageError, match="cut short" if begun else "cut short|not a token") as error:
            Token.decode(TEXT[:length], "--join @file")
        said, secret = str(error.value), TEXT[len(PREFIX) + 2 : length]
        assert said.startswith("--join @file: ")
        assert not secret or secret not in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a token"),
        ("SUABCDEF", "not a token of superhosts site enroll"),
        (f"{PREFIX}_abc", "not a token"),
        (f"{PREFIX}2_abc", "a token of version 2, and 1 is needed: upgrade this edge"),
        (f"{PREFIX}0_abc", "upgrade the hub, and enroll the site again"),
        (TEXT + "A" * 4, "checksum is wrong"),
        (TEXT + "A" * (2 << 20), "not a token"),
        (forged([]), "without what an edge needs"),
        (forged({}), "without what an edge needs"),
        (forged({"site": "ams", "url": "u", "seed": 5}), "without what an edge needs"),
        (forged({"site": "a b", "url": "u", "seed": "s"}), "--join 'a b'"),
        (forged({"site": "ams", "url": "u", "seed": "s", "key": "*"}), "without what an edge needs"),
    ],
)
def test_what_is_no_token_is_told(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=r"^--join") as error:
        Token.decode(text)
    assert words in str(error.value)


def test_what_a_newer_hub_adds_is_ignored() -> None:
    token = Token.decode(forged({"site": "ams", "url": "u", "seed": "s", "new": [1]}))
    assert token == Token("ams", "u", "s")


def test_options_that_a_token_says_are_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.nk").touch()
    for more, words in [
        (["--to", "out"], "--to: not with --join"),
        (["--nkey", "other.nk", "--tls-ca", "x"], "--nkey, --tls-ca: not with --join"),
        (["--key-file", "public"], "--key-file: not with --join: the token has the sketch key"),
        (["--site", "fra"], "--site fra: --join has the token of site ams"),
        (["--join", "@gone"], "--join @gone: cannot be read: No such file"),
        (["--join", "junk"], "--join: not a token"),
    ]:
        ended = run("edge", SYNTH, "--join", TEXT, *more)
        assert (ended.status, ended.out) == (2, "")
        assert words in ended.err
    monkeypatch.delenv("SUPERHOSTS_KEY")
    ended = run("edge", SYNTH, "--join", Token("ams", "nats://hub:1", "SUABC").encode())
    assert "--join: the token has no sketch key: give that of the hub with --key-file" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["other.nk"]


def test_the_configuration_does_not_show_a_token(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.toml").write_text(f'[edge]\njoin = "{TEXT}"\n')
    shown = run("config", "show", tmp_path / "c.toml", "edge")
    assert shown.status == 0
    assert "edge.join" in shown.out
    assert TEXT not in shown.out
    monkeypatch.setenv("SUPERHOSTS_EDGE_JOIN", "@/etc/superhosts/token")
    assert "@/etc/superhosts/token" in run("config", "show", tmp_path / "c.toml", "edge").out


def test_an_edge_joins_with_nothing_but_a_token(run: Run, tmp_path: Path, intake: KeepingIntake) -> None:
    """Over TLS, with a key that the edge knows from the token alone."""
    authority, certificate, key, token = trustme.CA(), *(tmp_path / name for name in ("hub.pem", "key", "token"))
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    key.write_text("correct horse battery")
    for path in (certificate, key):
        path.chmod(0o600)
    with make_broker(tmp_path / "broker", [], tls=Tls(certificate, certificate)) as broker:
        where = ["--address", broker.options.url, "--tls-ca", tmp_path / "ca.pem"]
        made = run("site", "enroll", "ams", "--state", tmp_path, "--key-file", key, *where)
        token.write_text(made.out)
        with running(make_receiver(broker).run, intake):
            joined = run("edge", SYNTH, "--join", f"@{token}", "--spool", tmp_path / "spool", *COMMON, *INNER)
    assert (joined.status, "2 spooled, 2 acknowledged by the hub" in joined.err) == (0, True), joined.err
    assert "all users of this machine have access to this secret" in joined.err
    assert made.out.strip() not in joined.err
    assert [load(path, key="correct horse battery").sites for path in intake.kept.iterdir()] == [{"ams"}] * 2


def test_a_key_is_replaced_and_revoked_while_hub_and_edge_run(run, tmp_path, guarded, intake, monkeypatch) -> None:
    token, heard, spool = tmp_path / "token", list[str](), make_spool(tmp_path / "spool", "ams")
    monkeypatch.setattr("superhosts.cli._link.connect_to", lambda url, _: NatsOptions(url, timing=QUICK))

    def site(verb: str, *options: str) -> None:
        """Run `superhosts site` and put the token that it prints where the edge looks for it."""
        ended = run("site", verb, "ams", "--state", tmp_path, *options)
        assert ended.status == 0, ended.err
        token.write_text(ended.out or token.read_text())

    def send(number: int) -> None:
        noise(spool.folder, "ams", number, 1000)
        eventually(lambda: not spool.waiting())

    token.touch(0o600)
    site("enroll", "--address", guarded.options.url)
    joining = join(Edge(join=f"@{token}"))
    receiver, sender = make_receiver(guarded), NatsSender(joining.connect(), "ams", heard.append)
    with running(receiver.run, intake), running(sender.run, spool):
        send(0)
        site("rotate")
        send(1)  # the edge has read the token again
        site("revoke")
        eventually(lambda: any("does not accept these credentials" in line for line in heard))
        assert "the site is not enrolled there, or its key was revoked or replaced" in "".join(heard)
        noise(spool.folder, "ams", 2, 1000)
        site("enroll")
        eventually(lambda: not spool.waiting())
    assert (len(intake.names()), heard[-1].endswith("works again")) == (3, True)


@pytest.mark.slow
def test_an_old_key_works_until_its_grace_has_passed(tmp_path: Path) -> None:
    said: list[str] = []
    seed = enroll(tmp_path / "broker", "ams")
    old = shutil.copy(seed, tmp_path / "old.nk")
    with make_broker(tmp_path / "broker", said) as broker:
        rotate(broker.folder, "ams", 3600.0)
        eventually(lambda: said)
        assert accepts(broker, seed)
        assert accepts(broker, Path(old))
        older = shutil.copy(seed, tmp_path / "older.nk")
        rotate(broker.folder, "ams", 2.0)  # seconds
        eventually(lambda: accepts(broker, seed))
        assert not accepts(broker, Path(old))  # one older key at a time
        eventually(lambda: not accepts(broker, Path(older)))
        assert accepts(broker, seed)
    with make_broker(tmp_path / "broker", said) as broker:
        assert accepts(broker, seed)
        assert not accepts(broker, Path(older))
