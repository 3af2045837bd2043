"""One lock per detector or sketch keeps it consistent while any number of threads call it.

"Why one lock per detector" in docs/explanation/decisions.md has the rules.

A child of `os.fork` has none of its parent's other threads. An object that one of them was using is incomplete in the
child, and its lock would never be released: there, whoever uses it gets an error.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from superhosts.errors import UsageError

Method = TypeVar("Method", bound=Callable[..., Any])
_owners: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def give_lock(owner: Any) -> None:
    """Give a new object its lock. It is reentrant, because a public method may call others of the same object."""
    owner.lock = threading.RLock()
    _owners[id(owner)] = owner


def state_of(owner: Any) -> dict[str, Any]:
    """Return the attributes of an object without the lock, which belongs to this object alone."""
    return {name: value for name, value in vars(owner).items() if name != "lock"}


@contextmanager
def holding(*owners: Any) -> Iterator[None]:
    """Hold the locks of several objects. All threads acquire them in the same order, so that no deadlock can occur."""
    with ExitStack() as locks:
        for owner in sorted(owners, key=id):
            locks.enter_context(owner.lock)
        yield


def locked(method: Method) -> Method:
    @wraps(method)
    def run(self: Any, *arguments: Any, **named: Any) -> Any:
        with self.lock:
            return method(self, *arguments, **named)

    return cast(Method, run)


class _LostLock:
    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        raise UsageError(
            f"this {self._name} was in use by another thread when the process forked: only a part of it is here; "
            "fork before threads use it, or make a new one in the child"
        )

    def __exit__(self, *_error: object) -> None:
        """Do nothing: it is never entered."""


def _after_fork() -> None:
    for owner in list(_owners.values()):
        if isinstance(owner.lock, _LostLock):  # The parent was forked itself.
            continue
        if owner.lock.acquire(blocking=False):
            owner.lock.release()
        else:
            owner.lock = _LostLock(type(owner).__name__)


os.register_at_fork(after_in_child=_after_fork)
