"""A start with much that waits: nothing of it is read before the service is ready, and how far it is, is told."""

from __future__ import annotations

import threading
from pathlib import Path

from faults import system_call
from fleets import make_sketch, write_parcel
from hubs import Node, WatchedIntake
from superhosts.fleet.filelink import FileReceiver
from superhosts.fleet.link import Backlog, Receipt
from superhosts.fleet.spool import Spool

MANY = 300


def test_lines_come_at_intervals_and_end_with_the_last_thing() -> None:
    said, now, waiting = list[str](), [0.0], {f"{number}": 1 << 30 for number in range(4)}
    backlog = Backlog("sketches", lambda: waiting, said.append, every=30.0, clock=lambda: now[0])
    backlog.tell()
    assert said == []
    now[0] = 31.0
    backlog.tell()
    backlog.tell()
    waiting.pop("0")
    waiting["new"] = 5
    assert backlog.left() == (3, 3 << 30)
    now[0] = 62.0
    backlog.tell()
    waiting.clear()
    for now[0] in (93.0, 124.0):
        backlog.tell()
    assert said == ["sketches: 0 of 4 done, 4 GiB left", "sketches: 1 of 4 done, 3 GiB left", "sketches: all 4 done"]


def test_what_is_known_only_after_the_start_counts_from_then_on_and_nothing_is_nothing_to_tell() -> None:
    said, now = list[str](), [0.0]
    found: list[dict[str, int] | None] = [None]
    backlog = Backlog("sketches", lambda: found[0], said.append, every=30.0, clock=lambda: now[0])
    none = Backlog("none", dict, said.append, every=30.0, clock=lambda: now[0])
    backlog.tell()
    assert (backlog.left(), none.left()) == ((0, 0), (0, 0))
    found[0] = {"a": 1024, "b": 1024}
    backlog.tell()
    found[0] = {}
    now[0] = 31.0
    none.tell()
    backlog.tell()
    assert said == ["sketches: all 2 done"]


def fill(folder: Path, count: int = MANY) -> list[Path]:
    """Write small files with the names of sketches."""
    first = write_parcel(make_sketch("ams"), folder)
    day = first.name.partition("T")[0]
    found = [first]
    for number in range(1, count):
        name = first.name.replace(f"{day}T120000Z", f"{day}T{number // 60:02}{number % 60:02}30Z")
        found.append(folder / name)
        found[-1].write_bytes(first.read_bytes())
    return found


def test_a_spool_with_very_many_sketches_opens_without_reading_one(tmp_path: Path) -> None:
    fill(tmp_path / "spool")
    read: list[object] = []
    with system_call("pread", lambda *arguments: read.append(arguments)):
        spool = Spool(tmp_path / "spool", "ams", cap=1 << 40, say=print)
        assert len(spool.sizes()) == MANY
    assert read == []
    backlog = Backlog("sketches", spool.sizes, print)
    assert backlog.left()[0] == MANY


def test_a_hub_knows_how_much_waits_on_its_link_and_how_far_it_is(tmp_path: Path) -> None:
    for number in range(4):
        write_parcel(make_sketch("ams", number), tmp_path / "link" / "ams")
    node = Node(tmp_path, sites=("ams",))
    receiver = FileReceiver(tmp_path / "link", print)
    backlog = Backlog("sketches", receiver.earlier, print)
    assert backlog.left() == (0, 0)  # not known yet
    paths = sorted((tmp_path / "link" / "ams").glob("*.cube"))
    sizes = [max(path.stat().st_size, 512 * path.stat().st_blocks) for path in paths]
    seen: list[tuple[int, int]] = []

    def watch(path: Path, name: str, site: str) -> Receipt:
        seen.append(backlog.left())
        return node.intake.accept(path, name, site)

    receiver.step(WatchedIntake(node.intake, watch), threading.Event())
    assert seen == [(4 - done, sum(sizes[done:])) for done in range(4)]
    assert backlog.left() == (0, 0)
    stored = (tmp_path / "state" / "windows").glob("*/*-ams-*.cube")
    assert node.hub.due() == {path.parent.name: path.stat().st_size for path in stored}
    assert len(node.hub.due()) == 4


def test_a_hub_is_ready_before_it_has_merged_what_waits(tmp_path: Path) -> None:
    node = Node(tmp_path, sites=("ams",)).send_all(*(make_sketch("ams", number) for number in range(3)))
    stop, turns = threading.Event(), list[tuple[int, int]]()

    def on_turn() -> None:
        turns.append((node.hub.counters.reports, len(node.hub.due())))
        if len(turns) > 3:
            stop.set()

    node.hub.run(stop, on_turn=on_turn)
    assert turns[:4] == [(0, 3), (1, 2), (2, 1), (3, 0)]
