"""The line above a table: which window, and which hosts."""

from __future__ import annotations

from superhosts.pairs import Window
from superhosts.times import iso_time

PARTIAL = "partial: interrupted"  # a note in the title of a window that was interrupted


def window_title(window: Window | None, least: float | None, top: int | None, count: int) -> str:
    """Say what a table shows: the window, and `count` hosts, selected by their peers or by their rank."""
    span = f"{iso_time(window.start)} to {iso_time(window.end)}" if window else "no window"
    hosts = "host" if count == 1 else "hosts"
    what = f"{count} {hosts} with at least {least:,g} peers" if least is not None else f"top {count} {hosts}"
    return f"{span}: {what}" + (f", the top {top}" if top is not None and least is not None else "")
