"""Results as JSON Lines, CSV or Parquet, to standard output or to a file.

A file is written under a temporary name and renamed when the run has ended: a reader never sees half of it.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from superhosts.errors import MissingExtraError, OutputError, UsageError
from superhosts.replacing import Replacement, output_errors, replaceable
from superhosts.reports.rows import COLUMNS, Row
from superhosts.text import printable


class JsonLines:
    """One JSON object to a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows and hand them on at once: the reader may be waiting."""
        for row in rows:
            self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing is left to do."""


class Csv:
    """Comma-separated values with one header line; an unbounded interval is an empty field."""

    def __init__(self, stream: TextIO, columns: tuple[str, ...] = COLUMNS, *, header: bool = True) -> None:
        self._stream = stream
        self._writer = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
        if header:
            self._writer.writeheader()

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows and hand them on at once."""
        self._writer.writerows(_plain(row) for row in rows)
        self._stream.flush()

    def close(self) -> None:
        """Nothing is left to do."""


def _plain(row: Row) -> Row:
    return {name: _field(value) for name, value in row.items()}


def _field(value: Any) -> Any:
    """Return a value as it stands in CSV: lists of sites as "ams 812; fra 640"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = "; ".join(f"{item['site']} {item['peers']}" if isinstance(item, dict) else str(item) for item in value)
    return printable(value, most=len(value)) if isinstance(value, str) else value


class OutputFile:
    """Rows into a file whose kind its name tells: .jsonl, .csv or .parquet."""

    def __init__(self, path: str | Path, columns: tuple[str, ...] = COLUMNS, *, private: bool = False) -> None:
        self.path = Path(path)
        self._columns = columns
        self._rows: list[Row] = []
        self._kind = self.path.suffix.lower()
        if self._kind not in (".jsonl", ".csv", ".parquet"):
            raise UsageError(f"--output {path}: the name must end in .jsonl, .csv or .parquet")
        if self._kind == ".parquet":
            _import_arrow()
        if not self.path.parent.is_dir():
            raise OutputError(f"{path}: cannot be written: {self.path.parent} is not a folder")
        self._replacement = Replacement(replaceable(path), private=private)
        with output_errors(path):
            self._stream = self._replacement.open()
        text = io.TextIOWrapper(self._stream, encoding="utf-8", newline="", write_through=True)
        self._text = text
        self._lines = Csv(text, columns) if self._kind == ".csv" else JsonLines(text)

    def write(self, rows: Sequence[Row]) -> None:
        """Take rows; Parquet is written at the end."""
        if self._kind == ".parquet":
            self._rows += rows
            return
        try:
            self._lines.write(rows)
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Put the file in place."""
        try:
            if self._kind == ".parquet":
                self._write_parquet()
            self._text.flush()
            self._text.close()
            self._replacement.commit()
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written: {error.strerror}") from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leave nothing behind: the run has failed."""
        with contextlib.suppress(OSError):  # a full disk refuses the last bytes again
            self._text.close()
        self._replacement.abandon()

    def _write_parquet(self) -> None:
        from superhosts.detectors.tables import to_arrow

        columns = {name: [row[name] for row in self._rows] for name in self._columns}
        _import_arrow().write_table(to_arrow(columns), self._stream)


def _import_arrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Parquet output", "tables") from error
    return pyarrow.parquet
