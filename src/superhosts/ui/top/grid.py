"""Widgets: a list of lines with a cursor that stays on its line when others come and go, and single lines.

Lines are drawn when they are visible, and the terminal gets only what has changed: nothing flickers, and ten thousand
hosts cost no more than a screenful.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

Draw = Callable[[int, bool], Text]  # the line at a place, and whether the cursor is on it


class Grid(ScrollView, can_focus=True):
    """A list of lines, one of which is chosen."""

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
        """Keep the cursor on the screen."""
        self.virtual_size = Size(self.size.width, len(self._keys))
        self._keep_visible()

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen."""
        place = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if place >= len(self._keys):
            return Strip.blank(width, self.rich_style)
        text = self._draw(place, place == self.cursor)
        return Strip(text.render(self.app.console)).adjust_cell_length(width).apply_style(self.rich_style)

    def action_move(self, lines: int) -> None:
        """Move the cursor."""
        self._go(self.cursor + lines)

    def action_page(self, pages: int) -> None:
        """Move the cursor by a screenful."""
        self._go(self.cursor + pages * max(self.size.height - 1, 1))

    def action_end(self, last: bool) -> None:
        """Move the cursor to the first or last line."""
        self._go(len(self._keys) - 1 if last else 0)

    def action_choose(self) -> None:
        """Tell the screen that a line was chosen."""
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
        """Return the line."""
        self._drawn = self._draw(self.size.width)
        self._drawn.no_wrap = True
        return self._drawn

    def update(self) -> None:
        """Draw the line again, if it has changed: what is drawn goes over the network, to somebody far away perhaps."""
        if self._draw(self.size.width) != self._drawn:
            self.refresh()
