"""The program, its screens and dialogs, and the keys.

Each screen asks for what it shows in threads, again after each change: no screen waits for an answer.
"""

from __future__ import annotations

import asyncio
import signal
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

import superhosts.ui.top.pages as pages
from superhosts.core.text import printable
from superhosts.core.units import SECOND, parse_duration
from superhosts.errors import SuperhostsError
from superhosts.ui.threads import Workers
from superhosts.ui.top.drawing import BOLD, DIM, WARNING, placed
from superhosts.ui.top.feed import NOTHING, Feed, Json, Snapshot, Span, look, span_of
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
from superhosts.ui.top.pages import Item, ListTable, Where, keys_line

THREADS = 4  # that ask
RETRY = 2.0  # seconds after which a question that failed is asked again
Draw = Callable[[int, bool], Text]  # the line at a place, and whether the cursor is on it


class Grid(ScrollView, can_focus=True):
    """A list of lines with a cursor that stays on its line when others come and go.

    Lines are drawn when they are visible, and the terminal gets only what has changed: nothing flickers, and ten
    thousand hosts cost no more than a screenful.
    """

    DEFAULT_CSS = """
    Grid { height: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-gutter: stable; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("up,k", "move(-1)"),
        ("down,j", "move(1)"),
        ("pageup,ctrl+b", "page(-1)"),
        ("pagedown,ctrl+f,space", "page(1)"),
        ("home,g", "end(False)"),
        ("end,G", "end(True)"),
        ("enter", "choose"),
    ]

    class Chosen(Message):
        """Somebody has pressed Enter on a line."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.cursor = 0
        self._keys: list[Hashable] = []
        self._draw: Draw = lambda place, chosen: Text()
        self._moved = False  # until somebody moves it, the cursor stays on the first line

    @property
    def key(self) -> Hashable | None:
        """What the cursor is on; None if there are no lines."""
        return self._keys[self.cursor] if self.cursor < len(self._keys) else None

    def show(self, keys: Sequence[Hashable], draw: Draw) -> None:
        """Show other lines. The cursor stays on its line, and that line at its place on the screen, if it is there."""
        before, key = self.cursor, self.key
        self._keys, self._draw = list(keys), draw
        if self._moved and key in self._keys:
            self.cursor = self._keys.index(key)
        else:
            self.cursor = min(self.cursor, max(len(self._keys) - 1, 0))
        self.virtual_size = Size(self.size.width, len(self._keys))
        if self.cursor != before:
            self.scroll_to(y=self.scroll_offset.y + self.cursor - before, animate=False, force=True)
        self._keep_visible()
        self.refresh()

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self._keys))
        self._keep_visible()

    def render_line(self, y: int) -> Strip:
        place = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if place >= len(self._keys):
            return Strip.blank(width, self.rich_style)
        text = self._draw(place, place == self.cursor)
        return Strip(text.render(self.app.console)).adjust_cell_length(width).apply_style(self.rich_style)

    def action_move(self, lines: int) -> None:
        self._go(self.cursor + lines)

    def action_page(self, pages: int) -> None:
        self._go(self.cursor + pages * max(self.size.height - 1, 1))

    def action_end(self, last: bool) -> None:
        self._go(len(self._keys) - 1 if last else 0)

    def action_choose(self) -> None:
        if self._keys:
            self.post_message(self.Chosen())

    def _go(self, place: int) -> None:
        self._moved = True
        self.cursor = min(max(place, 0), max(len(self._keys) - 1, 0))
        self._keep_visible()
        self.refresh()

    def _keep_visible(self) -> None:
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, force=True)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, force=True)


