"""Results of a run that ends: a .jsonl, .csv or .parquet file, which replaces an older one of the same name.

The file is written under a temporary name and renamed when the run has ended: a reader never sees half of it.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from superhosts.core.files import Replacement, output_errors, replaceable
from superhosts.core.results import to_arrow
from superhosts.errors import MissingExtraError, OutputError
from superhosts.output.base import RUN_THAT_ENDS, Destination, Report, RunKind
from superhosts.output.formats import Csv, JsonLines
from superhosts.output.rows import Row

ENDINGS = (".jsonl", ".csv", ".parquet")


class ReplacedFile(Destination):
    """A file that appears as a whole when the run has succeeded; its ending selects the format."""

    def __init__(self, address: str | Path, run: RunKind = RUN_THAT_ENDS, *, private: bool = False) -> None:
        super().__init__(str(address), run)
        self.path = Path(address)
        self._rows: list[Row] = []
        self._is_parquet = self.path.suffix.lower() == ".parquet"
        if self._is_parquet:
            _import_parquet()
        if not self.path.parent.is_dir():
            raise OutputError(f"{self.path}: cannot be written: {self.path.parent} is not a folder")
        self._replacement = Replacement(replaceable(self.path), private=private)
        with output_errors(self.path):
            self._stream = self._replacement.open()
        self._text = io.TextIOWrapper(self._stream, encoding="utf-8", newline="", write_through=True)
        is_csv = self.path.suffix.lower() == ".csv"
        self._lines = Csv(self._text, run.columns) if is_csv else JsonLines(self._text)

    @classmethod
    def recognises(cls, address: str, run: RunKind) -> bool:
        """Return True for a file name with a known ending, if the run ends."""
        return not run.endless and Path(address).suffix.lower() in ENDINGS

    def _write(self, report: Report) -> None:
        """Write rows; those of Parquet wait in memory for the end of the run."""
        if self._is_parquet:
            self._rows += report.rows
            return
        with output_errors(self.path):
            self._lines.write(report.rows)

    def close(self) -> None:
        """Move the file to its place."""
        try:
            with output_errors(self.path):
                if self._is_parquet:
                    self._write_parquet()
                self._text.flush()
                self._text.close()
                self._replacement.commit()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leave the older file as it is, and nothing else behind."""
        with contextlib.suppress(OSError):  # a full disk refuses the last bytes again
            self._text.close()
        self._replacement.abandon()

    def _write_parquet(self) -> None:
        columns = {name: [row.get(name) for row in self._rows] for name in self.run.columns_of(self._rows)}
        _import_parquet().write_table(to_arrow(columns), self._stream)


def _import_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Parquet output", "tables") from error
    return pyarrow.parquet
