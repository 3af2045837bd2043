"""Questions to a folder of sketches, and all that a view tells."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import superhosts as sh
from cli.test_hosts import NOON, save
from superhosts.core.pairs import Window
from superhosts.core.results import Selection
from superhosts.errors import UsageError
from superhosts.output.alerts.machine import Policy
from superhosts.output.alerts.rules import Rule
from superhosts.output.alerts.store import AlertStore
from superhosts.output.report import Report
from superhosts.ui import board as boards
from superhosts.ui import folder as folders
from superhosts.ui.board import Board, Shown, shown_of
from superhosts.ui.folder import BusyError, Listing, Question, SketchFolder
from superhosts.ui.view import CLOSED_ALERTS, Filling, View, accuracy
from traffic import MINUTES
from waiting import wait_for

WANTED = Selection(100.0)
LENGTH = 5 * MINUTES


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Three windows of a site, the first also of another."""
    for number in range(3):
        save(tmp_path / "archive" / "day" / f"{number}-ams.cube", "ams", NOON + number * LENGTH)
    save(tmp_path / "archive" / "day" / "0-frank.cube", "frank", NOON)
    return tmp_path / "archive"


def view_of(archive: Path) -> View:
    board, folder = Board(), SketchFolder(archive)
    Filling(board, folder, lambda: WANTED).fill()
    return View("archive", board, lambda: WANTED, folder=folder)


def about(peers: int) -> Any:
    """Return what an estimate of these peers may be."""
    return pytest.approx(peers, rel=0.1)


def hosts(rows: list[dict]) -> dict[str, int]:
    return {row["host"]: row["peers"] for row in rows}


def test_a_longer_time_is_the_union(archive: Path) -> None:
    view = view_of(archive)
    found = view.ask(Question(Selection(250.0)))
    assert found["sketches"] == 4
    assert found["sites"] == ["ams", "frank"]
    assert hosts(found["rows"]) == {"10.0.0.1": about(1200)}
    assert (found["start"], found["end"]) == (NOON / 1e9, (NOON + 3 * LENGTH) / 1e9)


def test_times_and_sites_choose_sketches(archive: Path) -> None:
    view = view_of(archive)
    assert hosts(view.ask(Question(WANTED, start=NOON + LENGTH))["rows"])["10.0.0.1"] == about(600)
    assert hosts(view.ask(Question(WANTED, sites=frozenset({"frank"})))["rows"])["10.0.0.1"] == about(300)
    with pytest.raises(UsageError, match="no sketch of lon is here"):
        view.ask(Question(WANTED, sites=frozenset({"lon"})))
    with pytest.raises(UsageError, match="no sketch of this time"):
        view.ask(Question(WANTED, start=NOON + 9 * LENGTH))


def test_a_sketch_in_a_union_is_not_read_twice(archive: Path) -> None:
    whole = sh.union([archive / "day" / "0-ams.cube", archive / "day" / "0-frank.cube"])
    whole.save(archive / "day" / "0-hub.cube")
    folder = SketchFolder(archive)
    window = NOON, NOON + LENGTH
    assert folder.ask(Question(WANTED, *window)).sketches == 1
    assert folder.ask(Question(WANTED, *window, sites=frozenset({"ams"}))).sketches == 1


def test_one_may_ask_for_sites_that_have_sketches_of_their_own(archive: Path) -> None:
    assert view_of(archive).summary()["askable"] == ["ams", "frank"]
    whole = sh.union([archive / "day" / "0-ams.cube", archive / "day" / "0-frank.cube"])
    (archive / "unions").mkdir()
    whole.save(archive / "unions" / "0-hub.cube")
    assert SketchFolder(archive / "unions").sites() == []


