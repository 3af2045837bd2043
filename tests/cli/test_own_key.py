"""Commands use the user's own key, which the first of them makes, in real processes."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

import superhosts as sh
from commands import Run, start
from superhosts.core.hashing import fingerprint
from traffic import talk, write

SMALL = ["--memory", "64KiB", "--inner", "10.0.0.0/8", "--device", "cpu"]
MADE = "made a key of your own"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write(tmp_path / "quiet.pcap", talk("10.0.0.1", 20))


def key_of(folder: Path) -> str:
    """The fingerprint of the key of the one sketch in a folder, which the library can load."""
    (path,) = folder.glob("*.cube")
    (detector,) = sh.load(path).parts.values()
    found: Any = detector
    return str(found.fingerprint)


def test_the_first_command_makes_the_key_and_says_so_once(run, own_file, capture, tmp_path) -> None:
    first = run("scan", capture, *SMALL, "--save", tmp_path / "first", "--site", "ams")
    second = run("scan", capture, *SMALL, "--save", tmp_path / "second", "--site", "ams", "--quiet")
    assert (first.status, second.status) == (0, 0)
    assert f"superhosts: {MADE}: {own_file}; " in first.err
    assert second.err == ""
    assert [stat.S_IMODE(each.stat().st_mode) for each in (own_file, own_file.parent)] == [0o600, 0o700]
    secret = own_file.read_bytes().strip()
    assert secret.decode() not in first.out + first.err
    assert key_of(tmp_path / "first") == key_of(tmp_path / "second") == fingerprint(secret)


@pytest.mark.slow
def test_commands_that_start_at_once_make_one_key(own_file: Path, capture: Path, tmp_path: Path) -> None:
    save = [tmp_path / str(number) for number in range(6)]
    running = [start("scan", capture, *SMALL, "--save", folder, "--site", "ams") for folder in save]
    said = [child.communicate(timeout=600)[1].decode() for child in running]
    assert [child.returncode for child in running] == [0] * len(running), said
    assert {key_of(folder) for folder in save} == {fingerprint(own_file.read_bytes().strip())}
    assert [MADE in each for each in said].count(True) == 1
    assert list(own_file.parent.iterdir()) == [own_file]


def test_saved_sketches_are_queried_without_an_option(run: Run, own_file: Path, capture: Path, tmp_path: Path) -> None:
    """Those of one's own key and those of the public one, which earlier releases wrote; reading makes no key."""
    run("scan", capture, *SMALL, "--key-file", "public", "--save", tmp_path / "public", "--site", "ams")
    assert not own_file.exists()
    (public,) = (tmp_path / "public").iterdir()
    assert run("hosts", public, "--top", 1, "--json").rows[0]["host"] == "10.0.0.1"
    assert not own_file.exists()
    run("scan", capture, *SMALL, "--save", tmp_path / "own", "--site", "ams")
    (own,) = (tmp_path / "own").iterdir()
    for path in (own, public):
        assert run("hosts", path, "--top", 1, "--json").rows[0]["host"] == "10.0.0.1"
        assert run("explain", path, "10.0.0.1", "--json").rows[0]["host"] == "10.0.0.1"
        assert run("merge", path, "-o", tmp_path / "copy.cube").status == 0
    ended = run("hosts", own, "--key-file", "public")
    assert ended.status == 2
    written = f"{own}: written with key {key_of(tmp_path / 'own')}; give it with --key-file"
    assert written in ended.err
    own_file.unlink()
    assert written in run("hosts", own).err
    assert not own_file.exists()


# Where no key can be kept


@pytest.fixture
def no_folder(own_file: Path) -> Path:
    own_file.parent.parent.write_text("a file in place of the folder")
    return own_file


