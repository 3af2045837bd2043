"""Bytes of a compressed input, decompressed.

A compressed stream that ends early is not an error, only `ended_early`: an interrupted capture still counts. A wrong
checksum is a note, and gzip and zstd continue with the next member; for xz it is damage, since Python's decompressor
cannot continue after it. Damage is an error, raised after everything before it was returned, but for part of a block
(zstd) or 8 KiB (xz).

A decompressor fails as a whole: a call that meets damage loses all that the call had decompressed before it. So calls
are small. For zstd each has one block, and blocks begin with their lengths. For xz each has few bytes of input, and
asks for little output. Data of deflate has no lengths; there a copy of the decompressor is taken before each call, and
an error is followed by calls with half as much, until one byte fails.

A step returns at most `MOST_OUTPUT` bytes, whatever the data claims. A window (the past output that data refers to)
longer than `LONGEST_WINDOW` is refused, with a way out. Several members (gzip), frames (zstd) or streams (xz) in a row
are one stream, with or without zero bytes between them. The work is linear in the bytes, also for a million empty
members.

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

MOST_OUTPUT = 1024 * 1024  # after each step a thread waits for the GIL
LONGEST_WINDOW = 128 * 1024 * 1024  # the default limit of the zstd command; the highest preset of xz needs half
MOST_INPUT = 256 * 1024  # bytes that an unpacker needs at most to make a step

_FIRST_PIECE, _LARGEST_PIECE = 1024, 256 * 1024  # of gzip data: small at first, as a member may be tiny
_ZSTD_MAGIC, _ZSTD_BLOCK, _ZSTD_HEADER = b"\x28\xb5\x2f\xfd", 128 * 1024, 18
_XZ_PIECE, _XZ_STEP = 1024, 8192  # bytes of input and of output of one call; half of that would be 5 % slower
_XZ_OVERHEAD = 1024 * 1024  # memory of its decompressor besides the window

Unpacked = tuple[int, bytes]
_NEEDS_MORE: Unpacked = (0, b"")


class Damaged(Exception):  # noqa: N818  becomes an InputError where the place is known
    """The next bytes cannot be decompressed. `command`: their window is too long, and this decompresses them."""

    def __init__(self, text: str, command: str = "") -> None:
        super().__init__(text)
        self.command = command


def _padding(data: memoryview) -> int:
    """Return how many zero bytes the data begins with."""
    start = bytes(data[:4096]) if data and not data[0] else b""
    return len(start) - len(start.lstrip(b"\0"))


class Gzip:
    """Members of deflate data, each with a checksum. `inflater` is Python's zlib or a module like it.

    `unpack` returns how many bytes of `data` were taken, and what they stand for; (0, b"") if more bytes are needed.
    `last`: nothing comes behind `data`. `is_between` returns True if the data may end here. Others do the same.
    """

    def __init__(self, inflater: Any = INFLATER) -> None:
        self.wrong_checksums = 0
        self._inflater = inflater
        self._member: Any = None  # None between two members
        self._piece = _FIRST_PIECE
        self._pending = False  # the last step reached its output limit
        self._skip = 0

    def unpack(self, data: memoryview, last: bool) -> Unpacked:
        if taken := min(self._skip, len(data)) or (self._member is None and _padding(data)):
            self._skip -= min(self._skip, taken)
            return taken, b""
        if not data and not (self._member and self._pending):
            return _NEEDS_MORE
        if self._member is None:
            self._member, self._piece = self._inflater.decompressobj(wbits=zlib.MAX_WBITS | 16), _FIRST_PIECE
        before, piece = self._member.copy(), data[: self._piece]
        try:
            output = self._member.decompress(piece, MOST_OUTPUT)
        except self._inflater.error as error:
            self._member = before
            if len(piece) > 1:  # the bytes before the damage may come out
                self._piece = len(piece) // 2
                return self.unpack(data, last)
            text = str(error).partition("data: ")[2] or str(error)
            if text not in ("incorrect data check", "incorrect length check"):
                raise Damaged(text) from None
            self._member = None
            self._skip = 4 if text == "incorrect data check" else 0  # the length, which follows the checksum
            self.wrong_checksums += 1
            return len(piece), b""
        self._piece = min(2 * self._piece, _LARGEST_PIECE)
        self._pending = len(output) == MOST_OUTPUT
        # At the end of a member `unconsumed_tail` may hold the bytes of `unused_data` again.
        left = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        if self._member.eof:
            self._member = None
        return len(piece) - len(left), output

    def is_between(self) -> bool:
        return self._member is None and not self._skip


def is_zstd(start: bytes) -> bool:
    """Return True if a zstd frame starts with these bytes, or a skippable one, which some compressors write first."""
    return start[:4] == _ZSTD_MAGIC or (start[1:4] == b"\x2a\x4d\x18" and start[0] >> 4 == 5)


class Zstd:
    """Frames of blocks. A block has at most 128 KiB."""

    def __init__(self) -> None:
        self.wrong_checksums = 0
        self._context = zstandard.ZstdDecompressor(max_window_size=LONGEST_WINDOW)
        self._frame: Any = None  # None between two frames
        self._has_checksum = self._at_checksum = False
        self._skip = 0

    def unpack(self, data: memoryview, last: bool) -> Unpacked:
        """Decompress a block, the first one with the header of its frame, or step over what stands between frames."""
        if self._frame is None and not self._skip:
            if len(data) >= 8 and data[:4] != _ZSTD_MAGIC and is_zstd(bytes(data[:4])):
                self._skip = 8 + int.from_bytes(data[4:8], "little")
            else:
                self._skip = _padding(data)
        if self._skip:
            taken = min(self._skip, len(data))
            self._skip -= taken
            return taken, b""
        if self._at_checksum:
            return self._check(data)
        start = self._header_bytes(data, last) if self._frame is None else 0
        if len(data) < start + 3 or (start == 0 and self._frame is None):
            return _NEEDS_MORE
        header = int.from_bytes(data[start : start + 3], "little")
        is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if size > _ZSTD_BLOCK:
            raise Damaged(f"a block of {size} bytes")
        end = start + 3 + (1 if kind == 1 else size)  # 1: one byte, repeated
        if len(data) < end:
            return _NEEDS_MORE
        if self._frame is None:
            self._frame = self._context.decompressobj()
        try:
            output = self._frame.decompress(data[:end])
        except zstandard.ZstdError as error:
            raise Damaged(_reason(error)) from None
        if is_last:
            self._at_checksum = self._has_checksum
            self._frame = self._frame if self._has_checksum else None
        return end, output

    def is_between(self) -> bool:
        return self._frame is None and not self._skip

    def _header_bytes(self, data: memoryview, last: bool) -> int:
        """Return the length of a frame's header, 0 if more bytes are needed."""
        if data[:4] != _ZSTD_MAGIC[: len(data)]:
            raise Damaged(f"a frame that starts with {data[:4].hex(' ')}")
        if len(data) < _ZSTD_HEADER and not last:
            return 0
        try:
            length, about = zstandard.frame_header_size(data), zstandard.get_frame_parameters(data)
        except zstandard.ZstdError as error:
            if len(data) < _ZSTD_HEADER:
                return 0
            raise Damaged(_reason(error)) from None
        if about.window_size > LONGEST_WINDOW:
            bits = (about.window_size - 1).bit_length()
            raise Damaged(format_size(about.window_size), f"zstd -dc --long={bits}")
        self._has_checksum = about.has_checksum
        return length

    def _check(self, data: memoryview) -> Unpacked:
        if len(data) < 4:
            return _NEEDS_MORE
        try:
            self._frame.decompress(data[:4])
        except zstandard.ZstdError:
            self.wrong_checksums += 1
        self._frame, self._at_checksum = None, False
        return 4, b""


