"""Bytes of a compressed input, decompressed.

The content decides, not the name: gzip, zstd and xz are recognised by their first bytes.

A compressed stream that ends early is not an error, only `ended_early`: an interrupted capture still counts. A wrong
checksum is a note. Damage is an error, raised after everything before it was returned.

Decompressing takes longer than all that follows. So a thread of its own does it for files, a bounded number of bytes
ahead of the reader: the reader copies the output into its buffer and walks the packets meanwhile. The first bytes are
decompressed without that thread, since many files are only opened to look at them. So are live inputs: whether such an
input waits for bytes has to be known exactly, and its rate is that of the traffic.

What an unpacker (`Gzip`, `Zstd`, `Xz`) guarantees:

- Everything before damage is returned, but for part of a block (zstd) or 8 KiB (xz). How much that is depends on the
  data alone, not on how its bytes arrive.
- A step returns at most `MOST_OUTPUT` bytes, whatever the data claims. A window (the past output that data refers to)
  longer than `LONGEST_WINDOW` is refused, with a way out.
- Several members (gzip), frames (zstd) or streams (xz) in a row are one stream, with or without zero bytes between
  them. The work is linear in the bytes, also for a million empty members.

The difficulty: a decompressor fails as a whole. A call that meets damage loses all that the call had decompressed
before it. So no call may contain more than one unit that fails or succeeds as a whole. For zstd that is a block, for xz
an LZMA2 chunk; both begin with their lengths, so they are fed one at a time. A chunk stands for up to 2 MiB, and a call
may ask for less: so its output is taken a little at a time, and damage costs less than `_XZ_STEP` bytes of what came
before it. Data of deflate has no lengths; there a copy of the decompressor is taken before each call, and after an
error bisection finds the last byte before the damage.

A wrong checksum does not end the data: gzip and zstd continue with the next member. For xz it does, since Python's
decompressor cannot continue after it.
"""

from __future__ import annotations

import lzma
import queue
import threading
import zlib
from typing import Any, NamedTuple, Protocol

import numpy as np
import zstandard
from numpy.typing import NDArray

from superhosts.core.profile import measured, timed
from superhosts.core.units import format_size
from superhosts.errors import InputError
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
_ZSTD_MAGIC, _ZSTD_BLOCK = b"\x28\xb5\x2f\xfd", 128 * 1024
_ZSTD_LONGEST = 1 << 31  # the longest window that the zstd command can be told to take
_XZ_CHECK_BYTES = (0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64)
_XZ_INDEX_PIECE = 256
_XZ_STEP = 8192  # bytes of output of one call; half of it would be 5 % slower
_XZ_OVERHEAD = 1024 * 1024  # memory of its decompressor besides the window

Unpacked = tuple[int, bytes]
_NEEDS_MORE: Unpacked = (0, b"")


class Damaged(Exception):  # noqa: N818  becomes an InputError where the place is known
    """The next bytes cannot be decompressed; `taken` bytes before them belong to the same damaged part."""

    def __init__(self, text: str, taken: int = 0) -> None:
        super().__init__(text)
        self.taken = taken


class WindowTooLong(Exception):  # noqa: N818  becomes an InputError where the place is known
    """The next bytes need more memory than is allowed: how much, and a command that decompresses them."""

    def __init__(self, needs: str, command: str) -> None:
        super().__init__(needs)
        self.command = command


class Unpacker(Protocol):
    """Compressed bytes to decompressed ones."""

    wrong_checksums: int  # so far

    def unpack(self, data: memoryview, last: bool) -> Unpacked:
        """Return how many bytes of `data` were taken, and what they stand for; (0, b"") if more bytes are needed.

        `last`: nothing comes behind `data`.
        """

    def is_between(self) -> bool:
        """Return True if the data may end here."""


def _padding(data: memoryview) -> int:
    """Return how many zero bytes the data begins with."""
    if not data or data[0]:
        return 0
    start = bytes(data[:4096])
    return len(start) - len(start.lstrip(b"\0"))


