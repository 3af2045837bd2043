"""Bytes of an input, plain or compressed, from a file or a pipe.

The content decides, not the name: gzip, zstd and xz are recognised by their first bytes. A stream returns what is
there: reading from a pipe returns as soon as some bytes have come, so that a live capture does not wait for a full
block. Files are read, never mapped: a file that is truncated under a map kills the process.

A compressed stream that ends early is not an error, only `ended_early`: an interrupted capture still counts. A wrong
checksum is a note. Damage is an error, raised after everything before it was returned.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from superhosts.errors import InputError
from superhosts.sources.pace import PACE, Pace
from superhosts.sources.unpacking import (
    LONGEST_WINDOW,
    MOST_INPUT,
    Damaged,
    Gzip,
    Unpacker,
    WindowTooLong,
    Xz,
    Zstd,
    is_zstd,
)
from superhosts.units import format_size

_MOST_IDLE = 1000  # steps without output
_HEAD = 6  # bytes by which compressions are told apart
_BRIEFLY = 0.02  # seconds without bytes that do not count as waiting: a busy pipe, too, is empty for moments


class Stopped(Exception):  # noqa: N818  not an error
    """A reader was told to stop."""


class Waiting:
    """Flags of a reader that waits for bytes: whether it waits, and whether to stop. A signal handler may set them."""

    def __init__(self, pace: Pace = PACE) -> None:
        self.pace = pace
        self.waits = False
        self.stopped = False


class Stream(Protocol):
    """Bytes, in order, once."""

    @property
    def compression(self) -> str:
        """Name of the compression; "" for plain bytes."""

    @property
    def ended_early(self) -> str:
        """A message if the compressed data ended early; else ""."""

    @property
    def notes(self) -> list[tuple[int, str]]:
        """Further messages for the user, each with the number of bytes before it."""

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view` and return how much; 0 at the end. Waits only when nothing is there."""

    def position(self) -> int:
        """Bytes of the input (compressed, if it is) read so far."""

    def close(self) -> None:
        """Close the file."""


