"""Results in files: .jsonl, .csv, .parquet.

A run that ends replaces a file (`ReplacedFile`): it is written under a temporary name and renamed when the run has
ended, so a reader never sees half of it. A run without an end appends rows window by window (`AppendedFile`); a crash
leaves whole lines only. Parquet cannot grow, so a folder gets one file per window, which a later revision of the window
replaces (`ParquetFolder`). Only their user may read files and folders made by runs without an end.

A service writes each file in a thread of its own (`PatientFile`, with the queue of `delivery.py`), so that a full disk
blocks neither the run nor other destinations. With a folder for the queue, the rows of a report are in a file of lines
once, also if the program is killed: the queue notes what is being appended, and a report that the file has, or that
waits for it, may be handed in again after a restart (`DeliveryOptions.once`).
"""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import os
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from superhosts.core.fields import record, sequence, text, whole
from superhosts.core.files import Replacement, os_errors, output_errors, replaceable
from superhosts.core.notices import WARNING, Notice
from superhosts.core.results import to_arrow
from superhosts.core.text import printable
from superhosts.core.times import window_name
from superhosts.errors import OutputError, import_extra
from superhosts.output.delivery import PATIENCE, BackgroundOutput, DeliveryOptions, ReportBatch
from superhosts.output.destination import RUN_THAT_ENDS, Destination, RunKind
from superhosts.output.formats import Csv, JsonLines
from superhosts.output.records import digest_of
from superhosts.output.report import ADDED_COLUMNS, Report, Row

REPLACED = (".jsonl", ".csv", ".parquet")  # endings of files that are replaced
APPENDED = (".jsonl", ".csv")
MAX_HEADER = 4096  # bytes of the first line of a .csv file
RECENT = 64  # reports whose ids are known: a caller that was killed hands in the last one again
_ID, _NUMBER = text(".*", "an id"), whole(0, 1 << 64)
_SPAN = record({**dict.fromkeys(("device", "inode", "start", "length"), _NUMBER), "digest": _ID})
_JOURNAL = record({"id": _ID, "span": _SPAN, "recent": sequence(_ID)})


class ReplacedFile(Destination):
    """A file that appears as a whole when the run has succeeded; its ending selects the format, or the address does."""

    def __init__(self, address: str | Path, run: RunKind = RUN_THAT_ENDS, *, private: bool = False) -> None:
        super().__init__(str(address), run)
        self.path = Path(address)
        self._rows: list[Row] = []
        ending = "" if run.format else self.path.suffix.lower()
        self._is_parquet = ending == ".parquet"
        if self._is_parquet:
            _import_parquet()
        if not self.path.parent.is_dir():
            raise OutputError(f"{self.path}: cannot be written: {self.path.parent} is not a folder")
        self._replacement = Replacement(replaceable(self.path), private=private)
        with output_errors(self.path):
            self._stream = self._replacement.open()
        self._text = io.TextIOWrapper(self._stream, encoding="utf-8", newline="", write_through=True)
        is_csv = ending == ".csv"
        self._lines = Csv(self._text, run.columns) if is_csv else JsonLines(self._text, run.format, run.site)

    @classmethod
    def endings(cls, run: RunKind) -> tuple[str, ...]:
        return () if run.endless else REPLACED

    def _write(self, report: Report) -> None:
        if self._is_parquet:
            self._rows += report.rows
            return
        with output_errors(self.path):
            self._lines.write(report.rows)

    def close(self) -> None:
        try:
            with output_errors(self.path):
                if self._is_parquet:
                    columns = {name: [row.get(name) for row in self._rows] for name in self.run.columns_of(self._rows)}
                    _import_parquet().write_table(to_arrow(columns), self._stream)
                self._text.flush()
                self._text.close()
                self._replacement.commit()
        finally:
            self.abandon()

    def abandon(self) -> None:
        with contextlib.suppress(OSError):  # a full disk refuses the last bytes again
            self._text.close()
        self._replacement.abandon()