class Gzip:
    """Members of deflate data, each with a checksum.

    `inflater` is Python's zlib or a module like it.
    """

    def __init__(self, inflater: Any = INFLATER) -> None:
        self.wrong_checksums = 0
        self._inflater = inflater
        self._member: Any = None  # None between two members
        self._piece = _FIRST_PIECE
        self._pending = False  # the last step reached its output limit
        self._skip = 0

    def unpack(self, data: memoryview, last: bool) -> Unpacked:
        """Decompress a piece."""
        if taken := min(self._skip, len(data)):
            self._skip -= taken
            return taken, b""
        if self._member is None:
            if not data or (padding := _padding(data)):
                return (padding, b"") if data else _NEEDS_MORE
            self._member = self._new_member()
            before, self._piece = None, _FIRST_PIECE
        elif not data and not self._pending:
            return _NEEDS_MORE
        else:
            before = self._member.copy()
        piece = data[: self._piece]
        try:
            step = self._decompress(piece)
        except self._inflater.error as error:
            return self._at_error(before or self._new_member(), piece, str(error).partition("data: ")[2] or str(error))
        self._piece = min(2 * self._piece, _LARGEST_PIECE)
        if self._member.eof:
            self._member = None
        return step

    def is_between(self) -> bool:
        """Return True if a member has just ended."""
        return self._member is None and not self._skip

    def _new_member(self) -> Any:
        return self._inflater.decompressobj(wbits=zlib.MAX_WBITS | 16)

    def _decompress(self, piece: memoryview) -> Unpacked:
        output = self._member.decompress(piece, MOST_OUTPUT)
        self._pending = len(output) == MOST_OUTPUT
        # At the end of a member `unconsumed_tail` may hold the bytes of `unused_data` again.
        left = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return len(piece) - len(left), output

    def _at_error(self, before: Any, piece: memoryview, text: str) -> Unpacked:
        """Take the bytes before the one at which an error appears; if that is the first, the error counts."""
        least, too_many = 0, len(piece)
        while too_many - least > 1:
            middle = (least + too_many) // 2
            self._member = before.copy()
            try:
                self._decompress(piece[:middle])
                least = middle
            except self._inflater.error:
                too_many = middle
        self._member = before
        taken, output = self._decompress(piece[:least])
        self._piece = 1
        if taken or output:
            return taken, output
        if text not in ("incorrect data check", "incorrect length check"):
            raise Damaged(text)
        self._member = None
        self._skip = 4 if text == "incorrect data check" else 0  # the length, which follows the checksum
        self.wrong_checksums += 1
        return 1, b""


class Zstd:
    """Frames of blocks. A block has at most 128 KiB."""

    def __init__(self) -> None:
        self.wrong_checksums = 0
        self._context = zstandard.ZstdDecompressor(max_window_size=LONGEST_WINDOW)
        self._frame: Any = None  # None between two frames
        self._has_checksum = False
        self._at_checksum = False
        self._skip = 0

    def unpack(self, data: memoryview, last: bool) -> Unpacked:
        """Decompress a block, the first one with the header of its frame, or step over what stands between frames."""
        if taken := min(self._skip, len(data)):
            self._skip -= taken
            return taken, b""
        if self._at_checksum:
            return self._check(data)
        start = 0
        if self._frame is None:
            if (padding := _padding(data)) or self._is_skippable(data):
                return padding or 8, b""
            start = self._header_bytes(data)
        if len(data) < start + 3 or (start == 0 and self._frame is None):
            return _NEEDS_MORE
        header = data[start] | data[start + 1] << 8 | data[start + 2] << 16
        is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if size > _ZSTD_BLOCK:
            raise Damaged(f"a block of {size} bytes")
        end = start + 3 + (1 if kind == 1 else size)  # 1: one byte, repeated
        if len(data) < end:
            if not last or kind != 0:
                return _NEEDS_MORE
            end, is_last = len(data), 0  # the data ends early, in a block that is stored as it is
        if self._frame is None:
            self._frame, self._has_checksum = self._context.decompressobj(), bool(data[4] & 4)
        output = self._decompress(data[:end])
        if is_last:
            self._at_checksum = self._has_checksum
            if not self._has_checksum:
                self._frame = None
        return end, output

    def is_between(self) -> bool:
        """Return True if a frame has just ended."""
        return self._frame is None and not self._skip

    def _decompress(self, data: memoryview) -> bytes:
        try:
            output: bytes = self._frame.decompress(data)
        except zstandard.ZstdError as error:
            raise Damaged(str(error).removeprefix("zstd decompressor error: ")) from None
        return output

    def _is_skippable(self, data: memoryview) -> bool:
        """Return True if the data begins with a frame to be skipped, and note its length."""
        if len(data) < 8 or data[0] == _ZSTD_MAGIC[0] or not is_zstd(bytes(data[:4])):
            return False
        self._skip = int.from_bytes(data[4:8], "little")
        return True

    def _header_bytes(self, data: memoryview) -> int:
        """Return the length of a frame's header, 0 if more bytes are needed."""
        if len(data) < 8:  # the shortest frame, empty, has nine bytes
            return 0
        if data[:4] != _ZSTD_MAGIC:
            raise Damaged(f"a frame that starts with {data[:4].hex(' ')}")
        flags = data[4]
        one_segment = flags >> 5 & 1
        size_bytes = (one_segment, 2, 4, 8)[flags >> 6]
        length = 6 - one_segment + (0, 1, 2, 4)[flags & 3] + size_bytes
        if len(data) < length:
            return 0
        if one_segment:  # the window is the content
            window = int.from_bytes(data[length - size_bytes : length], "little")
        else:
            window = (8 + (data[5] & 7)) << (7 + (data[5] >> 3))
        if window > _ZSTD_LONGEST:
            raise Damaged(f"a window of {format_size(window)}")
        if window > LONGEST_WINDOW:
            raise WindowTooLong(format_size(window), f"zstd -dc --long={(window - 1).bit_length()}")
        return length

    def _check(self, data: memoryview) -> Unpacked:
        """Compare the checksum of a frame."""
        if len(data) < 4:
            return _NEEDS_MORE
        try:
            self._decompress(data[:4])
        except Damaged:
            self.wrong_checksums += 1
        self._frame, self._at_checksum = None, False
        return 4, b""


