"""Two folders that rsync synchronises, by the two commands of docs/guides/fleet/links.md."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import threading
from pathlib import Path

import pytest

from brokers import make_spool
from fleets import LARGER, make_sketch
from hubs import FakeTime, Node
from needs import needed
from superhosts.fleet.filelink import SETTLE, FileReceiver, FileSender
from traffic import content

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "fleet" / "links.md"
SITE = "ams"


class Synchronised:
    """An edge and a hub with a folder each, and rsync between them. Its remote shell stays on this machine."""

    def __init__(self, folder: Path) -> None:
        self.node = Node(folder, sites=(SITE,))
        self.spool = make_spool(folder / "spool", SITE)
        self.here, self.there = folder / "var" / SITE, folder / "srv" / SITE
        self.there.mkdir(parents=True)
        self.clock = FakeTime()
        self.sender = FileSender(self.here.parent, SITE, print)
        self.receiver = FileReceiver(self.there.parent, self.node.said.append, clock=self.clock.source.steady)
        self.sender.step(self.spool)
        shell = folder / "shell"
        shell.write_text('#!/bin/sh\nshift\nexec "$@"\n')  # instead of ssh, which has the host as first argument
        shell.chmod(0o755)
        self._environment = {**os.environ, "RSYNC_RSH": str(shell)}
        lines = [line.strip() for line in PAGE.read_text().splitlines() if re.match(r" {4}rsync ", line)]
        places = {"/var/fleet": str(self.here.parent), "/srv/fleet": str(self.there.parent)}
        self.receipts, self.sketches = (_at(line, places) for line in lines)

    def run(self, command: list[str]) -> None:
        subprocess.run(command, check=True, env=self._environment, timeout=600)

    def cycle(self) -> None:
        """Synchronise once, and let both ends look."""
        self.sender.step(self.spool)
        self.run(self.receipts)
        self.run(self.sketches)
        self.receiver.step(self.node.intake, threading.Event())

    def names(self) -> list[str]:
        return sorted(path.name for folder in (self.here, self.there) for path in folder.iterdir())


def _at(line: str, places: dict[str, str]) -> list[str]:
    for name, place in places.items():
        line = line.replace(name, place)
    return shlex.split(line)


@pytest.fixture
def link(tmp_path: Path) -> Synchronised:
    needed("rsync", "SUPERHOSTS_NEED_RSYNC")
    return Synchronised(tmp_path)


def test_sketches_go_one_way_and_receipts_the_other(link: Synchronised):
    link.spool.put(make_sketch(SITE))
    refused = link.spool.put(make_sketch(SITE, 1, settings=LARGER))
    link.cycle()
    assert link.receiver.counters.sketches == 2
    link.cycle()  # the receipts come, and both sketches go a second time
    assert link.node.intake.counters.repeated == 2
    link.cycle()
    link.cycle()
    assert link.spool.waiting() == []
    assert link.spool.counters.delivered == 1
    assert (link.spool.folder / "refused" / refused.name).exists()
    assert link.node.intake.counters.accepted == 1
    link.node.hub.step()
    assert content(link.node.union(0)) == content(make_sketch(SITE))
    link.sender.step(link.spool)
    assert link.names() == []


def test_what_is_being_written_is_not_copied(link: Synchronised):
    path = link.spool.put(make_sketch(SITE))
    ours = {f".{path.name}.tmp", f".{path.name}", "readme.txt"}
    theirs = {f".{path.name}.receipt.tmp", f"{path.name}.old"}
    for folder, names in ((link.here, ours), (link.there, theirs)):
        for name in names:
            (folder / name).write_bytes(b"half")
    link.run(link.receipts)
    link.run(link.sketches)
    assert {path.name for path in link.here.iterdir()} == ours
    assert {path.name for path in link.there.iterdir()} == theirs


def test_a_damaged_copy_is_requested_again(link: Synchronised):
    path = link.spool.put(make_sketch(SITE))
    link.sender.step(link.spool)
    link.run(link.sketches)
    (link.there / path.name).write_bytes(path.read_bytes()[:500])
    for expected in (0, 1):
        link.receiver.step(link.node.intake, threading.Event())
        assert link.receiver.counters.resends == expected
        link.clock.now += SETTLE
    for _ in range(4):
        link.cycle()
    assert link.sender.counters.resends >= 1
    assert (link.spool.waiting(), link.node.intake.counters.accepted) == ([], 1)
