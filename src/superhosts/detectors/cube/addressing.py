"""Where a pair goes in the labelled cube. Scalar functions, shared by the CPU loop and the CUDA kernel.

A host's mangled address m lives in two 64-bit words (the high one is 0 unless keys have 128 bits); `folded` is m in 64
bits. The slice is the low bits of m, the column of each array is hashed, the row is the low bits of the pair's hash.

In each array a host's rows are turned: moved around within their words of 64, by a number of its own. The AND of a
host's columns undoes it. Another host that shares two of its columns would otherwise put every pair into the same row
of both, and its noise would pass the AND whole; turned by other numbers, it meets there only by chance.

Every column carries labels: who set the pair of highest priority here. A host competes in one label of its column,
chosen by the bits of m above the slice bits. The priority is 32 bits of the pair's hash, other bits for every array:
with one priority for all arrays, a host that loses in one would lose in all. A label holds (priority << 32 | limb of
m), one word for each 32-bit limb; all carry the same priority, so that the same pair wins them all.
"""

from __future__ import annotations

from superhosts.compiled import compiled
from superhosts.detectors.cube.geometry import Geometry
from superhosts.hashing import MASK32, MASK64, Key, column_hash, pair_hash

TICKET_ARRAYS = 3  # priorities of 32 bits, 16 apart, that one ticket of 64 bits holds


@compiled
def slice_of(low: int, geometry: Geometry) -> int:
    """Return the slice of a mangled host, from its low word."""
    return low & ((1 << geometry.slice_bits) - 1)


@compiled
def column_of(folded: int, low: int, array: int, draw: tuple[int, int], geometry: Geometry) -> int:
    """Return the column of a mangled host in one array, counted over the whole cube."""
    place = slice_of(low, geometry) * geometry.arrays + array
    return place * geometry.columns + column_hash(folded, draw, geometry.columns)


@compiled
def turn_of(folded: int, draw: tuple[int, int]) -> int:
    """Return by how many bits the rows of a mangled host are turned, within their words, in one array."""
    return (((folded * draw[0] + draw[1]) & MASK64) >> 26) & 63  # bits that do not choose the column


@compiled
def turned_back(word: int, turn: int) -> int:
    """Return a word of a column with its rows where they were before they were turned."""
    return (word >> turn | word << (-turn & 63)) & MASK64


@compiled
def label_of(low: int, geometry: Geometry) -> int:
    """Return which label of its columns a mangled host competes for."""
    return (low >> geometry.slice_bits) & ((1 << geometry.label_bits) - 1)


@compiled
def row_of(pair: int, geometry: Geometry) -> int:
    """Return the row of a pair from its hash."""
    return pair & ((1 << geometry.column_bits) - 1)


@compiled
def ticket_of(pair: int, array: int, key: Key) -> int:
    """Return the 64 bits from which an array draws its priority: the pair's hash, mixed anew every three arrays."""
    for _ in range(array // TICKET_ARRAYS):
        pair = pair_hash(pair, key.pair[1], key)
    return pair


@compiled
def priority_of(ticket: int, array: int) -> int:
    """Return the 32-bit priority of a pair in one array, from its ticket."""
    shift = 16 * (array % TICKET_ARRAYS)
    return ((ticket << shift | (ticket >> 1) >> (63 - shift)) & MASK64) >> 32


@compiled
def lowest_priority(share_bits: int) -> int:
    """Return the priority from which pairs compete for labels."""
    return (MASK32 << (32 - share_bits)) & MASK32


@compiled
def limb_of(high: int, low: int, limb: int) -> int:
    """Return one 32-bit limb of a mangled host, the lowest first."""
    word = low if limb < 2 else high
    return (word >> (32 * (limb & 1))) & MASK32


# The words of a label.


@compiled
def label_word(priority: int, limb: int) -> int:
    """Return a word of a label: the larger one of two has the higher priority."""
    return (priority << 32 | limb) & MASK64


@compiled
def priority_in(word: int) -> int:
    """Return the priority in a word of a label."""
    return word >> 32


@compiled
def limb_in(word: int) -> int:
    """Return the limb of a mangled host in a word of a label."""
    return word & MASK32


@compiled
def holds_limb(word: int, priority: int, limb: int) -> bool:
    """Return True if a word of a label has this priority and this limb."""
    return priority_in(word) == priority and limb_in(word) == limb


@compiled
def names_host(low: int, label: int, column: int, home: int, geometry: Geometry) -> bool:
    """Return True if a host that a label spells belongs there: it competes for this label, and `home` is its column.

    A label may be mixed from the words of two pairs of equal priority, at this site or in a merge. What it spells then
    belongs somewhere else, all but once in as many cases as there are columns and labels, and is no host.
    """
    return label_of(low, geometry) == label and home == column
