"""The screens behind the hosts: one host, alerts, sites. Each asks for what it shows, again after each change."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Protocol

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from superhosts.core.text import printable
from superhosts.errors import SuperhostsError
from superhosts.ui.top.asking import in_thread
from superhosts.ui.top.drawing import BOLD, DIM, WARNING, placed
from superhosts.ui.top.feed import Feed, Json, Snapshot, Span, span_of
from superhosts.ui.top.grid import Grid, Line
from superhosts.ui.top.heading import Where, keys_line
from superhosts.ui.top.hostpage import host_page, page_title
from superhosts.ui.top.hosts import HostRow, host_rows
from superhosts.ui.top.lists import Item, ListTable, alert_items, alerts_heading, list_table, site_items

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
        """Ask for the first time."""
        self.look()

    def look(self) -> None:
        """Ask; what changes meanwhile is asked for afterwards."""
        self._ask_again = True
        if not self._is_asking:
            self._is_asking = True
            self.run_worker(self._look())

    def look_if_changed(self) -> None:
        """Ask again, as something may have changed."""
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
        """Return whether answers come."""
        why = self.top.lost or self.error
        return Text(printable(why), WARNING) if why else Text("asking …" if self._is_asking else "", DIM)

    def action_back(self) -> None:
        """Go back to the hosts."""
        self.dismiss()


class HostScreen(AskingScreen):
    """One host."""

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
        """Return the title, the page and the keys."""
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
        """Ask, and note in which window."""
        self._asked_in = self._newest_window()
        super().look()

    def _newest_window(self) -> Span | None:
        snapshot = self.top.snapshot
        newest = None if snapshot is None else snapshot.summary.get("newest")
        return span_of(newest) if newest else None

    def ask(self) -> Json:
        """Ask for the host."""
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
        """Draw the page for the new width."""
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        width = self.query_one("#page").scrollable_content_region.width - 2
        if width > 0:
            self.query_one("#text", Static).update(host_page(self._answer, self._row, width))

    def action_scroll(self, lines: int) -> None:
        """Scroll the page."""
        page = self.query_one("#page")
        page.scroll_relative(y=lines, animate=False)

    def action_mute(self) -> None:
        """Ask whether alerts of the host are to be muted."""
        self.top.mute(self._row.asked)


class ListScreen(AskingScreen):
    """Lines with a cursor."""

    KEYS: ClassVar[tuple[tuple[str, str], ...]] = (BACK, ("?", "help"), ("q", "quit"))
    EMPTY = ""

    def __init__(self, top: Top) -> None:
        super().__init__(top)
        self._items: list[Item] = []
        self._table = ListTable((), {})
        self._has_asked = False

    def compose(self) -> ComposeResult:
        """Return the title, the lines and the keys."""
        yield Line(lambda width: placed(Text(f" {self.heading()}", BOLD), self.link().append(" "), width))
        yield Line(self._header)
        yield Grid()
        yield Line(lambda width: keys_line(self.KEYS, width))

    def on_mount(self) -> None:
        """Give the keys to the list."""
        self.query_one(Grid).focus()

    @abstractmethod
    def heading(self) -> str:
        """Return the title."""

    @abstractmethod
    def items(self, answer: Any) -> list[Item]:
        """Return the lines of an answer."""

    def take(self, answer: Any) -> None:
        """Show the lines."""
        self._items, self._has_asked = self.items(answer), True
        self._draw()

    def on_resize(self) -> None:
        """Lay the columns out again."""
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
        """The line that the cursor is on."""
        place = self.query_one(Grid).cursor
        return self._items[place] if place < len(self._items) else None


class AlertsScreen(ListScreen):
    """Alerts, and what is muted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "mute", show=False),
        Binding("u", "unmute", show=False),
    ]
    KEYS = (("m", "mute"), ("u", "unmute"), ("h", "sites"), BACK, ("?", "help"), ("q", "quit"))
    EMPTY = "No alerts."

    def ask(self) -> Json:
        """Ask for alerts."""
        return self.top.feed.list_alerts()

    def items(self, answer: Json) -> list[Item]:
        """Return the lines of alerts."""
        return alert_items(answer)

    def heading(self) -> str:
        """Return how many there are."""
        snapshot = self.top.snapshot
        if snapshot is not None and snapshot.alerts is None:
            return "Alerts: none are kept here (--alerts FILE keeps them)"
        return f"Alerts: {alerts_heading(self._items)}"

    def action_mute(self) -> None:
        """Mute the host of an alert, for its rule."""
        if self.chosen is not None:
            content = self.chosen.content or {}
            self.top.mute(str(content.get("host")), str(content.get("rule") or ""))

    def action_unmute(self) -> None:
        """Want alerts of a muted host again."""
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
    """The sites of a hub."""

    KEYS = (("a", "alerts"), BACK, ("?", "help"), ("q", "quit"))
    EMPTY = "No sites are known here: a hub has them."

    def ask(self) -> list[Json]:
        """Ask for sites."""
        return self.top.feed.list_sites()

    def items(self, answer: list[Json]) -> list[Item]:
        """Return the lines of sites."""
        snapshot = self.top.snapshot
        now = None if snapshot is None else snapshot.summary.get("now")  # by the hub's clock
        return site_items(answer, float(now or 0.0))

    def heading(self) -> str:
        """Return how many there are, and how many are missing."""
        missing = sum(item.cells["newest window"] == "missing" for item in self._items)
        return f"Sites: {len(self._items)}, {missing} missing"
