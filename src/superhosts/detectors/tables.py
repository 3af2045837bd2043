"""Results as tables of the libraries that people already use; each is imported only when asked for."""

from __future__ import annotations

from typing import Any

from superhosts.errors import MissingExtraError


def to_arrow(columns: dict[str, list[Any]]) -> Any:
    """Return a pyarrow Table: of rows of hosts, typed also where there are none; of others, as the values are."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError("Arrow output", "tables") from error
    if "host" not in columns:
        return pa.table(columns)
    types = {"peers": pa.int64(), "peers_low": pa.int64(), "peers_high": pa.int64(), "family": pa.int8()}
    types["saturated"] = pa.bool_()
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
        import pandas  # noqa: F401  # to_pandas below needs it; asked here for a clear message
    except ImportError as error:
        raise MissingExtraError("pandas output", "tables") from error
    return to_arrow(columns).to_pandas()
