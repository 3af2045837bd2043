"""The board of the last windows: what it keeps, and what it forgets."""

from __future__ import annotations

from typing import Any

import pytest

from superhosts.core.pairs import Window
from superhosts.output.report import Report
from superhosts.ui import board as boards
from superhosts.ui.board import Board

LENGTH = 300 * 10**9


def row(number: int, peers: int | None = None, **more: Any) -> dict[str, Any]:
    known = 1000 - number if peers is None else peers
    found = {"host": f"10.0.{number >> 8}.{number & 255}", "side": "inner", "direction": "any"}
    return {**found, "peers": known, "peers_low": known - 5, "peers_high": known + 5, **more}


def report(number: int, count: int = 3, **more: Any) -> Report:
    window = Window(number * LENGTH, (number + 1) * LENGTH)
    return Report(rows=[row(each) for each in range(count)], window=window, **more)


def test_only_the_newest_window_has_whole_rows() -> None:
    board = Board()
    board.write(report(1))
    board.write(report(2, title="three"))
    old, new = board.windows()
    assert (old.rows, len(new.rows), new.title) == ((), 3, "three")
    assert [point.host for point in old.points] == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
    assert board.newest == new


def test_a_late_window_does_not_take_the_place_of_the_newest() -> None:
    board = Board()
    board.write(report(2))
    board.write(report(1))
    assert [len(shown.rows) for shown in board.windows()] == [0, 3]


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


def test_listeners_hear_of_each_change() -> None:
    board, heard = Board(), []
    board.listeners.append(lambda: heard.append(board.version))
    board.write(report(1))
    board.write(report(1, revision=2))
    assert heard == [1, 2]


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
