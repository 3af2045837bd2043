"""Bytes of a compressed input, decompressed.

A compressed stream that ends early is not an error, only `ended_early`: an interrupted capture still counts. Damage, of
which a wrong checksum is a kind, is an error. It is raised after what came before was returned, but for part of a block
(zstd) or up to 8 KiB (xz), since a decompressor that meets damage in a call loses what that call had decompressed.

A window (the past output that data refers to) longer than `LONGEST_WINDOW` is refused, with a way out. Several members
(gzip), frames (zstd) or streams (xz) in a row are one stream, with or without zero bytes between them. Memory is
bounded whatever the data claims, and the work is linear in the bytes, also for a million empty members.

Decompressing takes longer than all that follows. So a thread of its own does it for files, a bounded number of bytes
ahead of the reader: the reader copies the output into its buffer and walks the packets meanwhile. The first bytes are
decompressed without that thread, since many files are only opened to look at them. So are live inputs: whether such an
input waits for bytes has to be known exactly, and its rate is that of the traffic.
"""

from __future__ import annotations

import lzma
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import zstandard

from superhosts.core.profile import measured
from superhosts.core.units import format_size
from superhosts.errors import InputError
from superhosts.sources.base import Stopped
from superhosts.sources.stream import PlainStream, Stream

try:  # a fork of zlib with the same results, which takes half the time
    from zlib_ng import zlib_ng

    INFLATER: Any = zlib_ng
except ImportError:  # there is no wheel for this machine
    INFLATER = zlib

LONGEST_WINDOW = 128 * 1024 * 1024  # the default limit of the zstd command; the highest preset of xz needs half
MOST_INPUT = 256 * 1024  # bytes that an unpacker needs at most to make a step
MOST_STEP = 256 * 1024  # bytes of input and of output of a step; after each step a thread waits for the GIL
_FIRST_STEP = 1024  # small, as a member may be tiny
_XZ_STEP = 8192  # of which half is lost before damage on average; 4096 would be 5 % slower
_ZSTD_MAGIC, _ZSTD_BLOCK, _ZSTD_HEADER = b"\x28\xb5\x2f\xfd", 128 * 1024, 18
_XZ_OVERHEAD = 1024 * 1024  # memory of its decompressor besides the window

Unpacked = tuple[int, bytes] | None


class Damaged(Exception):  # noqa: N818  becomes an InputError where the place is known
    """The next bytes cannot be decompressed. `command`: their window is too long, and this decompresses them."""

    def __init__(self, text: str, command: str = "") -> None:
        super().__init__(text)
        self.command = command


def _padding(data: memoryview) -> int:
    """Return how many zero bytes the data begins with."""
    start = bytes(data[:4096]) if data and not data[0] else b""
    return len(start) - len(start.lstrip(b"\0"))


class Inflate:
    """A member of gzip data, with the interface of `lzma.LZMADecompressor`, which loses nothing before damage."""

    def __init__(self, inflater: Any) -> None:
        self._member = inflater.decompressobj(wbits=zlib.MAX_WBITS | 16)
        self._damage: Exception | None = None
        self.needs_input = True

    def decompress(self, data: bytes, most: int) -> bytes:
        if self._damage is not None:
            raise self._damage
        data = self._member.unconsumed_tail or data
        before = self._member.copy()
        try:
            output: bytes = self._member.decompress(data, most)
        except (INFLATER.error, zlib.error) as error:
            self._member, self._damage, self.needs_input = before, error, False
            return self._before_damage(data, most)
        self.needs_input = not self._member.unconsumed_tail and len(output) < most
        return output

    def _before_damage(self, data: bytes, most: int) -> bytes:
        """Return what can be decompressed of data with damage: pieces of it, and of what fails half as much."""
        parts, start, size = [], 0, (len(data) + 1) // 2
        while size and start < len(data):
            before = self._member.copy()
            try:
                parts.append(self._member.decompress(data[start : start + size], most))
                start += size
            except (INFLATER.error, zlib.error):
                self._member, size = before, size // 2
        return b"".join(parts)

    @property
    def eof(self) -> bool:
        return bool(self._member.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._member.unused_data)


