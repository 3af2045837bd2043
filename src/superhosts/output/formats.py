"""Rows in the formats that programs read: JSON Lines, CSV, and the formats of ClickHouse.

An executable function of ClickHouse reads rows in the format in which it sends them (`FORMATS`). Text has the values of
CSV files of every command: times in ISO 8601, and what is not known of a saturated host as an empty value (CSV) or \\N.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, BinaryIO, TextIO

from superhosts.core.text import printable, setting
from superhosts.core.units import SECOND
from superhosts.errors import UsageError
from superhosts.output.report import COLUMNS, Row

TIME = "Nullable(DateTime64(9, 'UTC'))"
COUNT = "Nullable(UInt64)"
TYPES = {  # of the columns in RowBinary; what other formats hold can be read as the same types
    "window_start": TIME,
    "window_end": TIME,
    "host": "String",
    "family": "Nullable(UInt8)",
    "side": "String",
    "direction": "String",
    "peers": COUNT,
    "peers_low": "UInt64",
    "peers_high": COUNT,
    "exact": "Bool",
    "saturated": "Bool",
    "detector": "String",
}
_TABS = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0", "\b": "\\b", "\f": "\\f"})


class JsonLines:
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


def check_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that are asked for, or all; UsageError if rows have no such column."""
    for name in names:
        if name not in TYPES:
            raise UsageError(f"{setting('columns', name)}: no such column; use {', '.join(COLUMNS)}")
    return tuple(dict.fromkeys(names)) or COLUMNS


class RowWriter:
    def __init__(self, format: str, columns: Sequence[str], stream: BinaryIO) -> None:
        self._columns = columns
        self._stream = stream
        header, self._encode = FORMATS[format]
        self._header = header(columns)  # not written yet: an input that cannot be read has no answer at all

    def write(self, rows: Sequence[Row]) -> None:
        header, self._header = self._header, b""
        self._stream.write(header + b"".join(self._encode(row, self._columns) for row in rows))
        self._stream.flush()


def encode_value(column: str, value: Any) -> bytes:
    kind = TYPES[column]
    if kind.startswith("Nullable("):
        if value is None:
            return b"\x01"
        return b"\0" + _binary(kind.removeprefix("Nullable("), value)
    return _binary(kind, value)


def encode_length(length: int) -> bytes:
    """Return a number in LEB128."""
    out = bytearray()
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    out.append(length)
    return bytes(out)


def _binary(kind: str, value: Any) -> bytes:
    if kind.startswith("String"):
        data = str(value).encode()
        return encode_length(len(data)) + data
    if kind.startswith("DateTime64"):
        return nanoseconds_of(value).to_bytes(8, "little", signed=True)
    return int(value).to_bytes(8 if kind.startswith("UInt64") else 1, "little")


def nanoseconds_of(text: str) -> int:
    """Return the time that `times.iso_time` wrote as nanoseconds since the epoch."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * SECOND + int(fraction.ljust(9, "0")[:9] or 0)


def _row_binary(row: Row, columns: Sequence[str]) -> bytes:
    return b"".join(encode_value(name, row[name]) for name in columns)


def _names_and_types(columns: Sequence[str]) -> bytes:
    texts = [text.encode() for text in (*columns, *(TYPES[name] for name in columns))]
    return encode_length(len(columns)) + b"".join(encode_length(len(text)) + text for text in texts)


def _json(row: Row, columns: Sequence[str]) -> bytes:
    chosen = row if tuple(columns) == COLUMNS else {name: row[name] for name in columns}  # with the marks of the row
    return json.dumps(chosen).encode() + b"\n"


def _tabs(row: Row, columns: Sequence[str]) -> bytes:
    values = (r"\N" if row[name] is None else _plain(row[name]).translate(_TABS) for name in columns)
    return "\t".join(values).encode() + b"\n"


def _csv(row: Row, columns: Sequence[str]) -> bytes:
    return _csv_line(["" if row[name] is None else _plain(row[name]) for name in columns])


def _csv_line(values: Sequence[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue().encode()


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


Header = Callable[[Sequence[str]], bytes]
Encode = Callable[[Row, Sequence[str]], bytes]
FORMATS: dict[str, tuple[Header, Encode]] = {
    "JSONEachRow": (lambda _: b"", _json),
    "TabSeparated": (lambda _: b"", _tabs),
    "TabSeparatedWithNames": (lambda columns: "\t".join(columns).encode() + b"\n", _tabs),
    "CSV": (lambda _: b"", _csv),
    "CSVWithNames": (_csv_line, _csv),
    "RowBinary": (lambda _: b"", _row_binary),
    "RowBinaryWithNamesAndTypes": (_names_and_types, _row_binary),
}