def _reason(error: zstandard.ZstdError) -> str:
    return str(error).rpartition(": ")[2]


class Xz:
    wrong_checksums = 0  # wrong checksums of xz are damage

    def __init__(self) -> None:
        self._stream: Any = None  # None between two streams
        self._fed = 0  # bytes of the data that the decompressor has, until all their output was returned
        self._error: Damaged | None = None  # met behind output that was returned

    def unpack(self, data: memoryview, last: bool) -> Unpacked:
        if self._error is not None:
            raise self._error
        if self._stream is None:
            if not data or (padding := _padding(data)):
                return (padding, b"") if data else _NEEDS_MORE
            self._stream = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=LONGEST_WINDOW + _XZ_OVERHEAD)
        taken = 0
        steps: list[bytes] = []
        try:
            while len(steps) < MOST_OUTPUT // _XZ_STEP and not self._stream.eof:
                piece = b"" if self._fed else data[taken : taken + _XZ_PIECE]
                if not self._fed and not piece:
                    break
                self._fed = self._fed or len(piece)
                steps.append(self._stream.decompress(piece, _XZ_STEP))
                if self._stream.needs_input or self._stream.eof:
                    taken, self._fed = taken + self._fed, 0
        except lzma.LZMAError as error:
            too_long = "limit" in str(error)
            text, command = (f"more than {format_size(LONGEST_WINDOW)}", "xz -dc") if too_long else (str(error), "")
            self._error = Damaged(text, command)
            return (taken, b"".join(steps)) if taken or steps else self.unpack(data, last)
        if self._stream.eof:
            taken -= len(self._stream.unused_data)
            self._stream = None
        return taken, b"".join(steps)

    def is_between(self) -> bool:
        return self._stream is None


