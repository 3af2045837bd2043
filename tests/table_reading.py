"""Reads a table with the product and returns its rows in the oracle's words."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path

from superhosts.core.columns.addresses import AddressColumn
from superhosts.sources.input import Input
from superhosts.sources.tables.formats import table_format
from superhosts.sources.tables.mapping import parse_map
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.source import BadRow, RowBlock, TableReader

Row = tuple[int, int, int, int]


@dataclass
class Reading:
    format: str = ""
    rows: list[Row] = field(default_factory=list)
    bad: int = 0
    skipped: int = 0
    first_bad: list[BadRow] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    details: list[int] = field(default_factory=list)  # empty if they are not wanted


def options(map: str = "", *, time: str = "start", threads: int | None = None, details: bool = False) -> TableOptions:
    return TableOptions(map=parse_map(map) if map else None, time=time, threads=threads, details=details)


def read_file(path: Path, asked: TableOptions | None = None, name: str | None = None) -> Reading:
    """Read a file by its content, or as a format by name."""
    source = Input(path)
    found = table_format(name, source.first_lines())
    assert found is not None, path.read_bytes()[:200]
    return read(found.open(source, asked or TableOptions()), found.name)


def read(reader: TableReader, name: str = "") -> Reading:
    reading = Reading(name, columns=list(reader.columns))
    try:
        while (block := reader.read()) is not None:
            add(reading, block)
    finally:
        reader.close()
    return reading


def add(reading: Reading, block: RowBlock) -> None:
    reading.bad += block.unreadable
    reading.skipped += block.skipped
    reading.first_bad += block.bad
    if block.details is not None:
        assert len(block.details) == len(block)
        reading.details += block.details.tolist()
    times = [0] * len(block) if block.time is None else block.time.tolist()
    if isinstance(block.src, AddressColumn):
        assert isinstance(block.dst, AddressColumn)
        ends = [[high << 64 | low for high, low in column.words.tolist()] for column in (block.src, block.dst)]
        kinds = block.src.kinds.tolist()
        assert kinds == block.dst.kinds.tolist()
    else:
        assert not isinstance(block.dst, AddressColumn)
        ends, kinds = [block.src.tolist(), block.dst.tolist()], [4] * len(block)
    reading.rows += zip(kinds, *ends, times, strict=True)


class Drips:
    """A stream that gives its bytes in steps of some size."""

    compression = ended_early = ""

    def __init__(self, data: bytes, step: int, name: str = "drips") -> None:
        self.name, self._data, self._step = name, io.BytesIO(data), step

    def open(self) -> Drips:
        return self

    def readinto(self, view: memoryview) -> int:
        got = self._data.read(min(self._step, len(view)))
        view[: len(got)] = got
        return len(got)

    def position(self) -> int:
        return self._data.tell()

    def close(self) -> None:
        return
