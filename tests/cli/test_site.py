"""`superhosts site`: sites are enrolled, revoked and listed."""

from __future__ import annotations

import json
import socket
import stat
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from commands import Ended, Run
from superhosts.core.hashing import DEFAULT_KEY, fingerprint
from superhosts.errors import UsageError
from superhosts.fleet.nats.credentials import Token, public_key
from superhosts.fleet.nats.enrolment import SITES, Enrolment, list_sites, read_sites


def token_in(ended: Ended) -> Token:
    assert ended.status == 0, ended.err
    return Token.decode(ended.out.strip())


def test_enroll_prints_a_token_and_keeps_it_with_the_secret(run: Run, tmp_path: Path) -> None:
    ended = run("site", "enroll", "ams", "--state", tmp_path, "--address", "nats://hub.example:4222")
    token = token_in(ended)
    seeds = tmp_path / "broker" / "seeds"
    assert (token.site, token.url, token.ca) == ("ams", "nats://hub.example:4222", None)
    assert token.seed == (seeds / "ams.nk").read_text().strip()
    assert token.seed.startswith("SU")
    assert (seeds / "ams.token").read_text() == ended.out
    assert [stat.S_IMODE((seeds / name).stat().st_mode) for name in ("ams.nk", "ams.token")] == [0o600, 0o600]
    assert "this token is a secret" in ended.err
    assert "--join @FILE" in ended.err
    assert token.seed not in ended.err
    assert token.seed not in repr(token)
    assert read_sites(tmp_path / "broker").keys() == {"ams"}


