"""How many pieces an edge sends at once."""

from __future__ import annotations

import asyncio

MAX_PIECES = 16  # in transit at once
QUICK, SLOW = 1.0, 4.0  # seconds per piece: below QUICK more are sent at once, above SLOW fewer


class Pace:
    """Limits the pieces in transit: many while the server answers quickly, one on a slow connection."""

    def __init__(self) -> None:
        self._limit = 4.0
        self._used = 0
        self._free = asyncio.Event()

    async def take(self) -> None:
        """Wait until one more piece may be sent."""
        while self._used >= int(self._limit):
            self._free.clear()
            await self._free.wait()
        self._used += 1

    def give(self, took: float | None) -> None:
        """Release the place of a piece that was stored after `took` seconds, or not at all (None)."""
        self._used -= 1
        if took is not None and took < QUICK:
            self._limit = min(self._limit + 1, MAX_PIECES)
        elif took is None or took > SLOW:
            self._limit = max(self._limit / 2, 1)
        self._free.set()
