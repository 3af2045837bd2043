"""What is said before hot loops are compiled, which takes seconds. This module does not import numba.

Without a hook of the caller (`before_compiling`) a process says once, on a terminal or in a notebook, why its user
waits. Logs, pipes and worker processes are left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

NOTICE = "superhosts: compiling for this machine, which takes up to a minute once; the result is kept on disk …"


def _tell() -> None:
    if _is_watched():
        print(NOTICE, file=sys.stderr, flush=True)


_waiting: list[Callable[[], None]] = [_tell]


def before_compiling(call: Callable[[], None]) -> None:
    """Call `call` once, when this process is about to compile something that it did not find on disk."""
    _waiting[:] = [call]


def announce() -> None:
    """Make the call, unless it was made."""
    while _waiting:
        _waiting.pop()()


def _is_watched() -> bool:
    """Return True if somebody reads standard error as it is written: a terminal, or a cell of a notebook."""
    processes = sys.modules.get("multiprocessing")
    if processes is not None and processes.parent_process() is not None:
        return False
    stream = sys.stderr
    return stream is not None and ("ipykernel" in sys.modules or (hasattr(stream, "isatty") and stream.isatty()))
