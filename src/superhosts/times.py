"""Format times and windows: ISO 8601 for messages and rows, a compact form for file names."""

from __future__ import annotations

from datetime import UTC, datetime

from superhosts.pairs import Window
from superhosts.units import SECOND, format_duration


def iso_time(nanoseconds: int) -> str:
    """Format a time as ISO 8601 in UTC, with fractional seconds only if they are not zero."""
    seconds, fraction = divmod(nanoseconds, SECOND)
    try:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):  # `datetime` cannot represent this (stray) time.
        return f"{nanoseconds / SECOND:.3f}"
    return f"{text}.{fraction:09d}".rstrip("0") + "Z" if fraction else text + "Z"


def compact_time(nanoseconds: int) -> str:
    """Format a time for a file name: 20261114T120000Z."""
    return iso_time(nanoseconds).replace("-", "").replace(":", "")


def window_name(window: Window) -> str:
    """Return a window's name, START-LENGTH, as file names contain it: 20261114T120000Z-5m."""
    return f"{compact_time(window.start)}-{format_duration(window.end - window.start)}"
