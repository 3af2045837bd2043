"""Sizes of CBAA and its addressing: scalar functions shared by the CPU loop and the CUDA kernel.

The low bits of the mangled address select the slice; the remaining bits, LP, are L bits long. A restoring array's
column is a window of LP: `index_bits` consecutive bits, starting at the array's offset and wrapping around within LP.
Windows overlap: the low bits of a column belong to it alone (EP in the paper), and the bits above them (CP) repeat the
low bits of the next array's column. A tuple of columns that agrees on all repeated bits therefore encodes an address. A
validating array's column is a hash of LP.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import MAX_ARRAYS, Key, pair_hash
from superhosts.core.units import format_size, parse_size
from superhosts.detectors.engines.base import ArrayShape
from superhosts.detectors.formulas import check_limits
from superhosts.errors import GeometryError
from superhosts.jit.cache import compiled

ADDRESSES = 1 << 32
Numbers = NDArray[np.int64]


class Layout(NamedTuple):
    """The arrays of a slice in numbers. The first of them restore addresses, the others validate them."""

    slice_bits: int
    column_bits: int
    rows_by_peer: int
    edges: Numbers  # (arrays + 1,): first column of each array in a slice, and the number of all
    offsets: Numbers  # (arrays,): where the window of an array begins in LP; -1 if its column is a hash of LP
    moduli: Numbers  # (arrays,): if not 0, the column is the remainder of LP
    # (restoring arrays,): low bits of a column that are its own, of which the next array repeats the others. All are if
    # columns are remainders.
    owns: Numbers
    factors: Numbers  # (2, restoring arrays): `before` and `inverse` of `garner_step`


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
    def total_columns(self) -> int:
        return self.edges[-1] << self.slice_bits

    @property
    def edges(self) -> list[int]:
        widths = [1 << self.index_bits] * self.restoring + [1 << self.validating_bits] * self.validating
        return [sum(widths[:array]) for array in range(len(widths) + 1)]

    @property
    def memory(self) -> int:
        return self.total_columns * self.rows // 8

    def array_shapes(self) -> dict[str, ArrayShape]:
        return {"bits": ArrayShape((self.total_columns, self.words))}

    def layout(self) -> Layout:
        offsets = [offset(array, self) for array in range(self.restoring + 1)]
        return Layout(
            self.slice_bits,
            self.column_bits,
            self.rows_by_peer,
            np.array(self.edges, np.int64),
            np.array(offsets[:-1] + [-1] * self.validating, np.int64),
            np.zeros(self.arrays, np.int64),
            np.array([end - start for start, end in pairwise(offsets)], np.int64),
            np.zeros((2, self.restoring), np.int64),
        )


class Search(NamedTuple):
    zeros: NDArray[np.int64]  # (slices,): maximum of zeros in a column and in the AND
    prefix_words: int
    prefix_ones: int  # minimum of ones in the first `prefix_words` words of the AND


def offset(array: int, geometry: Geometry) -> int:
    """Return the offset of a restoring array's window in LP. For array = restoring, return L, the end of LP."""
    share, rest = divmod(geometry.left_bits, geometry.restoring)
    return array * share + min(array, rest)


@compiled
def window_column(left: int, start: int, size: int, slice_bits: int) -> int:
    doubled = left | left << (32 - slice_bits)
    return (doubled >> start) & (size - 1)


@compiled
def remainder(left: int, modulus: int) -> Any:
    return np.uint32(left) % np.uint32(modulus)


@compiled
def garner_step(number: int, column: int, modulus: int, before: int, inverse: int) -> int:
    """Return the smallest number that is `number` modulo `before` and `column` modulo `modulus`.

    `inverse` is the inverse of `before` modulo `modulus`. The result is never less than `number`: once it exceeds 2^32,
    it stays above.
    """
    digit = (column - number % modulus + modulus) % modulus * inverse % modulus
    return number + before * digit


@compiled
def row_of(mangled: int, peer: int, by_peer: int, column_bits: int, key: Key) -> int:
    """Return the row of a pair. In the paper it depends on the peer alone, so popular peers set one row everywhere."""
    host = mangled if by_peer == 0 else mangled ^ mangled  # 0 of the same unsigned type
    return pair_hash(host, peer, key) & ((1 << column_bits) - 1)
