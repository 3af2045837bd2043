"""Where a .cube file is: at a path, or in a file object that somebody has opened.

A path is written under a temporary name that replaces it in the end, and read in place by several threads. File objects
(`io.BytesIO`, an open file, that of another file system) need only `write` or `read`; their rest is read into memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from superhosts.core.files import replaceable, replacing
from superhosts.errors import UsageError

File = str | os.PathLike[str] | IO[bytes]  # a path, or an open file


def name_of(file: File) -> str:
    """Return what messages call a file: its path, or that an open file has none."""
    name = file if isinstance(file, str | os.PathLike) else getattr(file, "name", None)
    return os.fspath(name) if isinstance(name, str | os.PathLike) else "<bytes>"


@contextmanager
def opened(file: File) -> Iterator[IO[bytes]]:
    """Yield a file to write to: an open one as it is, or a new one that replaces the path in the end."""
    if not isinstance(file, str | os.PathLike):
        try:
            yield file
        except TypeError as error:
            raise UsageError(f"{name_of(file)}: does not take bytes; open the file with mode 'wb'") from error
        return
    with replacing(replaceable(Path(file)), private=True) as temporary, temporary.open("wb") as stream:
        yield stream


class DiskFile:
    """A file on disk, which several threads read at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.size = os.fstat(self._file.fileno()).st_size

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset` on."""
        return os.pread(self._file.fileno(), length, offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class MemoryFile:
    """The content of a file in memory."""

    def __init__(self, content: Any, name: str) -> None:
        if not isinstance(content, bytes | bytearray | memoryview):
            raise UsageError(f"{name}: reading gives {type(content).__name__}, not bytes; open the file with mode 'rb'")
        self._content = memoryview(content)
        self.size = len(content)

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset` on."""
        return bytes(self._content[max(offset, 0) : max(offset, 0) + length])

    def close(self) -> None:
        """Forget the content."""
        self._content = memoryview(b"")
