"""Widgets, dialogs, and the screens behind the hosts: one host, alerts, sites.

Each screen asks for what it shows in threads, again after each change: no screen waits for an answer.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from superhosts.core.text import printable
from superhosts.core.units import SECOND, parse_duration
from superhosts.errors import SuperhostsError
from superhosts.ui.top.drawing import BOLD, DIM, WARNING, placed
from superhosts.ui.top.feed import Feed, Json, Snapshot, Span, span_of
from superhosts.ui.top.hosts import HostRow, host_rows
from superhosts.ui.top.pages import (
    Item,
    ListTable,
    Where,
    alert_items,
    alerts_heading,
    host_page,
    keys_line,
    list_table,
    page_title,
    site_items,
)

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
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f,space", "page(1)", show=False),
        Binding("home,g", "end(False)", show=False),
        Binding("end,G", "end(True)", show=False),
        Binding("enter", "choose", show=False),
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
    """One line that is drawn for the width that it has."""

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


Found = TypeVar("Found")


async def in_thread(ask: Callable[[], Found]) -> Found:
    """Return what `ask` returns, or raise what it raises. Its thread does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Found] = loop.create_future()

    def settle(act: Callable[[], None]) -> None:
        if not future.done():  # else nobody waits any more
            act()

    def run() -> None:
        try:
            found = ask()
        except Exception as error:
            caught = error
            tell(lambda: future.set_exception(caught))
        else:
            tell(lambda: future.set_result(found))

    def tell(act: Callable[[], None]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, act)

    threading.Thread(target=run, name="question", daemon=True).start()
    return await future


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
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,enter,q,space", "dismiss", show=False)]

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
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", show=False)]

    def __init__(self, feed: Feed, host: str, rule: str) -> None:
        super().__init__()
        self._feed, self._host, self._rule = feed, host, rule

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
            await in_thread(lambda: self._feed.mute(self._host, value["rule"], seconds, value["why"]))
        except SuperhostsError as error:
            self.query_one("#told", Static).update(Text(printable(str(error)), WARNING))
            return
        self.dismiss(f"{self._host} for {value['duration']}")

    def action_cancel(self) -> None:
        self.dismiss("")


BACK = ("Esc", "back")


class Top(Protocol):
    """What the screens need of the program."""

    feed: Feed
    snapshot: Snapshot | None
    where: Where

    @property
    def lost(self) -> str:
        """Why there is nothing new; empty: the link works."""

    def mute(self, host: str, rule: str = "") -> None:
        """Ask for how long alerts of a host are to be muted, and do it."""


