"""Whatever holds a column, as a `Column`: arrays, sequences, series of data frames, Arrow.

pandas and pyarrow are not imported unless such an object comes. Integers of NumPy and pandas stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.arrow import converting, from_arrow, import_arrow
from superhosts.core.columns.binary import from_packed
from superhosts.core.columns.column import Column, Text, both_valid
from superhosts.core.columns.objects import from_objects
from superhosts.core.columns.views import readable
from superhosts.errors import UsageError

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
        return _from_capsule(data, name)
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
    """Return an array of NumPy as a column."""
    if isinstance(array, np.ma.MaskedArray):
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
    """Raise UsageError, which names the first row that is no number, else the first row."""
    is_nan = np.isnan(array)
    row = int(np.argmax(is_nan))
    advice = "drop such rows, or use a nullable type (Int64)" if is_nan[row] else "convert the column to integers"
    shown = "NaN" if is_nan[row] else array[row]
    raise UsageError(f"{name}, row {row}: {shown} ({array.dtype}) is not an integer; {advice}")


def _from_text(array: NDArray[Any], name: str) -> Column:
    """Return an array of strings, byte strings or Python objects as a column."""
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
    """Return a series or an index of pandas as a column."""
    dtype = data.dtype
    if isinstance(dtype, np.dtype):
        return from_numpy(data.to_numpy(), name)
    if type(dtype).__name__ == "SparseDtype":
        return from_numpy(np.asarray(data), name)
    if hasattr(dtype, "categories"):
        values = data.array
        codes = np.asarray(values.codes, np.int64)
        present = codes >= 0
        categories = column_of(values.categories, name)
        valid = None if present.all() else present
        return Column(categories.values, name, valid, np.where(present, codes, 0))
    if hasattr(dtype, "numpy_dtype") and dtype.kind in "iu" and not hasattr(dtype, "pyarrow_dtype"):
        missing = np.asarray(data.isna())
        values = (
            data.to_numpy(dtype=dtype.numpy_dtype, na_value=0) if missing.any() else data.to_numpy(dtype.numpy_dtype)
        )
        return Column(readable(values), name, ~missing if missing.any() else None)
    if getattr(dtype, "kind", "") == "f":
        return from_numpy(data.to_numpy(np.float64, na_value=np.nan), name)
    try:
        arrow = import_arrow("reading Arrow columns")
        pieces = arrow.chunked_array([arrow.array(data)]) if not hasattr(data, "__arrow_c_stream__") else data
        return _whole(pieces, name)
    except (ImportError, UnicodeEncodeError):  # Arrow is not there, or cannot hold lone surrogates.
        return from_objects(data.tolist(), name)


def _from_capsule(data: Any, name: str) -> Column:
    """Return an Arrow array, or a stream of them, from any producer, as a column."""
    if str(getattr(data, "dtype", "")) in WIDE:
        return from_objects(data.to_list(), name)
    arrow = import_arrow("reading Arrow columns")
    if isinstance(data, arrow.Array) or not hasattr(data, "__arrow_c_stream__"):
        with converting(name, data):
            array = arrow.array(data)
        return from_arrow(array, name)
    return _whole(data, name)


def _whole(data: Any, name: str) -> Column:
    """Return a stream of Arrow arrays as one column."""
    arrow = import_arrow("reading Arrow columns")
    with converting(name, data):
        pieces = data if isinstance(data, arrow.ChunkedArray) else arrow.chunked_array(data)
    if arrow.types.is_struct(pieces.type):
        fields = [pieces.type.field(i).name for i in range(pieces.type.num_fields)]
        raise UsageError(f"{name}: a table with columns {', '.join(fields)}; name two: host=…, peer=…")
    if pieces.num_chunks == 1:
        return from_arrow(pieces.chunk(0), name)
    if pieces.nbytes > MOST_TEXT and arrow.types.is_string(pieces.type):
        pieces = pieces.cast(arrow.large_string())
    if pieces.nbytes > MOST_TEXT and arrow.types.is_binary(pieces.type):
        pieces = pieces.cast(arrow.large_binary())
    return from_arrow(pieces.combine_chunks(), name)