class Line(Widget):
    DEFAULT_CSS = "Line { height: 1; }"

    def __init__(self, draw: Callable[[int], Text], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._draw = draw
        self._drawn = Text()

    def render(self) -> Text:
        self._drawn = self._draw(self.size.width)
        self._drawn.no_wrap = True
        return self._drawn

    def update(self) -> None:
        """Draw the line again, if it has changed: what is drawn goes over the network, to somebody far away perhaps."""
        if self._draw(self.size.width) != self._drawn:
            self.refresh()


KEYS = (
    ("↑ ↓ PgUp PgDn", "move; also k j g G"),
    ("Enter", "one host: past, evidence, sites, alerts"),
    ("/", "filter by words or by a prefix"),
    ("s S", "sort by the next or previous column"),
    ("[ ] ← →", "an older or newer window"),
    ("n", "the newest window, and follow it"),
    ("a", "alerts, and what is muted"),
    ("h", "sites of a hub"),
    ("m u", "mute a host for some time, unmute it"),
    ("r", "ask again, and draw the screen anew"),
    ("Esc", "back; without a filter; newest window"),
    ("q", "quit"),
)
WIDTH = 16  # cells for keys
LEGEND = """
A bar is solid up to the lower end of the 95 % interval,
and shaded to its upper end. ! marks hosts with an alert."""
BOX = """
    align: center middle;
    & > Vertical { width: 64; max-width: 100%; height: auto; border: round ansi_default; padding: 0 2; }
    & Static { height: auto; }
    & Horizontal { height: 1; }
    & Horizontal Static { width: 6; }
    & #told { margin-top: 1; }
"""


class Help(ModalScreen[None]):
    CSS = f"Help {{ {BOX} }}"
    BINDINGS: ClassVar[list[BindingType]] = [("escape,question_mark,enter,q,space", "dismiss")]

    def compose(self) -> ComposeResult:
        text = Text().append("Keys\n\n", BOLD)
        for key, deed in KEYS:
            text.append(f"{key:<{WIDTH}}", BOLD).append(f"{deed}\n")
        text.append(LEGEND, DIM)
        with Vertical():
            yield Static(text, markup=False)


class MuteDialog(ModalScreen[str]):
    """Asks for how long alerts of a host are to be muted; returns what to tell when that is done."""

    CSS = f"MuteDialog {{ {BOX} }}"
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "cancel")]

    def __init__(self, top: TopApp, host: str, rule: str) -> None:
        super().__init__()
        self._top, self._host, self._rule = top, host, rule

    def compose(self) -> ComposeResult:
        fields = (("duration", "for", "8h"), ("rule", "rule", self._rule), ("why", "note", ""))
        empty = {"duration": "90s, 8h, 30d", "rule": "all rules", "why": "for others"}
        with Vertical():
            yield Static(Text("Mute alerts of ").append(printable(self._host), BOLD).append("?\n"), markup=False)
            for name, title, value in fields:
                with Horizontal():
                    yield Static(Text(title, DIM), markup=False)
                    yield Input(value, placeholder=empty[name], id=name, compact=True, select_on_focus=False)
            yield Static(id="told", markup=False)
            yield Static(Text("Enter mutes it   Tab next field   Esc does not", DIM), markup=False)

    def on_mount(self) -> None:
        self.query_one("#duration", Input).focus()

    def on_input_submitted(self) -> None:
        self.run_worker(self._mute(), exclusive=True)

    async def _mute(self) -> None:
        value = {name: self.query_one(f"#{name}", Input).value.strip() for name in ("duration", "rule", "why")}
        try:
            seconds = parse_duration(value["duration"]) / SECOND
            mute = partial(self._top.feed.mute, self._host, value["rule"], seconds, value["why"])
            await self._top.threads.run(mute)
        except SuperhostsError as error:
            self.query_one("#told", Static).update(Text(printable(str(error)), WARNING))
            return
        self.dismiss(f"{self._host} for {value['duration']}")

    def action_cancel(self) -> None:
        self.dismiss("")


BACK, BACK_KEYS = ("Esc", "back"), ("escape,left,backspace", "back")