class Members:
    """Members of gzip or xz, each of which has a decompressor of its own.

    `unpack` returns how many bytes of `data` were taken, and what they stand for; None if more bytes are needed.
    Bytes that were taken and belong to the next member are given back: then the number is negative. `is_between`
    returns True if the data may end here. `Zstd` does the same.
    """

    def __init__(self, make: Callable[[], Any], most_step: int) -> None:
        self._make = make
        self._most_step = most_step
        self._member: Any = None  # None between two members
        self._step = _FIRST_STEP

    def unpack(self, data: memoryview) -> Unpacked:
        if self._member is None:
            if zeros := _padding(data):
                return zeros, b""
            if not data:
                return None
            self._member, self._step = self._make(), _FIRST_STEP
        member: Any = self._member
        if not data and member.needs_input:
            return None
        piece = data[: self._step] if member.needs_input else b""
        try:
            output = member.decompress(piece, self._step)
        except (INFLATER.error, zlib.error, lzma.LZMAError) as error:
            if "limit" in str(error):
                raise Damaged(f"more than {format_size(LONGEST_WINDOW)}", "xz -dc") from None
            raise Damaged(str(error).partition("data: ")[2] or str(error)) from None
        self._step = min(2 * self._step, self._most_step)
        if not member.eof:
            return len(piece), output
        self._member = None
        return len(piece) - len(member.unused_data), output

    def is_between(self) -> bool:
        return self._member is None


def is_zstd(start: bytes) -> bool:
    """Return True if a zstd frame starts with these bytes, or a skippable one, which some compressors write first."""
    return start[:4] == _ZSTD_MAGIC or (start[1:4] == b"\x2a\x4d\x18" and start[0] >> 4 == 5)


class Zstd:
    """Frames of blocks. A block begins with its length and stands for at most 128 KiB; a step is a block."""

    def __init__(self) -> None:
        self._context = zstandard.ZstdDecompressor(max_window_size=LONGEST_WINDOW)
        self._frame: Any = None  # None between two frames
        self._at_checksum = False
        self._skip = 0

    def unpack(self, data: memoryview) -> Unpacked:
        if self._frame is None and not self._skip:
            self._skip = _padding(data)
            if not self._skip and len(data) < 8:
                return None
            if not self._skip and data[:4] != _ZSTD_MAGIC and is_zstd(bytes(data[:4])):
                self._skip = 8 + int.from_bytes(data[4:8], "little")
        if self._skip:
            taken = min(self._skip, len(data))
            self._skip -= taken
            return (taken, b"") if taken else None
        try:
            size, is_last = (4, False) if self._at_checksum else self._block(data)
            if not size or len(data) < size:
                return None
            self._frame = self._frame or self._context.decompressobj()
            output = self._frame.decompress(data[:size])
        except zstandard.ZstdError as error:
            raise Damaged(str(error).rpartition(": ")[2]) from None
        self._at_checksum = is_last and not self._frame.eof
        if self._frame.eof:
            self._frame = None
        return size, output

    def is_between(self) -> bool:
        return self._frame is None and not self._skip

    def _block(self, data: memoryview) -> tuple[int, bool]:
        """Return the bytes of the next block with the header of its frame, 0 if more are needed; and if it is last."""
        start = 0
        if self._frame is None:
            if data[:4] != _ZSTD_MAGIC:
                raise Damaged(f"a frame that starts with {data[:4].hex(' ')}")
            try:
                start, about = zstandard.frame_header_size(data), zstandard.get_frame_parameters(data)
            except zstandard.ZstdError:
                if len(data) < _ZSTD_HEADER:
                    return 0, False
                raise
            if about.window_size > LONGEST_WINDOW:
                bits = (about.window_size - 1).bit_length()
                raise Damaged(format_size(about.window_size), f"zstd -dc --long={bits}")
        if len(data) < start + 3:
            return 0, False
        header = int.from_bytes(data[start : start + 3], "little")
        kind, size = header >> 1 & 3, header >> 3
        if size > _ZSTD_BLOCK:
            raise Damaged(f"a block of {size} bytes")
        return start + 3 + (1 if kind == 1 else size), bool(header & 1)  # 1: one byte, repeated


def _xz() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=LONGEST_WINDOW + _XZ_OVERHEAD)


UNPACKERS: dict[str, Callable[[], Members | Zstd]] = {
    "gzip": lambda: Members(partial(Inflate, INFLATER), MOST_STEP),
    "zstd": Zstd,
    "xz": lambda: Members(_xz, _XZ_STEP),
}
ALONE_AFTER = 1024 * 1024  # bytes of output after which a thread of its own decompresses a file
_CHUNK = 512 * 1024  # bytes of output from which on they are handed over: each time wakes the reader
_MOST_STEPS = 500  # of a chunk: a look at the first packet must not read a million empty members behind it
_CHUNKS_AHEAD = 2
MOST_OUTPUT = _CHUNK + MOST_STEP  # bytes of a chunk
# Two more than in the queue, one at each end of it. The allocator keeps about as much again: what one thread has
# allocated another one frees.
MOST_AHEAD = 2 * (_CHUNKS_AHEAD + 2) * 2 * MOST_OUTPUT


class Chunk(NamedTuple):
    """Some output, perhaps none, and how things stand behind it."""

    output: bytes
    position: int  # compressed bytes taken so far
    ended_early: str = ""


