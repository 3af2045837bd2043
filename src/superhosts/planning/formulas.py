"""Exact statements on columns and labels: errors, thresholds that they support, a shape for a memory.

Symbols as in docs/paper.md: g rows of a column, θ the threshold, T = θ/g.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from superhosts.errors import GeometryError

Number = TypeVar("Number", float, NDArray[np.float64])

# Smaller slices are filled faster, larger ones keep hosts apart: with c columns in each array of 2^r slices, two hosts
# share two columns with probability 3/(2^r·c²), and are then measured worse.
SLICE_BYTES = 2 << 20


def check_limits(geometry: Any, limits: dict[str, tuple[int, int]]) -> None:
    """Refuse a geometry with a size outside its limits, naming the size and the rule."""
    for name, (low, high) in limits.items():
        value = getattr(geometry, name)
        if not isinstance(value, int) or not low <= value <= high:
            raise GeometryError(f"{name}={value}: must be a whole number from {low} to {high}")


class Shape(NamedTuple):
    """The powers of two that give a cube its form; the number of columns follows from the memory."""

    slice_bits: int
    column_bits: int
    label_bits: int


def shape_for(memory: int) -> Shape:
    """Return the shape that did best in simulations of heavy-tailed windows for this much memory.

    Long columns measure better, many columns keep hosts apart: with less memory both must give.
    """
    memory = min(memory, 1 << 62)  # whole numbers that no float can hold have a shape, too
    slice_bits = max(0, min(10, round(math.log2(max(memory, 1) / SLICE_BYTES))))
    mebibytes = memory / (1 << 20)
    if mebibytes >= 96:
        return Shape(slice_bits, 14, 3)
    if mebibytes >= 48:
        return Shape(slice_bits, 13, 3)
    if mebibytes >= 1.5:
        return Shape(slice_bits, 12, 2)
    return Shape(slice_bits, 10, 1)


def column_bytes(column_bits: int, label_bits: int, key_bits: int) -> int:
    """Bytes of one column and its labels: a label has a 64-bit word for each 32 bits of the key."""
    return (1 << column_bits) // 8 + (8 * key_bits // 32 << label_bits)


def standard_error(column_bits: int, threshold: float) -> float:
    """Relative standard error of linear counting at the threshold, in an otherwise empty sketch."""
    rows = 1 << column_bits
    load = threshold / rows
    return math.sqrt(rows * (math.exp(load) - load - 1)) / threshold


def zero_limit(column_bits: int, threshold: float, deviations: float = 3.0) -> int:
    """Zmax: the most zero bits that a host of at least `threshold` peers leaves in a column or an AND of columns."""
    rows = 1 << column_bits
    load = threshold / rows
    free = math.exp(-load)
    return math.floor(rows * free + deviations * math.sqrt(max(0.0, rows * (free - (1 + load) * free * free))))


class Prefix(NamedTuple):
    """A cheap first look at an AND of columns: its first words, and the fewest ones they may show."""

    words: int
    ones: int


def prefix_test(column_bits: int, threshold: float, ones: float = 60) -> Prefix:
    """Return a look at as many words as show a host of `threshold` peers with about so many ones.

    Rows are hashed, so the first rows are a fair sample: a host of `threshold` peers shows μ ones there, and fewer than
    μ − 6·sqrt(μ) only about once in 10^9. 60 ones reject crowds of small hosts after a cache line or two of
    each column; four times as many reject nearly all of those that are left.
    """
    words = 1 << (column_bits - 6)
    per_word = 64 * -math.expm1(-threshold / (1 << column_bits))
    look = min(words, 8 * math.ceil(ones / per_word / 8))
    mean = look * per_word
    return Prefix(look, max(0, math.floor(mean - 6 * math.sqrt(mean))))


def unnamed_probability(pairs_per_label: float, threshold: float, arrays: int, share: float) -> float:
    """Probability that no label names a host of `threshold` peers, given the other pairs that a label sees.

    Every array draws priorities of its own, so the host must lose in each of them.
    """
    return float(losing_probability(float(threshold), float(pairs_per_label), share) ** arrays)


def losing_probability(peers: Number, others: Number, share: float) -> Number:
    """Probability that one label does not name a host of so many peers, where others have so many pairs.

    The pair of highest priority is the host's with n/(n + L). It seeks the label only if it is one of the highest
    `share` of all priorities: some pair is with 1 − (1 − share)^(n + L). Who has it and how high it is are independent.
    """
    together = peers + others
    lost: Number = 1 - peers / together * (1 - (1 - share) ** together)
    return lost
