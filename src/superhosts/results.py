"""The results of a search: super hosts as columns or rows, and as tables of pyarrow, Polars and pandas."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from superhosts.defaults import THRESHOLD, TOP
from superhosts.errors import MissingExtraError
from superhosts.pairs import Addresses, Host, HostFormat, Part, array_to_numbers, format_for
from superhosts.text import counted

# The columns of a result row, the same in JSON Lines, CSV and Parquet.
COLUMNS = (
    "window_start",
    "window_end",
    "host",
    "family",
    "side",
    "direction",
    "peers",
    "peers_low",
    "peers_high",
    "exact",
    "saturated",
    "detector",
)
UNBOUNDED = np.iinfo(np.int64).max  # peers_high of a saturated host


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

    @property
    def known_peers(self) -> int:
        """The number of peers, or the lower bound if the host is saturated: for sorting and comparing."""
        return self.peers_low if self.peers is None else self.peers


class SuperHosts:
    """Hosts as columns, sorted by peers, largest first. Iteration yields `SuperHost` rows.

    In the column `peers`, a saturated host has its lower bound, so that hosts can be sorted.
    """

    def __init__(
        self,
        hosts: Addresses,
        peers: NDArray[np.int64],
        peers_low: NDArray[np.int64],
        peers_high: NDArray[np.int64],
        saturated: NDArray[np.bool_],
        exact: NDArray[np.bool_] | bool = False,
    ) -> None:
        peers = np.where(saturated, peers_low, peers)
        self._order = order = _largest_first(hosts, peers)
        self.hosts = hosts[order]
        self.peers = peers[order]
        self.peers_low = peers_low[order]
        self.peers_high = peers_high[order]  # UNBOUNDED where there is no upper bound
        self.saturated = saturated[order]
        # True where peers were counted, not estimated
        self.exact = np.full(len(peers), exact) if isinstance(exact, bool) else exact[order]
        self.format = format_for(128 if hosts.ndim == 2 else hosts.dtype.itemsize * 8)

    @classmethod
    def counted(cls, hosts: Addresses, peers: NDArray[np.int64], format: HostFormat) -> SuperHosts:
        """Return hosts whose peers were counted exactly: every interval is the number itself."""
        result = cls(hosts, peers, peers, peers, np.zeros(len(peers), bool), exact=True)
        result.format = format
        return result

    def __len__(self) -> int:
        return len(self.peers)

    def __iter__(self) -> Iterator[SuperHost]:
        columns = [column.tolist() for column in self._columns()[1:]]
        for number, peers, low, high, saturated, exact in zip(array_to_numbers(self.hosts), *columns, strict=True):
            host = self.format.to_host(number)
            if saturated:
                peers = high = None
            yield SuperHost(host, peers, low, high, exact, saturated)

    def __repr__(self) -> str:
        return f"<SuperHosts: {counted(len(self), 'host')}>"

    def select(self, keep: NDArray[Any] | slice) -> SuperHosts:
        """Return the rows that `keep` selects: a mask, indexes or a slice."""
        chosen = SuperHosts(*(column[keep] for column in self._columns()))
        chosen.format = self.format
        return chosen

    def in_original_order(self) -> SuperHosts:
        """Return the rows in the order in which the caller named the hosts, not sorted by peers."""
        rows = copy.copy(self)
        original = np.argsort(self._order)
        rows.hosts, rows.peers, rows.peers_low, rows.peers_high, rows.saturated, rows.exact = (
            column[original] for column in self._columns()
        )
        rows._order = np.arange(len(original))
        return rows

    def _columns(self) -> list[NDArray[Any]]:
        """Return the columns in the order of the constructor's arguments."""
        return [self.hosts, self.peers, self.peers_low, self.peers_high, self.saturated, self.exact]

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns as lists, with hosts as text and None for what is not known of saturated hosts."""
        rows = list(self)
        return {
            name: [str(row[i]) if name == "host" else row[i] for row in rows]
            for i, name in enumerate(SuperHost._fields)
        }

    def to_arrow(self) -> Any:
        """Return a pyarrow Table."""
        return to_arrow(self.to_dict())

    def to_polars(self) -> Any:
        """Return a Polars DataFrame."""
        return to_polars(self.to_dict())

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame."""
        return to_pandas(self.to_dict())