def _import_parquet() -> Any:
    return import_extra("Parquet output", "tables", "pyarrow.parquet")


class ParquetFolder(Destination):
    def __init__(self, address: str | Path, run: RunKind = RUN_THAT_ENDS) -> None:
        super().__init__(str(address), run)
        self.folder = Path(address)
        with os_errors(f"{self.folder}: cannot be made"):
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(0o700, exist_ok=True)
        # Report a missing package or permission now, not when the first window closes.
        ReplacedFile(self.folder / "probe.parquet", run, private=True).abandon()

    @classmethod
    def recognises(cls, address: str, run: RunKind) -> bool:
        return run.endless and (not Path(address).suffix or address.endswith("/") or Path(address).is_dir())

    def _write(self, report: Report) -> None:
        assert report.window is not None
        file = ReplacedFile(self.folder / f"{window_name(report.window)}.parquet", self.run, private=True)
        try:
            file.write(report)
            file.close()
        except BaseException:
            file.abandon()
            raise


class Span(NamedTuple):
    """Bytes of a file: which file, from where, how many, and a digest of them."""

    device: int
    inode: int
    start: int
    length: int
    digest: str


class AppendedFile(Destination):
    """A file of lines to which rows are appended. A line that a crash left incomplete is removed first.

    A .csv file keeps the columns in its header, even if an earlier version wrote it and new rows have more columns, or
    if it was written with names or patterns and new rows have none.
    """

    def __init__(self, address: str | Path, run: RunKind = RUN_THAT_ENDS) -> None:
        super().__init__(str(address), run)
        self.path = Path(address)
        self._columns = run.columns
        self.before_append: Callable[[Span], None] = lambda _span: None  # told what is about to be appended, and where
        self._file = self._open()

    @classmethod
    def endings(cls, run: RunKind) -> tuple[str, ...]:
        return APPENDED if run.endless else ()

    def _open(self) -> io.FileIO:
        with output_errors(self.path):
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                os.close(handle)
                raise OutputError(f"{self.path}: rows are appended to plain files only; redirect standard output here")
            file = io.FileIO(handle, "a+")
            self._columns = self._columns_in(file)  # first, because a file that is not ours must not be changed
            _remove_incomplete_line(file)
        return file

    def _columns_in(self, file: io.FileIO) -> tuple[str, ...]:
        """Return the columns that a .csv file has; those of the run if it is new or has only a part of a line."""
        file.seek(0)
        header = file.read(MAX_HEADER) or b""
        if self.path.suffix.lower() != ".csv" or (b"\n" not in header and len(header) < MAX_HEADER):
            return self.run.columns
        columns = tuple(header.split(b"\n")[0].decode("utf-8", "replace").split(","))
        own = set(columns) & set(self.run.columns)
        if not own or set(columns) - own - set(ADDED_COLUMNS):
            file.close()
            raise OutputError(f"{self.path}: its first line is not a header of result rows; move this file away")
        return columns

    def reopen(self) -> None:
        """Continue in the file that has this name now: another program has moved the old one away."""
        old, self._file = self._file, self._open()
        old.close()

    def _write(self, report: Report) -> None:
        """Append rows and flush them to disk (fsync); if the disk is full, append none of them.

        A file that was moved away (logrotate) is left alone, also without a signal; one that was emptied (copytruncate)
        begins again, as rows are always written to its end.
        """
        with output_errors(self.path):
            try:
                is_moved = not os.path.samestat(self.path.stat(), os.fstat(self._file.fileno()))
            except FileNotFoundError:
                is_moved = True
            if is_moved:
                self.reopen()
        text = io.StringIO()
        end = self._file.seek(0, os.SEEK_END)
        if end == 0 and self.run.optional:
            if not report.rows:
                return  # The first row tells which columns the file has.
            self._columns = self.run.columns_of(report.rows)
        if self.path.suffix.lower() == ".csv":
            Csv(text, self._columns, header=end == 0).write(report.rows)
        else:
            JsonLines(text, self.run.format, self.run.site).write(report.rows)
        data = text.getvalue().encode()
        left = memoryview(data)
        with output_errors(self.path):
            if data:
                there = os.fstat(self._file.fileno())
                self.before_append(Span(there.st_dev, there.st_ino, end, len(data), digest_of(data)))
            try:
                while left:
                    left = left[self._file.write(left) :]
                os.fsync(self._file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    if os.fstat(self._file.fileno()).st_size > end:  # not if it was emptied meanwhile
                        self._file.truncate(end)  # the report is written again when there is room
                raise

    def settle(self, span: Span) -> bool:
        """Return True if the file has all of an append; if a kill has cut it, remove the part that was written."""
        there = os.fstat(self._file.fileno())
        if (there.st_dev, there.st_ino) != (span.device, span.inode):
            return False
        with output_errors(self.path):
            if there.st_size >= span.start + span.length:
                return digest_of(os.pread(self._file.fileno(), span.length, span.start)) == span.digest
            if there.st_size > span.start:
                self._file.truncate(span.start)
        return False

    def close(self) -> None:
        self._file.close()


def _remove_incomplete_line(file: io.FileIO) -> None:
    if size := file.seek(0, os.SEEK_END):
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
            whole = content.rfind(b"\n") + 1
        if whole != size:
            file.truncate(whole)


class PatientFile(BackgroundOutput):
    """Writes to a growing file or folder; the rows of a report are in a file of lines once.

    The last append, and the ids of the last reports, are noted in the queue before each append. If the bytes are there
    after a restart, the report is in the file; if only a part of them is, that part is removed, and the report is
    appended again. Without a folder for the queue, the notes end with the run.
    """

    def __init__(self, inner: Destination, path: Path, options: DeliveryOptions, *, patience: float = PATIENCE) -> None:
        self._once = options.once
        self._recent: deque[str] = deque(maxlen=RECENT)  # ids of reports
        super().__init__(inner, options, str(path.absolute()), patience=patience)

    def _prepare(self) -> None:
        """Finish or undo the append that a killed run had begun."""
        last = self._last_append()
        waiting = self._outbox.last_ids(RECENT)
        self._recent.extend(each for each in waiting if each not in self._recent)
        if not isinstance(self.inner, AppendedFile):
            return
        self.inner.before_append = self._note
        if last is None:
            return
        report, span = last
        if self.inner.settle(span):
            taken = self._outbox.take(0)
            if taken is not None and taken[1].id == report:
                self._outbox.remove(taken[0])
            else:
                self._outbox.release()
        elif report in self._recent and report not in waiting:
            self._recent.remove(report)  # the caller hands it in again

    def _last_append(self) -> tuple[str, Span] | None:
        """Return the id of the report that was appended last, and where; recall which ones were before."""
        database = self._outbox.database
        if self.folder is None or database is None:
            return None
        database.adopt("journal", self.folder / "journal.json", _JOURNAL, self._say)
        if (text := database.state().get("journal")) is None:
            return None
        try:
            found = _JOURNAL(json.loads(text), "")
        except (ValueError, TypeError, RecursionError) as error:
            what = f"what was appended last cannot be read: {printable(error, 100)}; a report may be there TWICE"
            self._say(Notice(f"{self.name}: {what}", "again", WARNING))
            return None
        self._recent.extend(found["recent"])
        return found["id"], Span(**found["span"])

    def _note(self, span: Span) -> None:
        if self._outbox.database is not None:
            noted = {"id": self._writer.batch, "span": span._asdict(), "recent": list(self._recent)}
            self._outbox.database.save(journal=json.dumps(noted))

    def _queue(self, batch: ReportBatch) -> None:
        if self._once and batch.id in self._recent:
            return
        if batch.id not in self._recent:
            self._recent.append(batch.id)
        super()._queue(batch)
