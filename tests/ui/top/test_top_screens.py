"""The screens of `superhosts top`, driven by keys: what they show, and what stays where it is."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from superhosts.core.pairs import Window
from superhosts.core.results import Selection
from superhosts.output.alerts.store import AlertStore
from superhosts.ui.board import Board, Shown, point_of
from superhosts.ui.folder import BusyError
from superhosts.ui.top import app as program
from superhosts.ui.top.app import AlertsScreen, Grid, HostScreen, Line, SitesScreen, TopApp
from superhosts.ui.top.feed import NOTHING, LinkError, look
from superhosts.ui.view import View
from ui.top import scene
from ui.top.scene import HOSTS, IMAGE, LENGTH, NOON, PICTURES, SIZES, SNAPSHOTS, WINDOWS, make_view, ready, row

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def driven(app: TopApp, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Any]:
    async with app.run_test(size=size) as pilot:
        await ready(pilot, lambda: app.snapshot.summary or app.lost)
        yield pilot


def lines(app: TopApp) -> list[str]:
    return scene.text_of(app.export_screenshot())


def hosts(app: TopApp) -> list[str]:
    return [line[2:].split()[0] for line in lines(app)[3:-1] if re.match(r"[ ▸][ !][0-9]", line)]


async def press(pilot: Any, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()


def put(board: Board, number: int, rows: list[dict[str, Any]], **more: Any) -> None:
    window = Window(NOON + number * LENGTH, NOON + (number + 1) * LENGTH)
    rows = sorted(rows, key=lambda each: -(each["peers"] or each["peers_low"]))
    board.put(Shown(window, len(rows), tuple(map(point_of, rows)), tuple(rows), **more))


def small(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows of hosts 10.0.0.N with 1000 - N peers."""
    return [row(f"10.0.0.{number}", "", "", 1000 - number, 0.03, ()) for number in range(first, first + count)]


def hub(*windows: list[dict[str, Any]], **more: Any) -> tuple[Board, TopApp]:
    """Return a board with the rows of some windows, and the screen that shows it."""
    board = Board()
    for number, rows in enumerate(windows):
        put(board, number, rows)
    return board, TopApp(View("hub", board, lambda: Selection(100.0), **more))


# Pictures


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PICTURES)
def test_screens_look_as_in_the_snapshots(name: str, size: str) -> None:
    """After a change that is meant: python tests/ui/top/scene.py, and read the difference."""
    assert scene.snapshot(name, size) == (SNAPSHOTS / f"{name}-{size}.txt").read_text(encoding="utf-8")


def test_the_picture_of_the_documentation_is_up_to_date() -> None:
    assert scene.text_of(IMAGE.read_text(encoding="utf-8")) == scene.text_of(scene.image())
    assert "url(http" not in IMAGE.read_text(encoding="utf-8").replace('"', "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "begins"),
    [
        ((200, 60), "▸!10.20.4.17       reception-pc"),
        ((40, 12), "▸!10.20.4.17       18,402"),
        ((20, 8), "▸!10.20.4.…  18,402"),
        ((10, 5), "▸!10.20…"),
    ],
)
async def test_any_size_shows_the_first_host(size: tuple[int, int], begins: str) -> None:
    app = TopApp(make_view())
    async with driven(app, size) as pilot:
        shown = lines(app)
        assert shown[3].startswith(begins)
        assert all(len(line) <= size[0] for line in shown)
        for key in ("enter", "escape", "a", "escape", "h", "escape", "question_mark", "escape"):
            await press(pilot, key)


async def test_a_terminal_that_becomes_narrower_is_laid_out_again() -> None:
    app = TopApp(make_view())
    async with driven(app, (120, 40)) as pilot:
        assert "17,832 – 18,972" in "\n".join(lines(app))
        await pilot.resize_terminal(60, 20)
        await ready(pilot, lambda: "±3 %" in "\n".join(lines(app)))
        assert all(len(line) <= 60 for line in lines(app))


async def test_a_long_title_leaves_room_for_the_window() -> None:
    view = make_view()
    view.title = "sketches /srv/" + "long/" * 40 + "archive"
    app = TopApp(view)
    async with driven(app):
        assert re.match(r" ….*/archive  2026-11-14 14:55–15:00 UTC +missing: lon  1 alert  ● live", lines(app)[0])


# Untrusted text