class AskingScreen(Screen[None]):
    """A screen that asks for what it shows. Type checkers know that it is abstract: screens have another metaclass."""

    def __init__(self, top: TopApp) -> None:
        super().__init__()
        self.top = top
        self.error = ""  # why the last question has no answer
        self._is_asking = self._ask_again = False

    @abstractmethod
    def ask(self) -> Any: ...
    @abstractmethod
    def take(self, answer: Any) -> None: ...
    @abstractmethod
    def draw(self) -> None: ...

    def on_mount(self) -> None:
        self.look()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def look(self) -> None:
        """Ask; what changes meanwhile is asked for afterwards."""
        self._ask_again = True
        if not self._is_asking:
            self._is_asking = True
            self.run_worker(self._look())

    def look_if_changed(self) -> None:
        self.look()

    @property
    def has_failed(self) -> bool:
        return bool(self.error) and not self._is_asking

    async def _look(self) -> None:
        try:
            while self._ask_again:
                self._ask_again = False
                try:
                    self.take(await self.top.threads.run(self.ask))
                    self.error = ""
                except SuperhostsError as error:
                    self.error = str(error)
        finally:
            self._is_asking = False
        self.refresh_lines()

    def refresh_lines(self) -> None:
        for line in self.query(Line):
            line.update()

    def link(self) -> Text:
        why = self.top.lost or self.error
        return Text(printable(why), WARNING) if why else Text("asking …" if self._is_asking else "", DIM)

    def action_back(self) -> None:
        self.dismiss()


class HostScreen(AskingScreen):
    BINDINGS: ClassVar[list[BindingType]] = [BACK_KEYS, ("m", "mute"), ("j", "scroll(1)"), ("k", "scroll(-1)")]
    KEYS = (("↑ ↓", "scroll"), ("m", "mute"), ("a", "alerts"), BACK, ("?", "help"), ("q", "quit"))

    def __init__(self, top: TopApp, row: HostRow, span: Span | None) -> None:
        super().__init__(top)
        self._row, self._span = row, span
        self._answer: Json = {}
        self._asked_in: Span | None = None  # the newest window when it was asked
        self._is_old = top.where.wanted is not None  # then its numbers are not those of the newest window

    def compose(self) -> ComposeResult:
        yield Line(lambda width: placed(pages.page_title(self._row, self._span), self.link().append(" "), width))
        yield Line(lambda width: Text("─" * width, DIM))
        with VerticalScroll(id="page"):
            yield Static(id="text", markup=False)
        yield Line(lambda width: keys_line(self.KEYS, width))

    def look_if_changed(self) -> None:
        """Ask again; where that means to read many sketches, only after a new window, or if there was no answer."""
        snapshot = self.top.snapshot
        if not snapshot.can("ask") or snapshot.newest != self._asked_in or self.has_failed:
            self.look()

    def look(self) -> None:
        self._asked_in = self.top.snapshot.newest
        super().look()

    def ask(self) -> Json:
        return self.top.feed.host(self._row.asked)

    def take(self, answer: Json) -> None:
        """Show the host, with the numbers of now unless somebody came from an older window."""
        if not self._is_old:
            same = [row for row in host_rows(answer.get("rows") or ()) if row.key == self._row.key]
            if same:
                self._row, self._span = same[0], self._asked_in
        self._answer = answer
        self.draw()

    def draw(self) -> None:
        width = self.query_one("#page").scrollable_content_region.width - 2
        if width > 0:
            self.query_one("#text", Static).update(pages.host_page(self._answer, self._row, width))

    def action_scroll(self, lines: int) -> None:
        self.query_one("#page").scroll_relative(y=lines, animate=False)

    def action_mute(self) -> None:
        self.top.mute(self._row.asked)


