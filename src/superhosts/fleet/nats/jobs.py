"""Work of a hub's receiver that takes a while: in the background, and of each site one job at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0  # jobs that run or wait; a lock that is released is not locked until the next of them wakes


class Jobs:
    """The tasks that are running, and the turns of sites."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.turns: dict[tuple[str, str], _Turn] = {}  # by purpose and site; only those in use

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run some work in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @asynccontextmanager
    async def turn(self, purpose: str, site: str) -> AsyncIterator[None]:
        """Wait until no other job of a site runs, and keep the others waiting meanwhile."""
        whose = (purpose, site)
        turn = self.turns.setdefault(whose, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if turn.users == 0:
                del self.turns[whose]

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until all work is done, or for some seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    async def finish(self) -> None:
        """Wait until all work is done, and raise its errors."""
        while self._tasks:
            await asyncio.gather(*self._tasks)
