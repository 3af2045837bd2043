"""Columns whose memory is used again when nobody has them any more.

A thread that walks a piece of a file writes a megabyte of columns every half millisecond. Memory that is fresh from the
system for each piece costs a tenth of that time, because the system has to clear it. So memory is lent, and goes back
to the lender when the last view of it is gone. A few packets in it would hold all of it, so these are copied.
"""

from __future__ import annotations

import errno
import mmap
import weakref
from collections import deque

import numpy as np

from superhosts.sources.frames import IPV4, IPV6, Bytes, Columns, Tally, written

NARROW_BYTES, WIDE_BYTES = 4 + 4 + 8, 16 + 16 + 8  # of a packet in the columns
_LEAST_PART = 4  # memory of which less than a quarter is used is not kept


class ColumnLender:
    """Lends columns for up to `ipv4` and `ipv6` packets. Any thread may borrow, and drop what it has borrowed."""

    def __init__(self, ipv4: int, ipv6: int) -> None:
        self.made = 0  # times that memory came from the system
        self._ipv4, self._ipv6 = ipv4, ipv6
        self._narrow: deque[mmap.mmap] = deque()  # memory that nobody has
        self._wide: deque[mmap.mmap] = deque()

    def borrow(self) -> Columns:
        """Return columns with any content. Memory that is never written costs nothing."""
        narrow, wide = self._ipv4, self._ipv6
        first, second = self._lend(self._narrow, narrow * NARROW_BYTES), self._lend(self._wide, wide * WIDE_BYTES)
        return Columns(
            first[8 * narrow : 12 * narrow].view(np.uint32),
            first[12 * narrow : 16 * narrow].view(np.uint32),
            first[: 8 * narrow].view(np.int64),
            second[: 16 * wide].view(np.uint64).reshape(wide, 2),
            second[16 * wide : 32 * wide].view(np.uint64).reshape(wide, 2),
            second[32 * wide : 40 * wide].view(np.int64),
        )

    def kept(self, columns: Columns, tally: Tally) -> Columns:
        """Return the rows that a walk has written: views of what was lent, or copies if they use little of it."""
        src4, dst4, time4, src6, dst6, time6 = written(columns, tally)
        if tally[IPV4] < self._ipv4 // _LEAST_PART:
            src4, dst4, time4 = src4.copy(), dst4.copy(), time4.copy()
        if tally[IPV6] < self._ipv6 // _LEAST_PART:
            src6, dst6, time6 = src6.copy(), dst6.copy(), time6.copy()
        return Columns(src4, dst4, time4, src6, dst6, time6)

    def _lend(self, free: deque[mmap.mmap], size: int) -> Bytes:
        """Return this many bytes. Their memory goes to `free` when the array, and with it every view of it, is gone."""
        try:
            memory = free.pop()
        except IndexError:  # all of it is lent
            memory = _new_memory(size)
            self.made += 1  # nearly right if two threads do this at once
        lent = np.frombuffer(memory, np.uint8)  # the base of its views, as its own base is not an array
        weakref.finalize(lent, free.append, memory).atexit = False
        return lent


def _new_memory(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise MemoryError(f"no {size:,} bytes of memory for packets") from error
        raise
