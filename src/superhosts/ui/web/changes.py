"""Wakes the event streams of viewers when something has changed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from weakref import WeakSet

MOST_VIEWERS = 256  # event streams at the same time
HEARTBEAT = 15.0  # seconds after which a quiet stream says that it lives
LEAST_PAUSE = 0.5  # seconds between two events of a stream


class Changes:
    """Tells viewers the state of what they see. `wake` may be called by any thread, and never waits."""

    def __init__(self, state: Callable[[], dict[str, Any]]) -> None:
        self._state = state
        self._loop: asyncio.AbstractEventLoop | None = None
        self._viewers: WeakSet[asyncio.Event] = (
            WeakSet()
        )  # A stream that is dropped unread is forgotten with its event.
        self._is_waking = False
        self.closing = False

    @property
    def viewers(self) -> int:
        """How many streams are open."""
        return len(self._viewers)

    def attach(self) -> None:
        """Belong to the event loop that runs now."""
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """Tell all viewers that something has changed."""
        if self._loop is not None and not self._is_waking:
            self._is_waking = True
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake_all)

    def close(self) -> None:
        """End all streams."""
        self.closing = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        self._is_waking = False
        for event in self._viewers:
            event.set()

    def stream(self, heartbeat: float = HEARTBEAT) -> AsyncIterator[bytes]:
        """Count a viewer from now on, and return its events: the state at once, and after each change."""
        event = asyncio.Event()
        self._viewers.add(event)
        return self._events(event, heartbeat)

    async def _events(self, event: asyncio.Event, heartbeat: float) -> AsyncIterator[bytes]:
        try:
            event.set()
            while True:
                try:
                    await asyncio.wait_for(event.wait(), heartbeat)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if self.closing:
                    return
                event.clear()
                yield self._changed()
                await asyncio.sleep(LEAST_PAUSE)  # Changes meanwhile become one event.
        finally:
            self._viewers.discard(event)

    def _changed(self) -> bytes:
        return f"event: changed\ndata: {json.dumps(self._state())}\n\n".encode()
