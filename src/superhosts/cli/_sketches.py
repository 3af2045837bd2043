"""Saved sketches as commands name them: files, folders and patterns, in a span of time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from superhosts.cli._console import say
from superhosts.cli._options import TimeOptions
from superhosts.cubefile.container import peek
from superhosts.errors import DifferenceError, InputError, MergeError, UsageError
from superhosts.fields import FieldError
from superhosts.pairs import Window
from superhosts.sketches.bundle import Sketch
from superhosts.sketches.grammar import sites_field, window_field
from superhosts.sources.finding import match_pattern
from superhosts.text import counted
from superhosts.units import SECOND


def find_sketches(names: Iterable[str], errors: list[Any], span: TimeOptions | None = None) -> list[Path]:
    """Return the files that the names stand for. A folder or pattern without files is reported and added to `errors`.

    A name of an existing file is never a pattern. A file that does not exist is returned, too: reading it is an error.
    """
    since, until = (None, None) if span is None else (span.since, span.until)
    start, end = parse_time("since", since), parse_time("until", until)
    found: dict[Path, None] = {}
    for name in names:
        paths = _expand(name)
        if not paths:
            kind = "holds no .cube files" if Path(name).is_dir() else "matches no file"
            errors.append(InputError(kind, file=name))
            say(f"superhosts: {errors[-1]}")
        found.update(dict.fromkeys(paths))
    if start is None and end is None:
        return list(found)
    chosen = [path for path in found if _overlaps(path, start, end)]
    if found and not chosen:
        given = " ".join(f"--{option} {text}" for option, text in (("since", since), ("until", until)) if text)
        raise UsageError(f"{given}: none of {counted(len(found), 'sketch', 'sketches')} has a window in this time")
    return chosen


def _expand(name: str) -> list[Path]:
    """Return the sketches that a name stands for: of a folder those below it, of a pattern those of each match."""
    matches = match_pattern(name)
    if matches is None:
        path = Path(name)
        return sorted(path.rglob("*.cube")) if path.is_dir() else [path]
    return [
        path
        for match in sorted(matches, key=str)
        for path in ([match] if match.is_file() else sorted(match.rglob("*.cube")))
    ]


def _overlaps(path: Path, start: int | None, end: int | None) -> bool:
    """Return True if the window of a file overlaps a span of time, or if the header cannot be read."""
    header = _peek(path)
    if header is None:
        return True
    window = header[0]
    return window is not None and (start is None or window.end > start) and (end is None or window.start < end)


def window_of(path: Path) -> Window | None:
    """Return the window that a file's header names, unverified."""
    header = _peek(path)
    return header[0] if header else None


def sites_of(path: Path) -> str:
    """Return the sites that a file's header names, joined, unverified."""
    header = _peek(path)
    return ",".join(sorted(header[1])) if header else ""


def _peek(path: Path) -> tuple[Window | None, list[str]] | None:
    """Return the window and sites that a file's header names, unverified; None if it cannot be read."""
    header = peek(path) or {}
    try:
        return window_field(header["window"], "window"), sites_field(header["sites"], "sites")
    except (FieldError, KeyError):
        return None


def parse_time(option: str, text: str | None) -> int | None:
    """Read a time like 2026-11-14T12:00:00Z or 20261114T120000Z, as nanoseconds; UTC unless it has an offset."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--{option} {text}: write a time like 2026-11-14T12:00:00Z or 20261114T120000Z") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * SECOND


def merge_named(whole: Sketch, path: Path, key: bytes | str | None, memory: str | None = None) -> None:
    """Merge a file; the error of a refused merge names the file."""
    try:
        whole.merge_file(path, key=key, max_memory=memory)
    except DifferenceError:
        raise  # It names both files.
    except MergeError as error:
        named = str(error).startswith(f"{path}: ")
        raise error if named else MergeError(f"{path}: {error}") from None
