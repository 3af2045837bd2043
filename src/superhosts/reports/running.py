"""Results of a program that does not end: rows are appended window by window, and a crash leaves whole lines only.

A file of lines (.jsonl, .csv) grows. Parquet cannot grow, so a folder gets one file for each window; a
later revision of a window replaces it. Files and folders that are made here belong to their user alone.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path

from superhosts.errors import OutputError, UsageError
from superhosts.reports.base import HUB_COLUMNS, Row
from superhosts.reports.files import Csv, JsonLines, OutputFile


class LinesFile:
    """A .jsonl or .csv file to which rows are added; what a crash has cut off is removed first."""

    def __init__(self, path: Path, columns: tuple[str, ...] = HUB_COLUMNS) -> None:
        self.path = path
        self._columns = columns
        self._file = self._open()

    def _open(self) -> io.FileIO:
        try:
            file = io.FileIO(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a+")
            _cut_behind_last_line(file)
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written: {error.strerror}") from None
        return file

    def reopen(self) -> None:
        """Go on in the file that has this name now: another program has moved the old one away."""
        old, self._file = self._file, self._open()
        old.close()

    def write(self, _window: str, rows: Sequence[Row]) -> None:
        """Add rows, and have them on disk before this returns; all of them or, where the disk is full, none."""
        text = io.StringIO()
        end = self._file.seek(0, os.SEEK_END)
        if self.path.suffix.lower() == ".csv":
            Csv(text, self._columns, header=end == 0).write(rows)
        else:
            JsonLines(text).write(rows)
        left = memoryview(text.getvalue().encode())
        try:
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(end)  # they are written again when there is room
            raise OutputError(f"{self.path}: cannot be written: {error.strerror}") from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _cut_behind_last_line(file: io.FileIO) -> None:
    """Remove what a crash has left of a line."""
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


class ParquetFolder:
    """A folder with one Parquet file for each window."""

    def __init__(self, folder: Path, columns: tuple[str, ...] = HUB_COLUMNS) -> None:
        self.folder = folder
        self._columns = columns
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(0o700, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be made: {error.strerror}") from None
        OutputFile(
            folder / "probe.parquet", columns, private=True
        ).abandon()  # a missing package or right is said now, not later

    def write(self, window: str, rows: Sequence[Row]) -> None:
        """Write or replace the file of a window."""
        file = OutputFile(self.folder / f"{window}.parquet", self._columns, private=True)
        try:
            file.write(rows)
            file.close()
        except BaseException:
            file.abandon()
            raise

    def reopen(self) -> None:
        """Nothing is open between two windows."""

    def close(self) -> None:
        """Nothing is left to do."""


def open_running(path: Path) -> LinesFile | ParquetFolder:
    """Open what `--output` names: a .jsonl or .csv file, or a folder for Parquet."""
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".csv"):
        return LinesFile(path)
    if suffix == ".parquet":
        raise UsageError(f"--output {path}: Parquet cannot be appended to; name a folder, which gets a file per window")
    return ParquetFolder(path)
