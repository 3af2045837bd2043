"""Threads that answer the questions of an event loop, which never waits for an answer.

They are daemons, so that a question that runs keeps no program from ending: the threads of a ThreadPoolExecutor are
joined when Python exits, whether anybody still wants their answers or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from superhosts.ui.folder import BusyError

Found = TypeVar("Found")


class Workers:
    """Some threads with one queue. Only `close` may be called by other threads than that of the event loop."""

    def __init__(self, threads: int, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for _ in range(threads)]
        self._unanswered: set[asyncio.Future[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        for thread in self._threads:
            thread.start()

    async def run(self, ask: Callable[[], Found]) -> Found:
        """Return what `ask` returns, or raise what it raises. Raise BusyError if these threads are closed."""
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Found] = self._loop.create_future()
        self._unanswered.add(future)
        self._jobs.put((ask, future))
        if self._is_closed:
            self._abandon()
        try:
            return await future
        finally:
            self._unanswered.discard(future)

    def close(self) -> None:
        """End the threads that have nothing to do, and abandon all questions: whoever waits is told so at once."""
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._abandon)

    def _abandon(self) -> None:
        for future in self._unanswered:
            if not future.done():
                future.set_exception(BusyError("the program ends"))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            ask, future = job
            if future.done():
                continue  # nobody waits any more
            try:
                settle = partial(future.set_result, ask())
            except Exception as error:
                settle = partial(future.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                future.get_loop().call_soon_threadsafe(_settle, future, settle)


def _settle(future: asyncio.Future[Any], settle: Callable[[], None]) -> None:
    if not future.done():
        settle()
