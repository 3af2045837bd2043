"""Where a pair goes in CBAA. Scalar functions, shared by the CPU loop and the CUDA kernel.

The low bits of the mangled address choose the slice; the rest, LP, is L bits long. A restoring array's column is a
window of LP: `index_bits` consecutive bits from its offset on, wrapping around inside LP. Windows overlap: the low
bits of a column are its own (EP in the paper), the bits above them (CP) repeat the low bits of the next array's
column. So a tuple of columns that agrees on all repeated bits spells an address. A validating array's column is a
hash of LP.
"""

from __future__ import annotations

from superhosts.compiled import compiled
from superhosts.detectors.cbaa.geometry import Geometry
from superhosts.hashing import Key, column_hash, pair_hash


@compiled
def left_bits(geometry: Geometry) -> int:
    """Return the length of LP."""
    return 32 - geometry.slice_bits


@compiled
def offset(array: int, geometry: Geometry) -> int:
    """Return where the window of a restoring array begins in LP; array = restoring gives the end, L."""
    share, rest = divmod(left_bits(geometry), geometry.restoring)
    return array * share + min(array, rest)


@compiled
def own_bits(array: int, geometry: Geometry) -> int:
    """Return the bits of LP that a restoring array alone contributes."""  # |EP|
    return offset(array + 1, geometry) - offset(array, geometry)


@compiled
def check_bits(array: int, geometry: Geometry) -> int:
    """Return the bits of a restoring array's column that the next array repeats."""  # |CP|
    return geometry.index_bits - own_bits(array, geometry)


@compiled
def restoring_column(left: int, start: int, geometry: Geometry) -> int:
    """Return the window of LP that begins at `start`."""
    doubled = left | left << left_bits(geometry)
    return (doubled >> start) & ((1 << geometry.index_bits) - 1)


@compiled
def validating_column(left: int, draw: tuple[int, int], geometry: Geometry) -> int:
    """Return the hashed column of LP in a validating array."""
    return column_hash(left, draw, 1 << geometry.validating_bits)


@compiled
def first_column(slice_: int, array: int, geometry: Geometry) -> int:
    """Return the first column of an array, counted over the whole sketch; restoring arrays come first in a slice."""
    per_slice = (geometry.restoring << geometry.index_bits) + (geometry.validating << geometry.validating_bits)
    windows = min(array, geometry.restoring) << geometry.index_bits
    hashed = max(0, array - geometry.restoring) << geometry.validating_bits
    return slice_ * per_slice + windows + hashed


@compiled
def row_of(mangled: int, peer: int, geometry: Geometry, key: Key) -> int:
    """Return the row of a pair; by peer alone in the paper, where popular peers then fill the same row everywhere."""
    host = mangled if geometry.rows_by_peer == 0 else mangled ^ mangled  # 0, and still unsigned
    return pair_hash(host, peer, key) & ((1 << geometry.column_bits) - 1)
