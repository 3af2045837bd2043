"""Memory between two pages that nobody may touch: what reads or writes beyond it ends the whole test run."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from superhosts.core.columns.addresses import Bytes


def between_guards(size: int) -> Bytes:
    """Return memory of so many bytes, in whole pages."""
    page = mmap.PAGESIZE
    inner = -(-size // page) * page
    memory = mmap.mmap(-1, inner + 2 * page)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for guard in (begin, begin + page + inner):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) == 0  # no rights
    return np.frombuffer(memory, np.uint8)[page : page + inner]
