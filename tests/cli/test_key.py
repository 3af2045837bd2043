"""`superhosts key`: keys are made and shown, and the secret stays in the file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from commands import Run
from superhosts.core.hashing import DEFAULT_KEY, fingerprint


def test_a_new_key_is_private_and_its_fingerprint_is_printed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "keys" / "fleet.key"
    ended = run("key", "new", path)
    secret = path.read_text().strip()
    assert (ended.status, ended.out) == (0, f"{fingerprint(secret.encode())}\n")
    assert f"made the key {path}: use it with --key-file {path}" in ended.err
    assert secret not in ended.out + ended.err
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]


def test_a_key_is_replaced_only_by_force(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "key"
    first = run("key", "new", path).out
    content = path.read_bytes()
    refused = run("key", "new", path)
    assert (refused.status, refused.out, path.read_bytes()) == (4, "", content)
    assert refused.err.startswith(f"superhosts: {path}: exists; ")
    assert "--force" in refused.err
    path.chmod(0o644)
    forced = run("key", "new", path, "--force")
    assert forced.status == 0
    assert forced.out != first
    assert forced.out.strip() == fingerprint(path.read_bytes().strip())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_without_a_name_is_ones_own(run: Run, own_file: Path) -> None:
    ended = run("key", "new")
    assert ended.out.strip() == fingerprint(own_file.read_bytes().strip())
    assert f"made the key {own_file}: commands use it without --key-file" in ended.err
    assert run("key", "new").status == 4
    assert run("key", "show").out == f"{ended.out.strip()} ({own_file})\n"


def test_what_is_no_file_is_left_alone(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    for name in ("folder", "pipe", "file/key"):
        for force in ([], ["--force"]):
            ended = run("key", "new", tmp_path / name, *force)
            assert (ended.status, ended.out, len(ended.err.splitlines())) == (4, "", 1)
            assert str(tmp_path / name).removesuffix("/key") in ended.err
    monkeypatch.chdir(tmp_path)
    ended = run("key", "new", "public")  # which is not a name of a new key
    assert (ended.status, "./public" in ended.err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "pipe"]
    assert (tmp_path / "pipe").is_fifo()


def test_show_names_the_key_that_counts(run, own_file, tmp_path, monkeypatch) -> None:
    none = run("key", "show")
    assert (none.status, none.out, own_file.exists()) == (0, "", False)
    assert f"the first command that needs one makes {own_file}" in none.err
    assert run("key", "show", "--json").rows == [{"fingerprint": None, "place": None, "public": False}]
    (tmp_path / "key").write_text("correct horse battery\n")
    (tmp_path / "key").chmod(0o600)
    print_of_key = fingerprint(b"correct horse battery")
    assert run("key", "show", tmp_path / "key").out == f"{print_of_key} ({tmp_path / 'key'})\n"
    (row,) = run("key", "show", tmp_path / "key", "--json").rows
    assert row == {"fingerprint": print_of_key, "place": str(tmp_path / "key"), "public": False}
    monkeypatch.setenv("SUPERHOSTS_KEY", "correct horse battery")
    shown = run("key", "show")
    assert (shown.out, "correct" in shown.err) == (f"{print_of_key} (SUPERHOSTS_KEY)\n", False)


def test_show_says_that_a_key_is_public(run: Run) -> None:
    for arguments in ([], ["public"]):
        ended = run("key", "show", *arguments)
        assert ended.out.startswith(fingerprint(DEFAULT_KEY))
        assert "this key is public" in ended.err
    assert run("key", "show", "public", "--json").rows[0]["public"] is True


@pytest.mark.slow
@pytest.mark.parametrize("blocked", ["configuration", "configuration/superhosts"])
def test_show_and_doctor_say_that_no_key_can_be_kept(run: Run, own_file: Path, tmp_path: Path, blocked: str) -> None:
    (tmp_path / blocked).parent.mkdir(exist_ok=True)
    (tmp_path / blocked).write_text("a file in place of the folder")
    reason = f"none can be kept ({tmp_path / blocked}: Not a directory), so every run uses a random key"
    assert reason in run("key", "show").err
    assert reason in run("doctor").out


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to every folder")
def test_show_says_that_the_folder_cannot_be_written(run: Run, own_file: Path) -> None:
    own_file.parent.mkdir(parents=True)
    own_file.parent.chmod(0o500)
    assert f"({own_file.parent}: Permission denied), so every run uses a random key" in run("key", "show").err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_key_of_another_user_is_a_warning(run: Run, tmp_path: Path) -> None:
    run("key", "new", tmp_path / "key")
    os.chown(tmp_path / "key", 12345, -1)
    said = run("key", "show", tmp_path / "key").err
    assert f"{tmp_path / 'key'}: this secret belongs to another user (number 12345); run: chown 0" in said


def test_show_of_a_file_without_a_key_or_that_everybody_can_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("short")
    (tmp_path / "key").chmod(0o600)
    for name, why in (
        ("nowhere", "cannot be read: No such file or directory"),
        ("key", "the key has 5 bytes; use at least 8"),
    ):
        assert run("key", "show", tmp_path / name) == (2, "", f"superhosts: {tmp_path / name}: {why}\n")
    run("key", "new", tmp_path / "key", "--force")
    assert run("key", "show", tmp_path / "key").err == ""
    (tmp_path / "key").chmod(0o644)
    assert f"chmod 600 {tmp_path / 'key'}" in run("key", "show", tmp_path / "key").err
