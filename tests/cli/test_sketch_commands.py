"""`hosts`, `merge` and `explain` over files that lie, ask for too much or never end: one line, exit status 3."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import superhosts as sh
from commands import Run
from forging import make
from places import REPRO
from superhosts.detectors import stored
from superhosts.errors import SketchFileError
from superhosts.sketch.sketch import Sketch


@pytest.mark.slow
def test_sketches_that_broke_it_once(run: Run) -> None:
    found = [path for path in sorted(REPRO.glob("*.cube")) if path.name != "cube_site_markup.cube"]
    if not found:
        pytest.skip(f"no such files in {REPRO} (set SUPERHOSTS_REPRO)")
    for path in found:
        for command in (["hosts", path], ["explain", path, "10.0.0.1"]):
            ended = run(*command)
            assert (ended.status, f"{path}: header field " in ended.err) == (3, True), command
            assert "Traceback" not in ended.err


@pytest.mark.parametrize("command", ["hosts", "merge", "explain"])
def test_a_pipe_is_no_sketch_and_is_not_waited_for(run: Run, tmp_path: Path, command: str) -> None:
    os.mkfifo(tmp_path / "a.cube")
    more = {"hosts": [], "merge": ["-o", tmp_path / "x"], "explain": ["10.0.0.1"]}[command]
    ended = run(command, tmp_path / "a.cube", *more)
    assert (ended.status, "a.cube: not a plain file" in ended.err) == (3, True)


# Memory


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Two sketches of 1 MiB: of IPv4, and of IPv6."""
    for family, bits in ((4, 32), (6, 64)):
        sketch = Sketch(window=sh.Window(0, 300), site="ams")
        sketch.parts[sh.Part(family)] = make("cube", bits)
        sketch.save(tmp_path / f"{family}.cube")
    return [tmp_path / "4.cube", tmp_path / "6.cube"]


def test_memory_total_bounds_one_sketch(run: Run, two: list[Path], tmp_path: Path) -> None:
    for arguments in (["hosts"], ["merge", "-o", tmp_path / "x.cube"]):
        ended = run(*arguments, two[0], "--memory-total", "900KiB")
        assert (ended.status, "4.cube: needs 0.999 MiB of memory, the limit is 900 KiB" in ended.err) == (3, True)
        assert run(*arguments, two[0], "--memory-total", "1MiB").status == 0
    assert run("explain", two[0], "10.0.0.1", "--memory-total", "900KiB").status == 3
    assert run("explain", two[0], "10.0.0.1", "--memory-total", "1MiB").status == 0
    assert run("hosts", two[0], "--memory-total", "much").status == 2


def test_memory_total_bounds_the_union_with_its_parts(run: Run, two: list[Path], tmp_path: Path) -> None:
    """Each file fits, and so does one after the other; together they do not."""
    for arguments in (["merge", "-o", tmp_path / "x.cube"], ["hosts", "--union"]):
        ended = run(*arguments, *two, "--memory-total", "1500KiB")
        assert (ended.status, "6.cube: needs 2 MiB of memory, the limit is 1.46 MiB" in ended.err) == (3, True)
        assert run(*arguments, *two, *two, "--memory-total", "2MiB").status == 0
    assert run("hosts", *two, "--memory-total", "1500KiB").status == 0
    assert run("explain", *two, *two, "10.0.0.1", "--memory-total", "1500KiB").status == 3


@pytest.fixture
def leave(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that says how many bytes of memory are left."""
    return lambda count: monkeypatch.setattr(stored, "memory_left", lambda: count)


def test_without_it_the_limit_is_what_the_container_has_left(two: list[Path], leave: Callable[[int], None]) -> None:
    leave(1_200_000)
    whole = Sketch()
    whole.merge_file(two[0])
    whole.merge_file(two[0])  # nothing more is taken
    whole.merge_file(two[1])  # what the union has already is not left, and not asked for again
    leave(800_000)
    for read in (sh.load, Sketch().merge_file):
        with pytest.raises(SketchFileError, match=r"4\.cube: needs 0\.999 MiB of memory, the limit is 781 KiB"):
            read(two[0])
    whole.merge_file(two[1])


def test_exact_pairs_are_sorted_beside_those_that_are_there(tmp_path: Path, leave: Callable[[int], None]) -> None:
    make("exact").save(tmp_path / "a.cube")
    leave(3 * 8 * 300)
    sketch = Sketch()
    sketch.merge_file(tmp_path / "a.cube")
    leave(3 * 8 * 300 - 1)
    with pytest.raises(SketchFileError, match=r"needs .* of memory"):
        sketch.merge_file(tmp_path / "a.cube")
