"""Bytes of an input, plain or compressed, from a file or a pipe.

The content decides, not the name: gzip, zstd and xz are known by their first bytes, and several members or frames
one after the other are one stream. A stream gives what is there: reading from a pipe returns as soon as some bytes
have come, so that a live capture is not held back until a block is full. Files are read, never mapped: a file that is
truncated under a map kills the process.

Memory is bounded. Compressed bytes are fed in small pieces, because the zstd decompressor has no limit on its output
and a few bytes can stand for very many (at worst 8 KiB for 256 MiB).

A compressed stream that ends early is not an error, only `ended_early`: a capture that was interrupted still counts.
"""

from __future__ import annotations

import lzma
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import zstandard

from superhosts.errors import InputError
from superhosts.sources.urls import UrlFile, is_url, url_size

_PIECE = 8 * 1024  # compressed bytes that are decompressed at once
_CHUNK = 256 * 1024  # compressed bytes that are read at once
_HEAD = 6  # bytes that tell every compression apart
_LARGEST_DICTIONARY = 256 * 1024 * 1024  # of xz; its highest preset needs 65 MiB
_BRIEFLY = 0.02  # seconds without bytes that are no wait yet: a busy pipe, too, is empty for moments
_WAKE = 0.2  # seconds after which a waiting reader looks whether it was stopped


class Stopped(Exception):  # noqa: N818  not an error
    """A reader was told to stop."""


class Waiting:
    """What others see of a reader that waits for bytes, and how they end it: flags that a signal handler may set."""

    def __init__(self) -> None:
        self.waits = False
        self.stopped = False


