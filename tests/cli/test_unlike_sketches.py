"""Sketches that cannot be merged: the message names both files and the options that made them differ."""

from __future__ import annotations

from pathlib import Path

import pytest

import superhosts as sh
from commands import Run
from superhosts.core.text import setting, speaking_options
from superhosts.detectors.registry import DETECTORS
from superhosts.detectors.stored import made_with
from traffic import talk, write

PLANNED = "slices=1,arrays=4,columns=8,rows=4096,labels=16,share=8"

UNLIKE = {
    "geometry": (["--memory", "1MiB"], ["--geometry", PLANNED], "--memory 1MiB", f"--geometry {PLANNED}"),
    "prefix": (["--ipv6-prefix", "48"], [], "--ipv6-prefix 48", "--ipv6-prefix 64"),
    "ipv4 addresses": (["--ipv4-prefix", "24"], [], "--ipv4-prefix 24", "--ipv4-prefix 32"),
    "width": (["--ipv6-prefix", "64"], ["--ipv6-prefix", "128"], "--ipv6-prefix 64", "--ipv6-prefix 128"),
}


def save(run: Run, folder: Path, name: str, options: list[str]) -> Path:
    capture = write(folder / "a.pcap", talk("2001:db8::1", 30) if "ipv6" in str(options) else talk("10.0.0.7", 30))
    memory = [] if {"--memory", "--geometry"} & set(options) else ["--memory", "1MiB"]
    ended = run("scan", capture, "-q", "--json", "--save", folder / name, *memory, *options)
    assert ended.status == 0
    (made,) = (folder / name).iterdir()
    return made.rename(folder / f"{name}.cube")


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNLIKE)
def test_the_message_names_both_files_and_both_options(run: Run, tmp_path: Path, kind: str) -> None:
    one, other, here, there = UNLIKE[kind]
    if kind == "prefix":
        other = ["--ipv6-prefix", "64"]
    a, b = save(run, tmp_path, "a", one), save(run, tmp_path, "b", other)
    line = f"superhosts: {b}: cannot be merged into {a}: it was made with {there}, {a} with {here}\n"
    ended = run("merge", a, b, "-o", tmp_path / "c.cube")
    assert (ended.status, ended.err.splitlines(keepends=True)[0]) == (2, line)
    ended = run("hosts", a, b, "--union")
    assert (ended.status, ended.err) == (2, line)


def test_the_message_names_the_file_that_a_part_came_from(run: Run, tmp_path: Path) -> None:
    four, six = save(run, tmp_path, "four", []), save(run, tmp_path, "six", ["--ipv6-prefix", "48"])
    other = save(run, tmp_path, "other", ["--ipv6-prefix", "64"])
    ended = run("merge", four, six, other, "-o", tmp_path / "c.cube")
    assert f"{other}: cannot be merged into {six}: it was made with --ipv6-prefix 64" in ended.err


def test_in_python_the_message_has_arguments(tmp_path: Path) -> None:
    one, other = sh.Cube("1MiB"), sh.Cube("512KiB")
    with pytest.raises(sh.MergeError, match=r'differs: .* \(memory="512KiB" into memory="1MiB"\)$'):
        one.merge(other)
    one.save(tmp_path / "a.cube")
    other.save(tmp_path / "b.cube")
    words = 'b.cube: cannot be merged into .*a.cube: it was made with memory="512KiB", .*a.cube with memory="1MiB"$'
    with pytest.raises(sh.MergeError, match=words):
        sh.load(tmp_path / "a.cube").merge(sh.load(tmp_path / "b.cube"))
    with pytest.raises(sh.MergeError, match=words):
        sh.load(tmp_path / "a.cube").merge_file(tmp_path / "b.cube")


@pytest.mark.parametrize(
    "memory", ["64KiB", "100KB", "1MiB", "3MiB", "96MiB", "100MB", "128MiB", "1GB", "1GiB", "1234567"]
)
@pytest.mark.parametrize("key_bits", [32, 64, 128])
def test_the_memory_of_a_geometry_is_what_was_asked_for_or_gives_the_same(memory: str, key_bits: int) -> None:
    geometry = sh.Geometry.for_memory(memory, key_bits)
    with speaking_options():
        option, found = made_with(geometry).split()
    assert option == "--memory"
    assert sh.Geometry.for_memory(found, key_bits) == geometry
    if memory != "1234567":
        assert found == memory


@pytest.mark.parametrize("name", [name for name, kind in DETECTORS.items() if kind.geometry_type is not None])
def test_every_detector_with_a_geometry_names_its_memory(name: str) -> None:
    kind = DETECTORS[name].geometry_type
    assert made_with(kind.for_memory("128MiB")) == 'memory="128MiB"'


def test_settings_are_spelled_as_the_caller_writes_them() -> None:
    assert (setting("memory", "1MiB"), setting("ipv6_prefix", 48)) == ('memory="1MiB"', "ipv6_prefix=48")
    with speaking_options():
        assert (setting("memory", "1MiB"), setting("ipv6_prefix", 48)) == ("--memory 1MiB", "--ipv6-prefix 48")
    assert setting("top", 5) == "top=5"


def test_a_command_that_ends_leaves_the_words_of_others() -> None:
    """Commands may run in several threads of a process."""
    one, other = speaking_options(), speaking_options()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert setting("memory", "1MiB") == "--memory 1MiB"
    other.__exit__(None, None, None)
    assert setting("memory", "1MiB") == 'memory="1MiB"'
