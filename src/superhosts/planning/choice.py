"""The best sizes of a cube for the traffic that is expected, and the least memory for a wanted error."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from superhosts.errors import GeometryError, UsageError
from superhosts.planning.formulas import column_bytes, shape_for
from superhosts.planning.prediction import FEW_DRAWS, Prediction, predict
from superhosts.units import format_size

ARRAYS = range(2, 7)
COLUMN_BITS = range(10, 17)  # longer ones measure little better and restore slower
LABEL_BITS = range(6)
MOST_SHARE_BITS = 3
MOST_COLUMNS = 1 << 24
ROOM = 4  # a column measures hosts of at least so many thresholds
ALIKE = 1.1  # predictions closer than this are taken for equal: then less work decides
FIRST_LABELS = (1, 4)  # label bits of the first round
SECOND_ROUND = 4  # forms that get to the second
SMALLEST, LARGEST = 1 << 16, 16 << 30  # memories to choose from


class Sizes(NamedTuple):
    """The sizes of a labelled cube, in the order of its geometry."""

    key_bits: int
    slice_bits: int
    arrays: int
    column_bits: int
    columns: int
    label_bits: int
    share_bits: int


@lru_cache(maxsize=256)
def best_sizes(memory: int, flows: int, threshold: float, key_bits: int = 32) -> Sizes:
    """Return the sizes with the least predicted total false rate; among equals, those that are least work.

    The number of slices follows from the memory alone: it decides how fast a cube is filled. Labels are varied only for
    the numbers of arrays and rows that do best in a first round.
    """
    if key_bits not in (32, 64, 128):
        raise GeometryError(f"key_bits={key_bits}: keys have 32, 64 or 128 bits")
    tried: dict[Sizes, Prediction] = {}
    forms: list[tuple[int, int]] = [(arrays, column_bits) for arrays in ARRAYS for column_bits in COLUMN_BITS]
    for labels in (FIRST_LABELS, LABEL_BITS):
        for arrays, column_bits in forms:
            for label_bits in labels:
                sizes = _sizes(memory, threshold, key_bits, (arrays, column_bits, label_bits))
                if sizes is not None and sizes not in tried:
                    tried[sizes] = predict(sizes, flows, threshold, draws=FEW_DRAWS)
        best = sorted(tried, key=lambda sizes: tried[sizes].total)
        forms = list(dict.fromkeys((sizes.arrays, sizes.column_bits) for sizes in best))[:SECOND_ROUND]
    if not tried:
        raise GeometryError(_why_none(memory, threshold, key_bits))
    alike = [sizes for sizes in best if tried[sizes].total <= ALIKE * tried[best[0]].total]
    return min(alike, key=lambda sizes: (sizes.arrays, tried[sizes].restore_seconds))


def least_memory(error: float, flows: int, threshold: float, key_bits: int = 32) -> int:
    """Return the least memory with a predicted total false rate of at most `error`: a power of two or 1.5 times one."""
    steps = [(1 << exponent) + half for exponent in range(16, 35) for half in (0, 1 << (exponent - 1))]
    memories = [memory for memory in steps if SMALLEST <= memory <= LARGEST]
    low, high = 0, len(memories) - 1
    remains = _total(memories[high], flows, threshold, key_bits)
    if remains > error:
        raise UsageError(
            f"a total false rate of {100 * error:g} % cannot be held: with {format_size(LARGEST)}, the most that is "
            f"tried, {100 * remains:.2f} % remain (columns of 2^{COLUMN_BITS[-1]} rows measure no better)"
        )
    while low < high:
        middle = (low + high) // 2
        if _total(memories[middle], flows, threshold, key_bits) <= error:
            high = middle
        else:
            low = middle + 1
    return memories[high]


def _total(memory: int, flows: int, threshold: float, key_bits: int) -> float:
    """Total false rate of the best sizes; a memory that is too small for any has none better than 1."""
    try:
        return predict(best_sizes(memory, flows, threshold, key_bits), flows, threshold).total
    except GeometryError:
        return math.inf


def _sizes(memory: int, threshold: float, key_bits: int, form: tuple[int, int, int]) -> Sizes | None:
    """Return the sizes of this form (arrays, column bits, label bits) that fill the memory, if they are any good."""
    arrays, column_bits, label_bits = form
    slice_bits, rows = shape_for(memory).slice_bits, 1 << column_bits
    columns = memory // (column_bytes(column_bits, label_bits, key_bits) * arrays << slice_bits)
    measures = rows * math.log(rows) >= ROOM * threshold or column_bits == COLUMN_BITS[-1]
    if not (measures and 2 <= columns <= MOST_COLUMNS):
        return None
    return Sizes(key_bits, slice_bits, arrays, column_bits, columns, label_bits, _share_bits(threshold, arrays))


def _why_none(memory: int, threshold: float, key_bits: int) -> str:
    """Say why no form fits the memory: even the largest would leave some of it, or it is too small for all."""
    column = column_bytes(COLUMN_BITS[-1], FIRST_LABELS[-1], key_bits)
    most = MOST_COLUMNS * column * ARRAYS[-1] << shape_for(memory).slice_bits
    if memory > most:
        return f"memory {format_size(memory)} is too large: a cube has at most {format_size(most)}; take less memory"
    return f"memory {format_size(memory)} is too small for a threshold of {threshold:g}: take more memory"


def _share_bits(threshold: float, arrays: int) -> int:
    """Choose how few pairs compete for labels: a host at the threshold has none in any array once in 10^7."""
    for bits in range(MOST_SHARE_BITS, 0, -1):
        if arrays * threshold * math.log1p(-(2.0**-bits)) <= math.log(1e-7):
            return bits
    return 0
