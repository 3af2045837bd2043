"""Columns of packets in memory that is lent: it is used again for the next piece of a file.

A few packets in such memory would hold all of it, so these are copied.
"""

from __future__ import annotations

import numpy as np

from superhosts.jit.pool import Lender
from superhosts.sources.frames import IPV4, IPV6, Columns, Tally, written

NARROW_BYTES, WIDE_BYTES = 4 + 4 + 8, 16 + 16 + 8  # of a packet in the columns
DETAIL_BYTES = 8
_LEAST_PART = 4  # memory of which less than a quarter is used is not kept


class ColumnLender:
    """Lends columns for up to `ipv4` and `ipv6` packets. Any thread may borrow, and drop what it has borrowed."""

    def __init__(self, ipv4: int, ipv6: int, details: bool = False) -> None:
        self._ipv4, self._ipv6, self._details = ipv4, ipv6, details
        more = DETAIL_BYTES * details
        self._narrow, self._wide = Lender(ipv4 * (NARROW_BYTES + more)), Lender(ipv6 * (WIDE_BYTES + more))

    @property
    def made(self) -> int:
        """Times that memory came from the system."""
        return self._narrow.made + self._wide.made

    def borrow(self) -> Columns:
        """Return columns with any content. Memory that is never written costs nothing."""
        narrow, wide = self._ipv4, self._ipv6
        first, second = self._narrow.borrow(), self._wide.borrow()
        return Columns(
            first[8 * narrow : 12 * narrow].view(np.uint32),
            first[12 * narrow : 16 * narrow].view(np.uint32),
            first[: 8 * narrow].view(np.int64),
            second[: 16 * wide].view(np.uint64).reshape(wide, 2),
            second[16 * wide : 32 * wide].view(np.uint64).reshape(wide, 2),
            second[32 * wide : 40 * wide].view(np.int64),
            first[16 * narrow : 24 * narrow].view(np.uint64) if self._details else np.empty(0, np.uint64),
            second[40 * wide : 48 * wide].view(np.uint64) if self._details else np.empty(0, np.uint64),
        )

    def kept(self, columns: Columns, tally: Tally) -> Columns:
        """Return the rows that a walk has written: views of what was lent, or copies if they use little of it."""
        src4, dst4, time4, src6, dst6, time6, details4, details6 = written(columns, tally)
        if tally[IPV4] < self._ipv4 // _LEAST_PART:
            src4, dst4, time4, details4 = src4.copy(), dst4.copy(), time4.copy(), details4.copy()
        if tally[IPV6] < self._ipv6 // _LEAST_PART:
            src6, dst6, time6, details6 = src6.copy(), dst6.copy(), time6.copy(), details6.copy()
        return Columns(src4, dst4, time4, src6, dst6, time6, details4, details6)
