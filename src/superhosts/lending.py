"""Memory that is used again when nobody has it any more.

Threads that work on packets fill a megabyte every half millisecond. Memory that is fresh from the system for each of
these costs a tenth of that time, because the system has to clear it; and to give it back stops all threads for a
moment. So memory is lent, and goes back to the lender when the last view of it is gone.
"""

from __future__ import annotations

import errno
import mmap
import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray


class Lender:
    """Lends arrays of `size` bytes. Any thread may borrow and drop one. Bytes that are never written cost nothing."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.made = 0  # times that memory came from the system
        self._free: deque[mmap.mmap] = deque()  # memory that nobody has

    def borrow(self) -> NDArray[np.uint8]:
        """Return bytes with any content. Their memory comes back when the array, and with it every view, is gone."""
        try:
            memory = self._free.pop()
        except IndexError:  # all of it is lent
            memory = _new_memory(self.size)
            self.made += 1  # nearly right if two threads do this at once
        lent = np.frombuffer(memory, np.uint8)  # the base of its views, as its own base is not an array
        weakref.finalize(lent, self._free.append, memory).atexit = False
        return lent


def _new_memory(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise MemoryError(f"no {size:,} bytes of memory for packets") from error
        raise