def is_zstd(start: bytes) -> bool:
    """Return True if a zstd frame starts with these bytes, or a skippable one, which some compressors write first."""
    return start[:4] == _ZSTD_MAGIC or (start[1:4] == b"\x2a\x4d\x18" and start[0] >> 4 == 5)


class Xz:
    """Streams of blocks of LZMA2 chunks; a chunk has at most 64 KiB, for at most 2 MiB."""

    wrong_checksums = 0  # wrong checksums of xz are damage

    def __init__(self) -> None:
        self._stream: Any = None  # None between two streams
        self._unit = self._header
        self._next_unit = self._unit
        self._chunks = 0  # bytes of the block's chunks so far
        self._indexed = 0  # bytes of the index so far
        self._check_bytes = 0
        self._fed = 0  # bytes of the unit that was handed to the decompressor last
        self._error: Damaged | None = None  # met behind output that was returned

    def unpack(self, data: memoryview, last: bool) -> Unpacked:
        """Decompress a chunk, or hand one of the parts between chunks to the decompressor."""
        if self._error is not None:
            raise self._error
        if self._stream is None:
            if not data or (padding := _padding(data)):
                return (padding, b"") if data else _NEEDS_MORE
            self._stream = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=LONGEST_WINDOW + _XZ_OVERHEAD)
            self._unit = self._header
        if not self._stream.needs_input and (output := self._rest(b"")):
            return 0, output
        length = self._unit(data) if data else 0
        whole = 0 < length <= len(data)
        if not whole:
            if not last or not data:
                return _NEEDS_MORE
            length = len(data)  # the data ends early: this is all there is of the unit
        self._fed = 0
        first = self._decompress(data[:length])
        self._fed = length
        output = self._rest(first)
        if self._stream.eof:
            length -= len(self._stream.unused_data)
            self._stream, self._indexed = None, 0
        elif whole:
            self._indexed += length if self._unit == self._index else 0
            self._unit = self._next_unit
        return length, output

    def is_between(self) -> bool:
        """Return True if a stream has just ended."""
        return self._stream is None

    def _rest(self, first: bytes) -> bytes:
        """Return `first` and what else there is of a unit, step by step, up to MOST_OUTPUT. Damage ends it."""
        steps, size = [first], len(first)
        while size < MOST_OUTPUT and not self._stream.needs_input and not self._stream.eof:
            try:
                steps.append(self._decompress(b""))
            except Damaged as error:
                if not size:
                    raise
                self._error = error  # for the next call
                break
            if not steps[-1]:
                break
            size += len(steps[-1])
        return b"".join(steps)

    def _decompress(self, data: memoryview | bytes) -> bytes:
        try:
            output: bytes = self._stream.decompress(data, _XZ_STEP)
        except lzma.LZMAError as error:
            if "limit" in str(error):
                raise WindowTooLong(f"more than {format_size(LONGEST_WINDOW)}", "xz -dc") from None
            raise Damaged(str(error), self._indexed or self._fed) from None
        return output

    # The units. Each method returns how many bytes its unit has, 0 if more are needed to know, and which unit follows.

    def _header(self, data: memoryview) -> int:
        if len(data) >= 8:
            self._check_bytes = _XZ_CHECK_BYTES[data[7] & 15]
        self._next_unit = self._block
        return 12

    def _block(self, data: memoryview) -> int:
        """The header of a block, or the index that follows the last one."""
        if not data[0]:
            self._unit = self._index
            return self._index(data)
        self._chunks, self._next_unit = 0, self._chunk
        return 4 * (data[0] + 1)

    def _chunk(self, data: memoryview) -> int:
        control, length = data[0], 1
        if control >= 0x80:
            length = 6 + (control >= 0xC0) + int.from_bytes(data[3:5], "big") if len(data) >= 5 else 0
        elif control in (1, 2):
            length = 4 + int.from_bytes(data[1:3], "big") if len(data) >= 3 else 0
        if length <= len(data):
            self._chunks += length
            self._next_unit = self._chunk if control else self._check
        return length

    def _check(self, data: memoryview) -> int:
        """Padding and the checksum; without either the next block follows at once."""
        length = -self._chunks % 4 + self._check_bytes
        if not length:
            self._unit = self._block
            return self._block(data)
        self._next_unit = self._block
        return length

    def _index(self, data: memoryview) -> int:
        """Part of the index and the footer: they give no output, and only the decompressor knows where they end."""
        self._next_unit = self._index
        return min(len(data), _XZ_INDEX_PIECE)


