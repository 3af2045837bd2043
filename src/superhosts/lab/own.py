'''Detectors that others write, in a comparison with those of this package.

A class with two methods suffices (`OwnDetector`); nothing of this package need be imported:

    class Sampling:
        """Keeps one host in sixteen, with all its peers."""

        def __init__(self, memory: int | None = None) -> None:
            self.pairs: set[tuple[int, int]] = set()

        def update(self, hosts, peers):  # two arrays of uint32 of the same length
            kept = hosts % 16 == 0
            self.pairs.update(zip(hosts[kept].tolist(), peers[kept].tolist()))

        def super_hosts(self, threshold):
            counts = Counter(host for host, _ in self.pairs)
            found = {host: peers for host, peers in counts.items() if peers >= threshold}
            return {"hosts": list(found), "peers": list(found.values())}

`superhosts.compare(detectors=["cube", Sampling])` then runs it beside the cube, and so does `superhosts compare
--detector cube,my_module:Sampling`. The constructor takes no argument, or `memory` (bytes), `threshold` or both by
name. Every window has a new object. An object with the attribute `memory` (bytes) shows how much it has.
'''

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import Addresses
from superhosts.core.results import SuperHosts
from superhosts.core.text import counted, setting
from superhosts.errors import UsageError
from superhosts.lab.scores import Estimates, Truth

GIVEN = ("memory", "threshold")  # arguments of a constructor that may be given


@runtime_checkable
class OwnDetector(Protocol):
    """What a detector needs to take part in a comparison."""

    def update(self, hosts: NDArray[np.uint32], peers: NDArray[np.uint32], /) -> object:
        """Take a batch of pairs: IPv4 addresses as numbers, the same pair any number of times."""

    def super_hosts(self, threshold: float, /) -> object:
        """Return the hosts with at least `threshold` peers: anything with `hosts` and `peers`.

        These are columns of the same length (arrays or lists of numbers), as attributes or as keys.
        """


MakeOwn = Callable[..., OwnDetector]


def load_class(text: str) -> MakeOwn:
    """Return the class that `module:Class` names; modules of the current folder are found, too."""
    module, _, name = text.partition(":")
    option = setting("detector", text)
    before = list(sys.path)
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"{option}: no module named {error.name}") from None
    except Exception as error:
        raise UsageError(f"{option}: {module} cannot be imported: {_words(error)}") from error
    finally:
        sys.path[:] = before
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{option}: {module} has no {name}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{option}: {name} of {module} is not a class")
    made: MakeOwn = found
    return made


def name_of(make: MakeOwn) -> str:
    return f"{getattr(make, '__module__', '?')}:{getattr(make, '__qualname__', type(make).__qualname__)}"


class Adapted:
    """Somebody else's detector with the verbs of a comparison: what it returns is checked and made a result."""

    def __init__(self, make: MakeOwn, given: Mapping[str, Any]) -> None:
        self.title = name_of(make)
        self._make = make
        self._given = {name: value for name, value in given.items() if name in self._taken()}
        self._own = self._new()
        for method, example in (("update", "update(hosts, peers)"), ("super_hosts", "super_hosts(threshold)")):
            if not callable(getattr(self._own, method, None)):
                raise UsageError(f"{self.title}: has no method {example}")

    def _taken(self) -> set[str]:
        """Return which of the arguments that may be given the constructor takes; raise if it needs another one."""
        try:
            parameters = inspect.signature(self._make).parameters.values()
        except (TypeError, ValueError):  # a class written in C
            return set()
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        for each in parameters:
            is_open = each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
            if is_open and (each.name not in GIVEN or each.kind not in named):
                raise UsageError(
                    f"{self.title}: its constructor needs {each.name}; it may take {' and '.join(GIVEN)}, by name"
                )
        return {each.name for each in parameters if each.kind in named}

    def _new(self) -> OwnDetector:
        with _blaming(f"{self.title}()"):
            return self._make(**self._given)

    def update(self, hosts: Addresses, peers: Addresses) -> None:
        with _blaming(f"{self.title}.update"):
            self._own.update(np.asarray(hosts, np.uint32), np.asarray(peers, np.uint32))

    def super_hosts(self, threshold: float) -> SuperHosts:
        verb = f"{self.title}.super_hosts"
        with _blaming(verb):
            found = self._own.super_hosts(threshold)
        hosts, peers = _column(found, "hosts", verb), _column(found, "peers", verb)
        if len(hosts) != len(peers):
            raise UsageError(
                f"{verb}: returned {counted(len(hosts), 'host')} but {counted(len(peers), 'number')} of peers"
            )
        if len(hosts) and not (hosts.min() >= 0 and hosts.max() < 1 << 32):
            raise UsageError(f"{verb}: hosts are IPv4 addresses as numbers, from 0 to 4294967295")
        numbers = np.rint(peers).astype(np.int64)
        return SuperHosts(hosts.astype(np.uint32), numbers, numbers, numbers, np.zeros(len(hosts), np.bool_))

    def estimates(self, truth: Truth, threshold: float, found: SuperHosts) -> Estimates:
        """Return the estimates of the true super hosts among those that were found. There are no intervals."""
        true = truth.peers_of(found.hosts)
        right = true >= threshold
        none = np.full(int(right.sum()), np.nan)
        return Estimates(true[right], found.peers[right], none, none, np.zeros(len(none), np.bool_))

    def flush(self) -> None:
        """Do nothing: a batch counts as written when `update` returns."""

    def clear(self) -> None:
        self._own = self._new()

    @property
    def memory(self) -> int:
        """Bytes that the object says it has; 0 if it does not say."""
        memory = getattr(self._own, "memory", 0)
        return int(memory) if isinstance(memory, int | np.integer) else 0


@contextmanager
def _blaming(where: str) -> Iterator[None]:
    """Turn what somebody else's code raises into an error that names it."""
    try:
        yield
    except Exception as error:
        raise UsageError(f"{where} failed: {_words(error)}") from error


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _column(found: object, name: str, verb: str) -> NDArray[Any]:
    """Return a column of an answer: an attribute, or what a key gives."""
    values = getattr(found, name, None)
    if values is None:
        try:
            values = found[name]  # type: ignore[index]
        except (TypeError, KeyError, IndexError, ValueError):
            has = f"returned {type(found).__name__}, which has no {name}"
            raise UsageError(f"{verb}: {has}; return anything with hosts and peers") from None
    column = np.asarray(values)
    if column.ndim != 1 or (len(column) and not np.issubdtype(column.dtype, np.number)):
        raise UsageError(f"{verb}: {name} must be a column of numbers, not {column.dtype} {column.shape}")
    return column