class ListScreen(AskingScreen):
    BINDINGS: ClassVar[list[BindingType]] = [BACK_KEYS]
    KEYS: ClassVar[tuple[tuple[str, str], ...]]
    EMPTY: ClassVar[str]

    def __init__(self, top: TopApp) -> None:
        super().__init__(top)
        self._items: list[Item] = []
        self._table = ListTable((), {})
        self._has_asked = False

    def compose(self) -> ComposeResult:
        yield Line(lambda width: placed(Text(f" {self.heading()}", BOLD), self.link().append(" "), width))
        yield Line(self._header)
        yield Grid()
        yield Line(lambda width: keys_line(self.KEYS, width))

    def on_mount(self) -> None:
        self.query_one(Grid).focus()

    @abstractmethod
    def heading(self) -> str: ...
    @abstractmethod
    def items(self, answer: Any) -> list[Item]: ...

    def take(self, answer: Any) -> None:
        self._items, self._has_asked = self.items(answer), True
        self.draw()

    def draw(self) -> None:
        grid = self.query_one(Grid)
        table = self._table = pages.list_table(self._items, grid.scrollable_content_region.width)
        grid.show([item.key for item in self._items], table.line)
        self.refresh_lines()

    def _header(self, _width: int) -> Text:
        if self._items:
            return self._table.header()
        return Text(f"  {self.EMPTY if self._has_asked else ''}", DIM)

    @property
    def chosen(self) -> Item | None:
        place = self.query_one(Grid).cursor
        return self._items[place] if place < len(self._items) else None


class AlertsScreen(ListScreen):
    BINDINGS: ClassVar[list[BindingType]] = [("m", "mute"), ("u", "unmute")]
    KEYS = (("m", "mute"), ("u", "unmute"), ("h", "sites"), BACK, ("?", "help"), ("q", "quit"))
    EMPTY = "No alerts."

    def ask(self) -> Json:
        return self.top.feed.list_alerts()

    def items(self, answer: Json) -> list[Item]:
        return pages.alert_items(answer)

    def heading(self) -> str:
        snapshot = self.top.snapshot
        if snapshot.summary and snapshot.alerts is None:
            return "Alerts: none are kept here (--alerts FILE keeps them)"
        return f"Alerts: {pages.alerts_heading(self._items)}"

    def action_mute(self) -> None:
        if self.chosen is not None:
            self.top.mute(*_whose(self.chosen))

    def action_unmute(self) -> None:
        if self.chosen is not None and self.chosen.cells["state"] == "muted":
            self.run_worker(self._unmute(*_whose(self.chosen)))

    async def _unmute(self, host: str, rule: str) -> None:
        try:
            was_muted = await self.top.threads.run(partial(self.top.feed.unmute, host, rule))
        except SuperhostsError as error:
            self.notify(printable(str(error)), severity="error", markup=False)
        else:
            if not was_muted:
                self.notify(f"{printable(host)} was not muted any more", markup=False)
        self.look()


def _whose(item: Item) -> tuple[str, str]:
    return str(item.content.get("host")), str(item.content.get("rule") or "")


class SitesScreen(ListScreen):
    KEYS = (("a", "alerts"), BACK, ("?", "help"), ("q", "quit"))
    EMPTY = "No sites are known here: a hub has them."

    def ask(self) -> list[Json]:
        return self.top.feed.list_sites()

    def items(self, answer: list[Json]) -> list[Item]:
        now = self.top.snapshot.summary.get("now")  # by the hub's clock
        return pages.site_items(answer, float(now or 0.0))

    def heading(self) -> str:
        missing = sum(item.cells["newest window"] == "missing" for item in self._items)
        return f"Sites: {len(self._items)}, {missing} missing"


