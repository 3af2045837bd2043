"""Format times and windows: ISO 8601 for rows and messages, a compact form for file names, a short one for tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from superhosts.core.units import SECOND, format_duration

if TYPE_CHECKING:
    from superhosts.core.pairs import Window  # not at run time: help needs this module, and shows without numpy

# The time zone of times that people read: UTC, or this machine's with `--local`. It is one switch for the whole
# process, because every table and message follows it. Rows for programs, files and their names are always in UTC.
_local = False


def shows_local() -> bool:
    return _local


@contextmanager
def local_times(wanted: bool) -> Iterator[None]:
    global _local
    before, _local = _local, wanted
    try:
        yield
    finally:
        _local = before


MINUTE, DAY = 60 * SECOND, 86400 * SECOND


def iso_time(nanoseconds: int) -> str:
    """Format a time as ISO 8601 in UTC, with fractional seconds only if they are not zero."""
    return _iso(nanoseconds, local=False)


def seconds_of(text: str) -> float:
    """Return a time that `iso_time` has formatted, in seconds."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:  # a stray time, which is a number
        return float(text)


def shown_time(nanoseconds: int) -> str:
    """Format a time for people: as ISO 8601 in UTC, or in this machine's time zone with its offset (`--local`)."""
    return _iso(nanoseconds, local=shows_local())


def shown_row_time(text: str) -> str:
    if not shows_local():
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:  # a stray time, which is a number
        return text
    return moment.astimezone().isoformat()


def clock_time(nanoseconds: int, near: int) -> str:
    """Format a time for a sentence, without its date if that is the day of another time: 09:00 UTC."""
    day, clock = iso_time(nanoseconds)[:10], iso_time(nanoseconds)[11:16]
    if not clock:  # a stray time, which is a number
        return iso_time(nanoseconds)
    return f"{clock} UTC" if day == iso_time(near)[:10] else f"{day} {clock} UTC"


def _iso(nanoseconds: int, *, local: bool) -> str:
    seconds, fraction = divmod(nanoseconds, SECOND)
    try:
        moment = _moment(seconds, local=local)
    except (OverflowError, ValueError, OSError):  # `datetime` cannot represent this (stray) time.
        return f"{nanoseconds / SECOND:.3f}"
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    zone = f"{moment:%z}"
    return f"{moment:%Y-%m-%dT%H:%M:%S}{digits}" + (f"{zone[:3]}:{zone[3:5]}" if local else "Z")


def _moment(seconds: int, *, local: bool) -> datetime:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.astimezone() if local else moment


def compact_time(nanoseconds: int) -> str:
    return iso_time(nanoseconds).replace("-", "").replace(":", "")


def age_text(seconds: float) -> str:
    """Return an age in its largest unit: 12 s, 5 min, 3.2 h, 4 d."""
    sign, size = ("-" if seconds < 0 else ""), abs(seconds)
    if size < 120:
        return f"{sign}{size:.0f} s"
    if size < 7200:
        return f"{sign}{size / 60:.0f} min"
    return f"{sign}{size / 3600:.1f} h" if size < 48 * 3600 else f"{sign}{size / 86400:.0f} d"


def window_name(window: Window) -> str:
    """Return a window's name, START-LENGTH, as file names contain it: 20261114T120000Z-5m."""
    return f"{compact_time(window.start)}-{format_duration(window.end - window.start)}"


def window_span(window: Window | None) -> str:
    if window is None:
        return "no window"
    return f"{shown_time(window.start)} to {shown_time(window.end)}" if window.is_timed else "rows without times"


def window_cell(window: Window | None) -> str:
    """Return a window as a cell of a table, whose heading names the zone: 2026-11-14 12:00–12:05.

    Seconds appear if the window does not begin and end with a minute, the last day if it lasts a day or longer.
    """
    if window is None or not window.is_timed:
        return window_span(window)
    if window.start % SECOND or window.end % SECOND:
        return window_span(window)
    try:
        first, last = (_moment(time // SECOND, local=shows_local()) for time in window)
    except (OverflowError, ValueError, OSError):
        return window_span(window)
    clock = "%H:%M" if window.start % MINUTE == 0 == window.end % MINUTE else "%H:%M:%S"
    end = clock if window.end - window.start < DAY else f"%Y-%m-%d {clock}"
    return f"{first:%Y-%m-%d {clock}}–{last:{end}}"
