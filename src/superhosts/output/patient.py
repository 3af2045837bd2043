"""A file of a service that has a progress of its own: one that fails holds up neither the run nor other destinations.

A report is written by a thread of the file's own. The run waits for it for a moment, so that rows are in the file when
the report counts as done. If the disk is full, or a write hangs, the report is put into the file's queue (`outbox.py`),
as for destinations that send: on disk where there is a folder for it, bounded, with attempts that are repeated after
pauses that grow. Later reports follow in order.

With a folder, the rows of a report are in a file of lines once, also if the program is killed: a journal says what was
being appended. A service that may hand in a report again after a restart (`DeliveryOptions.once`) may do so: a
report that the file has, or that waits for it, is left out.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superhosts.core.pairs import Window
from superhosts.errors import OutputError
from superhosts.output.addresses import Address
from superhosts.output.base import Destination, Report
from superhosts.output.batches import NAMES, Batch
from superhosts.output.delivery import Delivery, DeliveryOptions
from superhosts.output.growing import AppendedFile
from superhosts.output.journal import RECENT, Journal, Span, digest_of
from superhosts.output.senders.base import Sender, TemporaryError

PATIENCE = 2.0  # seconds that the run waits for a report to be written


@dataclass(frozen=True)
class FileBatch(Batch):
    """The rows of one report; `span`: when its window begins and ends, in nanoseconds."""

    span: tuple[int, int] | None = None

    @classmethod
    def of(cls, report: Report) -> FileBatch:
        """Return the rows of a report. The same report has the same id, also if more names of its hosts are known."""
        span = None if report.window is None else (report.window.start, report.window.end)
        rows = [dict(row) for row in report.rows]
        plain = [{name: value for name, value in row.items() if name not in NAMES} for row in rows]
        about = json.dumps([span, report.revision, plain], default=str).encode()
        return cls(digest_of(about), rows, revision=report.revision, span=span)

    def as_json(self) -> dict[str, Any]:
        """Return the batch as a dictionary that JSON can hold; its rows are many, and not copied."""
        return dict(vars(self))

    @property
    def report(self) -> Report:
        """The report again."""
        window = None if self.span is None else Window(*self.span)
        return Report(rows=self.records, window=window, revision=self.revision)


@dataclass(frozen=True)
class _FileAddress(Address):
    """The absolute path of a file or folder; messages show it as it was given."""

    given: str = ""

    @property
    def shown(self) -> str:
        """The address for messages and the status."""
        return self.given


class _Writer(Sender):
    """Writes reports to a file or folder."""

    def __init__(self, inner: Destination, path: Path) -> None:
        super().__init__(_FileAddress(str(path.absolute()), "file", given=inner.name))
        self.inner = inner
        self.journal = Journal(None, print)  # until the queue's folder is held
        self._lock = threading.Lock()  # held while the file is written
        self._reopens = False  # once it is not being written
        self._id = ""
        if isinstance(inner, AppendedFile):
            inner.before_append = self._begin

    def deliver(self, batch: Batch) -> None:
        """Write a report."""
        assert isinstance(batch, FileBatch)
        with self._lock:
            self._id = batch.id
            try:
                if self._reopens:
                    self.inner.reopen()
                    self._reopens = False
                self.inner.write(batch.report)
            except OutputError as error:
                raise TemporaryError(str(error).removeprefix(f"{self.inner.name}: ")) from error

    def _begin(self, span: Span) -> None:
        self.journal.begin(self._id, span)

    def reopen(self) -> None:
        """Open the file again: at once, or after the write that is under way."""
        self._reopens = True
        if self._lock.acquire(blocking=False):
            try:
                self.inner.reopen()
                self._reopens = False
            finally:
                self._lock.release()

    def close(self) -> None:
        """Close the file."""
        self.inner.close()


class PatientFile(Delivery):
    """Writes to a growing file or folder in a thread of its own; what cannot be written waits in a queue."""

    batches = FileBatch

    def __init__(self, inner: Destination, path: Path, options: DeliveryOptions, *, patience: float = PATIENCE) -> None:
        self.inner = inner
        self._writer, self._patience, self._once = _Writer(inner, path), patience, options.once
        try:
            super().__init__(self._writer, inner.run, options)
        except BaseException:
            inner.close()
            raise

    def _prepare(self) -> None:
        """Finish or undo the append that a killed run had begun."""
        self.kind = self.inner.kind
        journal = self._writer.journal = Journal(self._outbox.folder, self._say)
        journal.add(self._outbox.last_ids(RECENT))
        if journal.last is None or not isinstance(self.inner, AppendedFile):
            return
        report, span = journal.last
        if not self.inner.has(span):
            self.inner.undo(span)
            if report in journal.recent and report not in self._outbox.last_ids(RECENT):
                journal.recent.remove(report)  # the caller hands it in again
            return
        taken = self._outbox.take(0) if len(self._outbox) else None
        if taken is not None and taken[1].id == report:
            self._outbox.remove(taken[0])
        elif taken is not None:
            self._outbox.release()

    def _write(self, report: Report) -> None:
        batch = FileBatch.of(report)
        recent = self._writer.journal.recent
        if self._once and batch.id in recent:
            return
        self._writer.journal.add([batch.id])
        if len(self._outbox):  # it is behind: the run does not wait for it
            self.send(batch)
        else:
            self._outbox.offer(batch, self._patience)
            self._tell_losses()

    def reopen(self) -> None:
        """Open the file again, and try at once."""
        super().reopen()
        self._writer.reopen()
