"""Compiling hot loops, which takes seconds: who is told, how long it took, what cannot be kept. Does not import numba.

Without a hook of the caller (`before_compiling`) a process says once, on a terminal or in a notebook, why its user
waits. Pipes and worker processes are left alone; commands have a hook that writes to their log.

The variable SUPERHOSTS_COMPILING is for tests. With `kept`, machine code that cannot be kept on disk is an error, and
commands do not say that they compile; with `never`, compiling is an error, too.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

NOTICE = "compiling for this machine: {}; the result is kept on disk …"
UNKNOWN = "up to a minute"
MODE = "SUPERHOSTS_COMPILING"
NEVER = "never"


class StoppedError(Exception):
    """Somebody who has asked this process to end does not want to wait until everything is compiled."""


class CacheWarning(UserWarning):
    """Machine code is not kept on disk, or not taken from there, so it is compiled again."""


def _tell(what: str) -> None:
    if _is_watched():
        print(f"superhosts: {NOTICE.format(what)}", file=sys.stderr, flush=True)


class _Work:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads = 0  # that compile now
        self.may_stop = self.is_stopped = False
        self.began = self.seconds = 0.0  # the seconds are those that nobody was told yet
        self.total = 0.0  # seconds since the start
        self.after: Callable[[float], None] | None = None
        self.progress: Callable[[str], None] | None = None
        self.late: Callable[[str, float], None] | None = None
        self.warned: set[str] = set()


_work = _Work()
_waiting: list[Callable[[str], None]] = [_tell]


def is_tested() -> bool:
    """Return True in tests, where machine code that cannot be kept is an error."""
    return bool(os.environ.get(MODE))


def is_forbidden() -> bool:
    return os.environ.get(MODE) == NEVER


def before_compiling(
    call: Callable[[str], None],
    after: Callable[[float], None] | None = None,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Call `call` once before this process compiles, with what it compiles or how long that may take.

    And call `after` (by `tell_seconds`) with the seconds that it took, `progress` with what is left; "" at the end.
    """
    _waiting[:], _work.after, _work.late, _work.seconds = [call], after, None, 0.0
    _work.progress, _work.is_stopped = progress, False


def after_ready(call: Callable[[str, float], None]) -> None:
    """From now on call `call` with each loop that is compiled, and the seconds that it took."""
    _work.late = call


def is_ready() -> bool:
    """Return True once `after_ready` was called: nothing should have to be compiled."""
    return _work.late is not None


def seconds_compiling() -> float:
    """Return for how many seconds this process has compiled."""
    with _work.lock:
        return _work.total + (time.monotonic() - _work.began if _work.threads else 0.0)


@contextmanager
def until_stopped() -> Iterator[None]:
    """Leave the block at the next loop that has to be compiled once `stop_compiling` was called."""
    _work.may_stop = True
    try:
        with suppress(StoppedError):
            yield
    finally:
        _work.may_stop = False


def stop_compiling() -> None:
    _work.is_stopped = True


def announce(what: str = UNKNOWN) -> None:
    while _waiting:
        _waiting.pop()(what)


def tell_progress(left: str) -> None:
    if _work.progress is not None:
        _work.progress(left)


@contextmanager
def compiling(name: str, what: str = UNKNOWN) -> Iterator[None]:
    if is_forbidden():
        raise RuntimeError(f"{name} has to be compiled, although {MODE} is {NEVER}")
    if _work.may_stop and _work.is_stopped:
        raise StoppedError(name)
    announce(what)
    with _work.lock:
        _work.began = _work.began if _work.threads else time.monotonic()
        _work.threads += 1
    began = time.monotonic()
    try:
        yield
    finally:
        with _work.lock:
            _work.threads -= 1
            spent = 0.0 if _work.threads else time.monotonic() - _work.began
            _work.seconds, _work.total = _work.seconds + spent, _work.total + spent
        if _work.late is not None:
            _work.late(name, time.monotonic() - began)


def is_compiling() -> bool:
    return _work.threads > 0


def tell_seconds() -> None:
    """Say how long compiling took, unless it goes on or that was said."""
    if _work.seconds and not _work.threads and _work.after is not None:
        seconds, _work.seconds = _work.seconds, 0.0
        _work.after(seconds)


def warn_not_kept(text: str, kind: str = "") -> None:
    """Warn that machine code is not kept or not used: once in a process for each kind, or for each text."""
    if (kind or text) not in _work.warned:
        _work.warned.add(kind or text)
        warnings.warn(f"machine code {text}", CacheWarning, stacklevel=3)


def has_parent() -> bool:
    """Return True in a process of multiprocessing: its parent has started one for each core already."""
    processes = sys.modules.get("multiprocessing")
    return processes is not None and processes.parent_process() is not None


def _is_watched() -> bool:
    """Return True if somebody reads standard error as it is written: a terminal, or a cell of a notebook."""
    stream = sys.stderr
    if has_parent() or stream is None:
        return False
    return "ipykernel" in sys.modules or (hasattr(stream, "isatty") and stream.isatty())
