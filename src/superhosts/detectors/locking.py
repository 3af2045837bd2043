"""One lock per detector or sketch keeps it consistent while any number of threads call it.

Every public method acquires its object's lock once and then calls private methods. Code that needs several objects at
once acquires their locks in a fixed order (`holding`), so that two threads never deadlock.

Pool threads (`device.run_parallel`) acquire none of these locks, because the thread that waits for them holds one.

A child of `os.fork` has none of its parent's other threads. An object that one of them was using is incomplete in the
child, and its lock would never be released: there, whoever uses it gets an error.
"""

from __future__ import annotations

import copy
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Self, TypeVar, cast

from superhosts.errors import UsageError

Method = TypeVar("Method", bound=Callable[..., Any])


class Guarded:
    """An object with its own lock. `__new__` creates it before `__init__` runs, so no subclass can forget it."""

    lock: AbstractContextManager[object]  # reentrant, because a public method may call others of the same object

    def __new__(cls, *_arguments: Any, **_named: Any) -> Self:
        """Return a new object with its lock. Copying calls this too."""
        guarded = super().__new__(cls)
        guarded.lock = threading.RLock()
        _existing[id(guarded)] = guarded
        return guarded

    def _held(self) -> AbstractContextManager[object]:
        """Return a context manager that keeps other threads from using this object and its parts."""
        return self.lock

    def _state(self) -> dict[str, Any]:
        """Return the attributes without the lock, which belongs to this object alone."""
        return {name: value for name, value in vars(self).items() if name != "lock"}

    def _twin(self, state: dict[str, Any]) -> Self:
        """Return another object of this class with its own lock and these attributes."""
        twin = type(self).__new__(type(self))
        vars(twin).update(state)
        return twin

    def _copy(self) -> Self:
        """Return another object with the same content. The caller holds this object's lock."""
        return self._twin(copy.deepcopy(self._state()))

    def __copy__(self) -> Self:
        with self._held():
            return self._copy()  # Never a shallow copy: two locks would guard the same content.

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self.__copy__()


_existing: weakref.WeakValueDictionary[int, Guarded] = weakref.WeakValueDictionary()


class _LostLock:
    """The lock of an object that another thread of the parent was using when this process was forked."""

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
    for guarded in list(_existing.values()):
        lock: Any = guarded.lock
        if isinstance(lock, _LostLock):  # The parent was forked itself.
            continue
        if lock.acquire(blocking=False):
            lock.release()
        else:
            guarded.lock = _LostLock(type(guarded).__name__)


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def holding(*guarded: Guarded) -> Iterator[None]:
    """Hold the locks of several objects. All threads acquire them in the same order, so that no deadlock can occur."""
    if not guarded:
        yield
        return
    first, *others = sorted(guarded, key=id)
    with first.lock, holding(*others):
        yield


def locked(method: Method) -> Method:
    """Decorate a public method so that it holds the object's lock while it runs."""

    @wraps(method)
    def run(self: Guarded, *arguments: Any, **named: Any) -> Any:
        with self.lock:
            return method(self, *arguments, **named)

    return cast(Method, run)
