"""The compiled loop that reads a piece of a capture file: its bytes in small steps, walked while they are in the cache.

Nothing says where in the middle of a file a record starts. The loop guesses: it takes the first place from which a
chain of plausible records leads on. Whoever uses the piece must confirm the guess (pieces.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from superhosts.jit.cache import compiled
from superhosts.sources.frames.columns import POSITION, STOP, Columns, Tally
from superhosts.sources.frames.links import Bytes

CHAIN = 16  # records that make a guess
LEAST_CHAIN = 2  # records that make a guess if there are no more bytes to look at
STEP_BYTES = 256 * 1024  # read at once: a part of the cache that each core has to itself
ROOM_BYTES = 2 * STEP_BYTES + 64 * 1024  # of a buffer: a step, and a record of the usual size
_BEYOND = 4096  # bytes read behind a piece, where its last record ends

_pread = types.ExternalFunction("pread", types.intp(types.int32, types.voidptr, types.uintp, types.int64))

Walk = Callable[..., int]
Loop = Callable[[int, tuple[int, int, int], Any, Bytes, Tally, Columns], int]


def piece_loop(guess: Callable[..., int], walk: Walk, name: str = "read_piece") -> Loop:
    """Return the compiled loop for a format, given its guess and its walk, and a name for its machine code."""

    def read_piece(
        file: int, place: tuple[int, int, int], layout: Any, buffer: Bytes, tally: Tally, columns: Columns
    ) -> int:
        """Read the records that start in a piece of a file and return where the first of them starts, -1 if unknown.

        `place` has the start and the end of the piece, and a time near those of its packets. The piece ends early where
        the file ends, at damage, at a record that does not fit into the buffer, and at one that the walk does not read:
        tally[POSITION] is where it ends in the file.
        """
        offset, end, near = place
        filled, begins = 0, -1
        while True:
            step = min(STEP_BYTES, len(buffer) - filled, max(end - offset - filled, 0) + _BEYOND)
            got = _pread(file, buffer[filled:].ctypes, step, offset + filled)
            if got <= 0:  # the end of the file, an error or a full buffer
                break
            filled += got
            if begins < 0:
                first = guess(buffer[:filled], layout, near)
                if first < 0:
                    return -1
                begins, tally[POSITION] = offset + first, first
            tally[STOP] = end - offset
            reason = walk(buffer[:filled], layout, tally, columns)
            start = tally[POSITION]
            if reason or start >= end - offset:
                break
            if start:
                for at in range(start, filled):  # the start of a record, whose end is read next
                    buffer[at - start] = buffer[at]
                offset, filled, tally[POSITION] = offset + start, filled - start, 0
        tally[POSITION] += offset
        return begins

    read_piece.__qualname__ = name
    return compiled(read_piece)
