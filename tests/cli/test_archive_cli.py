"""Commands over many saved sketches: files, folders and globs; one host over time and sites."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import lines

import superhosts as sh
from commands import Run
from forging import forge, frame, take_apart
from superhosts.output.report import COLUMNS
from traffic import MINUTES, NOON, content

HOST = "10.0.0.7"
FOUR, SIX = sh.Part(4), sh.Part(6)
SMALL = {bits: sh.Geometry.for_memory("1MiB", bits) for bits in (32, 64)}


def save(path: Path, site: str, window: int, *, quiet: bool = False, ipv6: bool = False, seed: int = 0) -> Path:
    """A site's sketch of one window: 10.0.0.7 with 1,000 peers at ams and 500 others at fra, others every window."""
    path.parent.mkdir(parents=True, exist_ok=True)
    start = NOON + window * 5 * MINUTES
    sketch = sh.Sketch(window=sh.Window(start, start + 5 * MINUTES), site=site)
    cube = sh.Cube(geometry=SMALL[32], device="cpu")
    first = 10_000 * window + (5_000 if site == "fra" else 0) + seed
    peers = np.arange(first, first + (1000 if site == "ams" else 500), dtype=np.uint32)
    if not quiet:
        cube.update(np.full(len(peers), 10 << 24 | 7, np.uint32), peers)
    cube.update(np.arange(300, dtype=np.uint32), np.full(300, 9, np.uint32))
    sketch.parts[FOUR] = cube
    if ipv6:
        wide = sh.Cube(geometry=SMALL[64], device="cpu")
        wide.update(np.full(40, 0x20010DB8 << 32, np.uint64), np.arange(80, dtype=np.uint64).reshape(40, 2))
        sketch.parts[SIX] = wide
    sketch.entries.append({"site": site, "start": start, "end": start + 5 * MINUTES, "packets": 1})
    sketch.save(path)
    return path


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    for window in range(3):
        for site in ("fra", "ams"):
            quiet = site == "fra" and window == 1
            save(tmp_path / "archive" / f"day{window}" / f"{site}.cube", site, window, quiet=quiet, ipv6=window == 2)
    (tmp_path / "archive" / "day0" / "notes.txt").write_text("no sketch")
    return tmp_path / "archive"


def near(row: Any, peers: int) -> bool:
    return bool(row["peers_low"] - 20 <= peers <= row["peers_high"] + 20)


# hosts


def test_folders_and_globs(run: Run, archive: Path) -> None:
    files = sorted(archive.rglob("*.cube"))
    want = run("hosts", *files, "--json", "-t", 200).rows
    assert len(want) == 5
    for name in ("", "**/*.cube", "day*/*.cube", "day?"):
        assert run("hosts", archive / name, "--json", "-t", 200).rows == want
    assert run("hosts", archive / "day?", files[0], archive, "--json", "-t", 200).rows == want  # each file once
    path = save(archive.parent / "[ams]*.cube", "ams", 0)  # names with brackets are names first
    assert len(run("hosts", path, "--json", "-t", 200).rows) == 1


@pytest.mark.parametrize("name", ["", "**/*.cube"])
def test_a_union_of_many_files_is_that_of_whole_sketches(run: Run, archive: Path, name: str) -> None:
    whole = sh.Sketch()
    for path in archive.rglob("*.cube"):
        whole.merge(sh.load(path))
    ended = run("merge", archive / name, "-o", archive.parent / "all.cube")
    assert "6 sketches, sites ams, fra" in ended.err
    assert content(sh.load(archive.parent / "all.cube")) == content(whole)
    memory = sum(detector.memory for detector in whole.parts.values()) * 5 // 4  # no second sketch is made
    (row,) = run("hosts", archive / name, "--union", "--json", "-t", 1500, "--memory-total", memory).rows
    (found,) = whole.super_hosts(1500)
    assert (row["host"], row["peers"], row["peers_high"]) == (HOST, found.peers, found.peers_high)
    assert (row["window_start"], row["window_end"]) == ("2023-11-14T22:15:00Z", "2023-11-14T22:30:00Z")


