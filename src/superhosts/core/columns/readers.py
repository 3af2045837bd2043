"""Whatever holds a column, as a `Column`: arrays, sequences, series of data frames, Arrow.

pandas and pyarrow are not imported unless such an object comes. Integers of NumPy and pandas stay where they are.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn, are_inside
from superhosts.core.columns.column import (
    SHOWN,
    Column,
    Flags,
    Text,
    array_at,
    both_valid,
    from_packed,
    readable,
    text_of,
)
from superhosts.core.pairs import MASK64, Host
from superhosts.errors import UsageError, import_extra

# The types of what `update` and `estimate_many` accept, for type checkers


class ArrowStream(Protocol):
    """What the Arrow PyCapsule interface calls a stream: tables, data frames, series of Polars, readers."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object: ...


class ArrowArray(Protocol):
    """What the Arrow PyCapsule interface calls an array: arrays and record batches."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...


class CanBeArray(Protocol):
    """What NumPy can make an array of: series and indexes of pandas, tensors."""

    def __array__(self) -> Any: ...


class OnGpu(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...


class HasColumns(Protocol):
    """A table that gives its columns by name: a data frame of pandas or Polars, a relation of DuckDB."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""


ColumnData = (
    NDArray[Any]
    | Sequence[str | int | bytes | Host | np.integer[Any] | None]
    | ArrowStream
    | ArrowArray
    | CanBeArray
    | OnGpu
)
TableData = ArrowStream | ArrowArray | HasColumns | NDArray[np.void] | Mapping[str, ColumnData]


# Python objects. Text that is joined and encoded once is parsed by the compiled parser. Nulls are None, NaN, NaT and
# whatever else is not equal to itself.

ADDRESS_TYPES = ipaddress.IPv4Address, ipaddress.IPv6Address
TAKEN = "integers alone, or address text, bytes and ipaddress objects"


def from_objects(values: Sequence[Any], name: str) -> Column:
    valid = not_null(values)
    rows = np.arange(len(values)) if valid is None else np.flatnonzero(valid)
    kinds = set(map(type, values if valid is None else [values[row] for row in rows.tolist()]))

    if all(issubclass(kind, str) for kind in kinds):
        return Column(text_of(filled(values, valid, "")), name, valid)
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        return Column(_integers(filled(values, valid, 0)), name, valid)
    if all(issubclass(kind, bytes) for kind in kinds):
        return Column(text_of(filled(values, valid, b""))._replace(is_binary=True), name, valid)
    return Column(_addresses(values, name, rows.tolist()), name, valid)


def not_null(values: Sequence[Any]) -> Flags | None:
    """Return False for each null; None if there is none."""
    kinds = set(map(type, values))
    if all(issubclass(kind, str | int | bytes | np.integer | ipaddress._IPAddressBase) for kind in kinds):
        return None
    flags = np.fromiter((not is_null(each) for each in values), bool, len(values))
    return None if flags.all() else flags


def filled(values: Sequence[Any], valid: Flags | None, nothing: Any) -> Sequence[Any]:
    """Return the values with `nothing` in place of each null."""
    return values if valid is None else [each if ok else nothing for each, ok in zip(values, valid, strict=True)]


def is_null(value: Any) -> bool:
    """Return True for None, NaN, NaT and pandas' NA."""
    if value is None or value is np.ma.masked:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas' NA is neither equal nor unequal; arrays are many answers.
        return type(value).__name__ == "NAType"


def _integers(values: Sequence[Any]) -> NDArray[Any]:
    """Return Python integers as a column, of objects if they do not fit in 64 bits."""
    if not len(values):
        return np.empty(0, np.int64)
    lowest, highest = min(values), max(values)
    if highest < 1 << 63 and lowest >= -(1 << 63):
        return np.array(values, np.int64)
    if lowest >= 0 and highest < 1 << 64:
        return np.array(values, np.uint64)
    return np.array(values, object)


def _addresses(values: Sequence[Any], name: str, rows: Sequence[int]) -> AddressColumn:
    """Return text, bytes and `ipaddress` objects in `rows` as addresses; raise UsageError if one is none."""
    kinds, words = np.zeros(len(values), np.uint8), np.zeros((len(values), 2), np.uint64)
    if _is_integer(values[rows[0]]):
        row = next(row for row in rows if not _is_integer(values[row]))
        raise UsageError(f"{name}, row {row}: {values[row]!r} is not an integer, but row {rows[0]} is")
    for row in rows:
        value = values[row]
        try:
            address = value if isinstance(value, ADDRESS_TYPES) else ipaddress.ip_address(_decoded(value))
        except (TypeError, ValueError):
            shown = repr(value) if len(repr(value)) <= SHOWN else f"{type(value).__name__} object"
            raise UsageError(f"{name}, row {row}: {shown} is not an address; use {TAKEN}") from None
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        number = int(mapped or address)
        kinds[row], words[row, 0], words[row, 1] = 4 if mapped else address.version, number >> 64, number & MASK64
    return AddressColumn(kinds, words)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _decoded(value: Any) -> str | bytes:
    """Return text or packed bytes of an address; raise TypeError for other things."""
    if isinstance(value, bytes):
        return value if len(value) in (4, 16) else value.decode()
    if isinstance(value, str):
        return str(value)
    raise TypeError


