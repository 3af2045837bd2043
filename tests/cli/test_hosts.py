"""`superhosts hosts`: which sketches are asked, together or alone, and for which hosts."""

from __future__ import annotations

import csv
import io
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from commands import Run
from superhosts.cli._sketches import parse_time
from superhosts.core.times import local_times
from traffic import MINUTES, content

HOUR = 60 * MINUTES
NOON = 1_794_657_600 * 10**9  # 2026-11-14T12:00:00Z
SMALL = {bits: sh.Geometry.for_memory("1MiB", bits) for bits in (32, 64)}
SHARED = 10 << 24 | 1  # 10.0.0.1, which every sketch has


def save(
    path: Path, site: str, start: int, *, length: int = 5 * MINUTES, parts: tuple[sh.Part, ...] = (sh.Part(4),)
) -> Path:
    """Save the sketch of a window: 10.0.0.1 with 300 peers that no other has, 10.1.0.N with 200."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sketch = sh.Sketch(window=sh.Window(start, start + length), site=site)
    own = start // MINUTES % 10_000 * 1000 + len(site) * 500
    for part in parts:
        wide = part.family == 6
        cube = sh.Cube(geometry=SMALL[64 if wide else 32], device="cpu")
        for host, first, count in ((SHARED, own, 300), (10 << 24 | 1 << 16 | len(site), 0, 200)):
            peers = np.arange(first, first + count, dtype=np.uint32)
            hosts = np.full(count, (0x20010DB8 << 32 | host) if wide else host, np.uint64 if wide else np.uint32)
            cube.update(hosts, np.stack([peers, peers], axis=1).astype(np.uint64) if wide else peers)
        sketch.parts[part] = cube
    sketch.save(path)
    return path


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two hours of a site, and one window of another."""
    for number in (0, 1, 11, 12, 13):
        save(tmp_path / "archive" / f"{number:02}-ams.cube", "ams", NOON + number * 5 * MINUTES)
    save(tmp_path / "archive" / "00-frank.cube", "frank", NOON)
    return tmp_path / "archive"


