"""Arrow arrays as columns, without copies where the memory has the right form.

Integers and the bytes of text stay where they are. Views of strings, which Arrow keeps in several buffers, are copied
by Arrow into one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import are_inside
from superhosts.core.columns.binary import from_packed
from superhosts.core.columns.column import Binary, Column, Flags, Text
from superhosts.core.columns.objects import from_objects
from superhosts.core.columns.views import array_at
from superhosts.errors import MissingExtraError, UsageError


def import_arrow(what: str) -> Any:
    """Import pyarrow; raise MissingExtraError if it is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtraError(what, "tables") from None
    return pyarrow


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
        return Column(_values(array, kind.to_pandas_dtype()), name, valid)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        array = array.cast(arrow.large_string() if types.is_string_view(kind) else arrow.large_binary())
        kind = array.type
    if types.is_string(kind) or types.is_large_string(kind):
        return Column(text_of_arrow(array, name), name, valid)
    if types.is_fixed_size_binary(kind) and kind.byte_width in (4, 16):
        return Column(from_packed(_packed(array)), name, valid)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return Column(Binary(*text_of_arrow(array, name)), name, valid)
    if types.is_decimal(kind) and kind.scale == 0:  # integers of 128 bits, of DuckDB
        return from_objects([None if each is None else int(each) for each in array.to_pylist()], name)
    if types.is_null(kind):
        return Column(np.zeros(len(array), np.int64), name, np.zeros(len(array), bool))
    raise UsageError(f"{name}: Arrow's {kind} is not a type of addresses; integers, strings and 4 or 16 bytes are")


def valid_rows(array: Any) -> Flags | None:
    """Return False for each null of an Arrow array; None if there is none."""
    if not array.null_count:
        return None
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def text_of_arrow(array: Any, name: str) -> Text:
    """Return the bytes of an Arrow array of strings or bytes, with their positions."""
    width = np.int64 if str(array.type).startswith("large") else np.int32
    _, offsets, data = array.buffers()
    places = np.zeros(1, np.int64)
    if len(array):
        item = np.dtype(width).itemsize
        places = array_at(offsets.address + array.offset * item, len(array) + 1, width, array).astype(np.int64)
    text = array_at(data.address, data.size, np.uint8, array) if data is not None else np.empty(0, np.uint8)
    if not are_inside(places, len(text)):  # Compiled loops follow them.
        raise UsageError(f"{name}: a damaged Arrow array: values lie outside of its data")
    return Text(text, places[:-1], places[1:])


def _values(array: Any, dtype: Any) -> NDArray[Any]:
    """Return the integers of an Arrow array."""
    kind = np.dtype(dtype)
    data = array.buffers()[1]
    return (
        array_at(data.address + array.offset * kind.itemsize, len(array), kind, array)
        if len(array)
        else np.empty(0, kind)
    )


def _packed(array: Any) -> NDArray[np.uint8]:
    """Return the bytes of an Arrow array of fixed size, a row each."""
    width, data = array.type.byte_width, array.buffers()[1]
    if not len(array):
        return np.empty((0, width), np.uint8)
    return array_at(data.address + array.offset * width, len(array) * width, np.uint8, array).reshape(-1, width)


def _from_dictionary(array: Any, name: str) -> Column:
    """Return an Arrow array with a dictionary: its values once, and a code for each row."""
    values = from_arrow(array.dictionary, name)
    indices = array.indices
    valid = valid_rows(array)
    codes = _values(indices, indices.type.to_pandas_dtype()).astype(np.int64)
    if valid is not None:
        codes[~valid] = 0  # Those of nulls may be anything.
    if values.valid is not None and len(values):
        present = values.valid[codes]
        valid = present if valid is None else valid & present
    return Column(values.values, name, valid, codes)
