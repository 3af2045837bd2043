"""Queries of other engines for the hosts with at least 1024 distinct peers.

Every engine reads the arrays in place (through Arrow, or pandas over the same memory where that is faster) and uses all
threads. An engine may have several queries, of which the fastest counts. An exact engine must find exactly the true
hosts. Engines are imported on use, so that a process that measures memory loads only one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cases import THETA, Column

Hosts = NDArray[Any]
Ask = Callable[[], Hosts]


class Way(NamedTuple):
    """One query of an engine."""

    engine: str  # of the queries of one engine, the fastest counts
    name: str
    open: Callable[[Column, Column], Ask]
    exact: bool = True
    rated: bool = True  # False: reported for information, not compared with the cube


def _table(hosts: Column, peers: Column) -> Any:
    import pyarrow as pa

    return pa.table({"host": pa.array(hosts), "peer": pa.array(peers)})


def _duckdb(query: str) -> Callable[[Column, Column], Ask]:
    def open_(hosts: Column, peers: Column) -> Ask:
        import duckdb

        connection = duckdb.connect()
        connection.execute(f"set threads = {len(os.sched_getaffinity(0))}")
        connection.register("pairs", _table(hosts, peers))
        return lambda: np.asarray(connection.execute(query).fetchnumpy()["host"])

    return open_


def _polars(build: Callable[[Any, Any], Any], engine: str) -> Callable[[Column, Column], Ask]:
    def open_(hosts: Column, peers: Column) -> Ask:
        import polars as pl

        frame = pl.from_arrow(_table(hosts, peers))
        query = build(frame.lazy(), pl).filter(pl.col("n") >= THETA)
        return lambda: query.collect(engine=engine)["host"].to_numpy()

    return open_


def _n_unique(frame: Any, pl: Any) -> Any:
    return frame.group_by("host").agg(pl.col("peer").n_unique().alias("n"))


def _unique_then_len(frame: Any, pl: Any) -> Any:
    return frame.unique().group_by("host").agg(pl.len().alias("n"))


def _packed_unique(frame: Any, pl: Any) -> Any:
    packed = (pl.col("host").cast(pl.UInt64) * (1 << 32)) | pl.col("peer").cast(pl.UInt64)
    host = (pl.col("k") // (1 << 32)).cast(pl.UInt32).alias("host")
    return frame.select(packed.alias("k")).unique().group_by(host).agg(pl.len().alias("n"))


def _approx_n_unique(frame: Any, pl: Any) -> Any:
    return frame.group_by("host").agg(pl.col("peer").approx_n_unique().alias("n"))


def _chdb(query: str, kind: str) -> Callable[[Column, Column], Ask]:
    def open_(hosts: Column, peers: Column) -> Ask:
        import chdb

        if kind == "arrow":
            source = _table(hosts, peers)
        else:
            import pandas as pd

            source = pd.DataFrame({"host": hosts, "peer": peers}, copy=False)

        def ask() -> Hosts:
            pairs = source  # chDB finds its input by the name of this local variable.
            result = chdb.query(query, "ArrowTable")
            del pairs
            return result["host"].to_numpy()

        return ask

    return open_


def _numpy_sort(hosts: Column, peers: Column) -> Ask:
    def ask() -> Hosts:
        pairs = hosts.astype(np.uint64)
        pairs <<= np.uint64(32)
        pairs |= peers
        pairs.sort()
        fresh = np.ones(len(pairs), bool)
        np.not_equal(pairs[1:], pairs[:-1], out=fresh[1:])
        distinct = (pairs[fresh] >> np.uint64(32)).astype(np.uint32)
        starts = np.flatnonzero(np.concatenate([[True], distinct[1:] != distinct[:-1]]))
        return distinct[starts][np.diff(starts, append=len(distinct)) >= THETA]

    return ask


_HAVING = f"group by host having n >= {THETA}"
_DISTINCT = "select distinct host, peer from"
_CHDB_PACKED = (
    "select toUInt32(bitShiftRight(k, 32)) as host, count() as n from "
    f"(select bitOr(bitShiftLeft(toUInt64(host), 32), peer) as k from Python(pairs) group by k) {_HAVING}"
)


def _chdb_by(function: str) -> str:
    return f"select host, {function}(peer) as n from Python(pairs) {_HAVING}"


WAYS = [
    Way("DuckDB exact", "count distinct", _duckdb(f"select host, count(distinct peer) n from pairs {_HAVING}")),
    Way("DuckDB exact", "distinct, count", _duckdb(f"select host, count(*) n from ({_DISTINCT} pairs) {_HAVING}")),
    Way("Polars exact", "n_unique", _polars(_n_unique, "in-memory")),
    Way("Polars exact", "n_unique, streaming", _polars(_n_unique, "streaming")),
    Way("Polars exact", "unique, len, streaming", _polars(_unique_then_len, "streaming")),
    Way("Polars exact", "unique of packed pairs, streaming", _polars(_packed_unique, "streaming")),
    Way("chDB exact", "uniqExact", _chdb(_chdb_by("uniqExact"), "pandas")),
    Way("chDB exact", "uniqExact, Arrow", _chdb(_chdb_by("uniqExact"), "arrow")),
    Way("chDB exact", "group packed pairs, count", _chdb(_CHDB_PACKED, "pandas")),
    Way("chDB exact", "group packed pairs, count, Arrow", _chdb(_CHDB_PACKED, "arrow")),
    Way("chDB uniq", "uniq", _chdb(_chdb_by("uniq"), "pandas"), exact=False),
    Way(
        "DuckDB approximate",
        "approx_count_distinct",
        _duckdb(f"select host, approx_count_distinct(peer) n from pairs {_HAVING}"),
        exact=False,
        rated=False,
    ),
    Way("Polars approximate", "approx_n_unique", _polars(_approx_n_unique, "streaming"), exact=False, rated=False),
    Way("NumPy", "sort of 64-bit pairs", _numpy_sort, rated=False),
]