Unpacker = Gzip | Zstd | Xz
UNPACKERS: dict[str, Callable[[], Unpacker]] = {"gzip": Gzip, "zstd": Zstd, "xz": Xz}
ALONE_AFTER = 1024 * 1024  # bytes of output after which a thread of its own decompresses a file
_BATCH = 512 * 1024  # bytes of output that the thread hands over at once: each time wakes the reader
_BATCHES_AHEAD = 2
# Two more than in the queue, one at each end of it. The allocator keeps about as much again: what one thread has
# allocated another one frees.
MOST_AHEAD = 2 * (_BATCHES_AHEAD + 2) * (_BATCH + MOST_OUTPUT)

_MOST_IDLE = 1000  # calls of the unpacker without output


class Chunk(NamedTuple):
    """Some output, and how things stand behind it. Without output: nothing for the time being, or the end."""

    output: bytes
    position: int  # compressed bytes taken so far
    notes: tuple[tuple[int, str], ...] = ()  # new messages
    ended_early: str = ""


def _chunks(plain: PlainStream, compression: str) -> Generator[Chunk, None, None]:
    """Yield what an input stands for; InputError at damage.

    An empty chunk comes before reading on from a live input, which may wait, and after many calls of the unpacker:
    reading the first packet must not read a million empty members behind it.
    """
    unpacker: Unpacker = UNPACKERS[compression]()
    room = memoryview(bytearray(MOST_INPUT))
    start = end = unpacked = wrong = idle = 0
    all_read = False
    while True:
        position = plain.position() - (end - start)
        try:
            with measured("inflate") as work:
                taken, output = unpacker.unpack(room[start:end], all_read)
                work.amount += len(output)
        except Damaged as error:
            raise _explained(error, plain.name, compression, position, unpacked) from None
        start, position, idle = start + taken, position + taken, idle + 1
        if output:
            unpacked += len(output)
            yield Chunk(output, position)
            idle = 0
        if unpacker.wrong_checksums and not wrong:  # reported once
            wrong = 1
            text = (
                f"byte {position} of the compressed data: wrong {compression} checksum; "
                "what came before counts, and some of it may be damaged"
            )
            yield Chunk(b"", position, ((unpacked, text),))
        if not taken and not output:
            if all_read:
                whole = start == end and unpacker.is_between()
                yield Chunk(b"", position, ended_early="" if whole else f"the {compression} data ends early")
                return
            if plain.live:
                yield Chunk(b"", position)
            room[: end - start] = room[start:end]
            start, end = 0, end - start
            got = plain.readinto(room[end:])
            end += got
            all_read = not got
        elif idle == _MOST_IDLE:
            yield Chunk(b"", position)
            idle = 0


def _explained(error: Damaged, name: str, compression: str, position: int, unpacked: int) -> InputError:
    if error.command:
        command = error.command if name == "stdin" else f"{error.command} {name}"
        text = (
            f"the {compression} data needs a window of {error}, longer than "
            f"{format_size(LONGEST_WINDOW)}; decompress it first: {command} | superhosts scan -"
        )
    else:
        exact = "" if compression == "gzip" else "at or after "  # where the damaged block or piece begins
        text = f"damaged {compression} data: {error} ({exact}byte {position} of the compressed data)"
    return InputError(text, file=name, offset=unpacked)


def _made_ahead(chunks: Iterator[Chunk], name: str) -> Generator[Chunk, None, None]:
    """Yield the same chunks, made by a thread ahead of their reader. When it is closed, the thread has ended."""
    with ThreadPoolExecutor(1, f"decompress {name}") as pool:
        waiting = deque(pool.submit(_batch, chunks) for _ in range(_BATCHES_AHEAD + 1))
        try:
            while True:
                with measured("wait"):
                    batch, error = waiting.popleft().result()
                waiting.append(pool.submit(_batch, chunks))
                yield from batch
                if isinstance(error, StopIteration):
                    return
                if error is not None:
                    raise error
        finally:
            pool.shutdown(cancel_futures=True)


def _batch(chunks: Iterator[Chunk]) -> tuple[list[Chunk], BaseException | None]:
    """Return the next chunks, and what has ended them: StopIteration at the end; None if more follow."""
    batch: list[Chunk] = []
    size = 0
    try:
        while size < _BATCH:
            batch.append(next(chunks))
            size += len(batch[-1].output)
    except BaseException as error:  # handed to the thread that reads
        return batch, error
    return batch, None


class CompressedStream:
    def __init__(self, plain: PlainStream, compression: str, alone_after: int) -> None:
        self.compression = compression
        self.ended_early = ""
        self.notes: list[tuple[int, str]] = []
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
        self.notes += chunk.notes
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