def table(text: str) -> list[str]:
    """Return the lines of a table, with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines()]


def seen(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(row["window_start"][11:16], row["window_end"][11:16], row["site"]) for row in rows]


# Sites and windows


def test_rows_tell_sites_and_windows_apart(run: Run, archive: Path) -> None:
    rows = run("hosts", archive, "-t", 250, "--json").rows
    assert seen(rows)[:3] == [("12:00", "12:05", "ams"), ("12:00", "12:05", "frank"), ("12:05", "12:10", "ams")]
    assert len(rows) == 6
    lines = table(run("hosts", archive, "-t", 250).out)
    assert lines[0] == "window (UTC) site host peers (exact)"
    assert [line.rsplit(" ", 1)[0] for line in lines[1:4]] == [
        "2026-11-14 12:00–12:05 ams 10.0.0.1",
        "2026-11-14 12:00–12:05 frank 10.0.0.1",
        "2026-11-14 12:05–12:10 ams 10.0.0.1",
    ]
    (first, *_) = csv.DictReader(io.StringIO(run("hosts", archive, "-t", 250, "--csv").out))
    assert first["site"] == "ams"


def test_a_table_of_one_site_and_part_names_neither(run: Run, archive: Path) -> None:
    lines = table(run("hosts", archive / "00-ams.cube", "-t", 250).out)
    assert lines[0].endswith("Z: 1 host with at least 250 peers")
    assert lines[1] == "host peers (exact)"


def test_top_says_how_many_it_leaves_out(run: Run, archive: Path) -> None:
    out = run("hosts", archive / "00-ams.cube", "-t", 50, "--top", 1).out
    assert "Z: 1 of 2 hosts with at least 50 peers" in out
    lines = table(run("hosts", archive, "-t", 50, "--top", 1, "--site", "ams").out)
    assert lines[1] == "2026-11-14 12:00–12:05 1 of 2 hosts with at least 50 peers"
    lines = table(run("hosts", archive, "-t", 50, "--top", 1).out)
    assert lines[3] == "2026-11-14 12:00–12:05 frank: 1 of 2 hosts with at least 50 peers"


def test_windows_without_hosts_say_of_which_site_they_are(run: Run, archive: Path) -> None:
    lines = table(run("hosts", archive, "-t", 5000).out)
    for line, site in zip(lines[:2], ("ams", "frank"), strict=True):
        none = f"2026-11-14 12:00–12:05 {site}: none with 5,000 peers or more; largest: "
        assert line.startswith(none)
        assert re.fullmatch(r"10\.0\.0\.\d with 300", line.removeprefix(none))


# Longer windows


def test_windows_are_merged_into_longer_ones(run: Run, archive: Path) -> None:
    rows = run("hosts", archive, "-t", 250, "--window", "1h", "--json").rows
    assert seen(rows) == [("12:00", "13:00", "ams"), ("12:00", "13:00", "frank"), ("13:00", "14:00", "ams")]
    assert [round(row["peers"], -2) for row in rows] == [900, 300, 600]
    whole = sh.Sketch()
    for number in ("00", "01", "11"):
        whole.merge_file(archive / f"{number}-ams.cube")
    assert rows[0]["peers"] == whole.estimate("10.0.0.1")[0].peers
    rows = run("hosts", archive, "-t", 250, "--window", "1h", "--union", "--json").rows
    assert seen(rows) == [("12:00", "13:00", "ams,frank"), ("13:00", "14:00", "ams")]
    assert [round(row["peers"], -2) for row in rows] == [1200, 600]


def test_what_no_sketch_can_answer_is_named(run: Run, archive: Path) -> None:
    held = "the sketches hold only --side inner --direction any"
    for given, said in (
        ("--window 1m", f"--window 1m: {archive}/00-ams.cube: its window, "),
        ("--window 7m", "does not lie within one of 7m"),
        ("--side outer", f"--side outer: {held}"),
        ("--direction in", f"--direction in: {held}"),
        ("--side inner --direction out", f"--side inner --direction out: {held}"),
        ("--prefix 10.0.0.0/99", "--prefix: '10.0.0.0/99'"),
        ("--prefix @none", "--prefix @none"),
        ("--side left", "--side left"),
        ("--direction up", "--direction up"),
        ("--site nyc", "--site nyc: 6 sketches are of ams, frank"),
        ("--since soon", "--since soon: write a time like 2026-11-14T12:00:00Z, or how long ago: 90s, 5m, 1h or 30d"),
    ):
        ended = run("hosts", archive, "-t", 250, "--fail-on-find", *given.split())
        assert (ended.status, ended.out, said in ended.err) == (2, "", True), ended.err
    sh.Cube(geometry=SMALL[32], device="cpu").save(archive / "a.cube")
    assert f"--window 1h: {archive}/a.cube has no window" in run("hosts", archive, "--window", "1h").err


def test_asking_changes_no_file(run: Run, archive: Path) -> None:
    save(archive / "both.cube", "ams", NOON, parts=(sh.Part(4), sh.Part(4, "outer", "in")))
    before = {path: content(sh.load(path)) for path in archive.iterdir()}
    assert run("hosts", archive, "--window", "1h", "--side", "outer").status == 0
    assert {path: content(sh.load(path)) for path in archive.iterdir()} == before


# Filters


def test_sites(run: Run, archive: Path) -> None:
    assert {row["site"] for row in run("hosts", archive, "-t", 250, "--site", "frank", "--json").rows} == {"frank"}
    assert len(run("hosts", archive, "-t", 250, "--site", "frank,ams", "--json").rows) == 6
    run("merge", archive / "00-ams.cube", archive / "00-frank.cube", "-o", archive / "both.cube")
    assert {row["site"] for row in run("hosts", archive, "-t", 250, "--site", "ams", "--json").rows} == {"ams"}
    rows = run("hosts", archive, "-t", 250, "--site", "ams", "--site", "frank", "--json").rows
    assert {row["site"] for row in rows} == {"ams", "frank", "ams,frank"}  # A union is of none of them alone.


@pytest.mark.parametrize(("prefix", "hosts"), [("10.1.0.0/16", ["10.1.0.3"]), ("10.0.0.1", ["10.0.0.1"])])
def test_prefixes(run: Run, archive: Path, prefix: str, hosts: list[str]) -> None:
    path = archive / "00-ams.cube"
    for selection in (["-t", 50], ["--top", 1], ["-t", 50, "--top", 1]):
        rows = run("hosts", path, *selection, "--prefix", prefix, "--json").rows
        assert [row["host"] for row in rows] == hosts
    title = run("hosts", path, "-t", 50, "--top", 1, "--prefix", prefix).out.splitlines()[0]
    assert title.endswith("Z: 1 host with at least 50 peers")


def test_prefixes_from_a_file_and_of_prefixes(run: Run, tmp_path: Path) -> None:
    save(tmp_path / "a.cube", "ams", NOON, parts=(sh.Part(4), sh.Part(6)))
    (tmp_path / "some").write_text("2001:db8::/32 # all\n10.1.0.0/16\n")
    rows = run("hosts", tmp_path / "a.cube", "-t", 50, "--prefix", f"@{tmp_path}/some", "--json").rows
    assert {row["host"] for row in rows} == {"10.1.0.3", "2001:db8:a00:1::/64", "2001:db8:a01:3::/64"}
    rows = run("hosts", tmp_path / "a.cube", "-t", 50, "--prefix", "2001:db8:a00:1::7", "--json").rows
    assert [row["host"] for row in rows] == ["2001:db8:a00:1::/64"]


def test_sides_and_directions(run: Run, tmp_path: Path) -> None:
    parts = (sh.Part(4), sh.Part(4, "outer", "in"), sh.Part(4, "outer", "out"))
    path = save(tmp_path / "a.cube", "ams", NOON, parts=parts)
    rows = run("hosts", path, "-t", 250, "--side", "outer", "--json").rows
    assert sorted((row["side"], row["direction"]) for row in rows) == [("outer", "in"), ("outer", "out")]
    rows = run("hosts", path, "-t", 250, "--direction", "any,out", "--json").rows
    assert sorted((row["side"], row["direction"]) for row in rows) == [("inner", "any"), ("outer", "out")]
    assert table(run("hosts", path, "-t", 250, "--side", "outer").out)[1] == "host direction peers (exact)"
    assert table(run("hosts", path, "-t", 250).out)[1] == "host side direction peers (exact)"


# Times


def test_how_long_ago(run: Run, tmp_path: Path) -> None:
    now = time.time_ns() // MINUTES * MINUTES
    for name, age in (("new", 0), ("old", 100 * 24 * HOUR)):
        save(tmp_path / f"{name}.cube", name, now - age - 10 * MINUTES)
    assert [row["site"] for row in run("hosts", tmp_path, "-t", 250, "--since", "30d", "--json").rows] == ["new"]
    assert [row["site"] for row in run("hosts", tmp_path, "-t", 250, "--until", "30d", "--json").rows] == ["old"]


def test_local_times_in_tables_and_questions_but_not_in_rows(run, archive, monkeypatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    shown = run("hosts", archive, "-t", 250, "--local").out
    rows = run("hosts", archive, "-t", 250, "--local", "--json").rows
    plain = run("hosts", archive, "-t", 250).out
    assert parse_time("since", "2026-11-14T12:00") == NOON
    with local_times(True):
        assert {parse_time("since", f"2026-11-14T{text}") for text in ("13:00", "12:00Z")} == {NOON}
    monkeypatch.undo()
    time.tzset()
    assert "2026-11-14 13:00–13:05  ams" in shown
    assert rows[0]["window_start"] == "2026-11-14T12:00:00Z"
    assert "2026-11-14 12:00–12:05  ams" in plain


# Files and status


def test_patterns_folders_and_what_lies_beside_sketches(run, archive, tmp_path, monkeypatch) -> None:
    (archive / "notes.txt").write_text("no sketch")
    save(tmp_path / "other" / "x.cube", "nyc", NOON)
    every = [archive / "0*", archive / "1?-ams*", tmp_path / "oth*"]
    rows = run("hosts", *every, "-t", 250, "--json").rows
    assert len(rows) == 7
    ended = run("hosts", archive / "*", "-t", 250, "--json")
    assert (ended.status, len(ended.rows)) == (0, 6)
    monkeypatch.setenv("HOME", str(tmp_path))
    ended = run("hosts", "~/archive/*-ams.cube", archive / "9*", "-t", 250, "--json")
    assert (ended.status, len(ended.rows)) == (3, 5)
    assert f"{archive}/9*: matches no file" in ended.err
    assert "is not a .cube file" not in ended.err
    assert run("hosts", archive / "note*").status == 3


def test_finding_something_may_be_a_failure(run: Run, archive: Path) -> None:
    assert run("hosts", archive, "-t", 250, "--fail-on-find").status == 1
    assert run("hosts", archive, "-t", 5000, "--fail-on-find").status == 0
    assert run("hosts", archive, archive / "none*", "-t", 250, "--fail-on-find").status == 3
