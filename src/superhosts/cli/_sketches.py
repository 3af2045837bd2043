"""Saved sketches as commands name them: files, folders and patterns, in a span of time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import click

from superhosts.cli._options import TimeOptions
from superhosts.core.results import Selection
from superhosts.core.text import counted
from superhosts.core.times import shows_local
from superhosts.core.units import SECOND, format_size, parse_duration
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.errors import InputError, UsageError
from superhosts.lab.sheet import Note, caption, key_words
from superhosts.output.console import command_line, say
from superhosts.sketch.files import saved_sketch
from superhosts.sketch.sketch import Sketch
from superhosts.sources.files import match_pattern


class SketchFacts:
    def __init__(self) -> None:
        self._windows: set[object] = set()
        self._keys: set[str] = set()
        self._memory: set[int] = set()
        self._flows = 0.0  # of the fullest part of a sketch

    def add(self, sketch: Sketch) -> None:
        self._windows.add(sketch.window)
        for detector in sketch.parts.values():
            if detector.kind.key is not None:
                self._keys.add(detector.kind.key)
            if isinstance(detector, ColumnSketch):
                self._memory.add(detector.geometry.memory)
                self._flows = max(self._flows, detector.fill().pairs)

    def note(self, *first: str, windows: int | None = None) -> Note:
        """Return the text under the figure, and the command. `windows` are given if not all sketches were added."""
        known = windows is None and self._flows
        flows = f" of up to {counted(float(f'{self._flows:.3g}'), 'flow')}" if known else ""
        seen = f"{counted(windows or len(self._windows), 'window')}{flows}"
        memory = " and ".join(map(format_size, sorted(self._memory)))
        return Note(caption(*first, seen, memory, key_words(self._keys)), command_line(sys.argv))


def say_each(drawn: Iterable[Path]) -> None:
    """Name the figures that were written."""
    for path in drawn:
        say(str(path))


def selected(selection: Selection) -> str:
    least = "" if selection.threshold is None else f"θ = {selection.threshold:,g}"
    most = "" if selection.top is None else f"top {selection.top}"
    return ", ".join(filter(None, (most, least)))


def find_sketches(
    names: Iterable[str], on_error: Callable[[InputError], None], span: TimeOptions | None = None
) -> list[Path]:
    """Return the files that the names stand for. `on_error` hears of a folder or pattern without files.

    A name of an existing file is never a pattern. A file that does not exist is returned, too: reading it is an error.
    """
    since, until = (None, None) if span is None else (span.since, span.until)
    start, end = parse_time("since", since), parse_time("until", until)
    found: dict[Path, None] = {}
    for name in names:
        paths = _expand(name)
        if not paths:
            on_error(InputError("holds no .cube files" if Path(name).is_dir() else "matches no file", file=name))
        found.update(dict.fromkeys(paths))
    if start is None and end is None:
        return list(found)
    chosen = [path for path in found if saved_sketch(path).overlaps(start, end)]
    if found and not chosen:
        given = " ".join(f"--{option} {text}" for option, text in (("since", since), ("until", until)) if text)
        raise UsageError(f"{given}: {counted(len(found), 'sketch has', 'sketches have')} no window in this time")
    return chosen


def _expand(name: str) -> list[Path]:
    """Return the sketches that a name stands for: of a folder those below it, of a pattern those of each match.

    A pattern that the shell did not expand may begin with ~.
    """
    matches = match_pattern(name) or match_pattern(os.path.expanduser(name))  # noqa: PTH111  Path would drop a final /
    found = [Path(name)] if matches is None else sorted(matches, key=str)
    paths = [path for each in found for path in (sorted(each.rglob("*.cube")) if each.is_dir() else [each])]
    if matches is None:
        return paths
    sketches = [path for path in paths if path.suffix == ".cube"]
    return sketches or paths  # 'archive/*' stands for sketches, not for the notes beside them


def parse_time(option: str, text: str | None) -> int | None:
    """Read a time, as nanoseconds: 2026-11-14T12:00:00Z, 20261114T120000Z, or 1h for an hour before now.

    A time without an offset is in UTC, or in this machine's time zone with `--local`.
    """
    if text is None:
        return None
    try:
        return time.time_ns() - parse_duration(text)
    except UsageError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        way = "write a time like 2026-11-14T12:00:00Z, or how long ago: 90s, 5m, 1h or 30d"
        raise UsageError(f"--{option} {text}: {way}") from None
    zone = None if shows_local() else UTC
    return round((moment if moment.tzinfo or zone is None else moment.replace(tzinfo=zone)).timestamp()) * SECOND


MOST_FILES = 1000  # sketches whose sites are looked up


def sites_of_sketches(ctx: click.Context) -> list[str]:
    """Return the sites that a shell offers: those of the sketches that are named."""
    # Behind an option without its value, words are not yet assigned to arguments.
    paths = find_sketches(ctx.params.get("files") or ctx.args, lambda _: None)[:MOST_FILES]
    return sorted({site for path in paths for site in saved_sketch(path).sites})
