"""Call functions from many threads at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

DEADLINE = 600  # seconds
Call = Callable[[], Any]


def together(*calls: Call) -> list[Any]:
    """Make all calls at the same time, each in its own thread. Return their results, or raise the error of one."""
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []
    start = threading.Barrier(len(calls))

    def run(number: int) -> None:
        try:
            start.wait(DEADLINE)
            results[number] = calls[number]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
    if errors:
        raise errors[0]
    return results


def while_others_work(readers: list[Call], writers: list[Call]) -> list[Any]:
    """Repeat the readers' calls until all writers have finished. Return the results of the readers in order."""
    left = list(writers)

    def writing(write: Call) -> None:
        try:
            write()
        finally:
            left.pop()

    def reading(read: Call) -> list[Any]:
        got = [read()]
        while left:
            got.append(read())
        return [*got, read()]

    results = together(*(lambda r=r: reading(r) for r in readers), *(lambda w=w: writing(w) for w in writers))
    return [answer for answers in results[: len(readers)] for answer in answers]
