"""Rows whose ends are arrays: every row is a group, and its answer one value (`superhosts rows` as a function of SQL).

ClickHouse calls an executable function with blocks of rows, and wants as many values back, in order. A value here is an
array of tuples of the columns that are asked for. With chunks, a line with the number of rows is before each block, so
that one process answers many blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

from superhosts.cli._console import tell
from superhosts.cli._rowinput import RowInput
from superhosts.core.columns.addresses import AddressColumn, packets_of
from superhosts.core.notices import as_warning
from superhosts.core.pairs import PacketBlock, Window
from superhosts.core.text import counted
from superhosts.errors import InputError
from superhosts.output.formats import encode_length, encode_value
from superhosts.output.report import make_rows
from superhosts.pipeline.builder import WindowBuilder
from superhosts.pipeline.settings import Settings
from superhosts.sources.tables.mapping import resolve
from superhosts.sources.tables.rowbinary import TEXT_WIDTH, Field, RowBytes, read_addresses, read_length, walk
from superhosts.sources.tables.textscan import Places


def answer_groups(
    given: RowInput, settings: Settings, columns: Sequence[str], stream: BinaryIO, *, chunks: bool
) -> None:
    """Write an array of super hosts for every row, until the input ends."""
    builder = WindowBuilder(settings)
    groups = Groups(given)
    for count in groups.chunks() if chunks else [None]:
        for block in groups.rows(count):
            for batch in block:
                builder.update(0, batch)
            found = make_rows(None, builder.close(0, Window(0, 0)).found)
            values = (encode_value(name, row[name]) for row in found for name in columns)
            stream.write(encode_length(len(found)) + b"".join(values))
        stream.flush()
    if groups.dropped:
        rows = counted(groups.dropped, "pair was", "pairs were")
        tell(as_warning(f"{rows} not counted: an end is no address, or the ends are of different families"))


class Groups:
    """Rows of RowBinary in which source and destination are arrays of the same length."""

    def __init__(self, given: RowInput) -> None:
        self._input = given.plain()
        self._stream = self._input.open()
        self._bytes = RowBytes(self._stream)
        self._fields = given.fields
        self._row = 0
        self.dropped = 0  # pairs that are none
        names = [field.name for field in self._fields]
        mapping = resolve(given.options.map, names, self._input.name)
        self._ends = []
        for column in (mapping.src, mapping.dst):
            assert column is not None
            field = self._fields[names.index(column.name)]
            if not field.array or not field.is_address:
                raise InputError(f"column {field.name} is no array of addresses", file=self._input.name)
            self._ends.append(names.index(column.name))

    def chunks(self) -> Iterator[int]:
        """Yield the number of rows of each chunk, once its line is there."""
        while self._waits():
            line = bytearray()
            while not line.endswith(b"\n"):
                line += self._take(1)
                if len(line) > 20 or not line.strip().isdigit():
                    raise self._error(f"begins with {bytes(line)!r}, where a line with a number of rows is expected")
            yield int(line)

    def rows(self, count: int | None) -> Iterator[PacketBlock]:
        """Yield the pairs of each of the next rows; of all rows if there is no count."""
        while self._waits() if count is None else count > 0:
            self._row += 1
            ends = [self._value(field, number in self._ends) for number, field in enumerate(self._fields)]
            src, dst = (ends[number] for number in self._ends)
            assert src is not None
            assert dst is not None
            if len(src.kinds) != len(dst.kinds):
                raise self._error(
                    f"has {len(src.kinds):,} sources and {len(dst.kinds):,} destinations: one for each pair"
                )
            block, dropped = packets_of(src, dst, np.zeros(len(src.kinds), np.int64))
            self.dropped += len(dropped)
            yield block
            count = None if count is None else count - 1

    def _value(self, field: Field, wanted: bool) -> AddressColumn | None:
        """Read a value of a row, and return its addresses if they are wanted."""
        count = read_length(self._bytes, self._input.name) if field.array else 1
        if field.nullable and self._take(1) == b"\1":
            return None
        if field.width == TEXT_WIDTH:
            data, places = self._texts(count)
        else:
            data = np.frombuffer(bytearray(self._take(count * field.width)), np.uint8)
            begins = np.arange(0, count * field.width, field.width)
            places = np.stack([begins, begins + field.width], axis=1)
        if not wanted:
            return None
        kinds, words = np.empty(count, np.uint8), np.empty((count, 2), np.uint64)
        read_addresses(data, places, field.reading, field.is_signed, kinds, words)
        return AddressColumn(kinds, words)

    def _texts(self, count: int) -> tuple[np.ndarray, Places]:
        """Return text values, and where each is."""
        places = np.empty((1, count, 2), np.int64)
        zero = np.zeros(1, np.int64)
        while True:
            data = self._bytes.data()
            found, used, _ = walk(data, zero, np.zeros(1, np.bool_), zero, places).tolist()
            if found == count:
                taken = np.frombuffer(bytearray(self._take(used)), np.uint8)
                return taken, places[0]
            if not self._bytes.more():
                raise self._error("is cut off by the end of the input")

    def _take(self, count: int) -> bytes:
        while len(self._bytes) < count:
            if not self._bytes.more():
                raise self._error("is cut off by the end of the input")
        taken = self._bytes.data()[:count].tobytes()
        self._bytes.take(count)
        return taken

    def _waits(self) -> bool:
        """Return True if there is another byte; waits for it."""
        return len(self._bytes) > 0 or self._bytes.more()

    def _error(self, why: str) -> InputError:
        return InputError(f"row {max(self._row, 1):,} {why}", file=self._input.name, offset=self._bytes.taken)
