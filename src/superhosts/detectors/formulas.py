"""Exact results for columns and labels, and what follows from the sizes of a cube alone.

They are the errors of columns, the tests for a threshold, and the shape for a memory size.

Symbols as in docs/explanation/paper.md: g rows of a column, θ the threshold, T = θ/g.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from superhosts.errors import GeometryError

Floats = NDArray[np.float64]
Number = TypeVar("Number", float, Floats)
MOST_COLUMNS = 1 << 24  # of an array in a slice

# Smaller slices are filled faster, larger ones reduce collisions of hosts: with c columns in each of k arrays of 2^r
# slices, two hosts share two columns with probability k(k−1)/2/(2^r·c²), which makes their estimates less accurate.
SLICE_BYTES = 2 << 20
GIANT_BITS = 6  # giant columns take the pairs in the highest 2^-6 of priorities
GIANT_SAMPLE = 1 << GIANT_BITS  # so they count one in this many pairs
# The arrays, column bits, label bits and sample bits for memories of at least this many bytes.
DEFAULT_FORMS = (
    (96 << 20, (5, 16, 6, 0)),
    (24 << 20, (4, 15, 5, 0)),
    (6 << 20, (4, 14, 4, 0)),
    (2 << 20, (4, 13, 3, 0)),
    (700_000, (4, 12, 2, 0)),
    (450_000, (4, 11, 2, 0)),
    (200_000, (4, 9, 1, 1)),
    (80_000, (4, 9, 1, 3)),
    (0, (3, 9, 1, 3)),
)
LEAST_WITH_GIANT = 16  # columns of an array in a slice, of which one may become a giant column
# Noise removal turns exactly θ peers into slightly less than θ, so estimates up to this much below θ count as θ.
SLACK = 0.25
# A search skips labels of a priority below 1 − 14/θ: a host of θ peers has no pair above it once in a million.
MISS_EXPONENT = 14
PREFIX_MISS = 2e-5  # probability that a host at the threshold fails one test of the first words


def check_limits(geometry: Any, limits: dict[str, tuple[int, int]]) -> None:
    for name, (low, high) in limits.items():
        value = getattr(geometry, name)
        if not isinstance(value, int) or not low <= value <= high:
            raise GeometryError(f"{name}={value}: must be a whole number from {low} to {high}")


class Shape(NamedTuple):
    """The sizes that determine the shape of a cube. The number of columns follows from the memory."""

    slice_bits: int
    arrays: int
    column_bits: int
    label_bits: int
    sample_bits: int = 0


class Sizes(NamedTuple):
    """Sizes of a cube, as plain integers so that kernels accept them as an argument."""

    key_bits: int  # bits of a host: 32, 64 or 128
    slice_bits: int  # r: 2^r slices
    arrays: int  # k: columns per host
    column_bits: int  # log2 g: 2^column_bits rows
    columns: int  # c: columns per array and slice
    label_bits: int  # 2^label_bits labels per column
    share_bits: int  # pairs in the highest 2^-share_bits of priorities compete for labels
    giants: int = 0  # giant columns per array and slice, which count one in GIANT_SAMPLE of the pairs
    sample_bits: int = 0  # one in 2^sample_bits of the pairs is written at all
    turned_lines: int = 1  # 0: rows are turned within their words only, as in files of version 2

    @property
    def rows(self) -> int:
        """Bits per column."""  # g
        return 1 << self.column_bits

    @property
    def memory(self) -> int:
        """Bytes of columns and labels. Giant columns have no labels."""
        plain = column_bytes(self.column_bits, self.label_bits, self.key_bits)
        return self.arrays * (self.columns * plain + self.giants * (self.rows // 8)) << self.slice_bits

    @property
    def sample(self) -> int:
        """One in this many pairs is written."""
        return 1 << self.sample_bits

    @property
    def coarsest_sample(self) -> int:
        """One in this many pairs is in the columns that measure the largest hosts."""
        return (GIANT_SAMPLE if self.giants else 1) << self.sample_bits

    @property
    def most_peers(self) -> int:
        """The most peers that can be measured, in giant columns if there are some."""
        return saturation_point(self.rows, sample=self.coarsest_sample)


def shape_for(memory: int) -> Shape:
    """Return the shape for this much memory if nothing is known of the traffic.

    Longer columns are more accurate, more columns reduce collisions. These shapes have the lowest predicted errors, in
    the worst case of a range of flows: 5 M to 50 M in 128 MiB. Smaller memories tend to be fuller, so that their
    ranges reach further. They have four arrays: a fifth helps up to thirty times the flows per byte of 5 M in 128 MiB
    (0.4 instead of 0.5 % wrong at ten times as many), and does harm from sixty times as many on. Below 2 MiB, they are
    for up to fifty times as many: 0.9 M pairs in 500 KB. Below 450 KB, columns that take every pair would be full with
    most traffic, so one in two pairs is written, and one in eight below 200 KB.
    """
    memory = min(memory, 1 << 62)  # Larger integers may overflow a float.
    slice_bits = max(0, min(10, round(math.log2(max(memory, 1) / SLICE_BYTES))))
    return Shape(slice_bits, *next(form for least, form in DEFAULT_FORMS if memory >= least))


def column_bytes(column_bits: int, label_bits: int, key_bits: int) -> int:
    """Return the bytes of one column and its labels. A label has a 64-bit word for each 32 bits of the key."""
    return (1 << column_bits) // 8 + (8 * key_bits // 32 << label_bits)


def columns_in(memory: int, shape: Shape, key_bits: int) -> tuple[int, int]:
    """Return the numbers of plain and of giant columns that fill the memory of one array in one slice.

    Giant columns take a 64th of the pairs, so a 64th of the columns is about as full as the others. Where there are few
    columns, one more would cost too much.
    """
    plain, giant = column_bytes(shape.column_bits, shape.label_bits, key_bits), (1 << shape.column_bits) // 8
    room = memory // plain
    giants = max(1, room // GIANT_SAMPLE) if room >= LEAST_WITH_GIANT else 0
    return max(0, memory - giants * giant) // plain, giants


def standard_error(column_bits: int, threshold: float) -> float:
    """Return the relative standard error of linear counting at the threshold, in an otherwise empty sketch."""
    rows = 1 << column_bits
    load = threshold / rows
    return math.sqrt(rows * (math.exp(load) - load - 1)) / threshold


def saturation_point(rows: int, free: float = 1.0, sample: int = 1) -> int:
    """Return the number of peers of which one row is expected to stay zero: hosts typically leave none from there on.

    Others leave the fraction `free` of the rows, and one in `sample` pairs is written.
    """
    return math.floor(sample * rows * math.log(max(rows * free, 1.0)))


def zero_limit(column_bits: int, threshold: float) -> int:
    """Return Zmax: the most zero bits that a host with `threshold` peers leaves in a column or an AND of columns."""
    rows = 1 << column_bits
    load = threshold / rows
    free = math.exp(-load)
    return math.floor(rows * free + 3 * math.sqrt(max(0.0, rows * (free - (1 + load) * free * free))))


def prefix_test(column_bits: int, threshold: float, ones: float = 60) -> tuple[int, int]:
    """Return a cheap pre-check of an AND of columns: how many first words to read, and the minimum of ones in them.

    The words contain about `ones` ones for a host with `threshold` peers.

    Rows are hashed, so the first rows are a fair sample, in which such a host sets a Poisson number of bits or more.
    With 15 ones the check rejects most crowds of small hosts after a few cache lines of each column; tests with more
    ones reject nearly all that are left.
    """
    words = 1 << (column_bits - 6)
    per_word = 64 * -math.expm1(-threshold / (1 << column_bits))
    checked = min(words, 8 * math.ceil(ones / per_word / 8))
    return checked, _least_ones(checked * per_word)


def _least_ones(mean: float) -> int:
    """Return the number that a Poisson variable of this mean stays below with a probability of at most PREFIX_MISS."""
    if mean > 200:  # The normal approximation is precise enough, and exp(−mean) may be 0.
        return math.floor(mean - 4.2 * math.sqrt(mean))
    chance = below = math.exp(-mean)
    least = 0
    while below <= PREFIX_MISS:
        least += 1
        chance *= mean / least
        below += chance
    return least


def unnamed_probability(pairs_per_label: float, threshold: float, arrays: int, share: float) -> float:
    """Return the probability that a host loses its label in all arrays, given the other pairs of each."""
    return float(losing_probability(float(threshold), float(pairs_per_label), share) ** arrays)


def losing_probability(peers: Number, others: Number, share: float) -> Number:
    """Return the probability that a label does not name a host with n = `peers` pairs among L = `others` pairs.

    The pair of highest priority belongs to the host with probability n/(n + L). It competes for the label only if its
    priority is among the highest `share` of all; some pair's is with probability 1 − (1 − share)^(n + L). Which pair
    has the highest priority and how high it is are independent.
    """
    together = peers + others
    lost: Number = 1 - peers / together * (1 - (1 - share) ** together)
    return lost


def noise_ratio(fills: Iterable[Number]) -> Number:
    """Return P/D for the fills of k arrays. It is huge where the estimator's equations have no solution."""
    together: Any = 1.0  # Π p_i
    all_but_one: Any = 0.0  # Σ (1 − p_i)·Π_{j≠i} p_j
    for fill in fills:
        all_but_one = all_but_one * fill + together * (1 - fill)
        together = together * fill
    ratio: Number = together / np.maximum(1 - together - all_but_one, 1e-9)
    return ratio