ALONE_AFTER = 1024 * 1024  # bytes of output after which a thread of its own decompresses a file
_BATCH = 512 * 1024  # bytes of output that the thread hands over at once: each time wakes the reader
_BATCHES_AHEAD = 2
# Two more than in the queue, one at each end of it. The allocator keeps about as much again: what one thread has
# allocated another one frees.
MOST_AHEAD = 2 * (_BATCHES_AHEAD + 2) * (_BATCH + MOST_OUTPUT)

Bytes = NDArray[np.uint8]

_MOST_IDLE = 1000  # calls of the unpacker without output


class Step(NamedTuple):
    """Some output, and how things stand behind it. Without output: the end, or nothing for the time being."""

    output: bytes
    position: int  # compressed bytes taken so far
    notes: tuple[tuple[int, str], ...] = ()  # new messages
    ended: bool = False
    ended_early: str = ""
    error: BaseException | None = None  # damage, which ends the stream


class Decompression:
    """Decompresses an input, step by step."""

    def __init__(self, plain: PlainStream, compression: str, unpacker: Unpacker) -> None:
        self.compression = compression
        self._plain = plain
        self._unpacker = unpacker
        self._room = memoryview(bytearray(MOST_INPUT))
        self._start = self._end = 0  # of the bytes in it that are not decompressed yet
        self._all_read = False
        self._unpacked = 0  # bytes decompressed so far
        self._notes: list[tuple[int, str]] = []

    @timed("inflate", amount=lambda step, *_: len(step.output))
    def step(self, *, wait: bool) -> Step:
        """Return the next output.

        Without `wait` a live input that has no more bytes for now returns none. So does any input after many calls of
        the unpacker: reading the first packet must not read a million empty members behind it.
        """
        for _ in range(_MOST_IDLE + 1):
            wrong = self._unpacker.wrong_checksums
            try:
                taken, output = self._unpacker.unpack(self._room[self._start : self._end], self._all_read)
            except (Damaged, WindowTooLong) as error:
                return self._made(error=self._explained(error))
            self._start += taken
            if self._unpacker.wrong_checksums == 1 and not wrong:  # reported once
                self._note_checksum()
            if output:
                self._unpacked += len(output)
                return self._made(output, ended=False)
            if taken:
                continue
            if self._all_read:
                whole = self._start == self._end and self._unpacker.is_between()
                return self._made(ended_early="" if whole else f"the {self.compression} data ends early")
            if not wait and self._plain.live:
                break
            try:
                self._read()
            except InputError as error:
                return self._made(error=error)
        return self._made(ended=False)

    def _made(
        self, output: bytes = b"", *, ended: bool = True, ended_early: str = "", error: InputError | None = None
    ) -> Step:
        notes, self._notes = tuple(self._notes), []
        return Step(output, self.position(), notes, ended, ended_early, error)

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
        self._notes.append((self._unpacked, text))

    def position(self) -> int:
        """Compressed bytes taken so far."""
        return self._plain.position() - (self._end - self._start)


