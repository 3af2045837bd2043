"""How many pieces an edge has on their way at once."""

from __future__ import annotations

import asyncio

MOST = 16
QUICK, SLOW = 1.0, 4.0  # seconds for a piece, below which more and above which fewer go at once


class Pace:
    """Many pieces while the server answers quickly, one on a slow line, where others would only wait behind it."""

    def __init__(self) -> None:
        self._limit = 4.0
        self._used = 0
        self._free = asyncio.Event()

    async def take(self) -> None:
        """Wait until one more may go."""
        while self._used >= int(self._limit):
            self._free.clear()
            await self._free.wait()
        self._used += 1

    def give(self, took: float | None) -> None:
        """Make room again after a piece that was stored after so many seconds, or was not."""
        self._used -= 1
        if took is not None and took < QUICK:
            self._limit = min(self._limit + 1, MOST)
        elif took is None or took > SLOW:
            self._limit = max(self._limit / 2, 1)
        self._free.set()
