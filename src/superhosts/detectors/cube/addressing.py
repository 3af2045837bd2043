"""Addressing in the labelled cube: scalar functions shared by the CPU loop and the CUDA kernel.

A host's mangled address m is two 64-bit words (the high word is 0 unless hosts have 128 bits); `folded` is m folded
into 64 bits. The low bits of m select the slice, a hash of m selects the column in each array, and the low bits of the
pair's hash select the row.

In each array, a host's rows are turned: rotated within their 64-bit words, and moved to other cache lines of the
column, by amounts that depend on host and array. The AND of a host's columns undoes this. Otherwise another host that
shares two columns would set the same row in both for every pair, and this noise would pass the AND undiminished; turned
by other amounts, the rows coincide only by chance. A column of 2^16 rows has 8,192 turns.

A column of g rows is full near g·ln g peers. Every array therefore has giant columns, too, which take only the pairs in
the highest 64th of the first array's priorities, and reach 64 times as far. They follow all plain columns.

Every column has labels, which record the host of the pair with the highest priority in this column. A host competes for
one label of its column, selected by the bits of m above the slice bits. The priority is 32 bits of the pair's hash,
different bits in each array: with the same priority in all arrays, a host that loses in one would lose in all. A label
consists of words (priority << 32 | limb of m), one for each 32-bit limb; all have the same priority, so that the same
pair wins all of them.
"""

from __future__ import annotations

import numpy as np

from superhosts.core.hashing import MASK32, MASK64, Key, column_hash, pair_hash
from superhosts.detectors.cube.geometry import LINE_BITS, Geometry
from superhosts.detectors.formulas import GIANT_BITS
from superhosts.jit.cache import compiled

TICKET_ARRAYS = 3  # 32-bit priorities, 16 bits apart, that a 64-bit ticket contains; four with turned lines
LINE_WORDS = 8  # words of a cache line


@compiled
def slice_of(low: int, geometry: Geometry) -> int:
    return low & ((1 << geometry.slice_bits) - 1)


@compiled
def column_of(folded: int, low: int, array: int, draw: tuple[int, int], geometry: Geometry) -> int:
    place = slice_of(low, geometry) * geometry.arrays + array
    return place * geometry.columns + column_hash(folded, draw, geometry.columns)


@compiled
def giant_column_of(folded: int, low: int, array: int, draw: tuple[int, int], geometry: Geometry) -> int:
    place = slice_of(low, geometry) * geometry.arrays + array
    first = (geometry.arrays * geometry.columns) << geometry.slice_bits
    return first + place * geometry.giants + column_hash(folded, draw, geometry.giants)


@compiled
def rotation_of(folded: int, draw: tuple[int, int]) -> int:
    """Return the number of bits by which the rows of a mangled host are rotated within their words in one array."""
    return (((folded * draw[0] + draw[1]) & MASK64) >> 26) & 63  # bits that do not select the column


@compiled
def line_turn_of(folded: int, draw: tuple[int, int], geometry: Geometry) -> int:
    """Return the number that turns the cache lines of a mangled host in one array: line i is stored as i XOR it."""
    bits = max(0, geometry.column_bits - LINE_BITS) * geometry.turned_lines
    return (((folded * draw[0] + draw[1]) & MASK64) >> 12) & ((1 << bits) - 1)  # bits below those of the rotation


@compiled
def place_in_array(folded: int, pair: int, draw: tuple[int, int], columns: int, geometry: Geometry) -> np.uint64:
    """Return the place of a pair's bit within one array of its slice."""
    low_bits = np.uint64(63)
    column = np.uint64(column_hash(folded, draw, columns))
    words = np.uint64((1 << geometry.column_bits) - 1) & ~low_bits
    turned = (pair & words) ^ (np.uint64(line_turn_of(folded, draw, geometry)) << np.uint64(LINE_BITS))
    rotated = (pair + np.uint64(rotation_of(folded, draw))) & low_bits
    return (column << np.uint64(geometry.column_bits)) + turned + rotated


@compiled
def rotated_back(word: int, rotation: int) -> int:
    return (word >> rotation | word << (-rotation & 63)) & MASK64


@compiled
def label_of(low: int, geometry: Geometry) -> int:
    """Return the index of the label for which a mangled host competes in its columns."""
    return (low >> geometry.slice_bits) & ((1 << geometry.label_bits) - 1)


@compiled
def row_of(pair: int, geometry: Geometry) -> int:
    return pair & ((1 << geometry.column_bits) - 1)


@compiled
def is_sampled(pair: int, geometry: Geometry) -> bool:
    """Return True if a pair is written at all, from bits of its hash that select neither the row nor giant columns."""
    return (pair >> (32 - geometry.sample_bits)) & ((1 << geometry.sample_bits) - 1) == (1 << geometry.sample_bits) - 1


@compiled
def is_for_giants(pair: int) -> bool:
    return pair >> (64 - GIANT_BITS) == (1 << GIANT_BITS) - 1


@compiled
def ticket_of(pair: int, array: int, geometry: Geometry, key: Key) -> int:
    """Return the 64 bits that contain an array's priority: the pair's hash, rehashed for every four arrays."""
    for _ in range(array // (TICKET_ARRAYS + geometry.turned_lines)):
        pair = pair_hash(pair, key.pair[1], key)
    return pair


@compiled
def priority_of(ticket: int, array: int, geometry: Geometry) -> int:
    shift = 16 * (array % (TICKET_ARRAYS + geometry.turned_lines))
    return ((ticket << shift | (ticket >> 1) >> (63 - shift)) & MASK64) >> 32


@compiled
def lowest_priority(share_bits: int) -> int:
    """Return the minimum priority with which a pair competes for labels. It is not 0, which means that none does."""
    return max(1, (MASK32 << (32 - share_bits)) & MASK32)


@compiled
def contender_marks(ticket: np.uint64, share_bits: int) -> np.uint64:
    """Return bits 63, 47, 31 and 15 for the four arrays of a ticket: set if the pair competes for labels there.

    If the highest bits of a priority are all set, then adding to the lowest of them carries into the bit above. So one
    sum compares four priorities. Of a share that is given by 0 or 16 bits, some marked pairs do not compete.
    """
    share, each = min(share_bits, 15), np.uint64(0x0001000100010001)
    highest = np.uint64(((1 << share) - 1) << (15 - share)) * each
    carried = ((ticket >> np.uint64(1)) & highest) + np.uint64(1 << (15 - share)) * each
    return carried & (np.uint64(1 << 15) * each)


@compiled
def limb_of(high: int, low: int, limb: int) -> int:
    """Return a 32-bit limb of a mangled host. Limb 0 is the lowest."""
    word = low if limb < 2 else high
    return (word >> (32 * (limb & 1))) & MASK32


# Packing of a label's words


@compiled
def label_word(priority: int, limb: int) -> int:
    """Return a word of a label. The larger of two words has the higher priority."""
    return (priority << 32 | limb) & MASK64


@compiled
def priority_in(word: int) -> int:
    return word >> 32


@compiled
def limb_in(word: int) -> int:
    return word & MASK32


@compiled
def holds_limb(word: int, priority: int, limb: int) -> bool:
    return priority_in(word) == priority and limb_in(word) == limb


@compiled
def names_host(low: int, label: int, column: int, home: int, geometry: Geometry) -> bool:
    """Return True if a host read from a label belongs there: it competes for this label, and `home` is its column.

    A label can contain words of two pairs of equal priority, from one site or after a merge. Such a mixture is not a
    host, and it belongs to another column or label except once in as many cases as there are columns and labels.
    """
    return label_of(low, geometry) == label and home == column
