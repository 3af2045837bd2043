"""Which sketches a folder holds. Looking again is cheap: only folders that have changed are read.

Files must come by a rename, or stay as they are when they are a minute old: what is older is not looked at again until
something is added to its folder, or removed. A folder of three months has some 26,000 files.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from superhosts.core.units import SECOND
from superhosts.sketch.files import SavedSketch, saved_sketch

ENDING = ".cube"
MOST_FILES = 100_000
SETTLED = 60 * SECOND  # a folder that changed less long ago, or has such files, is read again


class Listed(NamedTuple):
    """A sketch, and when its file was last changed."""

    sketch: SavedSketch
    changed: int
    size: int


class _Folder(NamedTuple):
    changed: int
    files: tuple[Listed, ...]
    folders: tuple[str, ...]
    is_settled: bool


class Listing:
    """The sketches in a folder and all folders in it, but for hidden ones. Any thread may look."""

    def __init__(self, folder: Path) -> None:
        self._top = folder
        self._known: dict[Path, _Folder] = {}
        self._lock = threading.Lock()

    def look(self) -> list[Listed]:
        """Return what is there now, in the order of names. What vanishes meanwhile is left out."""
        with self._lock:
            seen: dict[Path, _Folder] = {}
            found = [each for folder in self._walk(self._top, seen) for each in folder.files]
            self._known = seen
            return found[-MOST_FILES:]

    def _walk(self, path: Path, seen: dict[Path, _Folder]) -> Iterator[_Folder]:
        try:
            folder = self._read(path)
        except OSError:
            return
        seen[path] = folder
        yield folder
        for name in folder.folders:
            yield from self._walk(path / name, seen)

    def _read(self, path: Path) -> _Folder:
        changed, known = path.stat().st_mtime_ns, self._known.get(path)
        if known is not None and known.is_settled and known.changed == changed:
            return known
        old = {} if known is None else {each.sketch.path: each for each in known.files}
        files, folders = [], []
        with os.scandir(path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.startswith("."):  # half written, or set aside
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.name.endswith(ENDING) and (file := _listed(entry, old)) is not None:
                    files.append(file)
        newest = max([changed, *(each.changed for each in files)])
        return _Folder(changed, tuple(files), tuple(folders), newest < time.time_ns() - SETTLED)


def _listed(entry: os.DirEntry[str], old: dict[Path, Listed]) -> Listed | None:
    try:
        status = entry.stat()
    except OSError:  # gone meanwhile
        return None
    path = Path(entry.path)
    known = old.get(path)
    if known is not None and (known.changed, known.size) == (status.st_mtime_ns, status.st_size):
        return known
    return Listed(saved_sketch(path), status.st_mtime_ns, status.st_size)
