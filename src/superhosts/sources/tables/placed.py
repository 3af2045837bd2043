"""Files that are read at any place: plain ones, ones behind URLs, and copies of everything else.

Parquet and Arrow files have their description at their end. An input that cannot be read there (a pipe, a compressed
file) is copied to a temporary file first, which has no name and is gone when it is closed, even if the process is
killed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import IO, Any

from superhosts.errors import InputError, OutputError
from superhosts.sources.files import file_system, is_url
from superhosts.sources.input import Input
from superhosts.sources.tables.base import Opens

_CHUNK = 1 << 20  # bytes


class PlacedFile:
    """An open file with a position of its own, so that several threads can read it. Python's way to say `pread`."""

    closed = False

    def __init__(self, file: int, size: int) -> None:
        self._file, self._size, self._at = file, size, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position."""
        self._at = offset + (self._at if whence == os.SEEK_CUR else self._size if whence == os.SEEK_END else 0)
        return self._at

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes, fewer at the end."""
        left = max(0, self._size - self._at)  # A damaged file may ask for terabytes.
        wanted = left if count < 0 else min(count, left)
        parts = []
        while wanted > 0 and (part := os.pread(self._file, wanted, self._at)):
            parts.append(part)
            self._at += len(part)
            wanted -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Leave the file open: others read it."""


class Places:
    """An input whose bytes can be read anywhere. `open` returns something that pyarrow reads, for one thread."""

    def __init__(self, size: int, open: Callable[[], Any], close: Callable[[], None] = lambda: None) -> None:
        self.size, self.open, self.close = size, open, close


def placed(source: Opens) -> Places:
    """Return an input to be read anywhere: a plain file as it is, what is behind a URL by parts, the rest as a copy."""
    if isinstance(source, Input) and source.reopens and not source.compression:
        if is_url(source.path):
            return _of_url(source.name) if source.size is not None else _copied(source)
        file = source.open_file()
        if file is not None:
            return _of_file(file, lambda: os.close(file))
    return _copied(source)


def _of_file(file: int, close: Callable[[], None]) -> Places:
    size = os.fstat(file).st_size
    return Places(size, lambda: PlacedFile(file, size), close)


def _of_url(url: str) -> Places:
    system, path = file_system(url)
    size = int(system.info(path)["size"])
    return Places(size, lambda: system.open(path, "rb", cache_type="none"))


def _copied(source: Opens) -> Places:
    file = spooled(source)
    return _of_file(file.fileno(), file.close)


def spooled(source: Opens) -> IO[bytes]:
    """Return all bytes of an input, decompressed, in a temporary file."""
    stream, chunk = source.open(), bytearray(_CHUNK)
    file = tempfile.TemporaryFile(prefix="superhosts-")  # noqa: SIM115  closed by whoever reads it
    try:
        while got := stream.readinto(memoryview(chunk)):
            try:
                file.write(memoryview(chunk)[:got])
                file.flush()  # A full disk shows here.
            except OSError as error:
                way = f"{error.strerror or error}; TMPDIR names another folder"
                raise OutputError(f"{tempfile.gettempdir()}: a temporary file cannot be written: {way}") from None
        if stream.ended_early:
            raise InputError(stream.ended_early, file=source.name)
    except BaseException:
        file.close()
        raise
    finally:
        stream.close()
    return file
