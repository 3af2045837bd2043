"""The types of what `update` and `estimate_many` accept, for type checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import Host


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
    """An array in a GPU's memory."""

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
