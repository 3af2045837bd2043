"""A folder as the place of a link: a shared disk, a mount, or two folders that rsync synchronises."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from superhosts.core.files import copy_synced, remove_or_set_aside, rename_durably, set_aside, write_json
from superhosts.fleet.place import Entry, copy_bounded, is_sketch_name

POLL = 0.5  # seconds between two scans of a folder; network mounts do not announce changes


class Folder:
    """Sketches and receipts as files. Anybody may have put anything there."""

    poll = longest = POLL  # a folder costs nothing to try, so that a mount that appears is used at once

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def home(self, site: str) -> PurePath:
        """Return a site's folder."""
        return self._folder / site

    def prepare(self, site: str) -> None:
        """Make a site's folder."""
        (self._folder / site).mkdir(parents=True, exist_ok=True)

    def sites(self) -> Collection[str]:
        """Return the sites that have a folder."""
        try:
            return {path.name for path in self._folder.iterdir() if _is_site(path)}
        except OSError:
            return ()

    def names(self, site: str) -> set[str]:
        """Return all names in a site's folder."""
        return {path.name for path in (self._folder / site).iterdir()}

    def sketches(self) -> tuple[set[PurePath], OSError | None]:
        """Return what is named like a sketch. Raises OSError if the folder itself cannot be read."""
        found: set[PurePath] = set()
        trouble: OSError | None = None
        for site in self._folder.iterdir():
            try:
                if _is_site(site):
                    found |= {path for path in site.iterdir() if is_sketch_name(path.name)}
            except OSError as error:
                trouble = error
        return found, trouble

    def look(self, path: PurePath) -> Entry:
        """Return what the file system says about a path, without following links."""
        status = Path(path).lstat()
        size = max(status.st_size, 512 * status.st_blocks)  # the apparent size, or the size on disk if that is larger
        state = (status.st_size, status.st_mtime_ns, status.st_ino)
        return Entry(size, state, stat.S_ISREG(status.st_mode), stat.S_ISDIR(status.st_mode))

    def put(self, source: Path, path: PurePath) -> None:
        """Copy a file: written under a temporary name, flushed, renamed."""
        temporary = Path(path).with_name(f".{path.name}.tmp")
        try:
            copy_synced(source, temporary, shared=True)
        except FileNotFoundError:
            temporary.unlink(missing_ok=True)
            raise
        rename_durably(temporary, Path(path))

    def fetch(self, path: PurePath, target: Path, most: int) -> bool:
        """Copy a sketch."""
        with _open_plain(Path(path)) as read:
            return copy_bounded(read, target, most)

    def read(self, path: PurePath, most: int) -> bytes:
        """Return the beginning of a plain file."""
        with _open_plain(Path(path)) as file:
            return file.read(most)

    def write(self, path: PurePath, content: dict[str, Any]) -> None:
        """Replace a JSON file; who may read it is decided by the umask, because edge and hub may be two users."""
        write_json(Path(path), content, shared=True)

    def remove(self, path: PurePath) -> None:
        """Remove a file; a folder in its place is set aside."""
        remove_or_set_aside(Path(path))

    def set_aside(self, path: PurePath) -> str:
        """Rename to .NAME.aside."""
        return set_aside(Path(path)).name


def _is_site(path: Path) -> bool:
    return path.is_dir() and path.name[0] != "."


def _open_plain(path: Path) -> BinaryIO:
    """Open a file in a folder to which others write, without following links or blocking on a FIFO."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return os.fdopen(handle, "rb")
