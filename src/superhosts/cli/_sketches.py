"""Saved sketches as commands name them: files, folders and globs, in a span of time."""

from __future__ import annotations

import glob
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from superhosts.cli._outputs import say
from superhosts.errors import InputError, MergeError, UsageError

if TYPE_CHECKING:
    from superhosts.pairs import Window
    from superhosts.sketches.bundle import Sketch

Item = TypeVar("Item")
FILES = "Saved sketches: files, folders, or globs in quotes ('archive/**/*.cube')."
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only windows that end after this time (2026-11-14T12:00, UTC).")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only windows that begin before this time.")]


def find_sketches(
    names: Iterable[str], errors: list[Any], *, since: str | None = None, until: str | None = None
) -> list[Path]:
    """Return the files that are meant. A folder or glob without any is an error, said and added to `errors`.

    A name that is a file is taken as it is, whatever it looks like; a file that is not there is for its reader to say.
    """
    start, end = _parse_time("since", since), _parse_time("until", until)
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
        raise UsageError(f"{given}: none of {len(found):,} sketches has a window in this time")
    return chosen


def _expand(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        return sorted(path.rglob("*.cube"))
    if path.exists() or not glob.has_magic(name):
        return [path]
    matches = [Path(match) for match in sorted(glob.glob(name, recursive=True))]  # noqa: PTH207  # ~ and ** as shells
    return [path for match in matches for path in ([match] if match.is_file() else sorted(match.rglob("*.cube")))]


def _overlaps(path: Path, start: int | None, end: int | None) -> bool:
    """Return True if a file's window lies in a span of time, or if only its reader can say what is wrong with it."""
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
    """Return the window and sites that a file's header names, to choose by; None where it cannot be read."""
    from superhosts.cubefile.container import peek
    from superhosts.fields import FieldError
    from superhosts.sketches.grammar import sites_field, window_field

    header = peek(path) or {}
    try:
        return window_field(header["window"], "window"), sites_field(header["sites"], "sites")
    except (FieldError, KeyError):
        return None


def _parse_time(option: str, text: str | None) -> int | None:
    """Read a time like 2026-11-14T12:00:00Z or 20261114T120000Z, UTC unless it says otherwise, as nanoseconds."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--{option} {text}: write a time like 2026-11-14T12:00:00Z or 20261114T120000Z") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * 10**9


def told(items: list[Item]) -> Iterator[Item]:
    """Give files, or what stands for them, one by one, and tell a person every few seconds how many are done."""
    last = time.monotonic()
    for done, item in enumerate(items):
        if sys.stderr.isatty() and time.monotonic() - last > 2:
            last = time.monotonic()
            say(f"{done:,} of {len(items):,} sketches …")
        yield item


def merge_named(whole: Sketch, path: Path, key: bytes | str | None, memory: str | None = None) -> None:
    """Merge a file; a refusal names it."""
    try:
        whole.merge_file(path, key=key, max_memory=memory)
    except MergeError as error:
        named = str(error).startswith(f"{path}: ")
        raise error if named else MergeError(f"{path}: {error}") from None
