"""The program: the screen of hosts, and the keys. Other screens are in `screens.py` and `dialogs.py`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input, Static

from superhosts.core.text import printable
from superhosts.errors import SuperhostsError
from superhosts.ui.top.drawing import placed
from superhosts.ui.top.feed import Feed, Looker, Snapshot, span_of
from superhosts.ui.top.hosts import (
    NO_LAYOUT,
    ORDERS,
    HostRow,
    filtered,
    header_line,
    host_line,
    host_rows,
    lay_out,
    ordered,
)
from superhosts.ui.top.pages import Where, keys_line, status_line, title_line, why_empty
from superhosts.ui.top.screens import (
    AlertsScreen,
    AskingScreen,
    Grid,
    Help,
    HostScreen,
    Line,
    MuteDialog,
    SitesScreen,
    in_thread,
)

KEYS = (
    ("↵", "host"),
    ("/", "filter"),
    ("s", "sort"),
    ("[ ]", "window"),
    ("a", "alerts"),
    ("h", "sites"),
    ("m", "mute"),
    ("?", "help"),
    ("q", "quit"),
)
RETRY = 2.0  # seconds after which a question that failed is asked again


class Changed(Message):
    """The feed has something new."""


class HostsScreen(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort(1)", show=False),
        Binding("S", "sort(-1)", show=False),
        Binding("slash", "filter", show=False),
        Binding("escape", "clear", show=False),
        Binding("left,left_square_bracket", "window(-1)", show=False),
        Binding("right,right_square_bracket", "window(1)", show=False),
        Binding("n", "newest", show=False),
        Binding("m", "mute", show=False),
    ]

    def __init__(self, app: TopApp) -> None:
        super().__init__()
        self._top = app
        self._rows: list[HostRow] = []
        self._layout = NO_LAYOUT
        self._why = ""  # there are no rows
        self._drawn: object = None  # what the table shows

    def compose(self) -> ComposeResult:
        top = self._top
        yield Line(lambda width: title_line(top.snapshot, top.halted, top.where, width), id="title")
        yield Line(self._status, id="status")
        yield Line(lambda width: header_line(self._layout, top.where.order), id="header")
        yield Static(id="empty", markup=False)
        yield Grid(id="hosts")
        yield Line(lambda width: keys_line(KEYS, width), id="keys")
        with Horizontal(id="filter"):
            yield Static(" / ", markup=False)
            yield Input(placeholder="words, or a prefix like 10.0.0.0/8; Esc shows all", compact=True)

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
        self.query_one(Grid).focus()
        self.show()

    def on_screen_resume(self) -> None:
        self.show()

    def on_resize(self) -> None:
        self._layout = NO_LAYOUT
        self.call_after_refresh(self.show)

    @property
    def _is_there(self) -> bool:
        """True if there is something to draw on: not before the screen is put together, nor after it was removed."""
        return self.is_mounted and bool(self.query("#empty"))

    def show(self) -> None:
        if not self._is_there:
            return
        snapshot, where = self._top.snapshot, self._top.where
        grid = self.query_one(Grid)
        known = [] if snapshot is None or snapshot.shown is None else self._top.rows
        self._rows = filtered(ordered(known, where.order), where.words)
        width = grid.scrollable_content_region.width
        if width <= 0:  # before the first layout
            return
        self._layout = lay_out(known, width, self._layout)
        rows, layout = self._rows, self._layout
        alerts = frozenset(() if snapshot is None else snapshot.alerts or ())

        def draw(place: int, is_chosen: bool) -> Text:
            row = rows[place]
            return host_line(row, layout, is_chosen=is_chosen, has_alert=row.asked in alerts)

        if (rows, layout, alerts) != self._drawn:  # else the whole table would go over the network again
            self._drawn = rows, layout, alerts
            grid.show([row.key for row in rows], draw)
        self._explain()
        self.refresh_lines()

    def show_messages(self) -> None:
        if self._is_there:
            self._explain()
            self.refresh_lines()

    def _explain(self) -> None:
        top, why = self._top, self.query_one("#empty", Static)
        text = why_empty(top.snapshot, top.lost or top.note, top.where) if not self._rows else ""
        why.display = bool(text)
        if text != self._why:
            self._why = text
            why.update(Text(text, "dim"))

    def refresh_lines(self) -> None:
        for line in self.query(Line):
            line.update()

    def _status(self, width: int) -> Text:
        top = self._top
        note = top.note
        if note and not top.lost:
            return placed(Text(f" {note}", "bold"), Text(), width)
        return status_line(top.snapshot, top.lost, top.where, len(self._rows), width)

    @property
    def chosen(self) -> HostRow | None:
        place = self.query_one(Grid).cursor
        return self._rows[place] if place < len(self._rows) else None

    def on_grid_chosen(self) -> None:
        snapshot = self._top.snapshot
        if self.chosen is not None and snapshot is not None and snapshot.shown is not None:
            self.app.push_screen(HostScreen(self._top, self.chosen, span_of(snapshot.shown)))

    def action_sort(self, step: int) -> None:
        names = [name for name in ORDERS if name in self._layout.widths]
        where = self._top.where
        place = names.index(where.order) if where.order in names else 0
        self._top.where = where._replace(order=names[(place + step) % len(names)] if names else where.order)
        self.show()

    def action_filter(self) -> None:
        field = self.query_one(Input)
        self.query_one("#keys").display = False
        self.query_one("#filter").display = True
        field.value = self._top.where.words
        field.focus()

    def action_clear(self) -> None:
        if self._top.where.words or self.query_one("#filter").display:
            self._filter("")
            self._leave_filter()
        else:
            self.action_newest()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._filter(event.value)

    def on_input_submitted(self) -> None:
        self._leave_filter()

    def _filter(self, words: str) -> None:
        self._top.where = self._top.where._replace(words=words)
        self.show()

    def _leave_filter(self) -> None:
        self.query_one("#filter").display = False
        self.query_one("#keys").display = True
        self.query_one(Grid).focus()

    def action_window(self, step: int) -> None:
        snapshot, where = self._top.snapshot, self._top.where
        if snapshot is None or not snapshot.windows:
            return
        spans = [span_of(each) for each in snapshot.windows]
        place = spans.index(where.wanted) if where.wanted in spans else len(spans) - 1
        place = min(max(place + step, 0), len(spans) - 1)
        self._top.where = where._replace(wanted=None if place == len(spans) - 1 else spans[place])
        self._top.look()
        self.refresh_lines()

    def action_newest(self) -> None:
        self._top.where = self._top.where._replace(wanted=None)
        self._top.look()

    def action_mute(self) -> None:
        if self.chosen is not None:
            self._top.mute(self.chosen.asked)


class TopApp(App[None]):
    TITLE = "superhosts top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    ModalScreen { background: transparent; }
    * { scrollbar-size-vertical: 1; scrollbar-color: ansi_bright_black; scrollbar-background: ansi_default; }
    * { scrollbar-color-hover: ansi_bright_black; scrollbar-color-active: ansi_bright_black; }
    #text { padding: 0 1; }
    #empty { padding: 1 2; height: auto; }
    Input { background: ansi_default; color: ansi_default; width: 1fr; }
    #filter { height: 1; }
    Toast { background: ansi_default; border: round ansi_default; padding: 0 1; }
    #filter Static { width: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c,ctrl+q", "quit", show=False, priority=False),
        Binding("a", "alerts", show=False),
        Binding("h", "sites", show=False),
        Binding("question_mark,f1", "help", show=False),
        Binding("ctrl+z", "suspend_process", show=False),
        Binding("ctrl+l,r", "redraw", show=False),
    ]

    def __init__(self, feed: Feed, *, messages: Callable[[], str] = lambda: "") -> None:
        """Show a feed; `messages` returns what is to be told about the work behind it."""
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"  # The terminal's own colours, whatever its background is.
        self.feed = feed
        self.snapshot: Snapshot | None = None
        self.rows: list[HostRow] = []  # of the window that is looked at
        self.where = Where()
        self._error = ""
        self._messages = messages
        self._looker = Looker(feed)
        self._is_looking = self._look_again = False
        self._hosts = HostsScreen(self)

    @property
    def lost(self) -> str:
        """Why there is nothing new; empty: the link works."""
        return self.feed.lost or self._error

    @property
    def halted(self) -> str:
        """The same in two words."""
        return self.feed.halted if self.lost else ""

    @property
    def note(self) -> str:
        """The last message about the work behind the feed."""
        return printable(self._messages())

    def get_default_screen(self) -> Screen[None]:
        return self._hosts

    def on_mount(self) -> None:
        self.feed.follow(self._tell)
        if not self.is_headless:
            for number in (signal.SIGTERM, signal.SIGHUP):  # else the terminal would be left as the screen needs it
                asyncio.get_running_loop().add_signal_handler(number, partial(self.exit, return_code=128 + number))
        self.set_interval(RETRY, self._look_if_lost)
        self.look()

    def _tell(self) -> None:
        self.post_message(Changed())

    def on_changed(self) -> None:
        self.look()

    def _look_if_lost(self) -> None:
        if self.lost or self._looker.is_due:
            self.look()
        elif isinstance(self.screen, AskingScreen) and self.screen.has_failed:
            self.screen.look()
        self._hosts.show_messages()

    def look(self) -> None:
        """Take a snapshot, in a thread. What changes meanwhile is looked at afterwards."""
        self._look_again = True
        if not self._is_looking:
            self._is_looking = True
            self.run_worker(self._look(), exit_on_error=True)

    async def _look(self) -> None:
        try:
            while self._look_again:
                self._look_again = False
                try:
                    snapshot = await in_thread(partial(self._looker.look, self.where.wanted))
                    rows = [] if snapshot.shown is None else host_rows(snapshot.shown.get("rows") or ())
                except SuperhostsError as error:
                    self._error = str(error)
                else:
                    self._take(snapshot, rows)
        finally:
            self._is_looking = False
        self._hosts.show()
        if isinstance(self.screen, AskingScreen):
            self.screen.look_if_changed()

    def _take(self, snapshot: Snapshot, rows: list[HostRow]) -> None:
        self._error = ""
        self.snapshot, self.rows = snapshot, rows
        spans = [span_of(each) for each in snapshot.windows]
        if self.where.wanted is not None and self.where.wanted not in spans:
            self.where = self.where._replace(wanted=None)  # it is too old to be kept

    def mute(self, host: str, rule: str = "") -> None:
        if self.snapshot is None or not self.snapshot.summary.get("can", {}).get("alerts"):
            self.notify("No alerts are kept here: --alerts FILE keeps them.", title="Nothing to mute", markup=False)
            return
        self.push_screen(MuteDialog(self.feed, host, rule), self._muted)

    def _muted(self, told: str | None) -> None:
        if told:
            self.notify(printable(told), title="Muted", markup=False)
            self.look()

    def leave_if_empty(self) -> None:
        """End if there is nothing to see and there never will be. Any thread may call this, when the work has ended."""
        if self.feed.lost and self.snapshot is not None and self.snapshot.shown is None:
            self.call_later(self.exit)
        self._tell()

    async def action_quit(self) -> None:
        self.exit()

    def action_alerts(self) -> None:
        self._open(AlertsScreen(self))

    def action_sites(self) -> None:
        self._open(SitesScreen(self))

    def action_help(self) -> None:
        if not isinstance(self.screen, Help):
            self.push_screen(Help())

    def action_redraw(self) -> None:
        self.look()
        if isinstance(self.screen, AskingScreen):
            self.screen.look()
        self.refresh(layout=True)

    def _open(self, screen: Screen[None]) -> None:
        if isinstance(self.screen, HostsScreen):
            self.push_screen(screen)
        elif isinstance(self.screen, AskingScreen):
            self.switch_screen(screen)
