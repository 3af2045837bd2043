"""Inputs by name: files, URLs, pipes and standard input, and their bytes.

A file can be opened again and read from its beginning, a pipe only once. The first bytes, by which formats are
recognised, can be read without consuming them.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from superhosts.core.filetypes import HEAD_BYTES
from superhosts.errors import InputError
from superhosts.sources.base import Stopped
from superhosts.sources.decompressing import decompressed
from superhosts.sources.pace import PACE, Pace
from superhosts.sources.streams import PlainStream, Stream, Waiting, standard_input
from superhosts.sources.urls import UrlFile, is_url, url_size

STANDARD_INPUT = "-"  # as a name
LEAST_HEAD = 8  # bytes by which formats are told apart; longer magic numbers cannot be relied on
MOST_HEAD = HEAD_BYTES  # that a format may look at if they are there
LEAST_LINES = 2  # by which formats of text are told apart
MOST_LINES_HEAD = 65_536  # bytes in which these lines are looked for
LEAST_MAGIC = 4  # bytes; compressed data that ends before them tells nothing


def read_head(stream: Stream, most: int, is_enough: Callable[[bytes], bool]) -> bytes:
    """Read the first bytes of a stream until they are enough, or this many, or all."""
    head, got = bytearray(most), 0
    while not is_enough(bytes(head[:got])) and (more := stream.readinto(memoryview(head)[got:])):
        got += more
    return bytes(head[:got])


def has_lines(head: bytes) -> bool:
    """Return True if these first bytes are enough to tell formats of text apart."""
    return head.count(b"\n") >= LEAST_LINES


class PeekedStream:
    """A stream whose first bytes were read ahead and are returned first."""

    def __init__(self, head: bytes, stream: Stream) -> None:
        self._head = memoryview(head)
        self._stream = stream

    @property
    def compression(self) -> str:
        """The stream's own."""
        return self._stream.compression

    @property
    def ended_early(self) -> str:
        """The stream's own."""
        return self._stream.ended_early

    @property
    def notes(self) -> list[tuple[int, str]]:
        """The stream's own."""
        return self._stream.notes

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`, with the first bytes first."""
        if not self._head:
            return self._stream.readinto(view)
        got = min(len(self._head), len(view))
        view[:got], self._head = self._head[:got], self._head[got:]
        return got

    def position(self) -> int:
        """Bytes of the input read so far."""
        return self._stream.position()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


class Input:
    """A file, URL, pipe or stdin ("-") by name: what kind it is, how large, and its bytes."""

    def __init__(self, path: str | Path, pace: Pace = PACE, *, plain: bool = False) -> None:
        """Look at an input. `plain`: its bytes are taken as they are, even when they look compressed."""
        self.path = path
        self._plain = plain
        self._standard = str(path) == STANDARD_INPUT
        self.name = "stdin" if self._standard else str(path)
        self.waiting = Waiting(pace)
        self.compression = ""  # known once it was opened
        self._head: bytes | None = None
        self._lines: bytes | None = None
        self._peeked: Stream | None = None  # of a pipe, whose bytes come only once
        if self._standard and sys.stdin is None:
            raise InputError("is closed", file=self.name)
        self._url = is_url(path)
        if self._url:
            self.size, self.live, self.reopens = url_size(self.name), False, True
            return
        try:
            found = self._status()
        except (OSError, ValueError) as error:
            raise self._unopened(error) from error
        if found is not None and stat.S_ISDIR(found.st_mode):
            raise InputError("is a folder, not a capture", file=self.name)
        regular = found is not None and stat.S_ISREG(found.st_mode)
        self.size = found.st_size if found is not None and regular else None
        self.live = not regular
        self.reopens = regular and not self._standard  # the bytes can be read a second time

    def _status(self) -> os.stat_result | None:
        if not self._standard:
            return Path(self.path).stat()
        try:
            return os.fstat(sys.stdin.buffer.fileno())
        except OSError:  # not a real file, as under a test runner
            return None

    def _unopened(self, error: OSError | ValueError) -> InputError:
        reason = error.strerror if isinstance(error, OSError) else None
        return InputError(f"cannot be opened: {reason or error}", file=self.name)

    def head(self) -> bytes:
        """Return the first bytes, decompressed, by which formats are recognised.

        There are at least eight, unless the input is shorter; none where compressed data ends before them. Of a pipe
        this waits for them, and `open` gives them again.
        """
        if self._head is None:
            self._head = self._peek(MOST_HEAD, lambda head: len(head) >= LEAST_HEAD)
        return self._head

    def first_lines(self) -> bytes:
        """Return the first bytes, decompressed, by which formats of text are recognised: some whole lines.

        There are at least `LEAST_LINES` line ends, unless the input is shorter or its lines are very long. Of a pipe
        this waits for them, and `open` gives them again.
        """
        if self._lines is None:
            self._lines = self._peek(MOST_LINES_HEAD, has_lines)
        return self._lines

    def _peek(self, most: int, is_enough: Callable[[bytes], bool]) -> bytes:
        stream = self.open()
        try:
            head = read_head(stream, most, is_enough)
        except BaseException:
            stream.close()
            raise
        if self.reopens:
            stream.close()
        else:
            self._peeked = PeekedStream(head, stream)
        return b"" if stream.ended_early and len(head) < LEAST_MAGIC else head

    def open(self) -> Stream:
        """Return its bytes, decompressed."""
        if self._peeked is not None:
            peeked, self._peeked = self._peeked, None
            return peeked
        return self._open()

    def open_file(self) -> int | None:
        """Return a descriptor of a file that can be read at any place; None for a URL, a pipe and stdin."""
        return self._descriptor() if self.reopens and not self._url else None

    def _descriptor(self) -> int:
        # Without O_NONBLOCK, opening a pipe blocks until a writer opens it, and nothing can interrupt that.
        flags = os.O_RDONLY | (os.O_NONBLOCK if self.live else 0)
        try:
            return os.open(self.path, flags)
        except OSError as error:
            raise self._unopened(error) from error

    def _open(self) -> Stream:
        if self._standard:
            file = standard_input()[0]
        elif self._url:
            file = UrlFile(self.name)
        else:
            file = os.fdopen(self._descriptor(), "rb", buffering=0)
        plain = PlainStream(self.name, file, self.live, self.waiting if self.live else None)
        try:
            stream: Stream = plain if self._plain else decompressed(plain)
        except (InputError, Stopped):
            plain.close()
            raise
        self.compression = stream.compression
        return stream