class Stream(Protocol):
    """Bytes, in order, once."""

    ended_early: str  # what to say if the compressed data ended before its end

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`; how much, 0 at the end. Waits only when nothing is there."""

    def position(self) -> int:
        """Bytes of the input (compressed, if it is) read so far."""

    def close(self) -> None:
        """Give the file back."""


class PlainStream:
    """The input's own bytes."""

    ended_early = ""

    def __init__(self, name: str, file: Any, live: bool, waiting: Waiting | None = None) -> None:
        self.name = name
        self.live = live  # waiting for more would hold back what is there
        self._file = file
        self._waiting = waiting
        self._poll = _poll_for(file) if waiting is not None else None
        self._read: Callable[[memoryview], int | None] = getattr(file, "readinto1", file.readinto)
        self._head = b""
        self._position = 0

    def head(self) -> bytes:
        """The first bytes (fewer only if there are no more), without taking them away."""
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
        got += self._readinto(view[got:])  # never kept waiting for long: the head alone is not a packet
        self._position += got
        return got

    def _readinto(self, view: memoryview) -> int:
        try:
            self._wait()
            while (got := self._read(view)) is None:  # a pipe that somebody made non-blocking
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
            self._waiting.waits, pause = True, _WAKE
        raise Stopped

    def position(self) -> int:
        """Bytes read so far."""
        return self._position

    def close(self) -> None:
        """Close the file, unless it is stdin."""
        if self._file not in _standard_input():
            self._file.close()


def _poll_for(file: Any) -> Any:
    """Return what tells whether a file has bytes to read; None where nothing can."""
    try:
        descriptor = file.fileno()
    except OSError:  # not a real file, as under a test runner
        return None
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll


def _standard_input() -> list[Any]:
    """Return stdin without its buffer, if it has one to be without, and stdin itself.

    Bytes in a buffer would not be seen by a poll, and a thread that waits in a buffered read at the end of the process
    holds a lock that ends it with a crash.
    """
    buffered = None if sys.stdin is None else sys.stdin.buffer
    return [] if buffered is None else [getattr(buffered, "raw", buffered), buffered]


class CompressedStream:
    """The bytes that a compressed input stands for."""

    def __init__(self, plain: PlainStream, kind: str, new: Callable[[], Any]) -> None:
        self.ended_early = ""
        self._plain = plain
        self._kind = kind
        self._new = new
        self._decompressor: Any = None  # None between two members
        self._room = memoryview(bytearray(_CHUNK))
        self._input = self._room[:0]  # read, not yet decompressed
        self._output = memoryview(b"")  # decompressed, not yet asked for
        self._given = 0
        self._error: InputError | None = None

    def readinto(self, view: memoryview) -> int:
        """Fill `view`, or as much of it as a live input allows."""
        filled = 0
        while filled < len(view):
            if not self._output:
                if not self._input and filled and self._plain.live:
                    break
                if not self._decompress():
                    break
            step = min(len(self._output), len(view) - filled)
            view[filled : filled + step] = self._output[:step]
            self._output = self._output[step:]
            filled += step
        self._given += filled
        if self._error and not filled:  # what came before the damage is given out first
            raise self._error
        return filled

    def _decompress(self) -> bool:
        """Decompress one piece; False at the end or where the data is damaged."""
        if self._error:
            return False
        if not self._input:
            self._input = self._room[: self._plain.readinto(self._room)]
            if not self._input:
                if self._decompressor is not None:
                    self.ended_early = f"the {self._kind} data ends early"
                return False
        piece, self._input = bytes(self._input[:_PIECE]), self._input[_PIECE:]
        given: list[bytes] = []
        try:
            while piece:
                if self._decompressor is None:
                    piece = piece.lstrip(b"\0")  # padding between members
                    if not piece:
                        break
                    self._decompressor = self._new()
                given.append(self._decompressor.decompress(piece))
                piece = b""
                if self._decompressor.eof:
                    piece, self._decompressor = self._decompressor.unused_data, None
        except (zlib.error, lzma.LZMAError, zstandard.ZstdError, EOFError) as error:
            before = self._given + sum(map(len, given))
            text = f"damaged {self._kind} data: {error}"
            self._error = InputError(text, file=self._plain.name, offset=before)
        self._output = memoryview(b"".join(given))
        return True

    def position(self) -> int:
        """Compressed bytes taken so far."""
        return self._plain.position() - len(self._input)

    def close(self) -> None:
        """Close the file below."""
        self._plain.close()


def _new_gzip() -> Any:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)


def _new_zstd() -> Any:
    return zstandard.ZstdDecompressor().decompressobj()


def _new_xz() -> Any:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_LARGEST_DICTIONARY)


def _is_zstd(head: bytes) -> bool:
    """A zstd frame, or a skippable one, which some compressors write first."""
    return head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5)


def decompressed(plain: PlainStream) -> Stream:
    """The stream itself, or what it decompresses to."""
    head = plain.head()
    if head[:2] == b"\x1f\x8b":
        return CompressedStream(plain, "gzip", _new_gzip)
    if _is_zstd(head):
        return CompressedStream(plain, "zstd", _new_zstd)
    if head == b"\xfd7zXZ\0":
        return CompressedStream(plain, "xz", _new_xz)
    return plain


class Input:
    """A file, URL, pipe or stdin ("-") by name: what kind it is, how large, and its bytes."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._standard = str(path) == "-"
        self.name = "stdin" if self._standard else str(path)
        self.waiting = Waiting()
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
            raise InputError("is a directory; name the captures in it", file=self.name)
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

    def open(self) -> Stream:
        """Its bytes, decompressed."""
        if self._standard:
            file = _standard_input()[0]
        elif self._url:
            file = UrlFile(self.name)
        else:
            self.waiting.waits = self.live  # a pipe opens when somebody writes
            try:
                file = Path(self.path).open("rb", buffering=0)  # noqa: SIM115  the stream closes it
            except OSError as error:
                raise self._unopened(error) from error
            self.waiting.waits = False
        plain = PlainStream(self.name, file, self.live, self.waiting if self.live else None)
        try:
            return decompressed(plain)
        except (InputError, Stopped):
            plain.close()
            raise