def test_names_that_match_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, said in (("none*.cube", "matches no file"), ("empty", "holds no .cube files")):
        for command in (["hosts"], ["merge", "-o", tmp_path / "x.cube"], ["explain"]):
            ended = run(*command, tmp_path / name, *([HOST] if command == ["explain"] else []))
            assert (ended.status, f"{tmp_path}/{name}: {said}" in ended.err) == (3, True)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_the_rest_is_shown_when_a_name_matches_nothing_or_a_file_is_bad(run: Run, archive: Path) -> None:
    data = (archive / "day0" / "ams.cube").read_bytes()
    (archive / "day0" / "ams.cube").write_bytes(data[:-5])
    for union in ([], ["--union"]):
        ended = run("hosts", archive, archive / "none*", "--json", "-t", 200, *union)
        assert (ended.status, len(ended.rows)) == (3, 1 if union else 4)
        assert "ams.cube: truncated or damaged" in ended.err
        assert "none*: matches no file" in ended.err
        assert "Traceback" not in ended.err


def test_a_file_that_fails_in_the_middle_spoils_the_union(run: Run, archive: Path) -> None:
    sketch = sh.load(archive / "day0" / "fra.cube")
    for cube in sketch.parts.values():
        cube.load_arrays(cube.arrays())  # bits without a tally, which are merged in blocks
    sketch.save(archive / "day0" / "fra.cube")
    header, _ = take_apart(archive / "day0" / "fra.cube")
    bad = frame(bytes([255, 7] * 100_000))
    count = -(-int(np.prod(header["arrays"][0]["shape"])) * 8 // (1 << 20))
    forge(archive / "day0" / "fra.cube", header, bad * (count + 1))
    ended = run("hosts", archive, "--json", "-t", 200, "--union")
    assert (ended.status, ended.out) == (3, "")
    assert "fra.cube: byte" in ended.err
    assert "does not decode" in ended.err


SPANS = {
    "since": (["--since", "2023-11-14T22:20:00Z"], [1, 2]),
    "until": (["--until", "20231114T222000Z"], [0]),
    "both": (["--since", "2023-11-14T22:21", "--until", "2023-11-14T22:24"], [1]),
    "another zone": (["--since", "2023-11-14T23:25:00+01:00"], [2]),
    "a day": (["--since", "2023-11-14", "--until", "2023-11-15"], [0, 1, 2]),
}


def test_spans_of_time(run: Run, archive: Path) -> None:
    for what, (options, windows) in SPANS.items():
        rows = run("hosts", archive, "--json", "-t", 800, *options).rows
        assert [row["window_start"] for row in rows] == [f"2023-11-14T22:{15 + 5 * w}:00Z" for w in windows], what
        assert len(run("explain", archive, HOST, "--csv", *options).out.splitlines()) == 1 + 2 * len(windows), what


# explain


def test_a_host_over_time_and_sites(run: Run, archive: Path, tmp_path: Path) -> None:
    ended = run("explain", archive, HOST, "--json", "--output", tmp_path / "a.jsonl")
    *rows, union = ended.rows
    assert [(row["window_start"][14:16], row["site"]) for row in rows] == [
        (minute, site) for minute in ("15", "20", "25") for site in ("ams", "fra")
    ]
    for row, peers in zip(rows, (1000, 500, 1000, 0, 1000, 500), strict=True):
        assert list(row) == [*COLUMNS, "site"]
        assert near(row, peers)
    loaded = sh.load(archive / "day0" / "ams.cube").estimate(HOST)[0]
    assert (rows[0]["peers"], rows[0]["peers_low"], rows[0]["peers_high"]) == tuple(loaded[1:4])
    assert (rows[3]["peers"], rows[3]["peers_low"]) == (0, 0)  # not there, and it says so
    assert (union["site"], union["union"]) == ("ams,fra", True)
    assert near(union, 4000)
    assert [list(row) for row in lines(tmp_path / "a.jsonl")] == [list(COLUMNS)] * 6
    (whole,) = run("hosts", archive, "--union", "--json", "-t", 1500).rows
    assert {name: union[name] for name in (*COLUMNS, "site")} == whole


def test_bars(run: Run, archive: Path) -> None:
    out = run("explain", archive, HOST).out.splitlines()
    assert "\x1b" not in "".join(out)  # plain text in a pipe
    assert len(out) == 8
    bars = [line.split()[-1] for line in out[:6]]
    assert re.fullmatch("A{39,40}", bars[0])
    assert re.fullmatch("B{18,22}", bars[1])
    assert out[3].split()[:3] == ["2023-11-14T22:20:00Z", "fra", "0"]
    assert not out[3].endswith("B")
    assert out[6].startswith("union")
    assert out[7] == "A ams, B fra"
    assert len({line.index(" exact") for line in out[:6]}) == 1  # numbers stand below each other


def test_parts_have_lines_of_their_own(run: Run, tmp_path: Path) -> None:
    for number in range(2):
        sketch = sh.Sketch(window=sh.Window(NOON, NOON + MINUTES), site=f"s{number}")
        for direction in ("out", "in"):
            sketch.parts[sh.Part(4, "inner", direction)] = sh.Cube(geometry=SMALL[32], device="cpu")
        sketch.save(tmp_path / f"{number}.cube")
    out = run("explain", tmp_path, HOST).out
    assert [line.split()[2:4] for line in out.splitlines()[:4]] == [["inner", "in"], ["inner", "out"]] * 2
    assert out.count("union") == 2


def test_files_of_one_window_and_site_count_together(run: Run, archive: Path) -> None:
    save(archive / "day0" / "ams-again.cube", "ams", 0, seed=400)
    rows = run("explain", archive / "day0", HOST, "--json").rows
    assert [row["site"] for row in rows] == ["ams", "fra", "ams,fra"]
    assert near(rows[0], 1400)


def test_a_family_that_only_some_files_hold(run: Run, archive: Path) -> None:
    rows = run("explain", archive, "2001:db8::1", "--json").rows
    assert [(row["host"], row["site"]) for row in rows] == [
        ("2001:db8::/64", site) for site in ("ams", "fra", "ams,fra")
    ]
    ended = run("explain", archive / "day0", archive / "day1", "2001:db8::1")
    assert (ended.status, "none of 4 sketches holds hosts of that family" in ended.err) == (2, True)
    assert run("explain", archive, "hello").status == 2


def test_bad_files_among_good_ones(run: Run, archive: Path) -> None:
    (archive / "day1" / "ams.cube").write_bytes(b"hello")
    ended = run("explain", archive, archive / "none.cube", HOST, "--json")
    assert (ended.status, len(ended.rows)) == (3, 6)
    assert "ams.cube: not a .cube file" in ended.err
    assert "none.cube: cannot be read" in ended.err
    alone = run("explain", archive / "none.cube", archive / "day1" / "ams.cube", HOST)
    assert (alone.status, alone.out) == (3, "")


@pytest.mark.slow
def test_files_that_cannot_be_merged_are_shown_without_a_union(run: Run, archive: Path) -> None:
    for other in (sh.Cube(memory="2MiB", device="cpu"), sh.Exact()):
        other.save(archive / "day0" / "other.cube")
        ended = run("explain", archive, HOST, "--json")
        assert (ended.status, len(ended.rows)) == (0, 7)
        assert re.search("no union of these files: .*: cannot (merge|be merged into .*)", ended.err)
        assert not any("union" in row for row in ended.rows)
        assert run("hosts", archive, "--union").status == 2