# Arrow arrays, without copies where the memory has the right form


def import_arrow(what: str) -> Any:
    return import_extra(what, "tables", "pyarrow")


@contextmanager
def converting(name: str, data: Any) -> Iterator[None]:
    """Raise UsageError, which names the column or table, if Arrow cannot take an object."""
    try:
        yield
    except import_arrow("reading Arrow columns").ArrowException as error:
        raise UsageError(f"{name}: Arrow cannot read this {type(data).__name__}: {error}") from error


def from_arrow(array: Any, name: str) -> Column:
    """Return an Arrow array as a column; raise UsageError if its type is not one of addresses."""
    arrow = import_arrow("reading Arrow columns")
    types, kind = arrow.types, array.type
    if isinstance(array, arrow.ExtensionArray):
        return from_arrow(array.storage, name)
    if types.is_dictionary(kind):
        return _from_dictionary(array, name)
    valid = valid_rows(array)
    if types.is_integer(kind):
        return Column(values_of(array, kind.to_pandas_dtype()), name, valid)
    if is_text(kind) or is_binary(kind):
        return Column(text_of_arrow(array, name), name, valid)
    if types.is_fixed_size_binary(kind) and kind.byte_width in (4, 16):
        return Column(from_packed(values_of(array, (np.uint8, kind.byte_width))), name, valid)
    if types.is_decimal(kind) and kind.scale == 0:  # integers of 128 bits, of DuckDB
        return from_objects([None if each is None else int(each) for each in array.to_pylist()], name)
    if types.is_null(kind):
        return Column(np.zeros(len(array), np.int64), name, np.zeros(len(array), bool))
    raise UsageError(f"{name}: Arrow's {kind} is not a type of addresses; integers, strings and 4 or 16 bytes are")


def is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def is_binary(kind: Any) -> bool:
    return str(kind) in ("binary", "large_binary", "binary_view")


def valid_rows(array: Any) -> Flags | None:
    """Return False for each null of an Arrow array; None if there is none."""
    if not array.null_count:
        return None
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def text_of_arrow(array: Any, name: str) -> Text:
    """Return the bytes of an Arrow array of strings or bytes, with their positions."""
    binary = is_binary(array.type)
    if str(array.type).endswith("view"):
        array = as_bytes(array).cast(import_arrow(name).large_binary())
    width = np.dtype(np.int64 if str(array.type).startswith("large") else np.int32)
    _, offsets, data = array.buffers()
    places = np.zeros(1, np.int64)
    if len(array):
        begin = offsets.address + array.offset * width.itemsize
        places = array_at(begin, len(array) + 1, width, array).astype(np.int64, copy=False)
    text = array_at(data.address, data.size, np.uint8, array) if data is not None else np.empty(0, np.uint8)
    if not are_inside(places, len(text)):  # Compiled loops follow them.
        raise UsageError(f"{name}: a damaged Arrow array: values lie outside of its data")
    return Text(text, places[:-1], places[1:], binary)


def as_bytes(array: Any) -> Any:
    """Return text as binary values, which need not be UTF-8. All of them lie inside their data: pyarrow does not check
    that when it reads them.
    """
    arrow = import_arrow("reading Arrow columns")
    kinds = {"string": arrow.binary(), "large_string": arrow.large_binary(), "string_view": arrow.binary_view()}
    found = array.view(kinds.get(str(array.type), array.type))
    found.validate(full=True)
    return found


