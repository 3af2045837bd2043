"""Sketches in files, as their headers describe them, and unions of such files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from superhosts.core.fields import FieldError
from superhosts.core.pairs import Part, Window
from superhosts.cubefile.container import peek
from superhosts.errors import DifferenceError, MergeError
from superhosts.sketch.contacts import with_unanswered
from superhosts.sketch.grammar import sites_field, window_field
from superhosts.sketch.sketch import Sketch


class SavedSketch(NamedTuple):
    """What the header of a file says, unverified."""

    path: Path
    is_readable: bool = False  # False: the rest is not known, and reading the file is an error
    window: Window | None = None
    sites: frozenset[str] = frozenset()
    parts: frozenset[Part] = frozenset()  # with those that follow from others
    has_evidence: bool = False

    @property
    def site(self) -> str:
        """The sites in one word, as rows have them."""
        return joined_sites(self.sites)

    @property
    def is_timed(self) -> bool:
        """Whether its window is known."""
        return self.window is not None and self.window.is_timed

    def overlaps(self, start: int | None, end: int | None) -> bool:
        """Return True if the window overlaps a span of time, or if the header cannot be read."""
        if not self.is_readable:
            return True
        window = self.window
        return window is not None and (start is None or window.end > start) and (end is None or window.start < end)


def joined_sites(sites: Iterable[str]) -> str:
    """Return the sites of a sketch in one word: ams,fra."""
    return ",".join(sorted(sites))


def describe(path: Path) -> SavedSketch:
    """Return what the header of a file says, for selecting and grouping files."""
    header = peek(path) or {}
    try:
        window, sites = window_field(header["window"], "window"), sites_field(header["sites"], "sites")
        held = [Part(side=str(part["side"]), direction=str(part["direction"])) for part in header["parts"]]
    except (FieldError, KeyError, TypeError):
        return SavedSketch(path)
    return SavedSketch(path, True, window, frozenset(sites), frozenset(with_unanswered(held)), "evidence" in header)


def merge_named(whole: Sketch, path: Path, key: bytes | str | None, memory: str | None = None) -> None:
    """Merge a file; the error of a refused merge names the file."""
    try:
        whole.merge_file(path, key=key, max_memory=memory)
    except DifferenceError:
        raise  # It names both files.
    except MergeError as error:
        named = str(error).startswith(f"{path}: ")
        raise error if named else MergeError(f"{path}: {error}") from None