def test_an_address_and_an_authority_are_remembered(run: Run, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(authority)
    enroll = ["site", "enroll", "--state", tmp_path / "state"]
    first = token_in(run(*enroll, "ams", "--address", "tls://hub.example:4222", "--tls-ca", authority))
    second = run(*enroll, "fra")
    assert token_in(second).url == first.url == "tls://hub.example:4222"
    assert token_in(second).ca == first.ca == authority.read_text()
    assert "--address" not in second.err
    assert token_in(run(*enroll, "nyc", "--address", "tls://other:4222")).url == "tls://other:4222"
    authority.unlink()
    gone = run(*enroll, "lon")
    assert (gone.status, gone.out) == (2, "")
    assert f"{authority}: cannot be read" in gone.err
    assert read_sites(tmp_path / "state" / "broker").keys() == {"ams", "fra", "nyc"}


def test_without_an_address_it_is_that_of_the_broker(run: Run, tmp_path: Path) -> None:
    enroll, folder = ["site", "enroll", "ams", "--state", tmp_path], tmp_path / "broker"
    unknown = run(*enroll)
    assert token_in(unknown).url == f"nats://{socket.gethostname()}:4222"
    assert "give --address URL if it is elsewhere" in unknown.err
    certificate = tmp_path / "hub.pem"
    trustme.CA().cert_pem.write_to_path(certificate)  # one that is its own authority
    for config, url, ca in [
        ({"host": "10.1.2.3", "port": 4333}, "nats://10.1.2.3:4333", None),
        ({"host": "::", "port": 4333}, f"nats://{socket.gethostname()}:4333", None),
        ({"host": "2001:db8::1", "port": 4222}, "nats://[2001:db8::1]:4222", None),
        (
            {"host": "10.1.2.3", "port": 4222, "tls": {"cert_file": str(certificate)}},
            "tls://10.1.2.3:4222",
            certificate.read_text(),
        ),
        ({"host": "h", "port": 1, "tls": {"cert_file": "/none", "ca_file": str(certificate)}}, "tls://h:1", None),
    ]:
        (folder / "nats.conf").write_text(json.dumps(config))
        token = token_in(run(*enroll))
        assert token.url == url
        assert token.ca == (certificate.read_text() if "tls" in config else ca)
    plain = run(*enroll, "--address", "nats://hub:4222")
    assert (plain.status, plain.out) == (2, "")
    assert "--address nats://hub:4222: this hub uses TLS; write tls:// instead" in plain.err


def test_the_token_has_the_sketch_key_of_the_hub(run, tmp_path, own_file, monkeypatch) -> None:
    """The key is made if there is none, as this is the first use of it."""
    enroll = ["site", "enroll", "ams", "--state", tmp_path / "state"]
    ended = run(*enroll)
    assert f"made a key of your own: {own_file}" in ended.err
    own = own_file.read_bytes().strip()
    assert token_in(ended).key == own
    assert f"the sketch key in the token is {fingerprint(own)} ({own_file})" in ended.err
    (tmp_path / "key").write_bytes(b"binary\nkey\x00\xff")
    (tmp_path / "key").chmod(0o600)
    assert token_in(run(*enroll, "--key-file", tmp_path / "key")).key == b"binary\nkey\x00\xff"
    public = run(*enroll, "--key-file", "public")
    assert token_in(public).key == DEFAULT_KEY
    assert "is public: anyone can read addresses" in public.err
    monkeypatch.setenv("SUPERHOSTS_KEY", "correct horse battery")
    ended = run(*enroll)
    assert token_in(ended).key == b"correct horse battery"
    assert "correct horse" not in ended.err


def test_a_token_has_no_key_that_the_hub_does_not_use(run: Run, tmp_path: Path, own_file: Path) -> None:
    """A hub notes its key. Another user, or root, may enroll its sites."""
    enroll = ["site", "enroll", "ams", "--state", tmp_path]
    (tmp_path / "status.json").write_text(json.dumps({"key": "0123456789abcdef"}))
    unknown = "the token has no sketch key, and the edge needs that of the hub, 0123456789abcdef: copy"
    ended = run(*enroll)
    assert unknown in ended.err
    assert token_in(ended).key is None
    assert not own_file.exists()
    own = run("key", "new").out.strip()
    assert unknown in run(*enroll).err
    for right in (json.dumps({"key": own}), "{", "[]", '{"key": 5}', "{}"):
        (tmp_path / "status.json").write_text(right)
        assert token_in(run(*enroll)).key == own_file.read_bytes().strip()


def test_a_site_is_rotated_with_or_without_grace(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    first = token_in(run("site", "enroll", "ams", "--state", tmp_path, "--address", "nats://hub.example:4222"))
    old = read_sites(folder)["ams"]
    ended = run("site", "rotate", "ams", "--state", tmp_path, "--grace", "1h")
    second = token_in(ended)
    assert "the older key of ams is accepted for another 1h" in ended.err
    assert second.url == first.url
    assert second.seed != first.seed
    assert read_sites(folder)["ams"] == public_key(folder / "seeds" / "ams.nk") != old
    found = list_sites(folder)["ams"]
    assert found.keys(time.time()) == [found.key, old]
    assert 0 < found.old_key_until - time.time() <= 3600
    assert found.keys(found.old_key_until) == [found.key]
    ended = run("site", "rotate", "ams", "--state", tmp_path)
    assert "the older key of ams is no longer accepted" in ended.err
    assert len(list_sites(folder)["ams"].keys(0.0)) == 1
    ended = run("site", "rotate", "fra", "--state", tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert "'fra' is not enrolled; enrolled are: ams" in ended.err


def test_nothing_of_a_revoked_site_is_accepted_or_kept(run: Run, tmp_path: Path) -> None:
    run("site", "enroll", "ams", "--state", tmp_path)
    run("site", "rotate", "ams", "--state", tmp_path, "--grace", "1h")
    assert run("site", "revoke", "ams", "--state", tmp_path).status == 0
    assert read_sites(tmp_path / "broker") == {}
    assert list_sites(tmp_path / "broker")["ams"].keys(0.0) == []
    assert list((tmp_path / "broker" / "seeds").iterdir()) == []


def test_a_damaged_file_of_sites_is_named(tmp_path: Path) -> None:
    for text in (
        "{",
        "[]",
        '{"ams": 3}',
        '{"ams": {"key": 5}}',
        '{"ams": {"old_key_until": "x"}}',
        '{"ams": {"x": 1}}',
    ):
        (tmp_path / SITES).write_text(text)
        with pytest.raises(UsageError, match=rf"{SITES}: damaged; restore it"):
            list_sites(tmp_path)


def test_a_key_that_is_replaced_is_named(run: Run, tmp_path: Path) -> None:
    assert "older key" not in run("site", "enroll", "ams", "--state", tmp_path).err
    assert "the older key of ams is no longer accepted" in run("site", "enroll", "ams", "--state", tmp_path).err
    run("site", "revoke", "ams", "--state", tmp_path)
    assert "older key" not in run("site", "enroll", "ams", "--state", tmp_path).err


def test_the_list_shows_who_is_enrolled_and_who_was_revoked(run: Run, tmp_path: Path) -> None:
    for site in ("fra", "ams"):
        run("site", "enroll", site, "--state", tmp_path)
    run("site", "revoke", "fra", "--state", tmp_path)
    table = run("site", "list", "--state", tmp_path)
    assert table.status == 0
    head, ams, fra = table.out.splitlines()
    assert head.split() == ["site", "key", "since", "seen", "version", "lag", "spool", "refused", "slowed", "clock"]
    today = datetime.now(UTC).date().isoformat()
    assert ams.split() == ["ams", today, *"-------"]
    assert fra.split() == ["fra", "revoked", *"-------"]
    rows = run("site", "list", "--state", tmp_path, "--json").rows
    assert [row["site"] for row in rows] == ["ams", "fra"]
    assert rows[0]["revoked"] is rows[1]["key"] is None
    assert rows[0]["key"].startswith("U")
    assert rows[0]["enrolled"].endswith("Z")
    assert rows[1]["revoked"] >= rows[1]["enrolled"]
    run("site", "enroll", "fra", "--state", tmp_path)
    assert [row["revoked"] for row in run("site", "list", "--state", tmp_path, "--json").rows] == [None, None]


def test_sites_of_an_earlier_release_are_listed_without_times(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    (folder / SITES).write_text(json.dumps({"ams": "UXYZ"}))
    assert list_sites(folder) == {"ams": Enrolment(key="UXYZ")}
    assert run("site", "list", "--state", tmp_path).out.splitlines()[1].split()[:2] == ["ams", "unknown"]


def test_what_cannot_be_is_one_line(run: Run, tmp_path: Path) -> None:
    ended = run("site", "list", "--state", tmp_path)
    assert (ended.status, ended.out, "no site is enrolled" in ended.err) == (0, "", True)
    assert run("site", "list", "--state", tmp_path, "--json").out == ""
    for address in ("hub:port", "http://hub:4222", "nats://"):
        ended = run("site", "enroll", "ams", "--state", tmp_path, "--address", address)
        assert (ended.status, ended.out) == (2, "")
        assert "not an address like nats://hub.example:4222" in ended.err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    for words in ("enroll ams", "revoke ams", "list"):
        ended = run("site", *words.split(), "--state", tmp_path / "file")
        assert (ended.status in (2, 4), len(ended.err.splitlines())) == (True, 1)
        assert "Not a directory" in ended.err or "File exists" in ended.err
    state = tmp_path / "state"
    assert run("site", "enroll", "ams", "--state", state).status == 0
    assert [each.stat().st_mode & 0o777 for each in (state, state / "broker")] == [0o700, 0o700]
    ended = run("site", "revoke", "fra", "--state", state)
    assert (ended.status, ended.out) == (2, "")
    assert "'fra' is not enrolled; enrolled are: ams" in ended.err
    assert run("site", "enroll", "a b", "--state", state).status == 2


def test_the_list_shows_what_the_hub_knows(run: Run, tmp_path: Path) -> None:
    for site in ("ams", "fra"):
        run("site", "enroll", site, "--state", tmp_path)
    run("site", "rotate", "fra", "--state", tmp_path, "--grace", "1h")
    now = time.time()
    ams = {
        "seen": now - 12,
        "version": "0.1.0",
        "window_end": now - 600,
        "spool_sketches": 3,
        "spool_bytes": 5 << 20,
        "accepted": 7,
        "refused": 1,
        "slowed": 2,
        "clock": 3600.04,
        "mismatch": "upgrade this hub",
    }
    odd = {"seen": "x", "version": 5, "window_end": None, "clock": float("inf"), "refused": True, "mismatch": []}
    content = {"written": now - 3600, "sites": {"ams": ams, "lon": odd, "nyc": {}, "par": 5}}
    (tmp_path / "status.json").write_text(json.dumps(content))
    shown = run("site", "list", "--state", tmp_path)
    lines = {line.split()[0]: line.split() for line in shown.out.splitlines()[1:]}
    assert lines["ams"][3:] == ["s", "ago", "0.1.0", "10", "min", "3", "(5", "MiB)", "1", "2", "60", "min"]
    assert max(map(len, shown.out.splitlines())) <= 80
    assert lines["lon"] == ["lon", "none", *"-------"]
    assert "the hub does not run: all but the keys is as of 60 min ago" in shown.err
    assert "nothing is taken from ams: upgrade this hub" in shown.err
    assert "the clock of ams is 60 min ahead of the hub's" in shown.err
    assert "an older key of fra is accepted until 20" in shown.err
    rows = {row["site"]: row for row in run("site", "list", "--state", tmp_path, "--json").rows}
    assert rows.keys() == {"ams", "fra", "lon", "nyc", "par"}
    first = rows["ams"]
    assert (first["version"], first["refused"], first["clock_wrong"]) == ("0.1.0", 1, True)
    assert first["lag_seconds"] >= 600
    assert rows["fra"]["old_key_until"].endswith("Z")
    assert rows["lon"]["version"] is rows["lon"]["refused"] is rows["lon"]["clock_wrong"] is None