def values_of(array: Any, dtype: Any) -> NDArray[Any]:
    """Return the values of an Arrow array of numbers, or of bytes: a row for each."""
    kind = np.dtype(dtype)
    if not len(array):
        return np.empty((0, *kind.shape), kind.base)
    begin = array.buffers()[1].address + array.offset * kind.itemsize
    whole = array_at(begin, len(array) * kind.itemsize // kind.base.itemsize, kind.base, array)
    return whole.reshape(-1, *kind.shape)


def _from_dictionary(array: Any, name: str) -> Column:
    """Return an array with a dictionary: its values once, and a code for each row. One that names none is null."""
    values = from_arrow(array.dictionary, name)
    codes = values_of(array.indices, array.indices.type.to_pandas_dtype()).astype(np.int64)
    is_inside = (codes >= 0) & (codes < len(values))
    valid = both_valid(valid_rows(array), None if is_inside.all() else is_inside)
    if valid is not None:
        codes[~valid] = 0  # Those of nulls may be anything.
    if values.valid is not None and len(values):
        valid = both_valid(valid, values.valid[codes])
    return Column(values.values, name, valid, codes)


MOST_TEXT = 1 << 30  # bytes of text in pieces that Arrow puts together with positions of 32 bits
WIDE = "Int128", "UInt128"  # types of Polars that Arrow does not have
FORMS = "integers (n,), uint64 (n, 2), uint8 (n, 4) or (n, 16), text, bytes or ipaddress objects"


def column_of(data: Any, name: str) -> Column:
    """Return a column of anything that holds one; raise UsageError, which names it, if it holds no addresses."""
    if isinstance(data, np.ndarray):
        return from_numpy(data, name)
    if isinstance(data, list | tuple):
        return from_objects(data, name)
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "dtype"):
        return _from_pandas(data, name)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _by_arrow(data, name)
    if hasattr(data, "__array__"):
        return from_numpy(np.asarray(data), name)
    if hasattr(data, "__dlpack__"):
        return from_numpy(np.from_dlpack(data), name)
    if isinstance(data, Set) and not isinstance(data, KeysView):
        raise UsageError(f"{name}: a {type(data).__name__} has no order, so its rows belong to no other column's")
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        raise UsageError(f"{name}: {type(data).__name__} is not a column; pass an array, a list or a series")
    try:
        return from_numpy(np.asarray(memoryview(data)), name)  # type: ignore[arg-type]
    except TypeError:
        return from_objects(list(data), name)


def from_numpy(array: NDArray[Any], name: str) -> Column:
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):  # `np.ma` is slow to load
        mask = np.ma.getmaskarray(array)
        valid = ~(mask if mask.ndim == 1 else mask.any(axis=tuple(range(1, mask.ndim))))
        inner = from_numpy(np.asarray(array.data), name)
        return Column(inner.values, name, both_valid(np.asarray(valid), inner.valid))
    kind, dtype = array.dtype.kind, array.dtype
    if array.ndim == 2 and dtype == np.uint8 and array.shape[1] in (4, 16):
        return Column(from_packed(array), name)
    if (array.ndim == 1 and kind in "iu") or (array.ndim == 2 and array.shape[1] == 2 and dtype == np.uint64):
        return Column(readable(array), name)
    if array.ndim == 1 and kind in "SUTO":
        return _from_text(array, name)
    if array.ndim == 1 and kind == "V" and dtype.names is None and dtype.itemsize in (4, 16):
        return Column(from_packed(np.ascontiguousarray(array).view(np.uint8).reshape(-1, dtype.itemsize)), name)
    if array.ndim == 1 and kind == "f" and len(array):
        _refuse_floats(array, name)
    if array.ndim == 1 and not len(array) and kind == "f":  # np.array([])
        return Column(np.empty(0, np.int64), name)
    if dtype.names is not None:
        raise UsageError(f"{name}: a table with columns {', '.join(dtype.names)}; name two: host=…, peer=…")
    raise UsageError(f"{name}: {dtype} {array.shape} is not a column of addresses; these are {FORMS}")


def _refuse_floats(array: NDArray[Any], name: str) -> None:
    is_nan = np.isnan(array)
    row = int(np.argmax(is_nan))
    advice = "drop such rows, or use a nullable type (Int64)" if is_nan[row] else "convert the column to integers"
    shown = "NaN" if is_nan[row] else array[row]
    raise UsageError(f"{name}, row {row}: {shown} ({array.dtype}) is not an integer; {advice}")


def _from_text(array: NDArray[Any], name: str) -> Column:
    if array.dtype.kind in "TO":
        return from_objects(array.tolist(), name)
    try:
        strings = np.ascontiguousarray(array.astype("S"))
    except UnicodeEncodeError:
        return from_objects(array.tolist(), name)
    width = max(1, strings.dtype.itemsize)
    starts = np.arange(len(strings), dtype=np.int64) * width
    data = readable(strings.view(np.uint8)) if strings.dtype.itemsize else np.empty(0, np.uint8)
    text = Text(data, starts, starts + np.strings.str_len(strings))
    if array.dtype.kind == "S" and width in (4, 16) and not text.addresses().kinds.all():
        return Column(from_packed(data.reshape(-1, width)), name)
    return Column(text, name)


def _from_pandas(data: Any, name: str) -> Column:
    if isinstance(data.dtype, np.dtype) or type(data.dtype).__name__ == "SparseDtype":
        return from_numpy(np.asarray(data), name)
    try:
        return _by_arrow(data, name)
    except (ImportError, UnicodeEncodeError, UsageError):  # Arrow is not there, or has no lone surrogates, or objects.
        return from_objects(data.tolist(), name)


