"""The lines above the table: what is shown, of which window, whether it is live, and what is missing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from superhosts.core.pairs import Window
from superhosts.core.text import counted, printable
from superhosts.core.times import shown_time, shows_local, window_cell
from superhosts.core.units import SECOND
from superhosts.ui.top.drawing import BOLD, DIM, WARNING, placed, sparkline
from superhosts.ui.top.feed import Json, Snapshot, Span, span_of

MOST_DRAWN = 40  # windows in the line of windows
LEAST_TITLE = 8  # cells
LONGEST = 1000  # characters of a message
NAMED = 3  # missing sites that are named


class Where(NamedTuple):
    """What somebody looks at."""

    wanted: Span | None = None  # a window; None: the newest
    order: str = "peers"
    words: str = ""  # of the filter


def title_line(snapshot: Snapshot | None, lost: str, where: Where, width: int) -> Text:
    """Return the first line: title, window, whether it is live, alerts, missing sites.

    `lost`: two words if nothing new comes.
    """
    left = Text(" ")
    if snapshot is None:
        left.append("superhosts top", BOLD)
        return placed(left, _link(None, lost, where), width)
    shown = snapshot.shown
    right = Text()
    missing = [] if shown is None else list(shown.get("missing") or ())
    if missing:
        right.append(_missing(missing), WARNING).append("  ")
    if snapshot.alerts:
        right.append(counted(len(snapshot.alerts), "alert"), WARNING).append("  ")
    right.append_text(_link(snapshot, lost, where)).append(" ")
    window = "" if shown is None else f"  {window_text(span_of(shown))}"
    room = max(width - right.cell_len - cell_len(window) - 2, LEAST_TITLE)
    left.append(_tail(printable(snapshot.summary.get("title", ""), LONGEST), room), BOLD).append(window)
    return placed(left, right, width)


def _tail(title: str, width: int) -> str:
    """Return a title in at most so many cells. It may be a long path, whose end says the most."""
    return title if cell_len(title) <= width else "…" + set_cell_size(title[::-1], width - 1)[::-1]


def _link(snapshot: Snapshot | None, lost: str, where: Where) -> Text:
    if lost:
        return Text(f"○ {lost}", WARNING)
    if snapshot is None:
        return Text("…", DIM)
    back = windows_back(snapshot, where.wanted)
    if back:
        return Text(f"◂ {counted(back, 'window')} back", BOLD)
    if is_live(snapshot):
        return Text("● live", "green")
    newest = span_of(snapshot.summary.get("newest") or {})
    return Text("● newest" if newest is None else f"● newest, {age_text(now_of(snapshot) - newest[1])} ago", DIM)


def now_of(snapshot: Snapshot) -> float:
    """Return the time of the other side's clock, in seconds since 1970."""
    now = snapshot.summary.get("now")
    return time.time() if now is None else float(now) + time.monotonic() - snapshot.taken


def is_live(snapshot: Snapshot) -> bool:
    """Return True if windows are added, and the newest is of now."""
    until = snapshot.summary.get("live_until")  # None: an earlier release
    return bool(snapshot.summary.get("live")) and (until is None or now_of(snapshot) < until)


def age_text(seconds: float) -> str:
    """Return how long ago something was, in its largest unit."""
    seconds = max(seconds, 0.0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def windows_back(snapshot: Snapshot, wanted: Span | None) -> int:
    """Return how many windows are newer than the one that is looked at."""
    spans = [span_of(each) for each in snapshot.windows]
    return len(spans) - 1 - spans.index(wanted) if wanted in spans else 0


def _missing(sites: Sequence[object]) -> str:
    names = ", ".join(printable(site, 40) for site in sites[:NAMED])
    more = f" and {len(sites) - NAMED} more" if len(sites) > NAMED else ""
    return f"missing: {names}{more}"


def window_text(span: Span | None) -> str:
    """Return when a window begins and ends, with the zone of these times."""
    if span is None:
        return "no times"
    start, end = (round(moment * SECOND) for moment in span)
    return f"{window_cell(Window(start, end))}{'' if shows_local() else ' UTC'}"


def moment_text(seconds: object, *, zone: bool = True) -> str:
    """Return a moment to the minute, with its zone."""
    if not isinstance(seconds, int | float):
        return "–"
    text = shown_time(int(seconds) * SECOND)[:16].replace("T", " ")
    return f"{text} UTC" if zone and not shows_local() else text


def status_line(snapshot: Snapshot | None, lost: str, where: Where, rows: int, width: int) -> Text:
    """Return the second line: which hosts these are, the filter, and the last windows."""
    left = Text(" ")
    if lost:
        left.append(printable(lost), WARNING)
    elif snapshot is None:
        left.append("asking …", DIM)
    elif snapshot.shown is None:
        left.append("no window yet", DIM)
    else:
        left.append_text(_which(snapshot.shown, rows, where))
    if snapshot is not None and snapshot.shown is not None and not lost:
        for note in _reading(snapshot):
            left.append(f" ({note.rstrip('.')})", WARNING)
    right = _windows(snapshot, where, min(MOST_DRAWN, width // 3)) if snapshot is not None else Text()
    return placed(left, right.append(" ") if right.cell_len else right, width)


def why_empty(snapshot: Snapshot | None, told: str, where: Where) -> str:
    """Return why there are no rows; `told`: what is known about it."""
    if snapshot is None or snapshot.shown is None:
        reading = "" if snapshot is None else " ".join(_reading(snapshot))
        return printable(told, most=LONGEST) if told else reading or "The first window will appear here."
    return (
        f"No host with {printable(where.words)}: Esc shows all." if where.words else "No host to report in this window."
    )


def _reading(snapshot: Snapshot) -> list[str]:
    """Return what of a folder is not shown, or not yet."""
    return [printable(note) for note in snapshot.summary.get("reading") or ()]


def _which(shown: Json, rows: int, where: Where) -> Text:
    notes = [printable(note) for note in shown.get("notes") or ()]
    if (revision := shown.get("revision") or 1) > 1:
        notes.append(f"revision {revision}")
    title = printable(shown.get("title") or counted(shown.get("hosts") or 0, "host"))
    text = Text().append(title, DIM)
    if where.words:
        text = (
            Text()
            .append(f"{rows:,} of {counted(len(shown['rows']), 'host')} with ")
            .append(printable(where.words), BOLD)
        )
    for note in notes:
        text.append(f" ({note})", DIM)
    return text


def _windows(snapshot: Snapshot, where: Where, most: int) -> Text:
    """Return the line of windows, one character each, as high as their largest hosts."""
    windows = snapshot.windows
    if len(windows) < 2 or most < 8:
        return Text()
    chosen = len(windows) - 1 - windows_back(snapshot, where.wanted)
    begin = max(min(chosen - most // 2, len(windows) - most), 0)
    part = windows[begin : begin + most]
    return sparkline([_largest(each) for each in part], chosen - begin)


def _largest(window: Json) -> int:
    largest = window.get("largest") or {}
    peers = largest.get("peers")
    return int(largest.get("low") or 0) if peers is None else int(peers)


def keys_line(keys: Sequence[tuple[str, str]], width: int) -> Text:
    """Return the last line: keys and what they do, as many as fit."""
    line = Text(" ")
    for place, (key, deed) in enumerate(keys):
        gap = "  " if place else ""
        if line.cell_len + len(gap) + len(key) + 1 + len(deed) > width:
            break
        line.append(gap).append(key, BOLD).append(f" {deed}", DIM)
    return line
