"""Work of a hub's receiver that takes a while: in the background, and of each site one job at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Jobs:
    """The tasks that are running, and the turns of sites."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: dict[tuple[str, str], asyncio.Lock] = {}  # by purpose and site

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run some work in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def turn(self, purpose: str, site: str) -> asyncio.Lock:
        """Return the lock that a job of a site holds while it runs."""
        return self._turns.setdefault((purpose, site), asyncio.Lock())

    def forget_turns(self) -> None:
        """Forget the turns of sites that have no job now."""
        self._turns = {whose: turn for whose, turn in self._turns.items() if turn.locked()}

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until all work is done, or for some seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    async def finish(self) -> None:
        """Wait until all work is done, and raise its errors."""
        while self._tasks:
            await asyncio.gather(*self._tasks)