class AskingScreen(Screen[None]):
    """A screen that asks for what it shows. Type checkers know that it is abstract: screens have another metaclass."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,left,backspace", "back", show=False)]

    def __init__(self, top: Top) -> None:
        super().__init__()
        self.top = top
        self.error = ""  # why the last question has no answer
        self._is_asking = self._ask_again = False

    @abstractmethod
    def ask(self) -> Any:
        """Return the answer, in a thread."""

    @abstractmethod
    def take(self, answer: Any) -> None:
        """Show an answer."""

    def on_mount(self) -> None:
        self.look()

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
        """True if the last question has no answer, and is not being asked again."""
        return bool(self.error) and not self._is_asking

    async def _look(self) -> None:
        try:
            while self._ask_again:
                self._ask_again = False
                try:
                    answer = await in_thread(self.ask)
                    self.take(answer)
                    self.error = ""
                except SuperhostsError as error:
                    self.error = printable(str(error))
        finally:
            self._is_asking = False
        for line in self.query(Line):
            line.update()

    def link(self) -> Text:
        why = self.top.lost or self.error
        return Text(printable(why), WARNING) if why else Text("asking …" if self._is_asking else "", DIM)

    def action_back(self) -> None:
        self.dismiss()


class HostScreen(AskingScreen):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "mute", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
    ]
    KEYS = (("↑ ↓", "scroll"), ("m", "mute"), ("a", "alerts"), BACK, ("?", "help"), ("q", "quit"))

    def __init__(self, top: Top, row: HostRow, span: Span | None) -> None:
        super().__init__(top)
        self._row, self._span = row, span
        self._answer: Json = {}
        self._asked_in: Span | None = None  # the newest window when it was asked
        self._is_old = top.where.wanted is not None  # then its numbers are not those of the newest window

    def compose(self) -> ComposeResult:
        yield Line(lambda width: placed(page_title(self._row, self._span), self.link().append(" "), width))
        yield Line(lambda width: Text("─" * width, DIM))
        with VerticalScroll(id="page"):
            yield Static(id="text", markup=False)
        yield Line(lambda width: keys_line(self.KEYS, width))

    def look_if_changed(self) -> None:
        """Ask again; where that means to read many sketches, only after a new window, or if there was no answer."""
        snapshot = self.top.snapshot
        reads_sketches = snapshot is not None and bool(snapshot.summary.get("can", {}).get("ask"))
        if not reads_sketches or self._newest_window() != self._asked_in or self.has_failed:
            self.look()

    def look(self) -> None:
        self._asked_in = self._newest_window()
        super().look()

    def _newest_window(self) -> Span | None:
        snapshot = self.top.snapshot
        newest = None if snapshot is None else snapshot.summary.get("newest")
        return span_of(newest) if newest else None

    def ask(self) -> Json:
        return self.top.feed.host(self._row.asked)

    def take(self, answer: Json) -> None:
        """Show the host, with the numbers of now unless somebody came from an older window."""
        if not self._is_old:
            same = [row for row in host_rows(answer.get("rows") or ()) if row.key == self._row.key]
            if same:
                self._row, self._span = same[0], self._asked_in
        self._answer = answer
        self._draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        width = self.query_one("#page").scrollable_content_region.width - 2
        if width > 0:
            self.query_one("#text", Static).update(host_page(self._answer, self._row, width))

    def action_scroll(self, lines: int) -> None:
        page = self.query_one("#page")
        page.scroll_relative(y=lines, animate=False)

    def action_mute(self) -> None:
        self.top.mute(self._row.asked)


class ListScreen(AskingScreen):
    KEYS: ClassVar[tuple[tuple[str, str], ...]] = (BACK, ("?", "help"), ("q", "quit"))
    EMPTY = ""

    def __init__(self, top: Top) -> None:
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
    def heading(self) -> str:
        """Return the title."""

    @abstractmethod
    def items(self, answer: Any) -> list[Item]:
        """Return the lines of an answer."""

    def take(self, answer: Any) -> None:
        self._items, self._has_asked = self.items(answer), True
        self._draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        grid = self.query_one(Grid)
        table = self._table = list_table(self._items, grid.scrollable_content_region.width)
        grid.show([item.key for item in self._items], table.line)
        for line in self.query(Line):
            line.update()

    def _header(self, _width: int) -> Text:
        if self._items:
            return self._table.header()
        return Text(f"  {self.EMPTY if self._has_asked else ''}", DIM)

    @property
    def chosen(self) -> Item | None:
        place = self.query_one(Grid).cursor
        return self._items[place] if place < len(self._items) else None


class AlertsScreen(ListScreen):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "mute", show=False),
        Binding("u", "unmute", show=False),
    ]
    KEYS = (("m", "mute"), ("u", "unmute"), ("h", "sites"), BACK, ("?", "help"), ("q", "quit"))
    EMPTY = "No alerts."

    def ask(self) -> Json:
        return self.top.feed.list_alerts()

    def items(self, answer: Json) -> list[Item]:
        return alert_items(answer)

    def heading(self) -> str:
        snapshot = self.top.snapshot
        if snapshot is not None and snapshot.alerts is None:
            return "Alerts: none are kept here (--alerts FILE keeps them)"
        return f"Alerts: {alerts_heading(self._items)}"

    def action_mute(self) -> None:
        if self.chosen is not None:
            content = self.chosen.content or {}
            self.top.mute(str(content.get("host")), str(content.get("rule") or ""))

    def action_unmute(self) -> None:
        item = self.chosen
        if item is not None and item.cells["state"] == "muted":
            content = item.content or {}
            host, rule = str(content.get("host")), str(content.get("rule") or "")
            self.run_worker(self._unmute(host, rule))

    async def _unmute(self, host: str, rule: str) -> None:
        try:
            was_muted = await in_thread(lambda: self.top.feed.unmute(host, rule))
        except SuperhostsError as error:
            self.notify(printable(str(error)), severity="error", markup=False)
        else:
            if not was_muted:
                self.notify(f"{printable(host)} was not muted any more", markup=False)
        self.look()


class SitesScreen(ListScreen):
    KEYS = (("a", "alerts"), BACK, ("?", "help"), ("q", "quit"))
    EMPTY = "No sites are known here: a hub has them."

    def ask(self) -> list[Json]:
        return self.top.feed.list_sites()

    def items(self, answer: list[Json]) -> list[Item]:
        snapshot = self.top.snapshot
        now = None if snapshot is None else snapshot.summary.get("now")  # by the hub's clock
        return site_items(answer, float(now or 0.0))

    def heading(self) -> str:
        missing = sum(item.cells["newest window"] == "missing" for item in self._items)
        return f"Sites: {len(self._items)}, {missing} missing"
