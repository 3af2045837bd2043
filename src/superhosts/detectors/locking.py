"""How detectors and sketches stay whole while any number of threads call them: one lock each.

Every public verb takes the lock of its object once and works under it through private methods. Whoever needs several
objects at once takes their locks in one order (`holding`), so that two threads never wait for each other.

The threads of the pool (`device.run_parallel`) take no lock of these: whoever waits for them holds one.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Self, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


class Guarded:
    """An object with a lock of its own. No subclass can forget it: it is there before any `__init__` runs."""

    _lock: AbstractContextManager[object]  # reentrant: a verb may call others of the same object

    def __new__(cls, *_arguments: Any, **_named: Any) -> Self:
        """Return a new object and its lock; also where an object is copied or read from a pickle."""
        guarded = super().__new__(cls)
        guarded._lock = threading.RLock()
        return guarded

    def _held(self) -> AbstractContextManager[object]:
        """Hold all other threads off what this object consists of."""
        return self._lock

    def _state(self) -> dict[str, Any]:
        """Return its attributes without the lock, which stays with this object."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def _twin(self, state: dict[str, Any]) -> Self:
        """Return another object of this class, with a lock of its own and these attributes."""
        twin = type(self).__new__(type(self))
        vars(twin).update(state)
        return twin

    def _copy(self) -> Self:
        """Return another object with the same content. The caller holds this one."""
        return self._twin(copy.deepcopy(self._state()))

    def __copy__(self) -> Self:
        with self._held():
            return self._copy()  # never a shallow copy: two locks would guard the same content

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: a copy, because other threads may go on while the pickle is written."""
        return self.__copy__()._state()


@contextmanager
def holding(*guarded: Guarded) -> Iterator[None]:
    """Hold the locks of several objects. All threads take them in the same order, so that none waits in a ring."""
    if not guarded:
        yield
        return
    first, *others = sorted(guarded, key=id)
    with first._lock, holding(*others):
        yield


def locked(method: Method) -> Method:
    """Hold the object's lock while a public method runs."""

    @wraps(method)
    def run(self: Guarded, *arguments: Any, **named: Any) -> Any:
        with self._lock:
            return method(self, *arguments, **named)

    return cast(Method, run)
