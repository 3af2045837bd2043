"""Files, URLs, pipes and standard input: `Input` has the bytes, a `FileFormat` reads them, `FileSource` is the source.

A file can be opened again and read from its beginning, a pipe only once. The first bytes, by which formats are
recognised, can be read without consuming them. A stream returns what is there: reading from a pipe returns as soon as
some bytes have come, so that a live capture does not wait for a full block.

A format of files has a `Reader`, which makes packets of bytes in one pass. All else is `FileSource`, for every format:
when an input begins, the packets that were read to know it, reading it again, and the identity of a file that was read
to its end, by which the next run recognises it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from superhosts.core.files import HEAD_BYTES
from superhosts.core.pairs import PacketBlock
from superhosts.core.units import SECOND
from superhosts.errors import InputError
from superhosts.sources.base import PACE, Pace, Source, SourceCounters, Stopped, Wants
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
        stream: Stream = plain if self._plain else decompressed(plain)
        self.compression = stream.compression
        return stream


COMPRESSED = (".gz", ".zst", ".xz")
_YEAR = 365 * 86400 * SECOND


class Reader:
    """One pass over an input, whose bytes are in `_stream`."""

    _stream: Stream
    opening: int | None = None  # time of the very first packet, where that is not the first one that `read` returns

    def read(self) -> PacketBlock | None:
        """Return the next packets; () if none of them has addresses, None at the end."""
        raise NotImplementedError

    def position(self) -> int:
        """Return the bytes of the input (compressed, if it is) read so far."""
        return self._stream.position()

    def close(self) -> None:
        self._stream.close()


class FileFormat(NamedTuple):
    """Files and pipes that begin with certain bytes, after decompression.

    A reader counts in the counters what does not become a packet with addresses; `FileSource` counts the packets.
    """

    recognises: Callable[[bytes], bool]  # of the first bytes: at least 8, unless the input is shorter
    open: Callable[[Opens, SourceCounters, Wants], Reader]
    one_thread: Callable[[Input, Wants], bool] = lambda _file, _wants: True  # one thread reads a file of it
    groups: tuple[str, ...] = ()  # by which its packets can be kept apart


class FileSource(Source):
    """A file, a URL, a pipe or standard input. A pipe is recognised once its first bytes are there."""

    def __init__(self, file: Input, recognise: Callable[[Input], FileFormat]) -> None:
        super().__init__(file.name)
        self.replays, self.live = file.reopens, file.live
        self._input, self._recognise = file, recognise
        self.format = recognise(file) if file.reopens else None
        self._reader: Reader | None = None
        self._first: PacketBlock = ()  # read from a pipe for its time, not yet yielded
        self._probed = SourceCounters()  # of a file that was opened to know when it begins
        self._finished: dict[str, tuple[int, int]] = {}
        self.want(self.wants)

    def want(self, wants: Wants) -> None:
        if self.format is not None:  # that of a pipe is checked when it is known
            self.check_group(wants, self.format.groups)
        self.wants = wants
        self.one_thread = self.format is not None and self.format.one_thread(self._input, wants)

    def first_time(self) -> int | None:
        opening, first = self._begin
        if opening is None:  # A file without packets is not read, so that nobody else says what is wrong with it.
            probed, self._probed = self._probed, SourceCounters()
            self.counters.truncated_files += probed.truncated_files
            for text in probed.warnings:
                self.counters.warn(text)
        return first

    @cached_property
    def _begin(self) -> tuple[int | None, int | None]:
        """The time of the very first packet, stray or not, and that at which the input begins; None without packets."""
        if self.replays:
            reader = self._open(self._probed, self.wants._replace(first_only=True, group=""))
            try:
                opening, block = read_first(reader)
            finally:
                reader.close()
        else:
            self._reader = self._reader or self._open(self.counters, self.wants)
            opening, block = read_first(self._reader)
            self._first = block
        return opening, _earliest(opening, block)

    def _open(self, counters: SourceCounters, wants: Wants) -> Reader:
        if self.format is None:
            self.format = self._recognise(self._input)
            self.want(self.wants)
        return self.format.open(self._input, counters, wants)

    def _read(self) -> Iterator[PacketBlock]:
        try:
            identity = self.identity()  # before reading: meanwhile another file may take its name
            span = Span(None if identity is None else self._begin[0])
            reader = self._reader = self._reader or self._open(self.counters, self.wants)
            first, self._first = self._first, ()
            for block in filter(None, chain([first], iter(reader.read, None))):
                span.add(block)
                yield block
            if identity is not None:
                self._finished[identity] = span.ends()
        except Stopped:
            return
        finally:
            self.close()

    def again(self) -> Source:
        source = FileSource(self._input, self._recognise)
        source.want(self.wants)
        return source

    def identity(self) -> str | None:
        if not self.replays or self.wants.one_window:
            return None
        opening, _ = self._begin
        return None if opening is None else identity_of(self._input.path, opening)

    def head(self) -> bytes:
        return self._input.head()

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


def read_first(reader: Reader) -> tuple[int | None, PacketBlock]:
    """Return the time of the very first packet, None if there is none, and the packets that were read to know it."""
    block: PacketBlock | None = ()
    while block == () and reader.opening is None:
        block = reader.read()
    first = min((int(batch.time[0]) for batch in block or () if len(batch)), default=None)
    return first if reader.opening is None else reader.opening, block or ()


def _earliest(opening: int | None, block: PacketBlock) -> int | None:
    """Return the earliest time of the first packets that is not years from most of them."""
    if opening is None or not block:
        return opening
    times = np.concatenate([[opening], *(batch.time for batch in block)])
    middle = np.partition(times, len(times) // 2)[len(times) // 2]
    return int(times[np.abs(times.astype(np.float64) - float(middle)) < _YEAR].min())


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
