"""Bytes of a compressed input, decompressed.

The content decides, not the name: gzip, zstd and xz are recognised by their first bytes.

A compressed stream that ends early is not an error, only `ended_early`: an interrupted capture still counts. A wrong
checksum is a note. Damage is an error, raised after everything before it was returned.

Decompressing takes longer than all that follows. So a thread of its own does it for files, a bounded number of bytes
ahead of the reader: the reader copies the output into its buffer and walks the packets meanwhile. The first bytes are
decompressed without that thread, since many files are only opened to look at them. So are live inputs: whether such an
input waits for bytes has to be known exactly, and its rate is that of the traffic.
"""

from __future__ import annotations

import queue
import threading
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.profile import measured, timed
from superhosts.core.units import format_size
from superhosts.errors import InputError
from superhosts.sources.streams import PlainStream, Stream
from superhosts.sources.unpacking import (
    LONGEST_WINDOW,
    MOST_INPUT,
    MOST_OUTPUT,
    Damaged,
    Gzip,
    Unpacker,
    WindowTooLong,
    Xz,
    Zstd,
    is_zstd,
)

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
