"""Where keys come from: files, the environment, the user's own, or chance."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path

import pytest

import superhosts as sh
from crowd import together
from superhosts.core.hashing import DEFAULT_KEY, fingerprint
from superhosts.core.keys import choose_key, find_key, own_key, own_path, write_key
from superhosts.pipeline.settings import Settings

SECRET = b"correct horse battery"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_the_own_key_is_made_once_and_for_its_owner_alone(own_file: Path) -> None:
    assert find_key() is None
    assert not own_file.parent.parent.exists()  # looking makes nothing
    before = os.umask(0)
    try:
        first = choose_key()
    finally:
        os.umask(before)
    assert (first.place, first.is_new, first.lost) == (own_file, True, "")
    assert (mode(own_file), mode(own_file.parent)) == (0o600, 0o700)
    assert names_in(own_file.parent) == ["key"]
    assert own_file.read_bytes() == first.secret + b"\n"
    assert len(first.secret) >= 40
    again = choose_key()
    assert (again.secret, again.is_new) == (first.secret, False)
    assert find_key() == again
    assert own_key() == first.secret
    own_file.unlink()
    assert own_key() != first.secret


def test_which_key_comes_first(own_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = own_key()
    (tmp_path / "key").write_bytes(SECRET + b"\r\n")
    monkeypatch.setenv("SUPERHOSTS_KEY", "from the environment")
    chosen = choose_key(tmp_path / "key")
    assert (chosen.secret, chosen.place) == (SECRET, tmp_path / "key")
    assert find_key(tmp_path / "key") == chosen
    chosen = choose_key()
    assert (chosen.secret, chosen.place) == (b"from the environment", "SUPERHOSTS_KEY")
    assert find_key() == chosen
    assert own_key() == own  # it is the file, whatever the environment says
    monkeypatch.setenv("SUPERHOSTS_KEY", "")  # as if it were not set
    assert choose_key().secret == own


def test_the_public_key_has_a_name(own_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("public").write_bytes(SECRET)
    chosen = choose_key(Path("public"))
    assert (chosen.secret, chosen.place, chosen.is_public) == (DEFAULT_KEY, "public", True)
    full = choose_key(tmp_path / "public")
    assert (full.secret, full.is_public) == (SECRET, False)
    monkeypatch.setenv("SUPERHOSTS_KEY", DEFAULT_KEY.decode())
    assert choose_key().is_public


def test_the_folder_is_that_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for odd in ("", "relative/folder"):  # such values are to be ignored
        monkeypatch.setenv("XDG_CONFIG_HOME", odd)
        assert own_path() == tmp_path / ".config" / "superhosts" / "key"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert own_path() == tmp_path / ".config" / "superhosts" / "key"


@pytest.mark.parametrize("blocked", ["configuration", "configuration/superhosts"])
def test_without_a_folder_the_key_is_random_and_says_why(own_file: Path, tmp_path: Path, blocked: str) -> None:
    (tmp_path / blocked).parent.mkdir(exist_ok=True)
    (tmp_path / blocked).write_text("a file in place of the folder")
    one, other = choose_key(), choose_key()
    assert one.secret != other.secret
    assert str(tmp_path / blocked) in one.lost
    assert (one.place, one.is_new, len(one.secret)) == ("", False, 32)
    with pytest.raises(sh.SuperhostsError, match=r"no key of your own can be made: .*configuration"):
        own_key()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "the key has 0 bytes"), (b"short\n", "the key has 5 bytes"), (b"x" * (2 << 20), "larger than 1 MiB")],
)
def test_a_file_without_a_key_is_named(own_file: Path, content: bytes, reason: str) -> None:
    own_file.parent.mkdir(parents=True)
    own_file.write_bytes(content)
    with pytest.raises(sh.UsageError, match=f"^your own key {own_file}: .*{reason}"):
        choose_key()
    with pytest.raises(sh.UsageError, match=f"^--key-file {own_file}: .*{reason}"):
        choose_key(own_file)
    assert own_file.read_bytes() == content


@pytest.mark.parametrize("kind", ["folder", "dangling link", "pipe"])
def test_an_own_key_that_cannot_be_read_is_named_and_not_replaced(own_file: Path, kind: str) -> None:
    own_file.parent.mkdir(parents=True)
    if kind == "folder":
        own_file.mkdir()
    elif kind == "pipe":
        os.mkfifo(own_file)  # Opening it would wait for a writer.
    else:
        own_file.symlink_to("nowhere")
    with pytest.raises(sh.UsageError, match=f"^your own key {own_file}: cannot be read: "):
        choose_key()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_own_key_of_somebody_else_is_named(own_file: Path) -> None:
    own_key()
    own_file.chmod(0)
    with pytest.raises(sh.UsageError, match=f"^your own key {own_file}: cannot be read: Permission denied"):
        choose_key()


def test_threads_that_start_at_once_get_the_same_key(own_file: Path) -> None:
    """One of them makes it; the others read a complete file, whenever they look."""
    for _ in range(20):
        found = together(*[choose_key] * 8)
        assert {each.secret for each in found} == {own_file.read_bytes().strip()}
        assert [each.is_new for each in found].count(True) == 1
        assert names_in(own_file.parent) == ["key"]
        own_file.unlink()


def test_a_key_is_never_overwritten_unless_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "key"
    first = write_key(path)
    with pytest.raises(FileExistsError):
        write_key(path)
    assert path.read_bytes() == first + b"\n"
    second = write_key(path, replace=True)
    assert second != first
    assert (path.read_bytes(), mode(path), names_in(path.parent)) == (second + b"\n", 0o600, ["key"])


# The secret is not shown


def test_neither_texts_nor_errors_nor_sketches_show_a_secret(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(SECRET)
    chosen = choose_key(tmp_path / "key")
    assert str(chosen) == f"{fingerprint(SECRET)} ({tmp_path / 'key'})"
    assert "correct" not in repr(chosen) + repr(Settings(key=SECRET))
    cube = sh.Cube("64KiB", key=SECRET)
    kept = [value for name, value in vars(cube).items() if name not in ("lock", "engine")]
    assert SECRET not in pickle.dumps(kept)
    cube.save(tmp_path / "a.cube")
    assert SECRET not in (tmp_path / "a.cube").read_bytes()
    with pytest.raises(sh.MergeError) as raised:
        sh.load(tmp_path / "a.cube", key="another long phrase")
    assert "phrase" not in str(raised.value)


# The library


def test_the_library_makes_sketches_without_the_home_folder(own_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sh.Cube("64KiB").fingerprint == fingerprint(DEFAULT_KEY)
    assert not own_file.exists()
    own_key()
    assert sh.Cube("64KiB").fingerprint == fingerprint(DEFAULT_KEY)  # and so it stays when a command has made a key
    assert sh.Cube("64KiB", key=sh.own_key()).fingerprint == fingerprint(own_file.read_bytes().strip())
    monkeypatch.setenv("SUPERHOSTS_KEY", "from the environment")
    assert sh.Cube("64KiB").fingerprint == fingerprint(b"from the environment")


def test_a_file_names_its_key(own_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sh.Cube("64KiB").save(tmp_path / "public.cube")
    sh.Cube("64KiB", key=SECRET).save(tmp_path / "other.cube")
    sh.load(tmp_path / "public.cube")
    assert not own_file.exists()
    sh.Cube("64KiB", key=sh.own_key()).save(tmp_path / "own.cube")
    for name in ("own.cube", "public.cube"):
        sh.load(tmp_path / name)
        sh.Sketch().merge_file(tmp_path / name)
    with pytest.raises(sh.MergeError, match="sketches of two keys cannot be merged; all sites need the same key"):
        sh.load(tmp_path / "public.cube").merge_file(tmp_path / "own.cube")
    own, public = fingerprint(own_key()), fingerprint(DEFAULT_KEY)
    known = rf"\(known here: {public} \(public\), {own} \({own_file}\)\)"
    with pytest.raises(sh.MergeError, match=f"written with key {fingerprint(SECRET)}; give it as key {known}"):
        sh.load(tmp_path / "other.cube")
    monkeypatch.setenv("SUPERHOSTS_KEY", SECRET.decode())  # a key that is chosen is the only one
    sh.load(tmp_path / "other.cube")
    with pytest.raises(sh.MergeError, match=rf"known here: {fingerprint(SECRET)} \(SUPERHOSTS_KEY\)"):
        sh.load(tmp_path / "own.cube")
    with pytest.raises(sh.MergeError, match=f"written with key {own}"):
        sh.load(tmp_path / "own.cube", key=DEFAULT_KEY)
