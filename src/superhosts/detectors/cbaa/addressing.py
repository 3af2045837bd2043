"""Sizes of CBAA and its addressing: scalar functions shared by the CPU loop and the CUDA kernel.

The low bits of the mangled address select the slice; the remaining bits, LP, are L bits long. A restoring array's
column is a window of LP: `index_bits` consecutive bits, starting at the array's offset and wrapping around within LP.
Windows overlap: the low bits of a column belong to it alone (EP in the paper), and the bits above them (CP) repeat the
low bits of the next array's column. A tuple of columns that agrees on all repeated bits therefore encodes an address. A
validating array's column is a hash of LP.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import MAX_ARRAYS, Key, column_hash, pair_hash
from superhosts.core.units import format_size, parse_size
from superhosts.detectors.engines.base import ArrayShape
from superhosts.detectors.formulas import check_limits
from superhosts.errors import GeometryError
from superhosts.jit.cache import compiled


class Geometry(NamedTuple):
    """Sizes of a CBAA sketch, as plain integers so that kernels accept it as an argument."""

    slice_bits: int = 4  # r
    restoring: int = 3  # |RA|
    index_bits: int = 12  # cbn of each restoring array
    validating: int = 2  # |VA|
    validating_bits: int = 11  # log2 of the columns of each validating array
    column_bits: int = 12  # log2 g
    rows_by_peer: int = 0  # 1 if the row is a hash of the peer alone, as in the paper

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        """Return the geometry with the most slices that fit in `memory`; their number is a power of two."""
        size = parse_size(memory)
        one = cls(slice_bits=0).memory
        if size < one:
            raise GeometryError(f"memory {format_size(size)} is too small for cbaa: one slice takes {format_size(one)}")
        return cls(slice_bits=(size // one).bit_length() - 1).check()

    @classmethod
    def paper(cls) -> Self:
        """Return the paper's setting: 3 + 1 arrays of 2^12 columns of 2^12 rows in 16 slices, 128 MiB."""
        return cls(validating=1, validating_bits=12, rows_by_peer=1)

    def check(self) -> Self:
        limits = {
            "slice_bits": (0, 10),
            "restoring": (2, MAX_ARRAYS),
            "index_bits": (1, 20),
            "validating": (0, MAX_ARRAYS),
            "validating_bits": (1, 20),
            "column_bits": (6, 20),
            "rows_by_peer": (0, 1),
        }
        check_limits(self, limits)
        if self.arrays > MAX_ARRAYS:
            raise GeometryError(
                f"restoring={self.restoring} and validating={self.validating}: at most {MAX_ARRAYS} arrays"
            )
        own = -(-self.left_bits // self.restoring)
        if self.index_bits < own:
            rule = f"{self.restoring} windows must cover the {self.left_bits} bits left of the slice bits"
            raise GeometryError(f"index_bits={self.index_bits}: must be at least {own}, because {rule}")
        if self.index_bits > self.left_bits:
            raise GeometryError(f"index_bits={self.index_bits}: a window is at most {self.left_bits} bits long")
        return self

    @property
    def key_bits(self) -> int:
        """Bits of a host. With wider hosts, a search over bits alone would return too many phantoms."""
        return 32

    @property
    def left_bits(self) -> int:
        return 32 - self.slice_bits

    @property
    def arrays(self) -> int:
        return self.restoring + self.validating

    @property
    def rows(self) -> int:
        return 1 << self.column_bits

    @property
    def words(self) -> int:
        return 1 << (self.column_bits - 6)

    @property
    def slice_columns(self) -> int:
        return (self.restoring << self.index_bits) + (self.validating << self.validating_bits)

    @property
    def total_columns(self) -> int:
        return self.slice_columns << self.slice_bits

    @property
    def edges(self) -> list[int]:
        widths = [1 << self.index_bits] * self.restoring + [1 << self.validating_bits] * self.validating
        return [sum(widths[:array]) for array in range(len(widths) + 1)]

    @property
    def memory(self) -> int:
        return self.total_columns * self.rows // 8

    def array_shapes(self) -> dict[str, ArrayShape]:
        return {"bits": ArrayShape((self.total_columns, self.words))}


class Search(NamedTuple):
    zeros: NDArray[np.int64]  # (slices,): maximum of zeros in a column and in the AND
    prefix_words: int
    prefix_ones: int  # minimum of ones in the first `prefix_words` words of the AND


@compiled
def left_bits(geometry: Geometry) -> int:
    return 32 - geometry.slice_bits


@compiled
def offset(array: int, geometry: Geometry) -> int:
    """Return the offset of a restoring array's window in LP. For array = restoring, return L, the end of LP."""
    share, rest = divmod(left_bits(geometry), geometry.restoring)
    return array * share + min(array, rest)


@compiled
def own_bits(array: int, geometry: Geometry) -> int:
    """Return the number of bits of LP that a restoring array alone contributes."""  # |EP|
    return offset(array + 1, geometry) - offset(array, geometry)


@compiled
def check_bits(array: int, geometry: Geometry) -> int:
    """Return the number of bits of a restoring array's column that the next array repeats."""  # |CP|
    return geometry.index_bits - own_bits(array, geometry)


@compiled
def restoring_column(left: int, start: int, geometry: Geometry) -> int:
    doubled = left | left << left_bits(geometry)
    return (doubled >> start) & ((1 << geometry.index_bits) - 1)


@compiled
def validating_column(left: int, draw: tuple[int, int], geometry: Geometry) -> int:
    return column_hash(left, draw, 1 << geometry.validating_bits)


@compiled
def first_column(slice_: int, array: int, geometry: Geometry) -> int:
    """Return the index of an array's first column in the whole sketch. Restoring arrays come first in a slice."""
    per_slice = (geometry.restoring << geometry.index_bits) + (geometry.validating << geometry.validating_bits)
    windows = min(array, geometry.restoring) << geometry.index_bits
    hashed = max(0, array - geometry.restoring) << geometry.validating_bits
    return slice_ * per_slice + windows + hashed


@compiled
def row_of(mangled: int, peer: int, geometry: Geometry, key: Key) -> int:
    """Return the row of a pair. In the paper it depends on the peer alone, so popular peers set one row everywhere."""
    host = mangled if geometry.rows_by_peer == 0 else mangled ^ mangled  # 0 of the same unsigned type
    return pair_hash(host, peer, key) & ((1 << geometry.column_bits) - 1)