@pytest.mark.slow
async def test_markup_and_control_characters_are_shown_as_text() -> None:
    board = Board()
    nasty = "[bold red]x[/] \x1b[31m\x1b]0;title\x07\r\n\u202e[link=http://e.example]y[/link]"
    rows = [row("10.0.0.1", nasty, "[blink]scan", 900, 0.03, ("si[b]te\x1b[2J",))]
    rows[0]["reason"] = f"because {nasty}"
    rows[0]["evidence"] = {
        "pairs": 1,
        "ports": [{"port": "\x1b[3m", "at": "\x9b", "share": 0.5}],
        "peers": ["\x1b]8;;"],
    }
    put(board, 0, rows, title=f"title {nasty}", notes=(nasty,), missing=(nasty,))
    app = TopApp(View(f"hub {nasty}", board, lambda: Selection(100.0)))
    async with driven(app, (220, 30)) as pilot:
        for keys in ((), ("enter",), ("escape", "h"), ("escape", "slash", "[", "b", "enter"), ("escape", "m")):
            await press(pilot, *keys)
            shown = "\n".join(lines(app))
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
            for strip in app.screen._compositor.render_strips():
                assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", strip.text)
        await press(pilot, "escape", "escape")
        whole = "\n".join(lines(app))
        assert "[bold red]x[/]" in whole
        assert "\\x1b[31m" in whole


# What stays


@pytest.mark.slow
async def test_the_cursor_stays_on_its_host_and_its_line() -> None:
    board, app = hub(small(60))
    async with driven(app) as pilot:
        await press(pilot, *["down"] * 36, *["up"] * 6)  # a line in the middle of the screen
        grid = app.screen.query_one(Grid)
        place = grid.cursor - grid.scroll_offset.y
        assert "▸ 10.0.0.30" in lines(app)[3 + place]
        put(board, 1, [*small(60), *[each | {"peers": 5000 + n} for n, each in enumerate(small(5, 100))]])
        await ready(pilot, lambda: "10.0.0.100" in str(app.rows))
        assert grid.cursor == 35
        assert grid.cursor - grid.scroll_offset.y == place
        assert "▸ 10.0.0.30" in lines(app)[3 + place]


async def test_a_cursor_that_nobody_moved_stays_on_the_largest_host() -> None:
    board, app = hub(small(3))
    async with driven(app) as pilot:
        put(board, 1, [*small(3), row("10.9.9.9", "", "", 4000, 0.03, ())])
        await ready(pilot, lambda: len(app.rows) == 4)
        assert lines(app)[3].startswith("▸ 10.9.9.9")


async def test_a_host_that_is_gone_leaves_the_cursor_on_the_screen() -> None:
    board, app = hub(small(50))
    async with driven(app) as pilot:
        await press(pilot, "end")
        put(board, 1, small(2))
        await ready(pilot, lambda: len(app.rows) == 2)
        assert hosts(app) == ["10.0.0.0", "10.0.0.1"]
        assert any(line.startswith("▸") for line in lines(app))


@pytest.mark.slow
async def test_an_older_window_stays_when_new_ones_come_and_n_follows_again() -> None:
    board, app = hub(small(1), small(2), small(3))
    async with driven(app) as pilot:
        assert len(hosts(app)) == 3
        await press(pilot, "left_square_bracket")
        assert len(hosts(app)) == 2
        assert "1 window back" in lines(app)[0]
        put(board, 3, small(4))
        await ready(pilot, lambda: len(app.snapshot.windows) == 4)
        assert len(hosts(app)) == 2
        assert "2 windows back" in lines(app)[0]
        await press(pilot, "right", "right")
        assert len(hosts(app)) == 4
        await press(pilot, "left", "left", "left", "left")
        assert len(hosts(app)) == 1
        await press(pilot, "n")
        put(board, 4, small(5))
        await ready(pilot, lambda: len(app.rows) == 5)


# Sorting and filtering


@pytest.mark.slow
async def test_sorting_goes_through_the_columns_that_are_shown() -> None:
    app = TopApp(make_view())
    async with driven(app, (120, 40)) as pilot:
        await press(pilot, "s")
        assert hosts(app)[:3] == ["10.20.0.53", "10.20.1.12", "10.20.4.17"]
        assert hosts(app)[-1] == "2001:db8:20::25"
        await press(pilot, "s", "s", "s")
        assert hosts(app)[0] == "10.20.0.53"  # three sites
        await press(pilot, "s")
        assert hosts(app)[0] == "10.20.4.17"
        await press(pilot, "S", "S", "S")
        assert app.where.order == "name"


