"""The interface of a destination: a place to which a run sends the report of every window.

A destination is one class in one file. `opening.py` lists the classes; each says which addresses of `--output` it
recognises, and its constructor opens the address. From then on:

* `write` takes one window's report, the whole of it or nothing. If it cannot, it raises `OutputError`, with the
  operating system's error as the cause where there is one. The caller decides what follows: a run that ends goes on
  with its other destinations, and exits with status 4; in a service, files (`patient.py`) and standard output
  (`queued.py`) write in threads of their own, which try again, and any other destination gets the same report again
  until it takes it (`fanout.py`). Any other exception counts as an OutputError that names the destination.
* `reopen` follows a file that another program has moved away (SIGHUP, log rotation).
* `close` ends a run that succeeded, `abandon` one that failed. Exactly one of the two is called, once.
* `status` returns counters for monitoring.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from superhosts.core.times import window_span
from superhosts.output.rows import COLUMNS, Row

if TYPE_CHECKING:
    from superhosts.core.pairs import Window


@dataclass(frozen=True, kw_only=True)
class Report:
    """The rows of one window. Window and revision identify a report: one that is handed in again has the same."""

    rows: Sequence[Row]
    window: Window | None = None
    revision: int = 1  # 2 and more: the window is reported again, with these rows instead of the earlier ones
    title: str = ""  # which hosts the rows are, for people: "5 of 92 hosts with at least 500 peers"
    threshold: float | None = None  # peers of a super host; rows with fewer are the largest others. None: not asked for
    is_incomplete: bool = False  # hosts are left out, or could not be listed, and the title says so
    notes: Sequence[str] = ()  # what else people should know: "partial: interrupted"

    @property
    def warnings(self) -> Sequence[str]:
        """The notes that no other field has: of a window that was reported again, `revision` tells."""
        return [note for note in self.notes if note != f"revision {self.revision}"]

    @property
    def heading(self) -> str:
        """The window, the title and the notes, in one line for people. Alerts have no window."""
        span = "" if self.window is None else f"{window_span(self.window)}: "
        return f"{span}{self.title}" + "".join(f" ({note})" for note in self.notes)


@dataclass(frozen=True)
class RunKind:
    """What a destination must know about the run that opens it."""

    columns: tuple[str, ...] = COLUMNS  # of the rows, in formats that have fixed columns
    endless: bool = False  # the run has no planned end: add to files instead of replacing them, show rows at once
    many_windows: bool | None = None  # whether there will be more than one report; None: not known beforehand
    varying: frozenset[str] = frozenset()  # fields (site, side, direction) that differ between rows, or may
    optional: tuple[str, ...] = ()  # columns behind the others, if the first row of a file has them

    def columns_of(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """Return the columns of a file that begins with these rows."""
        return (*self.columns, *(name for name in self.optional if rows and name in rows[0]))


RUN_THAT_ENDS = RunKind()


@dataclass
class DestinationCounters:
    """What a destination has done."""

    reports: int = 0
    rows: int = 0
    failures: int = 0  # attempts to write a report that failed
    waiting: int = 0  # reports accepted but not yet written
    dropped: int = 0  # reports that were accepted and will never be written


class Destination(ABC):
    """A place to which reports go. A subclass implements `_write`, and whichever of the other methods it needs."""

    scheme: ClassVar[str] = ""  # "syslog" recognises syslog://host:514 and syslog:local
    kind: str = "file"  # in metrics, which must not show where it is
    opened_as: object = None  # the address that it was opened for; None: it was not asked for by an address

    def __init__(self, address: str, run: RunKind = RUN_THAT_ENDS) -> None:
        self.name = address  # in messages and in the status
        self.run = run
        self.counters = DestinationCounters()

    @classmethod
    def recognises(cls, address: str, run: RunKind) -> bool:
        """Return True if this class opens an address."""
        return bool(cls.scheme) and address.startswith(f"{cls.scheme}:")

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

    repeats_alerts: bool = False  # its receiver forgets alerts that it does not hear of again

    def keep_open(self, rows: Sequence[Row]) -> None:  # noqa: B027  # most receivers forget nothing
        """Tell the receiver again and again, from now on, that these alerts are open, and no others."""

    def reopen(self) -> None:  # noqa: B027  # most destinations have nothing to reopen
        """Open the address again: another program may have moved the file away."""

    def close(self) -> None:  # noqa: B027  # some destinations have nothing to close
        """Finish after a run that succeeded. OutputError: the results are not there."""

    def abandon(self) -> None:
        """Finish after a run that failed. By default, keep what was written."""
        self.close()

    @property
    def queued_bytes(self) -> int:
        """The bytes of the reports that wait."""
        return 0

    def status(self) -> dict[str, int]:
        """Return the counters."""
        return asdict(self.counters)
