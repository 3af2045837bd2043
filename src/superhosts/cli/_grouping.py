"""Which saved sketches are asked together: each alone, those of a longer window, or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from superhosts.core.pairs import Window
from superhosts.core.text import counted, printable
from superhosts.core.times import window_span
from superhosts.core.units import parse_duration
from superhosts.errors import UsageError
from superhosts.sketch.files import SavedSketch


class Group(NamedTuple):
    """Files whose union gives one answer."""

    window: Window | None  # of the answer; None: that of the sketches
    site: str
    paths: list[Path]


def of_sites(sketches: Sequence[SavedSketch], sites: Sequence[str]) -> list[SavedSketch]:
    """Return the sketches of these sites alone. Files whose header cannot be read stay: reading them is an error."""
    if not sites:
        return list(sketches)
    chosen = [sketch for sketch in sketches if not sketch.is_readable or (sketch.sites and sketch.sites <= set(sites))]
    if sketches and not chosen:
        known = ", ".join(sorted({site for sketch in sketches for site in sketch.sites})) or "no site"
        named = counted(len(sketches), "sketch is", "sketches are")
        raise UsageError(f"--site {printable(','.join(sites))}: {named} of {printable(known)}")
    return chosen


def group_sketches(sketches: Sequence[SavedSketch], window: str | None, *, union: bool) -> list[Group]:
    """Return the groups in the order of their windows and sites.

    With `union` sites are united; without a window, everything is.
    """
    if union and window is None:
        return [Group(None, "", [sketch.path for sketch in sketches])] if sketches else []
    in_order = sorted(sketches, key=lambda sketch: (sketch.window or (0, 0), sketch.site))
    if window is None:
        return [Group(sketch.window, sketch.site, [sketch.path]) for sketch in in_order]
    groups: dict[tuple[Window, str], Group] = {}
    unreadable = [Group(None, "", [sketch.path]) for sketch in in_order if not sketch.is_readable]
    for sketch in in_order:
        if sketch.is_readable:
            longer, site = _longer_window(sketch, window), "" if union else sketch.site
            groups.setdefault((longer, site), Group(longer, site, [])).paths.append(sketch.path)
    return [*unreadable, *(groups[key] for key in sorted(groups))]


def _longer_window(sketch: SavedSketch, text: str) -> Window:
    """Return the window of this length in which that of a sketch lies."""
    length, window = parse_duration(text), sketch.window
    if window is None:
        raise UsageError(f"--window {text}: {sketch.path} has no window")
    start = window.start - window.start % length
    if window.end > start + length:
        longer = f"its window, {window_span(window)}, does not lie within one of {text}"
        raise UsageError(f"--window {text}: {sketch.path}: {longer}")
    return Window(start, start + length)
