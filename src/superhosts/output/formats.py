"""Rows in the formats that programs read: JSON Lines, CSV, and the formats of ClickHouse.

An executable function of ClickHouse reads rows in the format in which it sends them (`FORMATS`). Text has the values of
CSV files of every command: times in ISO 8601, and what is not known of a saturated host as an empty value (CSV) or \\N.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, TextIO

import numpy as np

from superhosts.core.text import printable, setting
from superhosts.errors import UsageError, import_extra
from superhosts.output.mappings import line_of
from superhosts.output.records import make_record
from superhosts.output.report import COLUMNS, Row

_TABS = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0", "\b": "\\b", "\f": "\\f"})


class JsonLines:
    """Lines of JSON, or of a format of others (mappings.FORMATS), in which each row becomes a record of a site."""

    def __init__(self, stream: TextIO, format: str = "", site: str = "") -> None:
        self._stream, self._format, self._site = stream, format, site

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows and flush them: a reader may be waiting."""
        for row in rows:
            sent = make_record(row, self._site, row.get("revision", 1)) if self._format else row
            self._stream.write(line_of(sent, self._format) + "\n")
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
    """Return a value as CSV shows it: lists of sites as "ams 812; fra 640", or "ams ≥812" if it is saturated there.

    Other objects, as alerts have them, are JSON.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict) or (
        isinstance(value, list) and any("site" not in each for each in value if isinstance(each, dict))
    ):
        return json.dumps(value)
    if isinstance(value, list):
        value = "; ".join(_site(item) if isinstance(item, dict) else str(item) for item in value)
    return printable(value, most=len(value)) if isinstance(value, str) else value


def _site(seen: Row) -> str:
    peers = f"≥{seen['peers_low']}" if seen["peers"] is None else seen["peers"]
    return f"{seen['site']} {peers}"


def check_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that are asked for, or all; UsageError if rows have no such column."""
    for name in names:
        if name not in COLUMNS:
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
        self._stream.write(header + self._encode(rows, self._columns))
        self._stream.flush()


def _json(row: Row, columns: Sequence[str]) -> bytes:
    chosen = row if tuple(columns) == COLUMNS else {name: row[name] for name in columns}  # with the marks of the row
    return json.dumps(chosen).encode() + b"\n"


def _tabs(row: Row, columns: Sequence[str]) -> bytes:
    values = (r"\N" if row[name] is None else _plain(row[name]).translate(_TABS) for name in columns)
    return "\t".join(values).encode() + b"\n"


def _csv(rows: Sequence[Row], columns: Sequence[str], *, header: bool = False) -> bytes:
    text = io.StringIO()
    Csv(text, tuple(columns), header=header).write(rows)
    return text.getvalue().encode()


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Arrow streams have no mark of their end here: the end of the output is theirs. ClickHouse leaves such a mark unread
# where it knows how many rows it wants, and would take it for the next answer.


def arrow_batch(rows: Sequence[Row], columns: Sequence[str]) -> Any:
    """Return rows as a RecordBatch, in the types that ClickHouse has for them."""
    arrow = import_extra("ArrowStream", "tables", "pyarrow")
    time, count = arrow.timestamp("ns", "UTC"), arrow.uint64()
    kinds = {"window_start": time, "window_end": time, "peers": count, "peers_low": count, "peers_high": count}
    kinds |= {"family": arrow.uint8(), "exact": arrow.bool_(), "saturated": arrow.bool_()}
    arrays = [arrow.array([row[name] for row in rows]).cast(kinds.get(name, arrow.string())) for name in columns]
    return arrow.record_batch(arrays, names=list(columns))


def arrow_groups(groups: Sequence[Sequence[Row]], columns: Sequence[str]) -> bytes:
    """Return a stream of one column: for each group, the list of its rows."""
    arrow = import_extra("ArrowStream", "tables", "pyarrow")
    ends = np.cumsum([0, *map(len, groups)], dtype=np.int32)
    rows = arrow_batch([row for group in groups for row in group], columns).to_struct_array()
    batch = arrow.record_batch([arrow.ListArray.from_arrays(ends, rows)], names=["result"])
    return bytes(batch.schema.serialize()) + bytes(batch.serialize())


Header = Callable[[Sequence[str]], bytes]
Encode = Callable[[Sequence[Row], Sequence[str]], bytes]


def _nothing(_columns: Sequence[str]) -> bytes:
    return b""


def _lines(encode: Callable[[Row, Sequence[str]], bytes]) -> Encode:
    return lambda rows, columns: b"".join(encode(row, columns) for row in rows)


FORMATS: dict[str, tuple[Header, Encode]] = {
    "JSONEachRow": (_nothing, _lines(_json)),
    "TabSeparated": (_nothing, _lines(_tabs)),
    "TabSeparatedWithNames": (lambda columns: "\t".join(columns).encode() + b"\n", _lines(_tabs)),
    "CSV": (_nothing, _csv),
    "CSVWithNames": (lambda columns: _csv([], columns, header=True), _csv),
    "ArrowStream": (
        lambda columns: bytes(arrow_batch([], columns).schema.serialize()),
        lambda rows, columns: bytes(arrow_batch(rows, columns).serialize()),
    ),
}