@pytest.mark.slow
async def test_filters() -> None:
    """Letters that are keys elsewhere go to the filter while it is typed."""
    app = TopApp(make_view())
    async with driven(app, (120, 30)) as pilot:
        for words, found in {
            "SERVER": ["203.0.113.66", "2001:db8:20::25"],
            "10.20.4.0/24": ["10.20.4.17", "10.20.4.99"],
            "2001:db8::/32 mail": ["2001:db8:20::25"],
            "vie ams": ["10.20.0.53", "2001:db8:20::25", "198.51.100.9"],
            "[3rd": ["10.20.16.4"],
            "mashq": [],
        }.items():
            await press(pilot, "slash", *({" ": "space", "/": "slash"}.get(key, key) for key in words), "enter")
            assert (app.where.words, hosts(app), len(app.screen_stack)) == (words, found, 1)
            assert ("No host with" in lines(app)[4]) == (not found)
            await press(pilot, "escape")
            assert len(hosts(app)) == len(HOSTS)


# One host, alerts, sites


async def test_the_page_of_a_host_follows_its_newest_window() -> None:
    board, app = hub(small(3))
    async with driven(app) as pilot:
        await press(pilot, "down", "enter")
        assert isinstance(app.screen, HostScreen)
        assert "999 peers" in "\n".join(lines(app))
        put(board, 1, [row("10.0.0.1", "", "", 4321, 0.03, ())])
        await ready(pilot, lambda: "4,321 peers" in "\n".join(lines(app)))
        assert "2 windows, super host in 2" in "\n".join(lines(app))


async def test_sketches_are_asked_for_a_host_once_a_window() -> None:
    view, asked = make_view(3), []
    summary, host = view.summary, view.host
    view.summary = lambda: summary() | {"can": {"ask": True}}
    view.host = lambda name: asked.append(name) or host(name)
    app = TopApp(view)
    async with driven(app) as pilot:
        await press(pilot, "enter")
        for _ in range(3):  # reports of the same window
            view.board.put(scene.shown(WINDOWS - 1))
            await ready(pilot, lambda: app.snapshot.summary["changed"] == view.board.version)
        assert asked == ["10.20.4.17"]
        view.board.put(scene.shown(WINDOWS))
        await ready(pilot, lambda: len(asked) == 2)


async def test_a_page_from_an_older_window_has_the_numbers_of_that_window() -> None:
    app = TopApp(make_view())
    async with driven(app) as pilot:
        await press(pilot, "left", "left", "left", "down", "down", "enter")
        whole = "\n".join(lines(app))
        assert "5,735 peers" in whole
        assert "14:40–14:45" in whole


@pytest.mark.slow
async def test_muting_asks_and_is_shown_among_the_alerts(tmp_path: Any) -> None:
    store = AlertStore(tmp_path / "alerts.db")
    _, app = hub(small(3), alerts=store)
    async with driven(app) as pilot:
        await press(pilot, "m", "escape")
        assert store.muted() == []
        await press(pilot, "m", "backspace", "backspace", *"soon", "enter")
        assert "soon" in "\n".join(lines(app))
        assert store.muted() == []
        await press(pilot, *["backspace"] * 4, *"2d", "tab", "tab", *"known", "enter")
        (muted,) = store.muted()
        assert (muted["host"], muted["rule"], muted["why"]) == ("10.0.0.0/32", "", "known")
        await press(pilot, "a")
        assert isinstance(app.screen, AlertsScreen)
        assert "0 open alerts, 0 closed, 1 muted" in lines(app)[0]
        assert store.unmute("10.0.0.0/32", "")  # by somebody else, meanwhile
        await press(pilot, "u")
        await ready(pilot, lambda: "0 muted" in lines(app)[0])
        assert [each.message for each in app._notifications][-1:] == ["10.0.0.0/32 was not muted any more"]
        store.mute("10.0.0.0/32", "", time.time() + 60)
        await press(pilot, "r", "u")
        await ready(pilot, lambda: "0 muted" in lines(app)[0])
        assert store.muted() == []
        assert len(app._notifications) == 2  # the first told that it was muted


async def test_without_alerts_there_is_nothing_to_mute() -> None:
    _, app = hub(small(3))
    async with driven(app) as pilot:
        await press(pilot, "m")
        assert len(app.screen_stack) == 1
        await press(pilot, "a")
        assert "none are kept here" in lines(app)[0]
        await press(pilot, "escape", "h")
        assert isinstance(app.screen, SitesScreen)
        assert "No sites are known here" in lines(app)[1]


# Links


async def test_a_link_that_is_lost_is_told_and_the_last_window_stays() -> None:
    view, errors = make_view(), []
    view.halted, plain = "link lost", view.summary

    def summary() -> Any:
        for error in errors:
            raise error
        return plain()

    view.summary = summary
    app = TopApp(view)
    async with driven(app) as pilot:
        before = hosts(app)
        errors.append(LinkError("http://hub.example: no answer; trying again"))
        await press(pilot, "r")
        assert "link lost" in lines(app)[0]
        assert "no answer" in lines(app)[1]
        assert hosts(app) == before
        errors.clear()
        app._look_if_lost()
        await ready(pilot, lambda: "● live" in lines(app)[0])


