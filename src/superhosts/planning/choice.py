"""Choose the best sizes of a cube for the expected traffic, and the smallest memory for a given error."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from superhosts.errors import GeometryError, UsageError
from superhosts.pairs import check_width
from superhosts.planning.formulas import Shape, column_bytes, columns_in, shape_for
from superhosts.planning.prediction import SEARCH_DRAWS, Prediction, predict
from superhosts.units import format_size

ARRAYS = range(2, 7)
COLUMN_BITS = range(10, 20)
LABEL_BITS = range(10)
MOST_SHARE_BITS = 3
MOST_COLUMNS = 1 << 24
MIN_SATURATION = 4  # a column must be able to measure hosts of at least this many times the threshold
TIE_RATIO = 1.1  # predictions within this ratio count as equal; the smaller amount of work then decides
FIRST_ROUND_LABELS = (1, 4, 7)  # label bits that the first round tries
SECOND_ROUND_FORMS = 4  # forms (arrays, column bits) that reach the second round
SMALLEST, LARGEST = 1 << 16, 16 << 30  # range of memory sizes to choose from, in bytes


class Sizes(NamedTuple):
    """The sizes of a labelled cube, in the order of its geometry."""

    key_bits: int
    slice_bits: int
    arrays: int
    column_bits: int
    columns: int
    label_bits: int
    share_bits: int
    giants: int = 0
    sample_bits: int = 0
    turned_lines: int = 1


@lru_cache(maxsize=256)
def best_sizes(memory: int, flows: int, threshold: float, key_bits: int = 32) -> Sizes:
    """Return the sizes with the lowest predicted total false rate; among equals, those that need the least work.

    The number of slices depends only on the memory, because it determines how fast a cube is filled. The second round
    varies the label bits, only for the numbers of arrays and rows that did best in the first round.
    """
    check_width(key_bits)
    tried: dict[Sizes, Prediction] = {}
    forms: list[tuple[int, int]] = [(arrays, column_bits) for arrays in ARRAYS for column_bits in COLUMN_BITS]
    for labels in (FIRST_ROUND_LABELS, LABEL_BITS):
        for arrays, column_bits in forms:
            for label_bits in labels:
                sizes = _sizes(memory, threshold, key_bits, (arrays, column_bits, label_bits))
                if sizes is not None and sizes not in tried:
                    tried[sizes] = predict(sizes, flows, threshold, draws=SEARCH_DRAWS)
        best = sorted(tried, key=lambda sizes: tried[sizes].total)
        forms = list(dict.fromkeys((sizes.arrays, sizes.column_bits) for sizes in best))[:SECOND_ROUND_FORMS]
    if not tried:
        raise GeometryError(_why_none(memory, threshold, key_bits))
    tied = [sizes for sizes in best if tried[sizes].total <= TIE_RATIO * tried[best[0]].total]
    return min(tied, key=lambda sizes: (sizes.arrays, tried[sizes].restore_seconds))


def least_memory(error: float, flows: int, threshold: float, key_bits: int = 32) -> int:
    """Return the smallest memory with a predicted total false rate of at most `error`.

    The candidates are powers of two and 1.5 times powers of two.
    """
    steps = [(1 << exponent) + half for exponent in range(16, 35) for half in (0, 1 << (exponent - 1))]
    memories = [memory for memory in steps if SMALLEST <= memory <= LARGEST]
    low, high = 0, len(memories) - 1
    lowest = _total(memories[high], flows, threshold, key_bits)
    if lowest > error:
        raise UsageError(
            f"a total false rate of {100 * error:g} % cannot be reached: with {format_size(LARGEST)}, the largest "
            f"memory tried, it is {100 * lowest:.2f} % (columns of 2^{COLUMN_BITS[-1]} rows are no more accurate)"
        )
    while low < high:
        middle = (low + high) // 2
        if _total(memories[middle], flows, threshold, key_bits) <= error:
            high = middle
        else:
            low = middle + 1
    return memories[high]


def _total(memory: int, flows: int, threshold: float, key_bits: int) -> float:
    """Return the total false rate of the best sizes, or infinity if the memory is too small for any sizes."""
    try:
        return predict(best_sizes(memory, flows, threshold, key_bits), flows, threshold).total
    except GeometryError:
        return math.inf


def _sizes(memory: int, threshold: float, key_bits: int, form: tuple[int, int, int]) -> Sizes | None:
    """Return the sizes of this form (arrays, column bits, label bits) that fill the memory, or None if not useful."""
    arrays, column_bits, label_bits = form
    slice_bits, rows = shape_for(memory).slice_bits, 1 << column_bits
    shape = Shape(slice_bits, arrays, column_bits, label_bits)
    columns, giants = columns_in(memory // (arrays << slice_bits), shape, key_bits)
    long_enough = rows * math.log(rows) >= MIN_SATURATION * threshold or column_bits == COLUMN_BITS[-1]
    if not (long_enough and 2 <= columns <= MOST_COLUMNS):
        return None
    share_bits = _share_bits(threshold, arrays)
    return Sizes(key_bits, slice_bits, arrays, column_bits, columns, label_bits, share_bits, giants)


def _why_none(memory: int, threshold: float, key_bits: int) -> str:
    """Return the reason why no form fits the memory: it exceeds the largest cube, or is too small for any."""
    column = column_bytes(COLUMN_BITS[-1], FIRST_ROUND_LABELS[-1], key_bits)
    most = MOST_COLUMNS * column * ARRAYS[-1] << shape_for(memory).slice_bits
    if memory > most:
        return f"memory {format_size(memory)} is too large: a cube has at most {format_size(most)}; use less memory"
    return f"memory {format_size(memory)} is too small for a threshold of {threshold:g}; use more memory"


def _share_bits(threshold: float, arrays: int) -> int:
    """Return the share bits: the share of pairs that compete for labels is 2^−bits.

    A host at the threshold has no competing pair in any array with a probability of at most 10^−7.
    """
    for bits in range(MOST_SHARE_BITS, 0, -1):
        if arrays * threshold * math.log1p(-(2.0**-bits)) <= math.log(1e-7):
            return bits
    return 0