class HostsScreen(AskingScreen):
    KEYS = (
        *(("↵", "host"), ("/", "filter"), ("s", "sort"), ("[ ]", "window"), ("a", "alerts"), ("h", "sites")),
        *(("m", "mute"), ("?", "help"), ("q", "quit")),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        ("s", "sort(1)"),
        ("S", "sort(-1)"),
        ("slash", "filter"),
        ("escape", "clear"),
        ("left,left_square_bracket", "window(-1)"),
        ("right,right_square_bracket", "window(1)"),
        ("n", "newest"),
        ("m", "mute"),
    ]

    def __init__(self, top: TopApp) -> None:
        super().__init__(top)
        self._rows: list[HostRow] = []  # in order, that the filter leaves
        self._layout = NO_LAYOUT
        self._why = ""  # there are no rows
        self._drawn: object = None  # what the table shows

    def compose(self) -> ComposeResult:
        top = self.top
        yield Line(lambda width: pages.title_line(top.snapshot, top.halted, top.where, width), id="title")
        yield Line(self._status, id="status")
        yield Line(lambda width: header_line(self._layout, top.where.order), id="header")
        yield Static(id="empty", markup=False)
        yield Grid(id="hosts")
        yield Line(lambda width: keys_line(self.KEYS, width), id="keys")
        with Horizontal(id="filter"):
            yield Static(" / ", markup=False)
            yield Input(placeholder="words, or a prefix like 10.0.0.0/8; Esc shows all", compact=True)

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
        self.query_one(Grid).focus()
        self.draw()

    def on_screen_resume(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self._layout = NO_LAYOUT  # Textual calls that of AskingScreen, too.

    def ask(self) -> Snapshot:
        return look(self.top.feed, self.top.where.wanted, self.top.snapshot)

    def take(self, answer: Snapshot) -> None:
        top = self.top
        top.snapshot, top.rows = answer, host_rows((answer.shown or {}).get("rows") or ())
        if top.where.wanted not in [None, *map(span_of, answer.windows)]:
            top.where = top.where._replace(wanted=None)  # it is too old to be kept

    async def _look(self) -> None:
        await super()._look()
        self.draw()
        if isinstance(self.app.screen, AskingScreen):
            self.app.screen.look_if_changed()

    def look_if_changed(self) -> None:
        """Do nothing: this is what looks for changes."""

    @property
    def _is_there(self) -> bool:
        """True if there is something to draw on: not before the screen is put together, nor after it was removed."""
        return self.is_mounted and bool(self.query("#empty"))

    def draw(self) -> None:
        if not self._is_there:
            return
        snapshot, where, known = self.top.snapshot, self.top.where, self.top.rows
        grid = self.query_one(Grid)
        self._rows = filtered(ordered(known, where.order), where.words)
        width = grid.scrollable_content_region.width
        if width <= 0:  # before the first layout
            return
        self._layout = lay_out(known, width, self._layout)
        rows, layout = self._rows, self._layout
        alerts = frozenset(snapshot.alerts or ())

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
        top, why = self.top, self.query_one("#empty", Static)
        text = pages.why_empty(top.snapshot, top.lost or top.note, top.where) if not self._rows else ""
        why.display = bool(text)
        if text != self._why:
            self._why = text
            why.update(Text(text, "dim"))

    def _status(self, width: int) -> Text:
        top = self.top
        if top.note and not top.lost:
            return placed(Text(f" {top.note}", "bold"), Text(), width)
        return pages.status_line(top.snapshot, top.lost, top.where, len(self._rows), width)

    @property
    def chosen(self) -> HostRow | None:
        place = self.query_one(Grid).cursor
        return self._rows[place] if place < len(self._rows) else None

    def on_grid_chosen(self) -> None:
        shown = self.top.snapshot.shown
        if self.chosen is not None and shown is not None:
            self.app.push_screen(HostScreen(self.top, self.chosen, span_of(shown)))

    def action_sort(self, step: int) -> None:
        names = [name for name in ORDERS if name in self._layout.widths]
        where = self.top.where
        place = names.index(where.order) if where.order in names else 0
        self.top.where = where._replace(order=names[(place + step) % len(names)] if names else where.order)
        self.draw()

    def action_filter(self) -> None:
        field = self.query_one(Input)
        self.query_one("#keys").display = False
        self.query_one("#filter").display = True
        field.value = self.top.where.words
        field.focus()

    def action_clear(self) -> None:
        if self.top.where.words or self.query_one("#filter").display:
            self._filter("")
            self._leave_filter()
        else:
            self.action_newest()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._filter(event.value)

    def on_input_submitted(self) -> None:
        self._leave_filter()

    def _filter(self, words: str) -> None:
        self.top.where = self.top.where._replace(words=words)
        self.draw()

    def _leave_filter(self) -> None:
        self.query_one("#filter").display = False
        self.query_one("#keys").display = True
        self.query_one(Grid).focus()

    def action_window(self, step: int) -> None:
        where = self.top.where
        older = [span_of(each) for each in self.top.snapshot.windows[:-1]]
        place = older.index(where.wanted) if where.wanted in older else len(older)
        place = max(place + step, 0)
        self.top.where = where._replace(wanted=older[place] if place < len(older) else None)
        self.look()
        self.refresh_lines()

    def action_newest(self) -> None:
        self.top.where = self.top.where._replace(wanted=None)
        self.look()

    def action_mute(self) -> None:
        if self.chosen is not None:
            self.top.mute(self.chosen.asked)


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
        ("q,ctrl+c,ctrl+q", "quit"),
        ("a", "alerts"),
        ("h", "sites"),
        ("question_mark,f1", "help"),
        ("ctrl+z", "suspend_process"),
        ("ctrl+l,r", "redraw"),
    ]

    def __init__(self, feed: Feed, *, messages: Callable[[], str] = lambda: "") -> None:
        """Show a feed; `messages` returns what is to be told about the work behind it."""
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"  # The terminal's own colours, whatever its background is.
        self.feed, self.threads = feed, Workers(THREADS, "question")
        self.snapshot = NOTHING
        self.rows: list[HostRow] = []  # of the window that is looked at
        self.where = Where()
        self._messages = messages
        self._hosts = HostsScreen(self)

    @property
    def lost(self) -> str:
        return self.feed.lost or self._hosts.error

    @property
    def halted(self) -> str:
        return self.feed.halted if self.lost else ""

    @property
    def note(self) -> str:
        return printable(self._messages())

    def get_default_screen(self) -> Screen[None]:
        return self._hosts

    def on_mount(self) -> None:
        self.feed.follow(self._look_again)
        if not self.is_headless:
            for number in (signal.SIGTERM, signal.SIGHUP):  # else the terminal would be left as the screen needs it
                asyncio.get_running_loop().add_signal_handler(number, partial(self.exit, return_code=128 + number))
        self.set_interval(RETRY, self._look_if_lost)

    def on_unmount(self) -> None:
        self.threads.close()

    def _look_if_lost(self) -> None:
        if not self.is_running:  # The screens are being closed.
            return
        if self.lost:
            self._hosts.look()
        elif isinstance(self.screen, AskingScreen) and self.screen.has_failed:
            self.screen.look()
        self._hosts.show_messages()

    def _look_again(self) -> None:
        """Ask for what has changed. Any thread may call this."""
        self.call_later(self._hosts.look)

    def mute(self, host: str, rule: str = "") -> None:
        if not self.snapshot.can("alerts"):
            self.notify("No alerts are kept here: --alerts FILE keeps them.", title="Nothing to mute", markup=False)
            return
        self.push_screen(MuteDialog(self, host, rule), self._muted)

    def _muted(self, told: str | None) -> None:
        if told:
            self.notify(printable(told), title="Muted", markup=False)
            self._hosts.look()

    def leave_if_empty(self) -> None:
        """End if there is nothing to see and there never will be. Any thread may call this, when the work has ended."""
        if self.feed.lost and self.snapshot.summary and self.snapshot.shown is None:
            self.call_later(self.exit)
        self._look_again()

    def findings(self, width: int, most: int) -> list[str]:
        """Return the hosts that were shown last as lines, which stay on the terminal when the program has ended."""
        snapshot, where = self.snapshot, self.where
        if snapshot.shown is None:
            return []
        found = filtered(ordered(self.rows, where.order), where.words)
        layout, alerts = lay_out(self.rows, width), frozenset(snapshot.alerts or ())
        lines = [pages.title_line(snapshot, self.halted, where, width), header_line(layout, where.order)]
        for row in found[:most]:
            lines.append(host_line(row, layout, is_chosen=False, has_alert=row.asked in alerts))
        texts = [line.plain.rstrip() for line in lines]
        return [*texts, f"  … and {len(found) - most:,} more"] if len(found) > most else texts

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
        self._hosts.look()
        if isinstance(self.screen, AskingScreen):
            self.screen.look()
        self.refresh(layout=True)

    def _open(self, screen: Screen[None]) -> None:
        if isinstance(self.screen, HostsScreen):
            self.push_screen(screen)
        elif isinstance(self.screen, AskingScreen):
            self.switch_screen(screen)
