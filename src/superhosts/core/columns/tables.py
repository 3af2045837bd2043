"""Two columns of a table: data frames, Arrow streams, DuckDB relations, structured arrays, mappings of columns.

A stream is read batch by batch, so a table need not fit into memory. Only the two columns are asked for, where the
producer can leave out others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from superhosts.core.columns.arrow import converting, from_arrow, import_arrow
from superhosts.core.columns.column import Column, starting_at
from superhosts.core.columns.reading import WIDE, column_of
from superhosts.errors import UsageError

BATCH_ROWS = 1 << 20  # of producers that let the reader choose


def is_table(data: Any) -> bool:
    """Return True if an object has columns with names, so that two of them have to be chosen."""
    if isinstance(data, np.ndarray):
        return data.dtype.names is not None
    return isinstance(data, Mapping) or _module(data) == "duckdb" or _column_names(data) is not None


def columns_of(table: Any, host: str | None, peer: str | None) -> Iterator[tuple[Column, Column]]:
    """Yield the two columns, batch by batch; raise UsageError if the table has no such column."""
    if _module(table) == "duckdb" and not hasattr(table, "project"):  # a connection, which `execute` returns, too
        way = "pass a relation, as connection.sql(…) and connection.table(…) return it"
        raise UsageError(f"update: {type(table).__name__} is not a table; {way}")
    if host is None or peer is None:
        known = _column_names(table)
        there = f"; the table has {', '.join(map(str, known))}" if known is not None else ""
        raise UsageError(f"update: which columns? pass host=… and peer=…{there}")
    if _module(table) == "polars":
        _check(_column_names(table) or (), host, peer)
        table = table.select(list(dict.fromkeys((host, peer))))
        table = table.collect() if hasattr(table, "collect") else table
        if any(str(kind) in WIDE for kind in table.dtypes):
            table = table.to_dict()
    if isinstance(table, Mapping | np.ndarray) or _module(table) == "pandas":
        _check(table.dtype.names or () if isinstance(table, np.ndarray) else list(table), host, peer)
        yield column_of(table[host], f"column {host!r}"), column_of(table[peer], f"column {peer!r}")
        return
    row = 0
    for batch in _batches(table, host, peer):
        columns = [from_arrow(batch.column(name), f"column {name!r}") for name in (host, peer)]
        yield starting_at(columns[0], row), starting_at(columns[1], row)
        row += batch.num_rows


def _batches(table: Any, host: str, peer: str) -> Any:
    """Return record batches of Arrow that have both columns."""
    arrow = import_arrow("reading tables")
    names = list(dict.fromkeys((host, peer)))
    known = _column_names(table)
    if known is not None:
        _check(known, host, peer)
    if _module(table) == "dask":
        raise UsageError(
            "update: a Dask frame is not computed yet; pass frame.compute(), or make a sketch of each partition "
            "(map_partitions) and merge them, as superhosts batch does with files"
        )
    if _module(table) == "duckdb":
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        chosen = table.project(quoted)
        return getattr(chosen, "to_arrow_reader", chosen.fetch_arrow_reader)(BATCH_ROWS)
    if isinstance(table, arrow.Table | arrow.RecordBatch):
        table = table.select(names)
    elif hasattr(table, "scanner"):  # a dataset
        return table.scanner(columns=names).to_reader()
    if isinstance(table, arrow.RecordBatch):
        return [table]
    if not hasattr(table, "__arrow_c_stream__") and hasattr(table, "__arrow_c_array__"):
        batch = arrow.record_batch(table)
        _check(batch.schema.names, host, peer)
        return [batch]
    if not hasattr(table, "__arrow_c_stream__"):
        raise UsageError(f"update: {type(table).__name__} is not a table; pass a data frame or an Arrow stream")
    with converting("update", table):
        reader = arrow.RecordBatchReader.from_stream(table)
    _check(reader.schema.names, host, peer)
    return reader


def _check(known: Sequence[Any], host: str, peer: str) -> None:
    """Raise UsageError if a table does not have both columns."""
    for argument, name in (("host", host), ("peer", peer)):
        if name not in known:
            raise UsageError(f"{argument}={name!r}: the table has no such column; it has {', '.join(map(str, known))}")
        if list(known).count(name) > 1:
            raise UsageError(f"{argument}={name!r}: the table has several columns of this name")


def _column_names(table: Any) -> list[Any] | None:
    """Return the names of the columns of a table; None if they are not known before it is read."""
    if _module(table) == "polars" and hasattr(table, "collect_schema"):
        return list(table.collect_schema().names())
    if isinstance(table, np.ndarray):
        return list(table.dtype.names or ())
    schema = getattr(table, "schema", None)
    names = getattr(schema, "names", None)
    if names is None and _module(table) in ("pandas", "duckdb", "dask"):
        names = getattr(table, "columns", None)
    return list(names) if names is not None else None


def _module(value: Any) -> str:
    """Return the package of an object's class."""
    return type(value).__module__.partition(".")[0].lstrip("_")
