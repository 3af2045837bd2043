"""Destinations: places to which a run sends the report of every window.

A destination is one class in one file. `registry.py` lists the classes; each says which addresses of `--output` it
recognises, and its constructor opens the address. From then on:

* `write` takes one window's report, the whole of it or nothing. If it cannot, it raises `OutputError`, with the
  operating system's error as the cause where there is one. The caller decides what follows: a run that ends goes on
  with its other destinations, and exits with status 4; a service writes each destination in a thread of its own, which
  tries again (`delivery.py`). Any other exception counts as an OutputError that names the destination.
* `reopen` follows a file that another program has moved away (SIGHUP, log rotation).
* `close` ends a run that succeeded, `abandon` one that failed. Exactly one of the two is called, once.
* `status` returns counters for monitoring.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

from superhosts.core.pairs import Window
from superhosts.errors import OutputError, SuperhostsError, internal_error
from superhosts.jit.memory import is_out_of_memory
from superhosts.output.names import Annotator
from superhosts.output.report import COLUMNS, Report, Row

STANDARD_OUTPUT = "standard output"  # its name in messages and in the status


class RunKind(NamedTuple):
    columns: tuple[str, ...] = COLUMNS  # of the rows, in formats that have fixed columns
    endless: bool = False  # the run has no planned end: add to files instead of replacing them, show rows at once
    waits: bool = False  # it ends all the same: it waits for its queues, and reports that are left are an error
    many_windows: bool | None = None  # whether there will be more than one report; None: not known beforehand
    varying: frozenset[str] = frozenset()  # fields (site, side, direction) that differ between rows, or may
    optional: tuple[str, ...] = ()  # columns behind the others, if the first row of a file has them
    format: str = ""  # of lines, one of mappings.FORMATS; empty: JSON, or CSV where the ending says so
    site: str = ""  # which installation reports, in such a format

    def columns_of(self, rows: Sequence[Row]) -> tuple[str, ...]:
        return (*self.columns, *(name for name in self.optional if rows and name in rows[0]))


RUN_THAT_ENDS = RunKind()
ENDLESS = RunKind(endless=True)


@dataclass
class DestinationCounters:
    reports: int = 0
    rows: int = 0
    failures: int = 0  # attempts to write a report that failed
    waiting: int = 0  # reports accepted but not yet written
    dropped: int = 0  # reports that were accepted and will never be written


class Destination(ABC):
    """A place to which reports go. A subclass implements `_write`, and whichever of the other methods it needs."""

    scheme: ClassVar[str] = ""  # "pigeon" recognises pigeon://roof and pigeon:roof
    kind: str = "file"  # in metrics, which must not show where it is
    opened_as: object = None  # the address that it was opened for; None: it was not asked for by an address
    outlives_reader: bool = False  # the run goes on when the reader of this destination goes away

    def __init__(self, address: str, run: RunKind = RUN_THAT_ENDS) -> None:
        self.name = address  # in messages and in the status
        self.run = run
        self.counters = DestinationCounters()

    @classmethod
    def endings(cls, run: RunKind) -> tuple[str, ...]:
        """Return the endings of files that it writes in such a run, like .csv; none: it is not a kind of file."""
        return ()

    @classmethod
    def recognises(cls, address: str, run: RunKind) -> bool:
        if cls.scheme:
            return address.startswith(f"{cls.scheme}:")
        return Path(address).suffix.lower() in cls.endings(run)

    def write(self, report: Report) -> None:
        """Write a report, the whole of it or nothing (OutputError), and count it."""
        try:
            self._write(report)
        except Exception:
            self.counters.failures += 1
            raise
        self.counters.reports += 1
        self.counters.rows += len(report.rows)

    @abstractmethod
    def _write(self, report: Report) -> None:
        """Write a report, the whole of it or nothing (OutputError)."""

    def keep_open(self, events: Callable[[], Sequence[Row]]) -> None:  # noqa: B027  # most receivers forget nothing
        """Tell the receiver again and again, from now on, that the alerts of these events are open, and no others."""

    def reopen(self) -> None:  # noqa: B027  # most destinations have nothing to reopen
        """Open the address again: another program may have moved the file away."""

    def close(self) -> None:  # noqa: B027  # some destinations have nothing to close
        """Finish after a run that succeeded. OutputError: the results are not there."""

    def abandon(self) -> None:
        """Finish after a run that failed. By default, keep what was written."""
        self.close()

    @property
    def queued_bytes(self) -> int:
        return 0

    def status(self) -> dict[str, int]:
        return asdict(self.counters)


class Destinations:
    """Hands every report to all destinations of a run.

    A destination that fails does not keep a report from the others. A report that is handed in again, after a failure,
    goes only to the destinations that do not have it yet.
    """

    def __init__(self, destinations: Sequence[Destination], annotator: Annotator | None = None) -> None:
        self._destinations = list(destinations)
        # Called with the error of a destination that has failed, which the rest of the run does without; None: raise.
        self.on_error: Callable[[OutputError], None] | None = None
        self._annotator = annotator  # adds to rows what is known of their hosts
        # Reports that some destination failed to write, and the destinations that have them.
        self._written: dict[tuple[Window | None, int], set[Destination]] = {}

    def add(self, destination: Destination) -> None:
        self._destinations.append(destination)

    def each(self) -> list[Destination]:
        return list(self._destinations)

    def exchange(self, wanted: Sequence[Destination]) -> list[Destination]:
        """Hand reports to these instead of those that were opened for addresses; return the ones that are left."""
        kept = [each for each in self._destinations if each.opened_as is None]
        left = [each for each in self._destinations if each.opened_as is not None and each not in wanted]
        self._destinations = [*wanted, *kept]
        return left

    def outlive_reader(self) -> None:
        """Let the run go on when the reader of standard output goes away: its results are wanted elsewhere, too."""
        for destination in self._destinations:
            destination.outlives_reader = True

    def write(self, report: Report) -> None:
        """Hand a report to every destination that does not have it; then raise the first error, if any failed."""
        report = replace(report, rows=self.annotated(report.rows))
        identity = (report.window, report.revision)
        written = self._written.setdefault(identity, set())

        def write(destination: Destination) -> None:
            if destination not in written:
                destination.write(report)
                written.add(destination)

        failed = dict(_errors(write, self._destinations))
        # Without the reader of its standard output the run ends, too.
        ends = any(isinstance(error, BrokenPipeError) for error in failed.values())
        if self.on_error is None or ends or len(failed) == len(self._destinations):
            _raise(failed.values())
        else:
            for destination, error in failed.items():
                self._destinations.remove(destination)
                self.on_error(error if isinstance(error, OutputError) else OutputError(f"{destination.name}: {error}"))
                list(_errors(lambda each: each.abandon(), [destination]))  # a second error says nothing new
        del self._written[identity]

    def annotated(self, rows: Sequence[Row]) -> Sequence[Row]:
        return rows if self._annotator is None else self._annotator.annotated(rows)

    def reopen(self) -> None:
        """Open files again that another program may have moved away, and read names of hosts again."""
        for_each(self._destinations, lambda destination: destination.reopen())
        if self._annotator is not None:
            self._annotator.reload()

    def status(self, name: str) -> dict[str, int]:
        """Return the counters of a destination; all are zero if the run does not have it."""
        found = [destination.status() for destination in self._destinations if destination.name == name]
        return found[0] if found else asdict(DestinationCounters())

    def all_status(self) -> dict[str, dict[str, int]]:
        """Return the counters of all destinations but standard output, by their names."""
        others = (each for each in self._destinations if each.name != STANDARD_OUTPUT)
        return {destination.name: destination.status() for destination in others}

    def __enter__(self) -> Destinations:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or kind is KeyboardInterrupt:  # a live scan ends like this, and its windows are whole
            for_each(self._destinations, lambda destination: destination.close())
        else:
            for_each(self._destinations, lambda destination: destination.abandon())


def for_each(destinations: Iterable[Destination], act: Callable[[Destination], None]) -> None:
    """Act on every destination; then raise the errors of those that failed."""
    _raise(error for _, error in _errors(act, destinations))


def _errors(
    act: Callable[[Destination], None], destinations: Iterable[Destination]
) -> Iterator[tuple[Destination, Exception]]:
    """Act on every destination; yield those that fail. Any exception of one is an OutputError that names it."""
    for destination in destinations:
        try:
            act(destination)
        except (OSError, OutputError) as error:
            yield destination, error
        except SuperhostsError:
            raise
        except Exception as error:
            if isinstance(error, MemoryError) and is_out_of_memory():
                raise
            named = OutputError(f"{destination.name}: {internal_error(error)}")
            named.__cause__ = error
            yield destination, named


def _raise(found: Iterable[Exception]) -> None:
    errors = list(found)
    if len(errors) > 1:
        raise OutputError("; ".join(map(str, errors))) from errors[0]
    if errors:
        raise errors[0]
