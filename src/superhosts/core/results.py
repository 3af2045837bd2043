"""The results of a search: super hosts as columns or rows.

Every search returns `SuperHosts`: a detector's, a sketch's, and a window of a scan, which is one with more attributes.
All have the same columns, those of `COLUMNS`, in the same types whether there are rows or not. Rows of a sketch come
from several parts, of different address families; `Origin` says what the numbers of a row's host mean. A detector alone
knows of no window, so the window of its rows is null; their part is the one under which the detector would be saved.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypedDict, cast, overload

import numpy as np
from numpy.typing import NDArray

from superhosts.core import pairs
from superhosts.core.defaults import THRESHOLD, TOP
from superhosts.core.pairs import IPV4, MASK64, Addresses, Host, HostFormat, Part, Window
from superhosts.core.times import iso_time
from superhosts.errors import UsageError, import_extra


class ResultRow(TypedDict):
    """The columns of a result row, the same in JSON Lines, CSV, Parquet and the tables of Python."""

    window_start: str | None
    window_end: str | None
    host: str | int
    family: int | None
    side: str
    direction: str
    peers: int | None
    peers_low: int
    peers_high: int | None
    exact: bool
    saturated: bool
    detector: str


COLUMNS = tuple(ResultRow.__annotations__)


class Origin(NamedTuple):
    """Where rows come from: the part, how its integers represent hosts, and the detector's name."""

    part: Part
    format: HostFormat
    detector: str = ""


def to_arrow(columns: dict[str, list[Any]]) -> Any:
    """Return a pyarrow Table of columns as lists. Those of host rows have fixed types."""
    pa = import_extra("Arrow output", "tables", "pyarrow")
    if "host" not in columns:
        return pa.table(columns)
    types = {"peers": pa.int64(), "peers_low": pa.int64(), "peers_high": pa.int64(), "family": pa.int8()}
    types |= {"exact": pa.bool_(), "saturated": pa.bool_()}
    site = pa.struct([("site", pa.string()), *((name, pa.int64()) for name in ("peers", "peers_low", "peers_high"))])
    types |= {"sites": pa.list_(site), "missing": pa.list_(pa.string()), "revision": pa.int32()}  # of a hub's rows
    types["asn"] = pa.int64()
    if columns["host"] and all(isinstance(host, int) for host in columns["host"]):
        types["host"] = pa.int64()
    schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
    return pa.table(columns, schema=schema)


def plain_host(host: Any) -> Any:
    return host if isinstance(host, int) else str(host)