async def test_an_empty_view_waits_for_its_first_window() -> None:
    board, app = hub()
    async with driven(app) as pilot:
        assert "no window yet" in lines(app)[1]
        await press(pilot, "enter", "left", "s", "m", "slash", "escape")
        put(board, 0, small(2))
        await ready(pilot, lambda: hosts(app) == ["10.0.0.0", "10.0.0.1"])


@pytest.mark.slow
@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_host_that_cannot_be_asked_is_told_and_asked_again(by_hand, monkeypatch) -> None:
    monkeypatch.setattr(program, "RETRY", 1e6 if by_hand else 0.1)
    view, asked, is_busy = make_view(), [], True
    summary, plain = view.summary, view.host

    def host(name: str) -> Any:
        asked.append(name)
        if is_busy:
            raise BusyError("other questions are being answered")
        return plain(name)

    view.summary = lambda: summary() | {"can": {"ask": True}}
    view.host = host
    app = TopApp(view)
    async with driven(app) as pilot:
        await press(pilot, "enter")
        assert "other questions are being answered" in lines(app)[0]
        is_busy = False
        if by_hand:
            await press(pilot, "r")
        await ready(pilot, lambda: "36 windows, super host in 36" in "\n".join(lines(app)))
        assert "other questions" not in lines(app)[0]
        before = len(asked)
        for _ in range(3):
            app._look_if_lost()
            await ready(pilot, lambda: True)
        assert len(asked) == before  # There is an answer for this window.
        await press(pilot, "r")
        assert len(asked) == before + 1
        await press(pilot, "escape")
        assert len(hosts(app)) == len(HOSTS)


@pytest.mark.slow
async def test_lists_that_cannot_be_asked_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "RETRY", 0.1)
    failures = [LinkError("no answer")] * 3
    view = make_view()
    plain = view.list_sites

    def list_sites() -> Any:
        if failures:
            raise failures.pop()
        return plain()

    view.list_sites = list_sites
    app = TopApp(view)
    async with driven(app) as pilot:
        await press(pilot, "h")
        await ready(pilot, lambda: "Sites: 4, 1 missing" in lines(app)[0])


async def test_a_program_that_is_ending_does_not_look() -> None:
    app = TopApp(make_view())
    async with driven(app):
        pass
    app._look_if_lost()  # The timer can be due between the last screen and the end.


@pytest.mark.slow
async def test_a_screen_that_is_being_removed_is_not_drawn() -> None:
    app = TopApp(make_view())
    async with driven(app) as pilot:
        await app.screen.query("*").remove()
        app._look_if_lost()
        await press(pilot, "r")


async def test_what_does_not_change_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen goes over ssh, perhaps from far away."""
    view = make_view()
    app = TopApp(view)
    async with driven(app) as pilot:
        drawn: list[Any] = []
        for kind in (Grid, Line):
            plain = kind.refresh
            monkeypatch.setattr(
                kind, "refresh", lambda self, *_, plain=plain, **more: drawn.append(self) or plain(self)
            )
        for _ in range(3):
            view.board.put(scene.shown(WINDOWS - 1))
            await ready(pilot, lambda: app.snapshot.summary["changed"] == view.board.version)
        app._look_if_lost()
        assert drawn == []
        view.board.put(scene.shown(WINDOWS))
        await ready(pilot, lambda: app.snapshot.summary["changed"] == view.board.version)
        assert {type(each) for each in drawn} == {Grid, Line}


@pytest.mark.slow
async def test_ten_thousand_hosts_are_drawn_a_screenful_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    plain = program.host_line
    monkeypatch.setattr(program, "host_line", lambda *given, **more: drawn.append(given) or plain(*given, **more))
    _, app = hub([row(f"10.{n >> 8}.{n & 255}.1", "", "", 20_000 - n, 0.03, ()) for n in range(10_000)])
    async with driven(app) as pilot:
        await press(pilot, "end")
        assert "10.39.15.1" in "\n".join(lines(app))
        assert len(drawn) < 1000


def test_windows_are_listed_again_only_when_something_has_changed() -> None:
    view, asked = make_view(3), []
    plain = view.windows
    view.windows = lambda: asked.append(1) or plain()
    first = look(view, None, NOTHING)
    assert look(view, None, first).windows == first.windows
    assert len(asked) == 1
    put(view.board, WINDOWS - 10, small(2))  # a late one
    assert len(look(view, None, first).windows) == 4
