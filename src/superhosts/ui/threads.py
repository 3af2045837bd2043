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
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any, TypeVar

from superhosts.ui.folder import BusyError

Found = TypeVar("Found")


class Workers:
    """Some threads with one queue. Any thread may close them."""

    def __init__(self, threads: int, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for _ in range(threads)]
        self._unanswered: set[Future[Any]] = set()
        self._is_closed = False
        for thread in self._threads:
            thread.start()

    async def run(self, ask: Callable[[], Found]) -> Found:
        """Return what `ask` returns, or raise what it raises. Raise BusyError if these threads are closed."""
        future: Future[Found] = Future()
        self._unanswered.add(future)
        future.add_done_callback(self._unanswered.discard)
        self._jobs.put((ask, future))
        if self._is_closed:
            self._abandon()
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the threads that have nothing to do, and abandon all questions: whoever waits is told so at once."""
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        self._abandon()

    def _abandon(self) -> None:
        for future in list(self._unanswered):
            with contextlib.suppress(InvalidStateError):  # it has its answer
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
            with contextlib.suppress(InvalidStateError):  # nobody waits any more
                settle()