class PlainStream:
    """The input's own bytes."""

    compression = ended_early = ""

    def __init__(self, name: str, file: Any, live: bool, waiting: Waiting | None = None) -> None:
        self.notes: list[tuple[int, str]] = []
        self.name = name
        self.live = live  # return what is there instead of waiting for more
        self._file = file
        self._waiting = waiting
        self._poll = _poll_for(file) if waiting is not None else None
        self._read: Callable[[memoryview], int | None] = getattr(file, "readinto1", file.readinto)
        self._head = b""
        self._position = 0
        self._until = 0.0  # when a stopped reader ends

    def head(self) -> bytes:
        """Return the first bytes (fewer only if there are no more) without consuming them."""
        while len(self._head) < _HEAD:
            more = bytearray(_HEAD - len(self._head))
            got = self._readinto(memoryview(more))
            if not got:
                break
            self._head += more[:got]
        return self._head

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`."""
        got = min(len(self._head), len(view))
        view[:got], self._head = self._head[:got], self._head[got:]
        got += self._readinto(view[got:])  # waits for more only briefly: the head alone is not a packet
        self._position += got
        return got

    def _readinto(self, view: memoryview) -> int:
        try:
            self._wait()
            while (got := self._read(view)) is None:  # a non-blocking pipe
                select.select([self._file], [], [])
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", file=self.name) from error
        return got

    def _wait(self) -> None:
        """Wait until there is something to read, so that `read` itself never blocks a reader that is stopped."""
        if self._poll is None or self._waiting is None:
            return
        pause = _BRIEFLY
        while not self._waiting.stopped:
            if self._poll.poll(1000 * pause):
                self._waiting.waits = False
                return
            self._waiting.waits, pause = True, self._waiting.pace.wake
        self._until = self._until or time.monotonic() + self._waiting.pace.linger
        left = self._until - time.monotonic()
        if left <= 0 or not self._poll.poll(1000 * left):
            raise Stopped

    def position(self) -> int:
        """Bytes read so far."""
        return self._position

    def close(self) -> None:
        """Close the file, unless it is stdin."""
        if self._file not in standard_input():
            self._file.close()


def _poll_for(file: Any) -> Any:
    """Return a poll object for a file; None if the file has no descriptor."""
    try:
        descriptor = file.fileno()
    except OSError:  # not a real file, as under a test runner
        return None
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll


def standard_input() -> list[Any]:
    """Return stdin without its buffer, if it has one, and stdin itself.

    A poll does not see bytes in a buffer, and a thread that waits in a buffered read at the end of the process holds a
    lock that makes the process crash.
    """
    buffered = None if sys.stdin is None else sys.stdin.buffer
    return [] if buffered is None else [getattr(buffered, "raw", buffered), buffered]


class CompressedStream:
    """The decompressed bytes of an input."""

    def __init__(self, plain: PlainStream, compression: str, unpacker: Unpacker) -> None:
        self.compression = compression
        self.ended_early = ""
        self.notes: list[tuple[int, str]] = []
        self._plain = plain
        self._unpacker = unpacker
        self._room = memoryview(bytearray(MOST_INPUT))
        self._start = self._end = 0  # of the bytes in it that are not decompressed yet
        self._all_read = False
        self._output = memoryview(b"")  # decompressed, not yet asked for
        self._unpacked = 0  # bytes decompressed so far
        self._error: InputError | None = None

    def readinto(self, view: memoryview) -> int:
        """Fill `view`, or as much of it as a live input allows."""
        filled = 0
        while filled < len(view):
            if not self._output and not self._unpack(more=filled > 0):
                break
            step = min(len(self._output), len(view) - filled)
            view[filled : filled + step] = self._output[:step]
            self._output = self._output[step:]
            filled += step
        if self._error and not filled:  # what came before the damage is returned first
            raise self._error
        return filled

    def _unpack(self, *, more: bool) -> bool:
        """Decompress until there is output; False at the end and at damage.

        If there is output already and this would only be `more`, also False instead of waiting for a live input, and
        after many steps without output: reading the first packet must not read a million empty members behind it.
        """
        idle = 0
        while not self._error and idle <= _MOST_IDLE:
            wrong = self._unpacker.wrong_checksums
            try:
                taken, output = self._unpacker.unpack(self._room[self._start : self._end], self._all_read)
            except (Damaged, WindowTooLong) as error:
                self._error = self._explained(error)
                return False
            self._start += taken
            if self._unpacker.wrong_checksums == 1 and not wrong:  # reported once
                self._note_checksum()
            if output:
                self._unpacked += len(output)
                self._output = memoryview(output)
                return True
            idle += more
            if taken:
                continue
            if self._all_read:
                if self._start < self._end or not self._unpacker.is_between():
                    self.ended_early = f"the {self.compression} data ends early"
                return False
            if more and self._plain.live:
                return False
            self._read()
        return False

    def _read(self) -> None:
        """Read more bytes behind those that are not decompressed yet."""
        left = self._end - self._start
        if self._start:
            self._room[:left] = self._room[self._start : self._end]
            self._start, self._end = 0, left
        got = self._plain.readinto(self._room[left:])
        self._end += got
        self._all_read = not got

    def _explained(self, error: Damaged | WindowTooLong) -> InputError:
        name = self._plain.name
        taken = error.taken if isinstance(error, Damaged) else 0
        exact = "" if self.compression == "gzip" else "at or after "  # where the damaged block or chunk begins
        place = f"{exact}byte {self.position() - taken} of the compressed data"
        if isinstance(error, WindowTooLong):
            command = error.command if name == "stdin" else f"{error.command} {name}"
            text = (
                f"the {self.compression} data needs a window of {error}, longer than "
                f"{format_size(LONGEST_WINDOW)}; decompress it first: {command} | superhosts scan -"
            )
        else:
            text = f"damaged {self.compression} data: {error} ({place})"
        return InputError(text, file=name, offset=self._unpacked)

    def _note_checksum(self) -> None:
        text = (
            f"byte {self.position()} of the compressed data: wrong {self.compression} checksum; "
            "what came before counts, and some of it may be damaged"
        )
        self.notes.append((self._unpacked, text))

    def position(self) -> int:
        """Compressed bytes taken so far."""
        return self._plain.position() - (self._end - self._start)

    def close(self) -> None:
        """Close the underlying file."""
        self._plain.close()


def decompressed(plain: PlainStream) -> Stream:
    """Return the stream itself, or its decompressed bytes."""
    head = plain.head()
    if head[:2] == b"\x1f\x8b":
        return CompressedStream(plain, "gzip", Gzip())
    if is_zstd(head):
        return CompressedStream(plain, "zstd", Zstd())
    if head == b"\xfd7zXZ\0":
        return CompressedStream(plain, "xz", Xz())
    return plain
