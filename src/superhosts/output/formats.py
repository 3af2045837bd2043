"""Rows as lines of text: JSON Lines and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from typing import Any, TextIO

from superhosts.core.text import printable
from superhosts.output.rows import COLUMNS, Row


class JsonLines:
    """One JSON object per line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows and flush them: a reader may be waiting."""
        for row in rows:
            self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()


class Csv:
    """Comma-separated values with one header line; what is not known of a saturated host is an empty field."""

    def __init__(self, stream: TextIO, columns: tuple[str, ...] = COLUMNS, *, header: bool = True) -> None:
        self._stream = stream
        self._writer = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
        if header:
            self._writer.writeheader()

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows and flush them."""
        self._writer.writerows({name: _field(value) for name, value in row.items()} for row in rows)
        self._stream.flush()


def _field(value: Any) -> Any:
    """Return a value as CSV shows it: lists of sites as "ams 812; fra 640", or "ams ≥812" if it is saturated there."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = "; ".join(_site(item) if isinstance(item, dict) else str(item) for item in value)
    return printable(value, most=len(value)) if isinstance(value, str) else value


def _site(seen: Row) -> str:
    peers = f"≥{seen['peers_low']}" if seen["peers"] is None else seen["peers"]
    return f"{seen['site']} {peers}"
