"""The interface of a reader of one table format: blocks of rows as columns of addresses and times, and of
details where a run wants them.

A reader is given an input (`Opens`) and the options; it finds its columns with `mapping.resolve` and then returns block
after block. It leaves out rows that it cannot read at all and says so in `bad`. Rows whose addresses or times make no
sense stay in the columns, marked there (kind 0, `NO_TIME`): `packets.py` drops, counts and describes them, the same for
every format. So a reader's loop has no branches for errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from superhosts.core.columns.addresses import AddressColumn, Ends
from superhosts.core.pairs import Details, Times
from superhosts.sources.input import Stream
from superhosts.sources.tables.options import TableOptions

NO_TIME = -(1 << 63)  # in a column of times: this row has none


class BadRow(NamedTuple):
    """A row that does not count: its number in the table, from 1 (of text: its line), and the row as people read it."""

    row: int
    text: str


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows of a table, in order."""

    src: Ends
    dst: Ends
    time: Times | None  # nanoseconds since the epoch, UTC; None: the table has no times
    describe: Callable[[int], BadRow]  # a row of these columns, by its index
    bad: Sequence[BadRow] = ()  # the first rows that could not be read at all and are not in the columns
    unreadable: int = 0  # how many these are
    skipped: int = 0  # records that are not meant: other events of a log. They do not count as rows
    details: Details | None = None  # None: not wanted

    def __len__(self) -> int:
        return len(self.src[0] if isinstance(self.src, AddressColumn) else self.src)


class Opens(Protocol):
    """An input as a reader needs it: its name and its bytes, decompressed."""

    @property
    def name(self) -> str:
        """As messages call it."""

    def open(self) -> Stream:
        """Return its bytes, decompressed. Reading returns what is there, and waits only for the first byte."""


class TableReader(Protocol):
    """One pass over a table."""

    columns: Sequence[str]  # those found, for messages; known once it was opened
    has_time: bool  # rows have a time

    def read(self) -> RowBlock | None:
        """Return the next rows, None at the end. An empty block is fine. InputError names what is damaged."""

    def position(self) -> int:
        """Bytes of the input (compressed, if it is) read so far."""

    def close(self) -> None:
        """Close the input."""


@dataclass(frozen=True)
class TableFormat:
    """A format of tables: its name for --format, how it is recognised, how it is read."""

    name: str
    title: str  # what people call it: "a Parquet file"
    recognises: Callable[[bytes], bool]  # by the first bytes: some lines of a text, unless it is shorter
    open: Callable[[Opens, TableOptions], TableReader]  # given an `Input`, a reader may read anywhere in its file
    one_thread: bool = True  # one thread reads it; else its reader has threads of its own