def test_the_bound_is_of_files_that_are_read(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_ASKED", 3)
    folder = SketchFolder(archive)
    with pytest.raises(UsageError, match="4 sketches in this period; at most 3 are read"):
        folder.ask(Question(WANTED))
    whole = sh.union([archive / "day" / "0-ams.cube", archive / "day" / "0-frank.cube"])
    whole.save(archive / "day" / "0-hub.cube")
    assert folder.ask(Question(WANTED)).sketches == 3


def test_a_question_that_takes_too_long_is_refused(archive: Path) -> None:
    with pytest.raises(UsageError, match="takes too long"):
        SketchFolder(archive).ask(Question(WANTED), longest=-1.0)


def test_another_threshold_is_answered_from_memory(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SketchFolder(archive)
    folder.ask(Question(WANTED))
    monkeypatch.setattr(folders, "merge_named", None)
    assert len(folder.ask(Question(Selection(700.0))).report.rows) == 1
    save(archive / "day" / "3-ams.cube", "ams", NOON + 3 * LENGTH)
    with pytest.raises(TypeError):
        folder.ask(Question(WANTED))


def test_windows_of_a_folder_are_shown(archive: Path) -> None:
    view = view_of(archive)
    windows = view.windows()
    assert [(each["hosts"], each["sites"]) for each in windows] == [(3, ["ams", "frank"]), (2, ["ams"]), (2, ["ams"])]
    assert hosts(view.window()["rows"]) == {"10.0.0.1": about(300), "10.1.0.3": about(200)}
    first = view.window(NOON / 1e9)
    assert hosts(first["rows"]) == {"10.0.0.1": about(600), "10.1.0.3": about(200), "10.1.0.5": about(200)}
    assert not first["whole"]
    with pytest.raises(UsageError, match="not known here"):
        view.window(5.0)


def reported(view: View, number: int, *rows: tuple[str, int, str], threshold: float | None = 100.0) -> None:
    window = Window(NOON + number * LENGTH, NOON + (number + 1) * LENGTH)
    side = {"side": "inner", "direction": "any", "family": 4}
    made = [
        {"host": host, **side, "peers": peers, "peers_low": peers, "peers_high": peers, "pattern": pattern}
        for host, peers, pattern in rows
    ]
    view.board.write(Report(rows=made, window=window, title="", threshold=threshold))


def test_the_windows_before_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "MOST_POINTS", 2)
    view = View("watch", Board(), lambda: WANTED)
    reported(view, 0, ("10.0.0.1", 500, "web server"), ("10.0.0.2", 300, ""), ("10.0.0.3", 50, "web server"))
    reported(view, 1, ("10.0.0.1", 600, "web server"))
    reported(view, 2, ("10.0.0.4", 900, ""), ("10.0.0.1", 700, ""))
    assert view.window()["recent"] == {"whole": [False, True], "peers": [None, [500, 600]]}
    assert view.window(NOON / 1e9)["recent"] == {"whole": [], "peers": [None, None]}
    assert [each["patterns"] for each in view.windows()] == [{"web server": 1, "": 1}, {"web server": 1}, {"": 2}]
    reported(view, 3, ("10.0.0.1", 5, ""), threshold=None)  # of the largest hosts, nobody knows all super hosts
    reported(view, 4, ("10.0.0.1", 5, ""))
    assert view.window()["recent"] == {"whole": [False, True, True, False], "peers": [[500, 600, 700, 5]]}


def test_the_largest_hosts_of_a_time() -> None:
    view = View("watch", Board(), lambda: WANTED)
    for number in range(3):
        others = [(f"10.0.1.{at}", 200 - at, "") for at in range(10)]
        reported(
            view, number, *([("10.0.0.9", 1000, "")] if number == 1 else []), ("10.0.0.1", 300 + number, ""), *others
        )
    found = view.trends()
    assert [each["host"] for each in found] == ["10.0.0.9", "10.0.0.1", "10.0.1.0", "10.0.1.1", "10.0.1.2"]
    assert [len(each["points"]) for each in found] == [1, 3, 3, 3, 3]
    assert [point["peers"] for point in found[1]["points"]] == [300, 301, 302]
    last = view.trends((NOON + 2 * LENGTH) / 1e9)
    assert [each["host"] for each in last][:2] == ["10.0.0.1", "10.0.1.0"]
    assert [len(each["points"]) for each in last] == [1] * 5
    assert view.trends(end=NOON / 1e9) == []


def test_alerts_mark_the_windows_in_which_they_were_open(tmp_path: Path) -> None:
    store = AlertStore(tmp_path / "alerts.sqlite")
    view = View("watch", Board(), lambda: WANTED, alerts=AlertStore(tmp_path / "alerts.sqlite"))
    rules = Policy([Rule(name="many", threshold=100.0, quiet=1)])
    machine = store.machine(rules)
    for number, rows in enumerate(([], [("10.0.0.1", 500, "")], [("10.0.0.1", 400, "")], [], [])):
        reported(view, number, *rows)
        newest = view.board.newest
        assert newest is not None
        store.take(machine, newest.window, newest.rows)
    marked = [view.window(each["start"])["alerts"] for each in view.windows()]
    assert marked == [[], ["10.0.0.1"], ["10.0.0.1"], [], []]
    store.close()
    view.close()


def test_a_window_that_cannot_be_asked_is_tried_once(archive: Path) -> None:
    path = archive / "day" / "2-ams.cube"
    content = bytearray(path.read_bytes())
    content[-20] ^= 0xFF
    path.write_bytes(content)
    board = Board()
    filling = Filling(board, SketchFolder(archive), lambda: WANTED)
    filling.fill()
    filling.fill()
    assert len(board.windows()) == 2
    (told,) = filling.notes
    assert told.startswith("1 window cannot be shown: ")
    assert "2-ams.cube" in told
    save(path, "ams", NOON + 2 * LENGTH)
    filling.fill()
    assert (len(board.windows()), filling.notes) == (3, [])


def test_what_is_in_no_window_is_told(archive: Path) -> None:
    (archive / "torn.cube").write_bytes(b"torn")
    untimed = sh.Cube("1MiB")
    untimed.update(["10.0.0.1"], ["10.0.0.2"])
    untimed.save(archive / "untimed.cube")
    folder = SketchFolder(archive)
    filling = Filling(Board(), folder, lambda: WANTED)
    filling.fill()
    assert filling.notes == [
        f"1 file is not a sketch: {archive / 'torn.cube'}.",
        f"1 sketch has no time: {archive / 'untimed.cube'}.",
    ]


def test_a_folder_with_another_key_says_so_once_and_wakes_viewers(tmp_path: Path) -> None:
    save(tmp_path / "one.cube", "ams", NOON)
    view, said, woken = View("archive", Board(), lambda: WANTED), [], []
    view.folder = SketchFolder(tmp_path, bytes(16))
    view.board.listeners.append(lambda: woken.append(view.state()))
    assert not view.can["parts"]
    view.start_filling(said.append, follow=True)
    wait_for(lambda: said, "a message")
    view.close()
    assert said == view.summary()["reading"] == woken[-1]["reading"]
    assert "key" in said[0]
    assert view.can["parts"]


def test_a_folder_tells_how_full_its_newest_sketch_is(archive: Path) -> None:
    view = View("archive", Board(), lambda: WANTED, folder=SketchFolder(archive))
    view.start_filling(lambda _: None, follow=False)
    wait_for(lambda: view.board.newest, "a window")
    (part,) = view.sketch()["parts"]
    assert (part["side"], part["exact"]) == ("inner", True)
    assert 0.0 < part["fill"] < 1.0


def test_a_window_is_asked_again_when_another_site_adds_to_it(archive: Path) -> None:
    board = Board()
    filling = Filling(board, SketchFolder(archive), lambda: WANTED)
    filling.fill()
    version = board.version
    filling.fill()
    assert board.version == version
    save(archive / "day" / "2-frank.cube", "frank", NOON + 2 * LENGTH)
    filling.fill()
    newest = board.newest
    assert (board.version, newest.sites) == (version + 1, ("ams", "frank"))
    assert {point.host: point.peers for point in newest.points}["10.0.0.1"] == about(600)


def test_a_window_that_others_report_is_left_alone(archive: Path) -> None:
    """A hub's own report of a window says more than its archived sketch."""
    board = Board()
    reported = Shown(Window(NOON, NOON + LENGTH), 0, (), title="by the hub")
    board.put(reported)
    Filling(board, SketchFolder(archive), lambda: WANTED).fill()
    assert [shown.title == "by the hub" for shown in board.windows()] == [True, False, False]


def test_hosts_that_fill_a_list_are_no_super_hosts(archive: Path) -> None:
    view = view_of(archive)
    wanted = view.selection = lambda: Selection(250.0, 10, either=True)
    view.board = Board()
    Filling(view.board, SketchFolder(archive), wanted).fill()
    assert [(each["hosts"], each["super_hosts"]) for each in view.windows()] == [(3, 1), (2, 1), (2, 1)]
    assert view.window()["title"] == "top 2 hosts, 1 with at least 250 peers"
    assert view.ask(Question(wanted()))["title"] == "top 3 hosts, 1 with at least 250 peers"
    assert [point["reported"] for point in view.host("10.1.0.3")["points"]] == [False] * 3
    assert [point["reported"] for point in view.host("10.0.0.1")["points"]] == [True] * 3
    wanted = view.selection = lambda: Selection(top=1)
    view.board = Board()
    Filling(view.board, SketchFolder(archive), wanted).fill()
    assert [(each["hosts"], each["super_hosts"]) for each in view.windows()] == [(1, None)] * 3


def test_a_saturated_host_is_a_super_host() -> None:
    rows = [
        {"host": host, "side": "inner", "direction": "any", "peers": peers, "peers_low": 90, "peers_high": peers}
        for host, peers in (("10.0.0.1", None), ("10.0.0.2", 100), ("10.0.0.3", 99))
    ]
    shown = shown_of(Report(rows=rows, threshold=100.0))
    assert (shown.hosts, shown.super_hosts) == (3, 2)


def test_a_view_is_live_while_its_newest_window_is_of_now() -> None:
    now = noon = NOON / 1e9
    view = View("watch", Board(), lambda: WANTED, is_live=True, clock=lambda: now)
    assert (view.summary()["live"], view.state()["live_until"]) == (False, 0.0)  # no window yet
    view.board.put(Shown(Window(NOON - LENGTH, NOON), 0, ()))
    for later, is_live in ((0.0, True), (890.0, True), (910.0, False), (-400.0, False)):
        now = noon + later
        assert view.summary()["live"] == is_live  # the last one: it is of the future
    view.board.put(Shown(Window(NOON, NOON + 10**9), 0, ()))  # of a second
    now = noon + 290.0
    assert view.summary()["live"]
    view.is_live = False
    assert not view.summary()["live"]


def test_a_hosts_past_also_has_windows_in_which_it_was_not_reported(archive: Path) -> None:
    view = view_of(archive)
    view.selection = lambda: Selection(250.0)
    view.board = Board()
    found = view.host("10.1.0.3")
    assert [(point["peers"], point["reported"]) for point in found["points"]] == [(about(200), None)] * 3
    assert [point["start"] for point in found["points"]] == [(NOON + each * LENGTH) / 1e9 for each in range(3)]
    assert view.host("10.9.9.9")["points"][0]["peers"] == 0


def test_what_is_not_known_to_be_unreported_is_not_said_to_be(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "MOST_POINTS", 1)
    view = view_of(archive)
    reported = [point["reported"] for point in view.host("10.1.0.3")["points"]]
    assert reported == [None, None, True]  # of older windows the largest host alone is kept
    assert [point["reported"] for point in view.host("10.0.0.1")["points"]] == [True] * 3
    assert [point["reported"] for point in view.host("10.1.0.5")["points"]] == [None, None, False]


def test_a_hosts_page_needs_no_sketch_of_that_time(archive: Path) -> None:
    found = view_of(archive).host("10.0.0.1", start=NOON / 1e9 + 9000.0)
    assert (len(found["points"]), found["asked"], found["notes"]) == (3, False, [])


def test_windows_of_a_hosts_past_that_cannot_be_read_are_told(archive: Path) -> None:
    view = view_of(archive)
    view.board = Board()
    path = archive / "day" / "1-ams.cube"
    path.write_bytes(path.read_bytes()[:-100])
    found = view.host("10.0.0.1")
    assert len(found["points"]) == 2
    assert found["notes"][0].startswith("1 window cannot be read: ")


def test_the_oldest_windows_of_a_hosts_past_are_left_out(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_PAST", 2)
    view = view_of(archive)
    view.board = Board()
    found = view.host("10.0.0.1")
    assert [point["start"] for point in found["points"]] == [(NOON + each * LENGTH) / 1e9 for each in (1, 2)]
    assert found["notes"] == ["1 older window was not asked: it would take too long."]


def test_a_window_that_was_busy_is_asked_again(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board, folder = Board(), SketchFolder(archive)
    filling = Filling(board, folder, lambda: WANTED)
    ask = folder.ask

    def refuse(*_: Any, **__: Any) -> None:
        raise BusyError("others have the turn")

    monkeypatch.setattr(folder, "ask", refuse)
    assert not filling.fill()
    monkeypatch.setattr(folder, "ask", ask)
    assert filling.fill()
    assert (len(board.windows()), filling.notes) == (3, [])


def test_a_hosts_alerts_are_found_among_many(tmp_path: Path) -> None:
    store = AlertStore(tmp_path / "alerts.db")
    machine = store.machine(Policy(cap=1000))
    same = {"family": 4, "side": "inner", "direction": "any", "peers": 5000, "peers_low": 5000, "peers_high": 5000}
    hosts = [{"host": f"10.1.{number >> 8}.{number & 255}", **same} for number in range(CLOSED_ALERTS + 50)]
    for number, rows in enumerate((hosts[:1], [], [], hosts[1:], [], [])):  # the first one is the oldest
        store.take(machine, Window(NOON + number * LENGTH, NOON + (number + 1) * LENGTH), rows)
    view = View("hub", Board(), lambda: WANTED, alerts=store)
    (alert,) = view.host("10.1.0.0")["alerts"]
    assert alert["closed"] > 0
    assert view.host("10.2.0.0")["alerts"] == []


def test_accuracy_is_that_of_typical_rows() -> None:
    rows = [{"peers": 100, "peers_low": 90, "peers_high": 110}] * 3 + [
        {"peers": None, "peers_low": 9000, "peers_high": None}
    ]
    assert accuracy(rows) == {"peers": 100, "share": 0.1}
    assert accuracy(rows[3:]) is None
    exact = [{"peers": 100, "peers_low": 100, "peers_high": 100}] * 3
    assert accuracy(exact) == {"peers": 100, "share": 0.0}
    assert accuracy([*exact, {"peers": 10, "peers_low": 9, "peers_high": 11}]) == {"peers": 10, "share": 0.1}


def test_what_a_view_lacks_is_told(archive: Path) -> None:
    view = View("watch", Board(), lambda: WANTED)
    assert view.can == {"ask": False, "sites": False, "alerts": False, "parts": False}
    assert view.summary()["newest"] is None
    with pytest.raises(UsageError, match="--archive DIR"):
        view.ask(Question(WANTED))
    with pytest.raises(UsageError, match="--alerts"):
        view.mute("10.0.0.1", "", 1.0, "")
    assert view_of(archive).can["ask"]


# Which sketches a folder holds: found again when it changes, read once while it does not.

HOUR = 3600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path / "one" / "a.cube", "ams", NOON)
    save(tmp_path / "two" / "deep" / "b.cube", "ams", NOON)
    save(tmp_path / "two" / ".set-aside" / "c.cube", "ams", NOON)
    return tmp_path


def names(listed: Listing) -> list[str]:
    return [each.sketch.path.name for each in listed.look()]


def make_old(folder: Path) -> None:
    old = time.time() - HOUR
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (old, old))


def test_all_folders_but_hidden_ones_are_looked_at(folder: Path) -> None:
    assert names(Listing(folder)) == ["a.cube", "b.cube"]
    assert names(Listing(folder / "none")) == []


def test_what_has_not_changed_is_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_old(folder)
    listed = Listing(folder)
    first = listed.look()
    monkeypatch.setattr("superhosts.ui.folder.os.scandir", None)
    assert listed.look() == first


def test_new_files_and_removed_ones_are_seen(folder: Path) -> None:
    make_old(folder)
    listed = Listing(folder)
    listed.look()
    save(folder / "one" / "d.cube", "ams", NOON)
    assert names(listed) == ["a.cube", "d.cube", "b.cube"]
    shutil.rmtree(folder / "two" / "deep")
    assert names(listed) == ["a.cube", "d.cube"]


def test_a_file_that_is_still_being_written_is_read_again(folder: Path) -> None:
    whole = (folder / "one" / "a.cube").read_bytes()
    path = folder / "one" / "a.cube"
    path.write_bytes(whole[:10])
    listed = Listing(folder)
    assert not listed.look()[0].sketch.is_readable
    with path.open("ab") as file:
        file.write(whole[10:])
    assert listed.look()[0].sketch.is_readable


def test_a_folder_that_vanishes_meanwhile_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def vanish(path: Path | int) -> object:
        if path == folder / "one":
            shutil.rmtree(folder / "one")
        return scan(path)

    monkeypatch.setattr("superhosts.ui.folder.os.scandir", vanish)
    assert names(Listing(folder)) == ["b.cube"]


# The board of the last windows: what it keeps, and what it forgets.

LENGTH = 300 * 10**9


def row(number: int, peers: int | None = None, **more: Any) -> dict[str, Any]:
    known = 1000 - number if peers is None else peers
    found = {"host": f"10.0.{number >> 8}.{number & 255}", "side": "inner", "direction": "any"}
    return {**found, "peers": known, "peers_low": known - 5, "peers_high": known + 5, **more}


def report(number: int, count: int = 3, **more: Any) -> Report:
    window = Window(number * LENGTH, (number + 1) * LENGTH)
    return Report(rows=[row(each) for each in range(count)], window=window, **more)


def test_a_revision_replaces_its_window_and_an_older_one_does_not() -> None:
    board = Board()
    board.write(report(1, count=2, revision=2))
    board.write(report(1, count=1))
    (shown,) = board.windows()
    assert (shown.revision, shown.hosts) == (2, 2)
    board.write(report(1, count=4, revision=3))
    (shown,) = board.windows()
    assert (shown.revision, shown.hosts, len(shown.rows)) == (3, 4, 4)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "MOST_POINTS", 5)
    monkeypatch.setattr(boards, "MOST_ROWS", 20)
    monkeypatch.setattr(boards, "MOST_KEPT", 40)
    board = Board()
    for number in range(30):
        board.write(report(number, count=30))
    shown = board.windows()
    assert [len(each.points) for each in shown] == [5, 5, 5, 5, 20]
    assert [each.hosts for each in shown] == [30] * 5
    monkeypatch.setattr(boards, "MOST_WINDOWS", 2)
    board.write(report(31, count=1))
    assert [each.window.start // LENGTH for each in board.windows()] == [29, 31]


def test_points_have_the_label_or_else_the_name() -> None:
    board = Board()
    rows = [row(1, label="printer", name="p.example"), row(2, label=None, name="q.example", pattern="server"), row(3)]
    board.write(Report(rows=rows, window=Window(0, LENGTH)))
    (shown,) = board.windows()
    assert [(point.name, point.pattern) for point in shown.points] == [
        ("printer", ""),
        ("q.example", "server"),
        ("", ""),
    ]