def test_a_random_key_is_mentioned_where_sketches_are_saved(run, no_folder, capture, tmp_path) -> None:
    plain = run("scan", capture, *SMALL, "--top", 1, "--json", "--quiet")
    assert (plain.status, plain.rows[0]["host"], plain.err) == (0, "10.0.0.1", "")
    saved = run("scan", capture, *SMALL, "--quiet", "--save", tmp_path / "saved", "--site", "ams")
    assert saved.status == 0
    (line,) = saved.err.splitlines()
    assert line.startswith("superhosts: warning: no key of your own can be kept (")
    assert str(no_folder.parent.parent) in line
    assert "later runs cannot query or merge the sketches" in line
    assert "--key-file" in line
    (path,) = (tmp_path / "saved").iterdir()
    assert run("hosts", path).status == 2


def test_edge_and_hub_need_a_key_that_lasts(run: Run, no_folder: Path, capture: Path, tmp_path: Path) -> None:
    edge = ["edge", capture, "--site", "ams", "--spool", tmp_path / "spool", "--to", tmp_path / "link", *SMALL]
    hub = ["hub", "--state", tmp_path / "hub", "--from", tmp_path / "link", "--memory", "64KiB"]
    for command in (edge, hub):
        ended = run(*command)
        assert (ended.status, len(ended.err.splitlines())) == (2, 1)
        assert "the sites of a fleet share a key, but none can be kept here" in ended.err
    assert {path.name for path in tmp_path.iterdir()} == {"quiet.pcap", "configuration"}


def test_a_scan_of_a_missing_file_makes_no_key_and_no_output(run: Run, own_file: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("rows of yesterday")
    saved = tmp_path / "saved"
    ended = run("scan", tmp_path / "nothere.pcap", *SMALL, "-o", tmp_path / "rows.jsonl", "--save", saved)
    assert (ended.status, len(ended.err.splitlines())) == (3, 1)
    assert "nothere.pcap" in ended.err
    assert (own_file.exists(), saved.exists()) == (False, False)
    assert (tmp_path / "rows.jsonl").read_text() == "rows of yesterday"


# Warnings


@pytest.mark.slow
def test_an_edge_says_what_leaves_and_warns_of_the_public_key(run, own_file, capture, tmp_path, monkeypatch) -> None:
    edge = ["edge", "--site", "ams", "--spool", tmp_path / "spool", "--to", tmp_path / "link", *SMALL]
    clear, warning = "no address leaves this site in the clear", "warning: the key in use is public"
    public, own = run(*edge, "--key-file", "public").err, run(*edge).err
    assert [(clear in said, warning in said) for said in (public, own)] == [(False, True), (True, False)]
    monkeypatch.setenv("SUPERHOSTS_KEY", "a key of the fleet")
    assert clear in run(*edge).err
    assert "public" not in run("scan", capture, *SMALL, "--key-file", "public", "--quiet").err


def test_an_own_key_that_everybody_can_read_is_a_warning_and_one_that_is_none_an_error(run, own_file, capture) -> None:
    run("key", "new")
    assert run("scan", capture, *SMALL, "--quiet").err == ""
    own_file.chmod(0o644)
    ended = run("scan", capture, *SMALL, "--quiet")
    assert (ended.status, ended.err.count(f"chmod 600 {own_file}")) == (0, 1)
    own_file.write_text("short")
    said = f"superhosts: your own key {own_file}: the key has 5 bytes; use at least 8\n"
    assert run("scan", capture, *SMALL) == (2, "", said)


# Commands that measure


def test_commands_that_measure_make_no_key(run, own_file, capture, monkeypatch) -> None:
    monkeypatch.chdir(capture.parent)
    for words in (
        "calibrate quiet.pcap --threshold 5 --memory 64KiB",
        "compare quiet.pcap --detector cube --memory 64KiB",
        "compare --flows 4k --packets 8k --super-hosts 1 --detector cube --windows 1",
        "demo demo --flows 2k --packets 4k --super-hosts 1",
    ):
        assert run(*words.split()).status == 0, words
    assert not own_file.exists()
