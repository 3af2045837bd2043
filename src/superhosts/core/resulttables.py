"""Results as tables of pyarrow, Polars and pandas. The libraries are imported on the first call: optional and slow.

Columns have fixed types, even when there are no rows: `window_start` and `window_end` are timestamps in UTC, `family`
is a small integer, `host` is text, or an integer if hosts are plain integers. What is not known is null.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import IPV4, Addresses, HostFormat, Part, Window, array_to_numbers
from superhosts.errors import MissingExtraError

# The columns of a result row, the same in JSON Lines, CSV, Parquet and the tables of Python.
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


class Origin(NamedTuple):
    """Where rows come from: the part, how its integers represent hosts, and the detector's name."""

    part: Part
    format: HostFormat
    detector: str = ""


class TableColumns(NamedTuple):
    """The rows of a result as arrays."""

    window: Window | None
    origins: tuple[Origin, ...]
    which: NDArray[np.uint8] | None  # the origin of each row; None if there is one
    hosts: Addresses
    peers: NDArray[np.int64]
    peers_low: NDArray[np.int64]
    peers_high: NDArray[np.int64]
    saturated: NDArray[np.bool_]
    exact: NDArray[np.bool_]


def to_arrow(columns: dict[str, list[Any]] | TableColumns) -> Any:
    """Return a pyarrow Table of a result, or of columns as lists.

    Of lists, those of host rows have fixed types, too; the types of other tables follow their values.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError("Arrow output", "tables") from error
    if isinstance(columns, TableColumns):
        return _result_table(columns, pa)
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


def to_polars(columns: dict[str, list[Any]] | TableColumns) -> Any:
    """Return a Polars DataFrame of result columns."""
    try:
        import polars as pl
    except ImportError as error:
        raise MissingExtraError("Polars output", "tables") from error
    return pl.from_arrow(to_arrow(columns))


def to_pandas(columns: dict[str, list[Any]] | TableColumns) -> Any:
    """Return a pandas DataFrame of result columns."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("pandas output", "tables") from error
    # Nullable integers of pandas stay whole numbers even when some are missing.
    nullable = {"int64": pandas.Int64Dtype(), "int8": pandas.Int8Dtype()}
    return to_arrow(columns).to_pandas(types_mapper=lambda kind: nullable.get(str(kind)))


def _result_table(columns: TableColumns, pa: Any) -> Any:
    rows, moment, numbers = len(columns.peers), pa.timestamp("ns", "UTC"), has_numbers(columns.origins)
    which = np.zeros(rows, np.uint8) if columns.which is None else columns.which

    def of_origin(values: list[Any], kind: Any) -> Any:
        return pa.array(values, kind).take(pa.array(which))

    start, end = columns.window if columns.window and columns.window.is_timed else (None, None)
    hosts = _host_values(columns, which)
    parts = [origin.part for origin in columns.origins]
    unknown = columns.saturated | (columns.peers_high == np.iinfo(np.int64).max)
    values = (
        pa.repeat(pa.scalar(start, moment), rows),
        pa.repeat(pa.scalar(end, moment), rows),
        pa.array(hosts, pa.int64()) if numbers else _text_column(hosts, pa),
        of_origin([part.columns[0] for part in parts], pa.int8()),
        of_origin([part.side for part in parts], pa.string()),
        of_origin([part.direction for part in parts], pa.string()),
        pa.array(columns.peers, pa.int64(), mask=columns.saturated),
        pa.array(columns.peers_low, pa.int64()),
        pa.array(columns.peers_high, pa.int64(), mask=unknown),
        pa.array(columns.exact, pa.bool_()),
        pa.array(columns.saturated, pa.bool_()),
        of_origin([origin.detector for origin in columns.origins], pa.string()),
    )
    return pa.table(dict(zip(COLUMNS, values, strict=True)))


def has_numbers(origins: tuple[Origin, ...]) -> bool:
    """Return True if hosts are plain integers, not addresses or names."""
    return bool(origins) and all(origin.format.keys == "int64" for origin in origins)


class _Texts(NamedTuple):
    """Texts as Arrow stores them: all bytes, and the place where each begins."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int32]


def _host_values(columns: TableColumns, which: NDArray[np.uint8]) -> list[Any] | _Texts:
    """Return the hosts as text, or as integers."""
    formats = [origin.format for origin in columns.origins]
    if columns.hosts.dtype == np.uint32 and all(format == IPV4 for format in formats):
        return _ipv4_texts(columns.hosts)
    numbers = array_to_numbers(columns.hosts)
    return [plain_host(formats[i].to_host(number)) for i, number in zip(which.tolist(), numbers, strict=True)]


def plain_host(host: Any) -> Any:
    """Return a host as rows hold it: text, or an integer if hosts are plain integers."""
    return host if isinstance(host, int) else str(host)


def _text_column(hosts: list[Any] | _Texts, pa: Any) -> Any:
    if not isinstance(hosts, _Texts):
        return pa.array(hosts, pa.string())
    buffers = [None, pa.py_buffer(hosts.offsets), pa.py_buffer(hosts.data)]
    return pa.Array.from_buffers(pa.string(), len(hosts.offsets) - 1, buffers)


def _ipv4_texts(hosts: NDArray[Any]) -> _Texts:
    """Return IPv4 addresses as text, for a million of them in a moment.

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
    return _Texts(digits[kept], offsets)