def _chunks(plain: PlainStream, compression: str) -> Generator[Chunk, None, None]:
    """Yield what an input stands for; InputError at damage."""
    unpacker = UNPACKERS[compression]()
    room = memoryview(bytearray(MOST_INPUT))
    start = end = unpacked = steps = 0
    all_read = False
    while True:
        parts: list[bytes] = []
        size, step, damage = 0, None, None
        with measured("inflate") as work:
            try:
                while size < _CHUNK and steps < _MOST_STEPS and (step := unpacker.unpack(room[start:end])):
                    parts.append(step[1])
                    start, size, steps = start + step[0], size + len(step[1]), steps + 1
            except Damaged as error:
                damage = error
            work.amount += size
        position, unpacked = plain.position() - (end - start), unpacked + size
        if size or steps == _MOST_STEPS:
            yield Chunk(b"".join(parts), position)
            steps = 0
        if damage is not None:
            raise _explained(damage, plain.name, compression, position, unpacked)
        if step is not None:
            continue
        if all_read:
            whole = start == end and unpacker.is_between()
            yield Chunk(b"", position, "" if whole else f"the {compression} data ends early")
            return
        room[: end - start] = room[start:end]
        start, end = 0, end - start
        got = plain.readinto(room[end:])
        end, all_read = end + got, not got


def _explained(error: Damaged, name: str, compression: str, position: int, unpacked: int) -> InputError:
    if error.command:
        command = error.command if name == "stdin" else f"{error.command} {name}"
        text = (
            f"the {compression} data needs a window of {error}, longer than "
            f"{format_size(LONGEST_WINDOW)}; decompress it first: {command} | superhosts scan -"
        )
    else:
        text = f"damaged {compression} data: {error} (near byte {position} of the compressed data)"
    return InputError(text, file=name, offset=unpacked)


def _made_ahead(chunks: Iterator[Chunk], name: str) -> Generator[Chunk, None, None]:
    """Yield the same chunks, made by a thread ahead of their reader. When it is closed, the thread has ended."""
    with ThreadPoolExecutor(1, f"decompress {name}") as pool:
        waiting = deque(pool.submit(next, chunks, None) for _ in range(_CHUNKS_AHEAD + 1))
        try:
            while True:
                with measured("wait"):
                    chunk = waiting.popleft().result()
                if chunk is None:
                    return
                waiting.append(pool.submit(next, chunks, None))
                yield chunk
        finally:
            pool.shutdown(cancel_futures=True)


class CompressedStream:
    def __init__(self, plain: PlainStream, compression: str, alone_after: int) -> None:
        self.compression = compression
        self.ended_early = ""
        self._plain = plain
        self._chunks = _chunks(plain, compression)
        self._alone_after = alone_after  # bytes
        self._is_ahead = False
        self._output = np.empty(0, np.uint8)  # decompressed, not yet asked for
        self._unpacked = 0  # bytes taken from the chunks
        self._position = 0
        self._ended: BaseException | None = None

    def readinto(self, view: memoryview) -> int:
        filled = 0
        while filled < len(view):
            if len(self._output):
                step = min(len(self._output), len(view) - filled)
                # NumPy copies without the GIL, so that the thread that decompresses goes on.
                np.frombuffer(view, np.uint8)[filled : filled + step] = self._output[:step]
                self._output = self._output[step:]
                filled += step
            elif self._ended is not None or (filled and self._plain.live) or (not self._take() and filled):
                break
        if not filled and self._ended is not None and not isinstance(self._ended, StopIteration):
            raise self._ended
        return filled

    def unread(self, data: bytes) -> None:
        self._output = np.frombuffer(data + self._output.tobytes(), np.uint8)

    def _take(self) -> bool:
        if not self._is_ahead and self._unpacked >= self._alone_after and not self._plain.live:
            self._is_ahead, self._chunks = True, _made_ahead(self._chunks, self._plain.name)
        try:
            chunk = next(self._chunks)
        except Exception as error:
            self._ended = error
            return False
        self.ended_early, self._position = chunk.ended_early, chunk.position
        self._unpacked += len(chunk.output)
        self._output = np.frombuffer(chunk.output, np.uint8)
        return bool(chunk.output)

    def position(self) -> int:
        return self._position

    def close(self) -> None:
        self._chunks.close()
        self._plain.close()


def decompressed(plain: PlainStream, alone_after: int = ALONE_AFTER) -> Stream:
    """Return the stream itself, or its decompressed bytes; it is closed if its first bytes cannot be read.

    A thread of its own decompresses a file from `alone_after` bytes of output on.
    """
    try:
        head = plain.head()
    except (InputError, Stopped):
        plain.close()
        raise
    kind = "gzip" if head[:2] == b"\x1f\x8b" else "zstd" if is_zstd(head) else "xz" if head == b"\xfd7zXZ\0" else ""
    return CompressedStream(plain, kind, alone_after) if kind else plain
