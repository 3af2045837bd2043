"""A hook before hot loops are compiled, which takes seconds. Setting it does not import numba."""

from __future__ import annotations

from collections.abc import Callable

_waiting: list[Callable[[], None]] = []


def before_compiling(call: Callable[[], None]) -> None:
    """Call `call` once, when this process is about to compile something that it did not find on disk."""
    _waiting[:] = [call]


def announce() -> None:
    """Make the call, unless it was made."""
    while _waiting:
        _waiting.pop()()
