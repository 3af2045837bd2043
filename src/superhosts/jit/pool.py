"""Memory that is used again when nobody has it any more.

Threads that work on packets fill a megabyte every half millisecond. Memory that is fresh from the system for each of
these costs a tenth of that time, because the system has to clear it; and to give it back stops all threads for a
moment. So memory is lent, and goes back to the lender when the last view of it is gone.
"""

from __future__ import annotations

import errno
import math
import mmap
import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

LEAST_REUSED = 1 << 22  # bytes from which on memory comes from the system for each array, and goes back to it


class Lender:
    """Lends arrays of `size` bytes. Any thread may borrow and drop one. Bytes that are never written cost nothing."""

    def __init__(self, size: int, *, huge: bool = False, most: int | None = None) -> None:
        self.size = size
        self.huge = huge  # in huge pages where the system has them: for memory that is used as a whole
        self.made = 0  # times that memory came from the system
        self._free: deque[mmap.mmap] = deque(maxlen=most)  # memory that nobody has; more goes back to the system

    def borrow(self) -> NDArray[np.uint8]:
        """Return bytes with any content. Their memory comes back when the array, and with it every view, is gone."""
        try:
            memory = self._free.pop()
        except IndexError:  # all of it is lent
            memory = _new_memory(self.size, huge=self.huge)
            self.made += 1  # nearly right if two threads do this at once
        lent = np.frombuffer(memory, np.uint8)  # the base of its views, as its own base is not an array
        weakref.finalize(lent, self._free.append, memory).atexit = False
        return lent


class Reuse:
    """While one of these objects exists, memory of `new_words` that need not be cleared is lent by it."""

    _users: ClassVar[weakref.WeakSet[Reuse]] = weakref.WeakSet()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, most: int) -> None:
        """Keep the memory of at most so many arrays of each size that nobody has."""
        self._most = most
        self._lenders: dict[int, Lender] = {}  # by size
        with self._lock:
            self._users.add(self)

    @classmethod
    def lender(cls, size: int) -> Lender | None:
        """Return a lender of arrays of this size; None if nobody would use them again."""
        with cls._lock:
            user = next(iter(cls._users), None)
        return None if user is None else user._lenders.setdefault(size, Lender(size, huge=True, most=user._most))


def new_words(shape: tuple[int, ...], *, cleared: bool) -> NDArray[np.uint64]:
    """Return an array of words: zeros, or with any content, which may be memory that was used before."""
    if cleared:
        return np.zeros(shape, np.uint64)  # by the system, and only where it is used
    size = 8 * math.prod(shape)
    lender = Reuse.lender(size) if size >= LEAST_REUSED else None
    return np.empty(shape, np.uint64) if lender is None else lender.borrow().view(np.uint64).reshape(shape)


def _new_memory(size: int, *, huge: bool) -> mmap.mmap:
    try:
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise MemoryError(f"no {size:,} bytes of memory") from error
        raise
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # The system has none.
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
