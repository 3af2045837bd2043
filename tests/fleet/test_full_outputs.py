"""Processes whose `--output` lies on a full disk: everything else goes on, and later the file has every row once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from disks import on_small_disk, seen_by
from fleets import make_sketch, write_parcel
from processes import COMMON, Node, ending, rows, wait_for
from superhosts.pipeline.settings import Settings
from traffic import NOON, talk, write

MINUTE = 60 * 10**9
SETTINGS = Settings(memory=COMMON[1], device="cpu", threads=1)


def windows(path: Path) -> list[str]:
    return [row["window_start"] for row in rows(path)]


def arguments(tmp_path: Path, command: str) -> list[str]:
    """A process that reports several windows: those that a hub has got, or of a folder that is followed."""
    if command == "hub":
        folders = ["--state", str(tmp_path / "state"), "--from", str(tmp_path / "link")]
        return ["hub", *folders, "--sites", "ams", "--threshold", "5", *COMMON]
    common = [str(tmp_path / "in"), "--window", "1m", "--threshold", "5", *COMMON]
    if command == "watch":
        return ["watch", *common]
    return ["edge", *common, "--to", str(tmp_path / "link"), "--spool", str(tmp_path / "spool"), "--site", "ams"]


def give(tmp_path: Path, command: str, numbers: range) -> None:
    for number in numbers:
        if command == "hub":
            write_parcel(make_sketch("ams", number, settings=SETTINGS), tmp_path / "link" / "ams")
        else:
            # The window closes at once: more than a thousand packets follow it.
            beyond = 1100 * talk("10.0.0.9", 1, NOON + (number + 1) * MINUTE)
            frames = talk("10.0.0.1", 30, NOON + number * MINUTE) + beyond
            write(tmp_path / "in" / f"{number:02}.pcap", frames)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "ending_name"), [("hub", "jsonl"), ("hub", "csv"), ("watch", "jsonl"), ("edge", "jsonl")]
)
def test_a_full_disk_of_one_output_holds_up_nothing(tmp_path: Path, command: str, ending_name: str) -> None:
    small, prefix = on_small_disk(tmp_path, "2m")
    (tmp_path / "in").mkdir()
    (tmp_path / "link").mkdir()
    full, other = small / f"rows.{ending_name}", tmp_path / "other.jsonl"
    outputs = ["--output", str(full), "--output", str(other)]
    node = Node(tmp_path / "node.log", *arguments(tmp_path, command), *outputs, prefix=prefix)
    give(tmp_path, command, range(3))
    with ending(node):
        node.start()
        wait_for(lambda: len(windows(other)) >= 2, "the other destination has the first windows")
        wait_for(lambda: f"{full} does NOT TAKE reports" in node.words, "the full disk is told")
        give(tmp_path, command, range(3, 6))
        wait_for(lambda: len(windows(other)) >= 5, "and later ones")
        there = seen_by(node.process, full)
        assert not there.read_text()
        (tmp_path / "make-room").touch()
        wait_for(lambda: f"{full} takes reports again" in node.words, "the file works again")
        if ending_name == "csv":
            wait_for(lambda: len(there.read_text().splitlines()) == 1 + len(rows(other)), "every row is there")
            header, *found = (line.split(",") for line in there.read_text().splitlines())
            assert [line[header.index("window_start")] for line in found] == windows(other)
        else:
            wait_for(lambda: len(rows(there)) == len(rows(other)), "every row is there")
            assert rows(there) == rows(other)
        assert len(set(windows(other))) == len(windows(other)) >= 5
        assert node.end(signal.SIGTERM) in (0, 143)
