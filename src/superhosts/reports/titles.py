"""The line above a table: which window, and which hosts."""

from __future__ import annotations

from superhosts.pairs import Window
from superhosts.results import Selection
from superhosts.text import counted
from superhosts.times import iso_time

PARTIAL = "partial: interrupted"  # a note in the title of a window that was interrupted


def window_title(window: Window | None, selection: Selection, count: int) -> str:
    """Say what a table shows: the window, and `count` hosts, selected by their peers or by their rank."""
    span = f"{iso_time(window.start)} to {iso_time(window.end)}" if window else "no window"
    hosts = counted(count, "host")
    if selection.threshold is None:
        return f"{span}: top {hosts}"
    peers = f"{selection.threshold:,g} peer" + "s" * (selection.threshold != 1)
    limit = f", the top {selection.top}" if selection.top is not None else ""
    return f"{span}: {hosts} with at least {peers}{limit}"
