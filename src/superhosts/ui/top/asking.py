"""Questions to a feed, in threads: the screen never waits for an answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


async def in_thread(ask: Callable[[], Found]) -> Found:
    """Return what `ask` returns, or raise what it raises. Its thread does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Found] = loop.create_future()

    def settle(act: Callable[[], None]) -> None:
        if not future.done():  # else nobody waits any more
            act()

    def run() -> None:
        try:
            found = ask()
        except Exception as error:
            caught = error
            tell(lambda: future.set_exception(caught))
        else:
            tell(lambda: future.set_result(found))

    def tell(act: Callable[[], None]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, act)

    threading.Thread(target=run, name="question", daemon=True).start()
    return await future
