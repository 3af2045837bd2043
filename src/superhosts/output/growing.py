"""Results of a run without an end: rows are appended window by window.

A file of lines (.jsonl, .csv) grows; a crash leaves whole lines only. Parquet cannot grow, so a folder gets one file
per window, which a later revision of the window replaces. Only their user may read files and folders made here.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

from superhosts.core.files import output_errors
from superhosts.core.times import window_name
from superhosts.errors import OutputError
from superhosts.output.base import RUN_THAT_ENDS, Destination, Report, RunKind
from superhosts.output.files import ReplacedFile
from superhosts.output.formats import Csv, JsonLines
from superhosts.output.journal import Span, digest_of
from superhosts.output.rows import ADDED_COLUMNS

ENDINGS = (".jsonl", ".csv")
MAX_HEADER = 4096  # bytes


class AppendedFile(Destination):
    """A .jsonl or .csv file to which rows are appended. A line that a crash left incomplete is removed first.

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
    def recognises(cls, address: str, run: RunKind) -> bool:
        """Return True for a file name with a known ending, if the run has no end."""
        return run.endless and Path(address).suffix.lower() in ENDINGS

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

    def _is_moved(self) -> bool:
        """Return True if another file, or none, has this name now."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return True
        return not os.path.samestat(there, os.fstat(self._file.fileno()))

    def _write(self, report: Report) -> None:
        """Append rows and flush them to disk (fsync); if the disk is full, append none of them.

        A file that was moved away (logrotate) is left alone, also without a signal; one that was emptied (copytruncate)
        begins again, as rows are always written to its end.
        """
        with output_errors(self.path):
            if self._is_moved():
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
            JsonLines(text).write(report.rows)
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

    def has(self, span: Span) -> bool:
        """Return True if the file has these bytes at their place."""
        if not self._is_file_of(span) or os.fstat(self._file.fileno()).st_size < span.start + span.length:
            return False
        with output_errors(self.path):
            return span.is_of(os.pread(self._file.fileno(), span.length, span.start))

    def undo(self, span: Span) -> None:
        """Remove the part of these bytes that was written before the program was killed."""
        with output_errors(self.path):
            size = os.fstat(self._file.fileno()).st_size
            if self._is_file_of(span) and span.start < size < span.start + span.length:
                self._file.truncate(span.start)

    def _is_file_of(self, span: Span) -> bool:
        there = os.fstat(self._file.fileno())
        return (there.st_dev, there.st_ino) == (span.device, span.inode)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _remove_incomplete_line(file: io.FileIO) -> None:
    """Truncate a file after its last newline."""
    end = file.seek(0, os.SEEK_END)
    place = end
    while place:
        step = min(place, 4096)
        file.seek(place - step)
        newline = file.read(step).rfind(b"\n")
        if newline >= 0:
            place += newline + 1 - step
            break
        place -= step
    if place != end:
        file.truncate(place)


class ParquetFolder(Destination):
    """A folder with one Parquet file per window."""

    def __init__(self, address: str | Path, run: RunKind = RUN_THAT_ENDS) -> None:
        super().__init__(str(address), run)
        self.folder = Path(address)
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(0o700, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{self.folder}: cannot be made: {error.strerror}") from error
        # Report a missing package or permission now, not when the first window closes.
        ReplacedFile(self.folder / "probe.parquet", run, private=True).abandon()

    @classmethod
    def recognises(cls, address: str, run: RunKind) -> bool:
        """Return True for a folder, or a name that may become one, if the run has no end."""
        return run.endless and (not Path(address).suffix or address.endswith("/") or Path(address).is_dir())

    def _write(self, report: Report) -> None:
        """Write or replace the window's file."""
        assert report.window is not None
        file = ReplacedFile(self.folder / f"{window_name(report.window)}.parquet", self.run, private=True)
        try:
            file.write(report)
            file.close()
        except BaseException:
            file.abandon()
            raise
