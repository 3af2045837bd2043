"""Text from files and sites reaches no terminal, log or table as it is: control characters are escaped."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

import superhosts as sh
from commands import Run
from forging import bundle, forge, take_apart
from superhosts.output.destination import RunKind
from superhosts.output.formats import Csv, JsonLines
from superhosts.output.report import Report
from superhosts.output.table import OutputConsole, Terminal, print_timeline

NASTY = "\x1b[2J\x1b]0;owned\x07\r\n\u202e\x9b31m"
ROW: dict[str, Any] = {
    "window_start": "2026-11-14T12:00:00Z",
    "window_end": "2026-11-14T12:05:00Z",
    "host": "10.0.0.1",
    "family": 4,
    "side": "inner",
    "direction": "any",
    "peers": 7,
    "peers_low": 7,
    "peers_high": 7,
    "exact": False,
    "saturated": False,
    "detector": "cube",
}


def is_plain(text: str) -> bool:
    """Whether text holds nothing but printable characters and line breaks of its own."""
    return all(character.isprintable() or character == "\n" for character in text)


def test_tables_show_names_as_they_are_and_escape_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    sites = [
        {"site": f"[/red]{NASTY}\ud800", "peers": 7, "peers_low": 7},
        {"site": ":smile: [bold]x", "peers": 1, "peers_low": 1},
    ]
    for many in (False, True):
        table = Terminal(OutputConsole(), RunKind(many_windows=many))
        table.write(Report(rows=[{**ROW, "sites": sites}], title=f"[/red] {NASTY}", notes=[NASTY]))
        table.write(Report(rows=[], title=f"[/red] {NASTY}", notes=[NASTY]))
    shown = capsys.readouterr().out
    assert is_plain(shown)
    assert "[/red]\\x1b[2J" in shown
    assert ":smile: [bold]x" in shown


def test_timelines_too(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{**ROW, "site": site} for site in (f"[/red]{NASTY}\ud800", "[bold]ams")]
    print_timeline(OutputConsole(), rows, rows)
    shown = capsys.readouterr().out
    assert is_plain(shown)
    assert "[/red]\\x1b[2J" in shown
    assert "[bold]ams" in shown


def test_csv_and_json_stay_valid() -> None:
    row = {**ROW, "host": NASTY + "\ud800", "sites": [{"site": NASTY, "peers": 3, "peers_low": 3}]}
    lines, table = io.StringIO(), io.StringIO()
    JsonLines(lines).write([row])
    Csv(table, tuple(row)).write([row])
    assert json.loads(lines.getvalue().encode("utf-8")) == row
    (read,) = csv.DictReader(io.StringIO(table.getvalue()))
    assert is_plain(table.getvalue())
    table.getvalue().encode("utf-8")
    assert read["sites"].startswith("\\x1b[2J")


@pytest.fixture
def odd_name(tmp_path: Path) -> Path:
    """A good sketch in a file with an odd name."""
    path = tmp_path / f"[red]{NASTY.replace('/', '')}.cube"
    try:
        bundle().save(path)
    except OSError as error:  # file systems that take fewer names
        pytest.skip(str(error))
    return path


def test_names_of_files(run: Run, odd_name: Path, tmp_path: Path) -> None:
    ended = run("explain", odd_name, "10.0.0.1")
    assert ended.status == 0
    assert is_plain(ended.out + ended.err)
    assert "[red]\\x1b[2J" in ended.out
    assert "\\r\\n" in ended.out
    odd_name.write_bytes(odd_name.read_bytes()[:-1])
    for command in (["hosts", odd_name], ["merge", odd_name, "-o", tmp_path / "x.cube"], ["explain", odd_name, "::1"]):
        ended = run(*command)
        assert (ended.status, is_plain(ended.err)) == (3, True)
        assert "[red]\\x1b[2J" in ended.err
        assert len(ended.err.splitlines()) == 1 + (command[0] == "merge")  # merge says also that nothing is written


def test_names_that_are_no_text(run: Run, tmp_path: Path) -> None:
    """Bytes that are not UTF-8 in the name of a file."""
    path = os.fsencode(tmp_path) + b"/\xff\x1b.cube"
    try:
        bundle().save(Path(os.fsdecode(path)))
    except OSError as error:
        pytest.skip(str(error))
    ended = run("explain", os.fsdecode(path), "10.0.0.1")
    assert (ended.status, is_plain(ended.out + ended.err)) == (0, True)


def test_sites_with_control_characters_are_refused_and_shown_escaped(run: Run, tmp_path: Path) -> None:
    bundle().save(tmp_path / "a.cube")
    header, blocks = take_apart(tmp_path / "a.cube")
    nasty, lone = tmp_path / "nasty.cube", tmp_path / "lone.cube"
    forge(nasty, {**header, "sites": [NASTY]}, blocks)
    forge(lone, {**header, "sites": ["\ud800"]}, blocks)
    for arguments in (["hosts", nasty], ["hosts", lone], ["merge", "-o", tmp_path / "x.cube", nasty, lone]):
        ended = run(*arguments)
        assert (ended.status, is_plain(ended.err + ended.out)) == (3, True)
        assert "header field sites[0]" in ended.err
    ended = run("explain", nasty, lone, "10.0.0.1")
    assert (ended.status, is_plain(ended.err + ended.out)) == (3, True)


@pytest.mark.parametrize("site", ["a\x1b[2J", "a\nb", "x" * 64, 'a"b'])
def test_a_scan_takes_no_name_that_no_file_keeps(run: Run, tmp_path: Path, site: str) -> None:
    (tmp_path / "a.pcap").write_bytes(b"")
    ended = run("scan", tmp_path / "a.pcap", "--site", site)
    assert (ended.status, is_plain(ended.err)) == (2, True)
    assert "--site" in ended.err
    with pytest.raises(sh.errors.UsageError):
        sh.scan(tmp_path / "a.pcap", site=site)