class StepsAhead:
    """A thread that decompresses an input ahead of its reader."""

    def __init__(self, work: Decompression, name: str) -> None:
        self._work = work
        self._batches: queue.Queue[list[Step]] = queue.Queue(_BATCHES_AHEAD)
        self._taken: list[Step] = []  # the batch that is being read, in reverse
        self._left = False
        self._thread = threading.Thread(target=self._run, name=f"decompress {name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        ended = False
        while not ended and not self._left:
            batch, size = [self._step()], 0
            while size < _BATCH and batch[-1].output:
                size += len(batch[-1].output)
                batch.append(self._step())
            ended = batch[-1].ended
            with measured("wait"):
                self._batches.put(batch)

    def _step(self) -> Step:
        try:
            return self._work.step(wait=True)
        except BaseException as error:  # handed to the thread that reads
            return Step(b"", self._work.position(), ended=True, error=error)

    def next(self) -> Step:
        """Return the next step. Waits for it."""
        if not self._taken:
            with measured("wait"):
                self._taken = self._batches.get()[::-1]
        return self._taken.pop()

    def close(self) -> None:
        """End the thread, and return when it no longer uses the input."""
        self._left = True
        while self._thread.is_alive():
            try:
                self._batches.get(timeout=0.01)  # makes room, if the thread waits for some
            except queue.Empty:
                continue


class CompressedStream:
    """The decompressed bytes of an input."""

    def __init__(self, plain: PlainStream, compression: str, unpacker: Unpacker, alone_after: int) -> None:
        self.compression = compression
        self.ended_early = ""
        self.notes: list[tuple[int, str]] = []
        self._plain = plain
        self._work = Decompression(plain, compression, unpacker)
        self._alone_after = alone_after  # bytes
        self._ahead: StepsAhead | None = None
        self._output: Bytes = np.empty(0, np.uint8)  # decompressed, not yet asked for
        self._unpacked = 0  # bytes taken from the decompression
        self._position = 0
        self._ended = False
        self._error: BaseException | None = None

    def readinto(self, view: memoryview) -> int:
        """Fill `view`, or as much of it as a live input allows."""
        filled = 0
        while filled < len(view):
            if len(self._output):
                step = min(len(self._output), len(view) - filled)
                # NumPy copies without the GIL, so that the thread that decompresses goes on.
                np.frombuffer(view, np.uint8)[filled : filled + step] = self._output[:step]
                self._output = self._output[step:]
                filled += step
            elif self._ended or (not self._take(wait=not filled) and filled):
                break
        if self._error and not filled:  # what came before the damage is returned first
            raise self._error
        return filled

    def _take(self, *, wait: bool) -> bool:
        """Take the next step; False if it has no output."""
        if self._ahead is None and self._unpacked >= self._alone_after and not self._plain.live:
            self._ahead = StepsAhead(self._work, self._plain.name)
        step = self._work.step(wait=wait) if self._ahead is None else self._ahead.next()
        self.notes += step.notes
        self.ended_early, self._ended, self._error = step.ended_early, step.ended, step.error
        self._position = step.position
        self._unpacked += len(step.output)
        self._output = np.frombuffer(step.output, np.uint8)
        return bool(step.output)

    def position(self) -> int:
        """Compressed bytes taken so far: those of the output that was returned, and of a step behind it."""
        return self._position

    def close(self) -> None:
        """Close the underlying file."""
        if self._ahead is not None:
            self._ahead.close()
        self._plain.close()


def decompressed(plain: PlainStream, alone_after: int = ALONE_AFTER) -> Stream:
    """Return the stream itself, or its decompressed bytes.

    A thread of its own decompresses a file from `alone_after` bytes of output on.
    """
    head = plain.head()
    if head[:2] == b"\x1f\x8b":
        return CompressedStream(plain, "gzip", Gzip(), alone_after)
    if is_zstd(head):
        return CompressedStream(plain, "zstd", Zstd(), alone_after)
    if head == b"\xfd7zXZ\0":
        return CompressedStream(plain, "xz", Xz(), alone_after)
    return plain