def _by_arrow(data: Any, name: str) -> Column:
    if str(getattr(data, "dtype", "")) in WIDE:
        return from_objects(data.to_list(), name)
    arrow = import_arrow("reading Arrow columns")
    pieces = data
    if not isinstance(data, arrow.Array | arrow.ChunkedArray):
        with converting(name, data):
            pieces = (arrow.chunked_array if hasattr(data, "__arrow_c_stream__") else arrow.array)(data)
    if arrow.types.is_struct(pieces.type):
        fields = [pieces.type.field(i).name for i in range(pieces.type.num_fields)]
        raise UsageError(f"{name}: a table with columns {', '.join(fields)}; name two: host=…, peer=…")
    if not isinstance(pieces, arrow.ChunkedArray):
        return from_arrow(pieces, name)
    if pieces.num_chunks == 1:
        return from_arrow(pieces.chunk(0), name)
    if pieces.nbytes > MOST_TEXT and str(pieces.type) in ("string", "binary"):
        pieces = pieces.cast(f"large_{pieces.type}")
    return from_arrow(pieces.combine_chunks(), name)


# Tables. A stream is read batch by batch, so a table need not fit into memory. Only the two columns are asked for,
# where the producer can leave out others.


def is_table(data: Any) -> bool:
    """Return True if an object has columns with names, so that two of them have to be chosen."""
    return _module(data) == "duckdb" or _column_names(data) is not None


def columns_of(table: Any, host: str | None, peer: str | None) -> Iterator[tuple[Column, Column]]:
    """Yield the two columns, batch by batch; raise UsageError if the table has no such column."""
    if _module(table) == "duckdb" and not hasattr(table, "project"):  # a connection, which `execute` returns, too
        way = "pass a relation, as connection.sql(…) and connection.table(…) return it"
        raise UsageError(f"update: {type(table).__name__} is not a table; {way}")
    known = _column_names(table)
    if host is None or peer is None:
        there = f"; the table has {', '.join(map(str, known))}" if known is not None else ""
        raise UsageError(f"update: which columns? pass host=… and peer=…{there}")
    if known is not None:
        _check(known, host, peer)
    if _module(table) == "polars":
        table = table.select(list(dict.fromkeys((host, peer))))
        table = table.collect() if hasattr(table, "collect") else table
        if any(str(kind) in WIDE for kind in table.dtypes):
            table = table.to_dict()
    if isinstance(table, Mapping | np.ndarray) or _module(table) == "pandas":
        yield column_of(table[host], f"column {host!r}"), column_of(table[peer], f"column {peer!r}")
        return
    row = 0
    for batch in _batches(table, host, peer):
        columns = [from_arrow(batch.column(name), f"column {name!r}") for name in (host, peer)]
        yield replace(columns[0], first=row), replace(columns[1], first=row)
        row += batch.num_rows


def _batches(table: Any, host: str, peer: str) -> Any:
    arrow = import_arrow("reading tables")
    names = list(dict.fromkeys((host, peer)))
    if _module(table) == "dask":
        raise UsageError(
            "update: a Dask frame is not computed yet; pass frame.compute(), or make a sketch of each partition "
            "(map_partitions) and merge them, as superhosts batch does with files"
        )
    if _module(table) == "duckdb":
        table = table.project(", ".join('"' + name.replace('"', '""') + '"' for name in names))
    elif hasattr(table, "scanner"):  # a dataset
        table = table.scanner(columns=names).to_reader()
    if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
        raise UsageError(f"update: {type(table).__name__} is not a table; pass a data frame or an Arrow stream")
    with converting("update", table):
        is_stream = hasattr(table, "__arrow_c_stream__")
        found = arrow.RecordBatchReader.from_stream(table) if is_stream else arrow.record_batch(table)
    _check(found.schema.names, host, peer)
    return found if is_stream else [found]


def _check(known: Sequence[Any], host: str, peer: str) -> None:
    for argument, name in (("host", host), ("peer", peer)):
        if name not in known:
            raise UsageError(f"{argument}={name!r}: the table has no such column; it has {', '.join(map(str, known))}")
        if list(known).count(name) > 1:
            raise UsageError(f"{argument}={name!r}: the table has several columns of this name")


def _column_names(table: Any) -> list[Any] | None:
    """Return the names of the columns of a table; None if they are not known before it is read."""
    if _module(table) == "polars" and hasattr(table, "collect_schema"):
        return list(table.collect_schema().names())
    if isinstance(table, Mapping):
        return list(table)
    names = (
        table.dtype.names if isinstance(table, np.ndarray) else getattr(getattr(table, "schema", None), "names", None)
    )
    if names is None and _module(table) in ("pandas", "duckdb", "dask"):
        names = getattr(table, "columns", None)
    return list(names) if names is not None else None


def _module(value: Any) -> str:
    return type(value).__module__.partition(".")[0].lstrip("_")
