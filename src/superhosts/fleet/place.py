"""Where the link by files keeps sketches and receipts: the verbs that a folder and an object store share.

Every path is PLACE/SITE/NAME. A place is shared with the other end of the link, so nothing in it is trusted. All verbs
raise OSError if the place does not work now, and may be repeated.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePath
from typing import Any, BinaryIO, NamedTuple, Protocol

from superhosts.core.files import open_fresh, sync
from superhosts.cubefile.container import MAGIC

_ZEROS = bytes(1 << 20)


class Entry(NamedTuple):
    """What a place says about a path without opening it."""

    size: int
    state: tuple[object, ...]  # differs if the content does
    is_plain: bool = True  # False for a folder, a link or a FIFO
    is_folder: bool = False


class Place(Protocol):
    """A folder or an object store that both ends of a link see."""

    poll: float  # seconds between two looks
    longest: float  # longest time in seconds between two looks while it does not work, or nothing is expected

    def home(self, site: str) -> PurePath:
        """Return the path below which a site's sketches and receipts are."""

    def prepare(self, site: str) -> None:
        """Make the site's part of the place, if it is missing."""

    def sites(self) -> Collection[str]:
        """Return the sites that have a part of the place, none if that is not known now."""

    def names(self, site: str) -> set[str]:
        """Return the names in a site's part."""

    def sketches(self) -> tuple[set[PurePath], OSError | None]:
        """Return what is named like a sketch, of all sites, and the error of a site that could not be read."""

    def look(self, path: PurePath) -> Entry:
        """Return what is known about a path that was listed; FileNotFoundError if it is gone."""

    def put(self, source: Path, path: PurePath) -> None:
        """Copy a file into the place, at once or not at all."""

    def fetch(self, path: PurePath, target: Path, most: int) -> bool:
        """Copy a sketch of at most `most` bytes to this machine's disk; return False if it is none."""

    def read(self, path: PurePath, most: int) -> bytes:
        """Return the first `most` bytes of a small file."""

    def write(self, path: PurePath, content: dict[str, Any]) -> None:
        """Replace a small JSON file, at once or not at all."""

    def remove(self, path: PurePath) -> None:
        """Remove a path. It may be gone already."""

    def set_aside(self, path: PurePath) -> str:
        """Rename something that is not a plain file; return its new name."""


def is_sketch_name(name: str) -> bool:
    """Return True if a name is one that the hub looks at."""
    return name.endswith(".cube") and name[0] != "."


def copy_bounded(read: BinaryIO, target: Path, most: int) -> bool:
    """Write a file of what begins like a sketch and has at most `most` bytes; return False for anything else.

    The copy is as sparse as the file: a sparse file may be larger than the disk.
    """
    with open_fresh(target) as write:
        size = 0
        while block := read.read(len(_ZEROS)):
            if size == 0 and block[: len(MAGIC)] != MAGIC:
                return False
            size += len(block)
            if size > most:
                return False
            if block == _ZEROS:
                write.seek(size)
            else:
                write.write(block)
        write.truncate(size)
        write.flush()
        sync(write.fileno())
    return size > 0
