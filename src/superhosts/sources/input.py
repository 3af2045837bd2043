"""Inputs by name: a file, URL, pipe or standard input, its bytes (`Stream`), and what makes it a source (`FileSource`).

A file can be opened again and read from its beginning, a pipe only once. The first bytes, by which formats are
recognised, can be read without consuming them. A stream returns what is there: reading from a pipe returns as soon as
some bytes have come, so that a live capture does not wait for a full block. Files are read, never mapped: a file that
is truncated under a map kills the process.

A file that was read to its end has an identity, by which the next run recognises it.
"""

from __future__ import annotations

import os
import stat
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from superhosts.core.files import HEAD_BYTES
from superhosts.core.pairs import PacketBlock
from superhosts.errors import InputError
from superhosts.sources.base import PACE, Pace, Source, SourceCounters, Stopped
from superhosts.sources.compression import decompressed
from superhosts.sources.files import UrlFile, is_url, url_size
from superhosts.sources.stream import PlainStream, Stream, Waiting, standard_input


class Opens(Protocol):
    """An input as a reader needs it: its name and its bytes, decompressed."""

    @property
    def name(self) -> str: ...

    def open(self) -> Stream:
        """Return its bytes, decompressed."""


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
    return head.count(b"\n") >= LEAST_LINES


class Input:
    def __init__(self, path: str | Path, pace: Pace = PACE, *, plain: bool = False) -> None:
        """Look at an input. `plain`: its bytes are taken as they are, even when they look compressed."""
        self.path = path
        self._plain = plain
        self._standard = str(path) == STANDARD_INPUT
        self.name = "stdin" if self._standard else str(path)
        self.waiting = Waiting(pace)
        self.compression = ""  # known once it was opened
        self._heads: dict[int, bytes] = {}  # by the most bytes that they may have
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
        return self._peek(MOST_HEAD, lambda head: len(head) >= LEAST_HEAD)

    def first_lines(self) -> bytes:
        """Return the first bytes, decompressed, by which formats of text are recognised: some whole lines.

        There are at least `LEAST_LINES` line ends, unless the input is shorter or its lines are very long. Of a pipe
        this waits for them, and `open` gives them again.
        """
        return self._peek(MOST_LINES_HEAD, has_lines)

    def _peek(self, most: int, is_enough: Callable[[bytes], bool]) -> bytes:
        if most in self._heads:
            return self._heads[most]
        stream = self.open()
        try:
            head = read_head(stream, most, is_enough)
        except BaseException:
            stream.close()
            raise
        if self.reopens:
            stream.close()
        else:
            stream.unread(head)
            self._peeked = stream
        self._heads[most] = b"" if stream.ended_early and len(head) < LEAST_MAGIC else head
        return self._heads[most]

    def open(self) -> Stream:
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


COMPRESSED = (".gz", ".zst", ".xz")


class Reader(Protocol):
    def position(self) -> int: ...

    def close(self) -> None: ...


AnyReader = TypeVar("AnyReader", bound=Reader)


class FileSource(Source, Generic[AnyReader]):
    """A source that is one input. Subclasses know a format: they open `_reader`, and implement `_look` and `_read`."""

    def __init__(self, file: Input) -> None:
        self.name = file.name
        self.replays = file.reopens
        self.live = file.live
        self.counters = SourceCounters()
        self._input = file
        self._reader: AnyReader | None = None
        self._first_time: int | None = None
        self._first_known = False
        self._opening: int | None = None  # time of the very first packet of a file, stray or not
        self._finished: dict[str, tuple[int, int]] = {}

    @abstractmethod
    def _look(self) -> int | None:
        """Return the time at which the input begins, None for an empty input; note `_opening` if it is a file."""

    @abstractmethod
    def _read(self) -> Iterator[PacketBlock]:
        """Yield the packets. `blocks` closes the reader at the end."""

    def _find_opening(self) -> None:
        self.first_time()

    def first_time(self) -> int | None:
        if not self._first_known:
            self._first_time = self._look()
            self._first_known = True
        return self._first_time

    def blocks(self) -> Iterator[PacketBlock]:
        identity = self.identity()  # before reading: meanwhile another file may take its name
        span = Span(self._opening)
        try:
            for block in self._read():
                span.add(block)
                yield block
            if identity is not None:
                self._finished[identity] = span.ends()
        except Stopped:
            return
        finally:
            self.close()

    def identity(self) -> str | None:
        if self.replays and self._opening is None:
            self._find_opening()
        return identity_of(self._input.path, self._opening) if self.replays and self._opening is not None else None

    def waits(self) -> bool:
        return self._input.waiting.waits

    def stop(self) -> None:
        self._input.waiting.stopped = True

    def finished(self) -> dict[str, tuple[int, int]]:
        return dict(self._finished)

    def position(self) -> int:
        reader = self._reader  # read once: the reading thread may set it to None
        return self._bytes if reader is None else reader.position()

    def size(self) -> int | None:
        return self._input.size

    def close(self) -> None:
        if self._reader is not None:
            self._bytes = self._reader.position()
            self._reader.close()
            self._reader = None


class Span:
    """The earliest and the latest time of a file's packets, given that of the first."""

    def __init__(self, time: int | None) -> None:
        self._first = self._last = time or 0

    def add(self, block: PacketBlock) -> None:
        for batch in block:
            if len(batch):
                self._first = min(self._first, batch.span[0])
                self._last = max(self._last, batch.span[1])

    def ends(self) -> tuple[int, int]:
        return self._first, self._last


def without_compression(name: str) -> str:
    return next((name.removesuffix(ending) for ending in COMPRESSED if name.endswith(ending)), name)


def identity_of(path: str | Path, first: int) -> str:
    """Return the identity of a file, given the time of its first packet.

    Compressing a file after its rotation does not change its identity; another file under the same name, as in a ring
    of files, has another one.
    """
    name = str(path) if is_url(path) else str(Path(path).absolute())
    return f"{without_compression(name)}@{first}"


@dataclass(frozen=True)
class FileFormat:
    """Files and pipes that begin with certain bytes, after decompression."""

    recognises: Callable[[bytes], bool]  # of the first bytes: at least 8, unless the input is shorter
    open: Callable[[Input], Source]