def _largest_first(hosts: Addresses, peers: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the indexes that sort hosts by peers, largest first, and hosts with as many peers by address."""
    if hosts.dtype == np.uint32 and len(peers) and peers.max() < 1 << 31:  # One key sorts twice as fast as two.
        return np.argsort((-peers << 32) + hosts)
    keys = [hosts[:, 1], hosts[:, 0]] if hosts.ndim == 2 else [hosts]
    return np.lexsort((*keys, -peers))


class Found(NamedTuple):
    """A super host of a sketch: its result row, the part that saw it and the detector's name."""

    part: Part
    row: SuperHost
    detector: str

    @property
    def rank(self) -> tuple[int, Part, int]:
        """The order of results: most peers first, hosts with as many by part and address."""
        host = self.row.host
        number = host.network_address if isinstance(host, IPv4Network | IPv6Network) else host
        return -self.row.known_peers, self.part, int(number)

    @property
    def host(self) -> Host:
        """Address or prefix of the host."""
        return self.row.host

    @property
    def peers(self) -> int | None:
        """Number of distinct peers, or None if the host is saturated."""
        return self.row.peers

    @property
    def peers_low(self) -> int:
        """Lower end of the 95 % confidence interval."""
        return self.row.peers_low

    @property
    def peers_high(self) -> int | None:
        """Upper end of the 95 % confidence interval, or None if there is no upper bound."""
        return self.row.peers_high

    @property
    def exact(self) -> bool:
        """True if the peers were counted, not estimated."""
        return self.row.exact

    @property
    def saturated(self) -> bool:
        """True if only a lower bound is known."""
        return self.row.saturated


class Searchable(Protocol):
    """A sketch, or the monitored hosts of one."""

    def super_hosts(self, threshold: float) -> list[Found]:
        """Return the hosts with at least `threshold` peers, in the order of `Found.rank`."""

    def top(self, count: int) -> list[Found]:
        """Return the `count` hosts with the most peers, in the order of `Found.rank`."""


class Selection(NamedTuple):
    """Which hosts to report: those with at least `threshold` peers, the `top` ones, or the top ones of those.

    With `either`, the top ones and those with at least `threshold` peers.
    """

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

    def find(self, searched: Searchable) -> list[Found]:
        """Return the hosts that are asked for."""
        return self.search(searched)[0]

    def search(self, searched: Searchable) -> tuple[list[Found], int]:
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
        known = {(item.part, item.host) for item in found}
        others = [item for item in searched.top(self.top or 1) if (item.part, item.host) not in known]
        return sorted(found + others[:missing], key=lambda item: item.rank), 0

    def reached(self, found: Sequence[Found]) -> int:
        """Return how many of the hosts found have the peers that are asked for; all if only the top ones are."""
        least = self.threshold
        return sum(least is None or item.saturated or item.row.known_peers >= least for item in found)


DEFAULT_SELECTION = Selection.of(None, None)

# These functions import their library on the first call, because it is optional and slow to load.


def to_arrow(columns: dict[str, list[Any]]) -> Any:
    """Return a pyarrow Table.

    Columns of host rows have fixed types, even when there are no rows; the types of other tables follow their values.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError("Arrow output", "tables") from error
    if "host" not in columns:
        return pa.table(columns)
    types = {"peers": pa.int64(), "peers_low": pa.int64(), "peers_high": pa.int64(), "family": pa.int8()}
    types |= {"exact": pa.bool_(), "saturated": pa.bool_()}
    site = pa.struct([("site", pa.string()), *((name, pa.int64()) for name in ("peers", "peers_low", "peers_high"))])
    types |= {"sites": pa.list_(site), "missing": pa.list_(pa.string()), "revision": pa.int32()}  # of a hub's rows
    schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
    return pa.table(columns, schema=schema)


def to_polars(columns: dict[str, list[Any]]) -> Any:
    """Return a Polars DataFrame of result columns."""
    try:
        import polars as pl
    except ImportError as error:
        raise MissingExtraError("Polars output", "tables") from error
    return pl.from_arrow(to_arrow(columns))


def to_pandas(columns: dict[str, list[Any]]) -> Any:
    """Return a pandas DataFrame of result columns."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("pandas output", "tables") from error
    # Int64 columns of pandas stay whole numbers even when some are missing.
    return to_arrow(columns).to_pandas(types_mapper=lambda kind: pandas.Int64Dtype() if kind == "int64" else None)
