"""Boxes above a screen: the question before a host is muted, and the list of keys."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from superhosts.core.text import printable
from superhosts.core.units import SECOND, parse_duration
from superhosts.errors import SuperhostsError
from superhosts.ui.top.asking import in_thread
from superhosts.ui.top.drawing import BOLD, DIM, WARNING
from superhosts.ui.top.feed import Feed

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
    """The keys."""

    CSS = f"Help {{ {BOX} }}"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,enter,q,space", "dismiss", show=False)]

    def compose(self) -> ComposeResult:
        """Return the list."""
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
        """Return the question and its fields."""
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
        """Begin with the duration."""
        self.query_one("#duration", Input).focus()

    def on_input_submitted(self) -> None:
        """Mute the host."""
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
        """Leave everything as it is."""
        self.dismiss("")
