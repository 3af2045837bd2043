"""Saving the sketches of windows as files (`--save DIR`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from superhosts.core.fields import FILE_NAME_RULE, is_file_name
from superhosts.core.files import make_folder, os_errors
from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Part, Window
from superhosts.core.text import printable
from superhosts.core.times import compact_time, window_name
from superhosts.core.units import SECOND
from superhosts.errors import DifferenceError, InputError, MergeError, OutputError, UsageError
from superhosts.pipeline.builder import WindowResult
from superhosts.pipeline.settings import Settings
from superhosts.sketch.files import merge_named, read_header
from superhosts.sketch.sketch import Sketch


def check_site(site: str) -> None:
    """Raise UsageError if the name of a site cannot be a part of the names of sketches."""
    if not is_file_name(site):
        raise UsageError(f"--site {printable(site) if site else 'is empty'}: {FILE_NAME_RULE}")


def prepare_folder(folder: Path, site: str) -> None:
    """Create the folder for sketches, closed to others."""
    check_site(site)
    with os_errors(f"--save {folder}: cannot be created"):
        make_folder(folder)


class SketchSaver:
    def __init__(self, folder: Path, settings: Settings, say: Callable[[str], None], *, quiet: bool = False) -> None:
        self._folder, self._settings, self._say, self._quiet = folder, settings, say, quiet
        self._older: set[Path] = set()  # files from an earlier run
        self.unsaved: dict[Path, OutputError] = {}  # the reason of each, already reported

    def save(self, result: WindowResult) -> None:
        """Save a sketch, or report why that failed. A later revision contains everything that this run saved before.

        Of windows that overlap the last pane is saved: the sketch of any window is the union of the files of its panes.
        """
        sketch = result.stored
        if sketch is None:
            return
        assert sketch.window is not None
        path = self._folder / file_name(sketch.window, self._settings)
        try:
            if result.revision == 1 and path.exists():
                self._older.add(path)
            if path in self._older:
                sketch = sketch.copy() if result.slides else sketch  # panes of later windows must not change
                merge_saved(sketch, path, self._settings)
            sketch.partial |= result.partial
            sketch.save(path)
            if path in self._older and result.revision == 1 and not self._quiet:
                self._say(merged_into(path))
            self.unsaved.pop(path, None)
        except OutputError as error:
            if path not in self.unsaved:
                self._say(Notice(f"superhosts: NOT SAVED: {error}", "not-saved", WARNING))
            self.unsaved[path] = error


def merged_into(path: Path) -> str:
    return f"{path}: merged into the sketch that was there"


def merge_saved(sketch: Sketch, path: Path, settings: Settings) -> None:
    reason: Exception
    ways = "move this file away, or save to another folder"
    try:
        _check_parts(path, settings)
        merge_named(sketch, path, settings.key)
        return
    except DifferenceError as error:
        reason = error.naming(str(path), "this run", advice="")
        if error.there.startswith("key "):
            ways = f"give the key of the sketch with --key-file, {ways}"
    except (InputError, MergeError) as error:
        reason = error
    raise OutputError(f"{reason}; {ways}")


def _check_parts(path: Path, settings: Settings) -> None:
    """Raise DifferenceError if a file has sides or directions that this run does not count: they would lack packets."""
    mine = settings.parts
    others = [part for part in read_header(path).kinds if part._replace(family=mine[0].family, group="") not in mine]
    if others:
        there, here = _watching(others), _watching(mine)
        raise DifferenceError(f"cannot merge: {there} into {here}", there=there, here=here)


def _watching(parts: Iterable[Part]) -> str:
    fields = [(part.side, part.way, part.contact or "any", part.counts, part.filter) for part in parts]
    # Sorted, so that two lists differ only in what they contain.
    sides, ways, contacts, counts, filters = (",".join(sorted(set(each))) for each in zip(*fields, strict=True))
    peers = f" --peers {contacts}" if contacts != "any" else ""
    count = f" --count {counts}" if counts != "hosts" else ""
    return f"--watch {sides} --direction {ways}{peers}{count}{f' ({filters})' if filters else ''}"


def file_name(window: Window, settings: Settings) -> str:
    """Return the file name of a window's sketch: START-LENGTH-SITE.cube, START as 20261114T120000Z."""
    second = window.start - window.start % SECOND  # a window over the whole input may begin within a second
    name = f"{compact_time(second)}-all" if settings.window == "all" else window_name(window)
    return f"{name}-{settings.site}.cube"
