"""Addressing in CBAA: scalar functions shared by the CPU loop and the CUDA kernel.

The low bits of the mangled address select the slice; the remaining bits, LP, are L bits long. A restoring array's
column is a window of LP: `index_bits` consecutive bits, starting at the array's offset and wrapping around within LP.
Windows overlap: the low bits of a column belong to it alone (EP in the paper), and the bits above them (CP) repeat the
low bits of the next array's column. A tuple of columns that agrees on all repeated bits therefore encodes an address. A
validating array's column is a hash of LP.
"""

from __future__ import annotations

from superhosts.core.hashing import Key, column_hash, pair_hash
from superhosts.detectors.cbaa.geometry import Geometry
from superhosts.jit.cache import compiled


@compiled
def left_bits(geometry: Geometry) -> int:
    """Return the length of LP."""
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
    """Return the window of LP that starts at bit `start`."""
    doubled = left | left << left_bits(geometry)
    return (doubled >> start) & ((1 << geometry.index_bits) - 1)


@compiled
def validating_column(left: int, draw: tuple[int, int], geometry: Geometry) -> int:
    """Return the hashed column of LP in a validating array."""
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
