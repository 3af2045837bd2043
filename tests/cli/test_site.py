"""`superhosts site`: sites are enrolled, revoked and listed."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from commands import Run
from superhosts.fleet.nats.enrolment import HISTORY, SITES, list_sites, read_sites
from superhosts.hashing import fingerprint


def test_enroll_prints_the_file_with_the_secret(run: Run, tmp_path: Path) -> None:
    ended = run("site", "enroll", "ams", "--state", tmp_path)
    assert ended.status == 0
    path = Path(ended.out.strip())
    assert path == tmp_path / "broker" / "seeds" / "ams.nk"
    assert path.read_text().startswith("SU")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "start it with --site ams --nkey ams.nk" in ended.err
    assert read_sites(tmp_path / "broker").keys() == {"ams"}


def test_enroll_says_where_the_key_of_the_hub_is(
    run: Run, tmp_path: Path, own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is made if there is none, as this is the first use of it."""
    enroll = ["site", "enroll", "ams", "--state", tmp_path / "state"]
    said = run(*enroll).err
    assert f"made a key of your own: {own_file}" in said
    own = fingerprint(own_file.read_bytes().strip())
    needs = "the edge needs the sketch key of the hub"
    assert f"{needs}, {own}, too: copy {own_file} there and add --key-file FILE" in said
    (tmp_path / "key").write_text("correct horse battery")
    (tmp_path / "key").chmod(0o600)
    other = fingerprint(b"correct horse battery")
    monkeypatch.chdir(tmp_path)
    said = run(*enroll, "--key-file", "key").err
    assert f"{needs}, {other}, too: copy {tmp_path / 'key'} there" in said
    assert "correct horse" not in said
    assert "is public; add --key-file public" in run(*enroll, "--key-file", "public").err
    monkeypatch.setenv("SUPERHOSTS_KEY", "correct horse battery")
    assert f"{needs}, {other}, too: give SUPERHOSTS_KEY the same value there" in run(*enroll).err


def test_enroll_does_not_name_a_key_that_the_hub_does_not_use(run: Run, tmp_path: Path, own_file: Path) -> None:
    """A hub notes its key. Another user, or root, may enroll its sites."""
    enroll = ["site", "enroll", "ams", "--state", tmp_path]
    (tmp_path / "status.json").write_text(json.dumps({"key": "0123456789abcdef"}))
    unknown = "the edge needs the sketch key of the hub, 0123456789abcdef, too: copy the hub's key file there"
    assert unknown in run(*enroll).err
    assert not own_file.exists()
    own = run("key", "new").out.strip()
    assert unknown in run(*enroll).err
    (tmp_path / "status.json").write_text(json.dumps({"key": own}))
    assert f"sketch key of the hub, {own}, too: copy {own_file} there" in run(*enroll).err
    for odd in ("{", "[]", '{"key": 5}', "{}"):
        (tmp_path / "status.json").write_text(odd)
        assert f"sketch key of the hub, {own}, too: copy {own_file} there" in run(*enroll).err


def test_enroll_where_no_key_can_be_kept(run: Run, tmp_path: Path, own_file: Path) -> None:
    own_file.parent.parent.write_text("a file in place of the folder")
    ended = run("site", "enroll", "ams", "--state", tmp_path / "state")
    assert ended.status == 0
    assert "the edge needs the sketch key of the hub, too: copy the hub's key file there" in ended.err


def test_a_key_that_is_replaced_is_named(run: Run, tmp_path: Path) -> None:
    assert "older key" not in run("site", "enroll", "ams", "--state", tmp_path).err
    assert "the older key of ams is no longer accepted" in run("site", "enroll", "ams", "--state", tmp_path).err
    run("site", "revoke", "ams", "--state", tmp_path)
    assert "older key" not in run("site", "enroll", "ams", "--state", tmp_path).err


def test_the_folder_is_that_of_the_hub(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("site", "enroll", "ams").status == 0
    assert (tmp_path / "superhosts-hub" / "broker" / SITES).exists()


def test_a_site_that_is_not_enrolled_cannot_be_revoked(run: Run, tmp_path: Path) -> None:
    run("site", "enroll", "ams", "--state", tmp_path)
    ended = run("site", "revoke", "fra", "--state", tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert "'fra' is not enrolled; enrolled are: ams" in ended.err
    assert run("site", "enroll", "a b", "--state", tmp_path).status == 2


def test_the_list_shows_who_is_enrolled_and_who_was_revoked(run: Run, tmp_path: Path) -> None:
    for site in ("fra", "ams"):
        run("site", "enroll", site, "--state", tmp_path)
    run("site", "revoke", "fra", "--state", tmp_path)
    table = run("site", "list", "--state", tmp_path)
    assert table.status == 0
    head, ams, fra = table.out.splitlines()
    assert head.split() == ["site", "enrolled", "revoked"]
    assert (ams.split()[0], len(ams.split())) == ("ams", 2)
    assert (fra.split()[0], len(fra.split())) == ("fra", 3)
    rows = run("site", "list", "--state", tmp_path, "--json").rows
    assert [row["site"] for row in rows] == ["ams", "fra"]
    assert rows[0]["revoked"] is rows[1]["key"] is None
    assert rows[0]["key"].startswith("U")
    assert rows[0]["enrolled"].endswith("Z")
    assert rows[1]["revoked"] >= rows[1]["enrolled"]
    run("site", "enroll", "fra", "--state", tmp_path)
    assert [row["revoked"] for row in run("site", "list", "--state", tmp_path, "--json").rows] == [None, None]


@pytest.mark.parametrize("history", [None, "{", "[]", '{"ams": 3}', '{"fra": {}}'])
def test_sites_without_a_history_are_listed_without_times(tmp_path: Path, run: Run, history: str | None) -> None:
    """As an earlier version left them, or where the file was damaged."""
    folder = tmp_path / "broker"
    folder.mkdir()
    (folder / SITES).write_text(json.dumps({"ams": "UXYZ"}))
    if history is not None:
        (folder / HISTORY).write_text(history)
    assert [tuple(each) for each in list_sites(folder)] == [("ams", None, None, "UXYZ")]
    assert run("site", "list", "--state", tmp_path).out.splitlines()[1].split() == ["ams", "unknown"]


def test_no_site_is_enrolled(run: Run, tmp_path: Path) -> None:
    ended = run("site", "list", "--state", tmp_path)
    assert (ended.status, ended.out) == (0, "")
    assert "no site is enrolled" in ended.err
    assert run("site", "list", "--state", tmp_path, "--json").out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["enroll", "revoke", "list"])
def test_a_state_that_is_a_file_is_one_line(run: Run, tmp_path: Path, verb: str) -> None:
    (tmp_path / "state").write_text("x")
    ended = run("site", verb, *([] if verb == "list" else ["ams"]), "--state", tmp_path / "state")
    assert ended.status in (2, 4)
    assert len(ended.err.splitlines()) == 1
    assert "Not a directory" in ended.err or "File exists" in ended.err


def test_folders_that_enrolling_makes_are_private(run: Run, tmp_path: Path) -> None:
    assert run("site", "enroll", "ams", "--state", tmp_path / "state").status == 0
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("state", "state/broker")] == [0o700, 0o700]