def _ipv4_texts(hosts: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return IPv4 addresses as Arrow stores text: all bytes, and the place where each begins; a million in a moment.

    Every address is written with three digits and a dot for each octet; leading zeros and the last dot are left out.
    """
    octets = hosts.astype(">u4").view(np.uint8).reshape(-1, 4)
    digits = np.empty((len(hosts), 4, 4), np.uint8)
    digits[:, :, 0], digits[:, :, 1], digits[:, :, 2] = octets // 100, octets // 10 % 10, octets % 10
    digits[:, :, :3] += ord("0")
    digits[:, :, 3] = ord(".")
    kept = np.ones(digits.shape, bool)
    kept[:, :, 0], kept[:, :, 1] = octets >= 100, octets >= 10
    kept[:, 3, 3] = False
    offsets = np.zeros(len(hosts) + 1, np.int32)
    np.cumsum(kept.reshape(-1, 16).sum(axis=1), out=offsets[1:])
    return digits[kept], offsets


UNBOUNDED = np.iinfo(np.int64).max  # peers_high of a saturated host
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SuperHost(NamedTuple):
    """One host, its number of distinct peers and the 95 % confidence interval of that number.

    If the number is exact, both ends of the interval are that number. If the host is saturated, only the lower end is
    known, with 97.5 % confidence: `peers` is None, so that a bound is never taken for a measurement.
    """

    host: Host
    peers: int | None
    peers_low: int
    peers_high: int | None
    exact: bool
    saturated: bool
    part: Part = Part()  # the traffic in which the host was seen
    window: Window | None = None  # None: a detector alone knows of no window
    detector: str = ""  # the name of the detector

    @property
    def known_peers(self) -> int:
        """The number of peers, or the lower bound if the host is saturated: for sorting and comparing."""
        return self.peers_low if self.peers is None else self.peers

    @property
    def family(self) -> int | None:
        """Address family of the host, 4 or 6; None if hosts are generic keys."""
        return self.part.columns[0]

    @property
    def side(self) -> str:
        """The watched side: inner or outer."""
        return self.part.side

    @property
    def direction(self) -> str:
        """The watched direction: any, out or in."""
        return self.part.direction

    @property
    def window_start(self) -> datetime | None:
        """The time at which the window begins, to the microsecond; None without a window."""
        return _as_datetime(self.window.start) if self.window and self.window.is_timed else None

    @property
    def window_end(self) -> datetime | None:
        """The time at which the window ends, to the microsecond; None without a window."""
        return _as_datetime(self.window.end) if self.window and self.window.is_timed else None


class SuperHosts:
    """Hosts as columns, sorted by peers, largest first. Iteration yields `SuperHost` rows.

    `found[0]` is a row and `found[:10]` a result; a mask or an array of indexes selects rows, too. `host in found`
    takes an address, its text or its integer. Any Arrow consumer takes a result as it is: pl.DataFrame(found),
    pa.table(found), duckdb.sql("from found").

    In the column `peers`, a saturated host has its lower bound, so that hosts can be sorted; in rows and tables its
    `peers` and `peers_high` are null. If hosts of several widths are in one result, `hosts` are rows (high word, low
    word).
    """

    window: Window | None = None  # None: a detector alone knows of no window

    def __init__(
        self,
        hosts: Addresses,
        peers: NDArray[np.int64],
        peers_low: NDArray[np.int64],
        peers_high: NDArray[np.int64],
        saturated: NDArray[np.bool_],
        exact: NDArray[np.bool_] | bool = False,
        *,
        sort: bool = True,
    ) -> None:
        """Make a result. Without `sort`, rows stay in the given order."""
        self.hosts = hosts
        self.peers = np.where(saturated, peers_low, peers)
        self.peers_low = peers_low
        self.peers_high = peers_high  # UNBOUNDED where there is no upper bound
        self.saturated = saturated
        # True where peers were counted, not estimated
        self.exact = np.full(len(peers), exact) if isinstance(exact, bool) else exact
        self._order: NDArray[np.intp] | None = None  # how rows were sorted
        format = pairs.format_for(128 if hosts.ndim == 2 else hosts.dtype.itemsize * 8)
        self._origins: tuple[Origin, ...] = (Origin(Part(format.family), format),)
        self._which: NDArray[np.uint8] = np.zeros(len(peers), np.uint8)  # the origin of each row
        if sort:
            self._order = _largest_first(hosts, self.peers)
            self._take(self._order)

    @classmethod
    def counted(
        cls, hosts: Addresses, peers: NDArray[np.int64], format: HostFormat, *, sort: bool = True
    ) -> SuperHosts:
        """Return hosts whose peers were counted exactly: every interval is the number itself."""
        result = SuperHosts(hosts, peers, peers, peers, np.zeros(len(peers), bool), exact=True, sort=sort)
        result.format = format
        return result

    @classmethod
    def none(cls) -> SuperHosts:
        """Return a result without hosts."""
        return cls.joined([])

    @classmethod
    def joined(cls, results: Sequence[SuperHosts], window: Window | None = None, *, sort: bool = True) -> SuperHosts:
        """Return the rows of several results as one: most peers first, hosts with as many by part and address."""
        empty = np.zeros(0, np.int64)
        if not results:
            whole = SuperHosts(np.zeros(0, np.uint32), empty, empty, empty, np.zeros(0, bool), np.zeros(0, bool))
            whole.window = window
            return whole
        origins = sorted({origin for each in results for origin in each._origins})
        widths = {origin.format.key_bits for origin in origins}
        hosts: Any = [each.hosts if len(widths) == 1 else pairs.as_words(each.hosts) for each in results]
        columns = [np.concatenate(parts) for parts in zip(*(each._columns()[1:] for each in results), strict=True)]
        whole = SuperHosts(np.concatenate(hosts), *columns, sort=False)
        whole._origins, whole.window = tuple(_with_all_names(origins, results)), window
        numbers = [np.array([origins.index(origin) for origin in each._origins], np.uint8) for each in results]
        whole._which = np.concatenate([new[each._which] for new, each in zip(numbers, results, strict=True)])
        if sort:
            keys = [whole.hosts[:, 1], whole.hosts[:, 0]] if whole.hosts.ndim == 2 else [whole.hosts]
            whole._order = np.lexsort((*keys, whole._which, -whole.peers))
            whole._take(whole._order)
        return whole

    @property
    def format(self) -> HostFormat:
        """How the integers in `hosts` represent hosts. Raise UsageError if the rows have several formats."""
        formats = {origin.format for origin in self._origins}
        if len(formats) > 1:
            raise UsageError("these hosts are of several formats; take those of one part: found.of_part(sh.Part(4))")
        return formats.pop()

    @format.setter
    def format(self, format: HostFormat) -> None:
        self._origins = (Origin(Part(format.family), format, self._origins[0].detector),)

    @property
    def window_start(self) -> datetime | None:
        """The time at which the window begins, to the microsecond; None without a window."""
        return _as_datetime(self.window.start) if self.window and self.window.is_timed else None

    @property
    def window_end(self) -> datetime | None:
        """The time at which the window ends, to the microsecond; None without a window."""
        return _as_datetime(self.window.end) if self.window and self.window.is_timed else None

    @property
    def parts(self) -> list[Part]:
        """The part of each row."""
        return [origin.part for origin in self._row_origins()]

    @property
    def unnamed(self) -> int:
        rows = zip(pairs.array_to_numbers(self.hosts), self._row_origins(), strict=True)
        return sum(not origin.format.knows(number) for number, origin in rows)

    def named(self, detector: str, part: Part | None = None) -> SuperHosts:
        """Return the same rows, with the name of the detector that found them and the part that it is."""
        rows = copy.copy(self)
        origin = self._origins[0]
        rows._origins = (Origin(origin.part if part is None else part, self.format, detector),)
        return rows

    def of_part(self, part: Part) -> SuperHosts:
        """Return the rows of one part, with hosts of the part's own width."""
        chosen = [i for i, origin in enumerate(self._origins) if origin.part == part]
        rows = self.select(np.isin(self._which, chosen))
        if len(chosen) == 1:
            rows._origins, rows._which = (self._origins[chosen[0]],), np.zeros(len(rows), np.uint8)
            words: Any = rows.hosts
            rows.hosts = words if words.ndim == 1 else pairs.words_to_column(words, rows.format.key_bits)
        return rows

    # Rows

    def __len__(self) -> int:
        return len(self.peers)

    def __iter__(self) -> Iterator[SuperHost]:
        columns = [column.tolist() for column in self._columns()[1:]]
        for host, origin, peers, low, high, saturated, exact in zip(
            self._hosts(), self._row_origins(), *columns, strict=True
        ):
            if saturated:
                peers = high = None
            yield SuperHost(host, peers, low, high, exact, saturated, origin.part, self.window, origin.detector)

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> SuperHost: ...

    @overload
    def __getitem__(self, key: slice | NDArray[Any] | Sequence[int] | Sequence[bool]) -> SuperHosts: ...

    def __getitem__(
        self, key: int | np.integer[Any] | slice | NDArray[Any] | Sequence[int] | Sequence[bool]
    ) -> SuperHost | SuperHosts:
        """Return one row, or the rows that a slice, a mask or an array of indexes selects."""
        if isinstance(key, slice):
            return self.select(key)
        if not isinstance(key, int | np.integer):
            if isinstance(cast(object, key), str):
                raise TypeError(f"{key!r} is not a row; columns are attributes (.peers), or those of to_pandas()")
            return self.select(np.asarray(key) if len(key) else np.zeros(0, np.intp))
        index = int(key)
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        index %= len(self)
        return next(iter(self.select(slice(index, index + 1))))

    def __contains__(self, host: object) -> bool:
        """Return True if a host is among the rows: an address, a prefix, its text, its integer, or a row."""
        wanted = host.host if isinstance(host, SuperHost) else host
        if isinstance(wanted, bool) or not isinstance(wanted, str | int | np.integer | Host):
            return False
        for number, origin in enumerate(self._origins):
            try:
                value = origin.format.to_number(wanted)
            except UsageError:  # It is not a host of this kind.
                continue
            if isinstance(host, SuperHost) and origin.part != host.part:
                continue
            words = np.array([[value >> 64, value & MASK64]], np.uint64)
            rows = (pairs.as_words(self.hosts) == words).all(axis=1)
            if (rows & (self._which == number)).any():
                return True
        return False

    def __eq__(self, other: object) -> bool:
        """Return True if the other is a result with the same rows in the same order."""
        if not isinstance(other, SuperHosts):
            return NotImplemented
        if len(self) != len(other) or (len(self) and self.window != other.window):
            return False
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # Arrays can be changed.

    def select(self, keep: NDArray[Any] | slice) -> SuperHosts:
        """Return the rows that `keep` selects: a mask, indexes or a slice."""
        chosen = SuperHosts(*(column[keep] for column in self._columns()), sort=False)
        chosen._origins, chosen._which, chosen.window = self._origins, self._which[keep], self.window
        return chosen

    def in_original_order(self) -> SuperHosts:
        """Return the rows in the order in which the caller named the hosts, not sorted by peers."""
        if self._order is None:
            return self
        rows = copy.copy(self)
        rows._take(np.argsort(self._order))
        rows._order = None
        return rows

    def _columns(self) -> list[NDArray[Any]]:
        return [self.hosts, self.peers, self.peers_low, self.peers_high, self.saturated, self.exact]

    def _take(self, order: NDArray[np.intp]) -> None:
        self.hosts, self.peers, self.peers_low, self.peers_high, self.saturated, self.exact = (
            column[order] for column in self._columns()
        )
        self._which = self._which[order]

    def _row_origins(self) -> list[Origin]:
        return [self._origins[i] for i in self._which.tolist()]

    def _hosts(self) -> list[Host]:
        numbers = pairs.array_to_numbers(self.hosts)
        return [origin.format.to_host(number) for number, origin in zip(numbers, self._row_origins(), strict=True)]

    # Tables and text

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns as lists, as JSON rows have them: hosts and times as text, None for what is not known."""
        times = tuple(map(iso_time, self.window)) if self.window and self.window.is_timed else (None, None)
        rows = [(*times, plain_host(row.host), *row.part.columns, *row[1:6], row.detector) for row in self]
        return {name: [row[i] for row in rows] for i, name in enumerate(COLUMNS)}

    def to_arrow(self) -> Any:
        """Return a pyarrow Table. Times are timestamps in UTC, hosts text."""
        pa = import_extra("Arrow output", "tables", "pyarrow")
        moment = pa.timestamp("ns", "UTC")
        which = pa.array(self._which)

        def of_origin(values: list[Any], kind: Any) -> Any:
            return pa.array(values, kind).take(which)

        start, end = self.window if self.window and self.window.is_timed else (None, None)
        parts = [origin.part for origin in self._origins]
        unknown = self.saturated | (self.peers_high == UNBOUNDED)
        values = (
            pa.repeat(pa.scalar(start, moment), len(self)),
            pa.repeat(pa.scalar(end, moment), len(self)),
            self._arrow_hosts(pa),
            of_origin([part.columns[0] for part in parts], pa.int8()),
            of_origin([part.side for part in parts], pa.string()),
            of_origin([part.direction for part in parts], pa.string()),
            pa.array(self.peers, pa.int64(), mask=self.saturated),
            pa.array(self.peers_low, pa.int64()),
            pa.array(self.peers_high, pa.int64(), mask=unknown),
            pa.array(self.exact, pa.bool_()),
            pa.array(self.saturated, pa.bool_()),
            of_origin([origin.detector for origin in self._origins], pa.string()),
        )
        return pa.table(dict(zip(COLUMNS, values, strict=True)))

    def _arrow_hosts(self, pa: Any) -> Any:
        formats = [origin.format for origin in self._origins]
        if self.hosts.dtype == np.uint32 and all(format == IPV4 for format in formats):
            data, offsets = _ipv4_texts(self.hosts)
            return pa.Array.from_buffers(pa.string(), len(self), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        kind = pa.int64() if all(format.keys == "int64" for format in formats) else pa.string()
        return pa.array(map(plain_host, self._hosts()), kind)

    def to_polars(self) -> Any:
        """Return a Polars DataFrame."""
        return import_extra("Polars output", "tables", "polars").from_arrow(self.to_arrow())

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame, with nullable integers, which stay whole numbers even when some are missing."""
        pandas = import_extra("pandas output", "tables", "pandas")
        nullable = {"int64": pandas.Int64Dtype(), "int8": pandas.Int8Dtype()}
        return self.to_arrow().to_pandas(types_mapper=lambda kind: nullable.get(str(kind)))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the table as a stream of the Arrow PyCapsule interface, which other libraries read."""
        stream: object = self.to_arrow().__arrow_c_stream__(requested_schema)
        return stream

    def __repr__(self) -> str:
        return self._table()

    def _repr_html_(self) -> str:
        return self._table(html=True)

    def _table(self, *, html: bool = False) -> str:
        from superhosts.core.hosttable import SHOWN, html_table, text_table  # Few programs print a result.

        rows = list(self.select(slice(SHOWN)))
        return (html_table if html else text_table)(type(self).__name__, rows, len(self), self.window)


def _as_datetime(time: int) -> datetime:
    return EPOCH + timedelta(microseconds=time // 1000)


def _largest_first(hosts: Addresses, peers: NDArray[np.int64]) -> NDArray[np.intp]:
    if hosts.dtype == np.uint32 and len(peers) and peers.max() < 1 << 31:  # One key sorts twice as fast as two.
        return np.argsort((-peers << 32) + hosts)
    keys = [hosts[:, 1], hosts[:, 0]] if hosts.ndim == 2 else [hosts]
    return np.lexsort((*keys, -peers))


def _with_all_names(origins: list[Origin], results: Sequence[SuperHosts]) -> list[Origin]:
    every = [origin for each in results for origin in each._origins]
    return [
        origin._replace(format=origin.format.united([other.format for other in every if other == origin]))
        for origin in origins
    ]


# Which hosts of a sketch are reported


class Searchable(Protocol):
    """A sketch, or the monitored hosts of one."""

    def super_hosts(self, threshold: float) -> SuperHosts:
        """Return the hosts with at least `threshold` peers, most peers first."""

    def top(self, count: int) -> SuperHosts:
        """Return the `count` hosts with the most peers, most peers first."""


class Selection(NamedTuple):
    """Which hosts to report: those with `threshold` peers, the `top` ones of them, or (`either`) both."""

    threshold: float | None = None
    top: int | None = None
    either: bool = False

    @classmethod
    def of(cls, threshold: float | None, top: int | None) -> Selection:
        """Return the selection for a user's options. The default threshold applies if neither option is given."""
        return cls(float(THRESHOLD) if threshold is None and top is None else threshold, top)

    @classmethod
    def of_scan(cls, threshold: float | None, top: int | None) -> Selection:
        """Return the selection of a scan. If neither is given: the largest hosts, and all from the threshold on."""
        return cls(threshold, top) if threshold is not None or top is not None else cls(float(THRESHOLD), TOP, True)

    def search(self, searched: Searchable) -> tuple[SuperHosts, int]:
        """Return the hosts that are asked for, and how many with at least `threshold` peers `top` leaves out."""
        if self.threshold is None:
            return searched.top(self.top or 1), 0
        found = searched.super_hosts(self.threshold)
        if not self.either:
            chosen = found[: self.top]
            return chosen, len(found) - len(chosen)
        missing = (self.top or 1) - len(found)
        if missing <= 0:
            return found, 0
        known = {(row.part, row.host) for row in found}
        largest = searched.top(self.top or 1)
        others = largest[[(row.part, row.host) not in known for row in largest]]
        return SuperHosts.joined([found, others[:missing]], found.window), 0

    def reached(self, found: SuperHosts) -> int:
        """Return how many of the hosts found have the peers that are asked for; all if only the top ones are."""
        if self.threshold is None:
            return len(found)
        return int((found.saturated | (found.peers >= self.threshold)).sum())


DEFAULT_SELECTION = Selection.of(None, None)
