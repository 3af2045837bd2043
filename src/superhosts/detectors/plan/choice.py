"""Choose the best sizes of a cube for the expected traffic, and the smallest memory for a given error."""

from __future__ import annotations

import math
import operator
from functools import lru_cache

from superhosts.core.hashing import MAX_ARRAYS
from superhosts.core.pairs import check_width
from superhosts.core.text import counted
from superhosts.core.units import format_size
from superhosts.detectors.formulas import (
    MOST_COLUMNS,
    Shape,
    Sizes,
    column_bytes,
    columns_in,
    saturation_point,
    shape_for,
    standard_error,
)
from superhosts.detectors.plan.decision import FEWEST_NORMAL
from superhosts.detectors.plan.population import Population, population_of
from superhosts.detectors.plan.prediction import check_predictable, predict, restore_seconds, rough_rates
from superhosts.errors import GeometryError, UsageError

ARRAYS = range(2, MAX_ARRAYS + 1)
COLUMN_BITS = range(7, 20)
LABEL_BITS = range(11)
SAMPLE_BITS = range(9)
FORMS = (ARRAYS, COLUMN_BITS, LABEL_BITS, SAMPLE_BITS)
MOST_SHARE_BITS = 3
MOST_UNUSED = 1 / 8  # of the memory; if whole columns leave more of it unused, the slices are made larger
MIN_SATURATION = 10  # a plain column must be able to measure hosts of at least this many times the threshold
TIE_RATIO, TIE_RATE = 1.02, 2e-5  # predictions this close count as equal; the smaller amount of work then decides
FIRST_ARRAYS = 4  # the number of arrays in the first round
CLIMBS = 2  # sizes of the first round that the second round improves
# Changes of arrays, column bits, label bits and sample bits that the second round tries.
STEPS = [
    *((1, 0, 0, 0), (-1, 0, 0, 0), (0, 1, 1, 0), (0, -1, -1, 0), (0, 1, 0, 0), (0, -1, 0, 0)),
    *((0, 0, 1, 0), (0, 0, -1, 0), (0, 0, 0, 1), (0, 0, 0, -1), (0, -1, 0, 1), (0, 1, 0, -1)),
]
UNNAMED = 1e-4  # about the share of hosts at the threshold that may stay unnamed in the first round
BYTES_PER_LABEL = (128, 24)  # of a column's rows, at least, in the first round
FLOOR = 0.8  # a total false rate is at least this many relative standard errors, times the exponent of the tail
UPDATE_SECONDS = 0.1  # of a window and array, to weigh it against a restore
MOST_ERRORS = 0.2  # the highest total false rate with which a cube is of any use
SMALLEST, LARGEST = 1 << 16, 16 << 30  # range of memory sizes to choose from, in bytes


@lru_cache(maxsize=256)
def best_sizes(memory: int, flows: int, threshold: float, key_bits: int = 32) -> Sizes:
    """Return the sizes with the lowest predicted total false rate; among equals, those that need the least work.

    The number of slices depends on the memory, because it determines how fast a cube is filled; long columns, of which
    a slice holds so few that much of its memory would stay unused, get fewer slices. A first round tries columns of
    every length, and sampling of pairs where its own error is smaller than the best total so far, which takes a small
    memory. A second round changes the best of them step by step while they improve.
    """
    check_width(key_bits)
    check_predictable(threshold)
    search = _Search(memory, population_of(flows, threshold), threshold, key_bits)
    for sample_bits in SAMPLE_BITS:
        if not search.try_columns(sample_bits):
            break
    if not search.tried:
        most = MOST_COLUMNS * column_bytes(COLUMN_BITS[-1], 0, key_bits) * FIRST_ARRAYS << shape_for(memory).slice_bits
        size = format_size(memory)
        if memory > most:
            text = f"memory {size} is too large: a cube has at most {format_size(most)}; use less memory"
            raise GeometryError(text)
        raise GeometryError(f"memory {size} is too small for a threshold of {threshold:g}; use more memory")
    search.climb()
    return search.best()


def check_suffices(sizes: Sizes, flows: int, threshold: float, memory: str | int) -> None:
    """Raise GeometryError, with a memory that would do if there is one, if a cube of these sizes is useless."""
    expected = predict(sizes, flows, threshold)
    if expected.total <= MOST_ERRORS:
        return
    try:
        enough = least_memory(MOST_ERRORS, flows, threshold, sizes.key_bits)
    except UsageError:
        return
    given = memory if isinstance(memory, str) else format_size(memory)
    traffic = f"{counted(flows, 'flow')} at threshold {threshold:g}"
    wrong = f"about {min(expected.total, 1):.0%} of the answers would be wrong"
    raise GeometryError(
        f"memory {given} is too small for {traffic}: {wrong}; {format_size(enough)} would do for {MOST_ERRORS:.0%}"
    )


class _Search:
    def __init__(self, memory: int, population: Population, threshold: float, key_bits: int) -> None:
        self._memory, self._population, self._threshold, self._key_bits = memory, population, threshold, key_bits
        self.tried: dict[Sizes, float] = {}  # total false rates
        self._least = math.inf

    def try_columns(self, sample_bits: int) -> bool:
        """Try columns of every length with one in 2^sample_bits pairs written. Return whether that was any better."""
        before = self._least
        for column_bits in reversed(COLUMN_BITS):  # Long columns have the lowest floor.
            if self._floor(column_bits, sample_bits) > self._least:
                break
            for arrays in (FIRST_ARRAYS, 2) if not self.tried else (FIRST_ARRAYS,):  # Two fit into a tiny memory.
                for label_bits in self._labels_for(arrays, column_bits):
                    self._try((arrays, column_bits, label_bits, sample_bits))
        return self._least < before

    def climb(self) -> None:
        for start in sorted(self.tried, key=lambda sizes: self.tried[sizes])[:CLIMBS]:
            best = start
            while True:
                form = (best.arrays, best.column_bits, best.label_bits, best.sample_bits)
                near = [self._try(tuple(map(operator.add, form, step))) for step in STEPS]
                better = min((sizes for sizes in near if sizes), key=lambda sizes: self.tried[sizes], default=best)
                if self.tried[better] >= self.tried[best]:
                    break
                best = better

    def best(self) -> Sizes:
        limit = TIE_RATIO * self._least + TIE_RATE
        tied = [sizes for sizes, total in self.tried.items() if total <= limit]
        return min(tied, key=self._work)

    def _work(self, sizes: Sizes) -> float:
        """Return how much work a cube is: each array takes time when pairs are written and in a restore."""
        return sizes.arrays * (UPDATE_SECONDS + restore_seconds(sizes, self._population, self._threshold))

    def _try(self, form: tuple[int, ...]) -> Sizes | None:
        if not all(number in numbers for number, numbers in zip(form, FORMS, strict=True)):
            return None
        sizes = _sizes(self._memory, self._threshold, self._key_bits, form)
        if sizes is not None and sizes not in self.tried:
            self.tried[sizes] = rough_rates(sizes, self._population, self._threshold).total
            self._least = min(self._least, self.tried[sizes])
        return sizes

    def _floor(self, column_bits: int, sample_bits: int) -> float:
        """Return a total false rate that columns of this length reach only without any noise."""
        written = self._threshold / (1 << sample_bits)
        if written < FEWEST_NORMAL and not sample_bits:
            return 0.0
        sampling = ((1 << sample_bits) - 1) / self._threshold
        return FLOOR * math.sqrt(standard_error(column_bits, written) ** 2 + sampling)

    def _labels_for(self, arrays: int, column_bits: int) -> set[int]:
        """Return label bits to begin with: few labels are lost to other hosts, but they take little memory."""
        columns = max(1, self._memory // (arrays * column_bytes(column_bits, 0, self._key_bits)))
        wanted = self._population.flows / columns / (UNNAMED ** (1 / arrays) * self._threshold)
        rows = (1 << column_bits) / 8 * 32 / self._key_bits
        numbers = {max(1.0, min(wanted, rows / least)) for least in BYTES_PER_LABEL}
        return {min(math.ceil(math.log2(number)), LABEL_BITS[-1]) for number in numbers}


def least_memory(error: float, flows: int, threshold: float, key_bits: int = 32) -> int:
    """Return the smallest memory, 2^n or 1.5·2^n, with a predicted total false rate of at most `error`."""
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
    try:
        return predict(best_sizes(memory, flows, threshold, key_bits), flows, threshold).total
    except GeometryError:
        return math.inf


def _sizes(memory: int, threshold: float, key_bits: int, form: tuple[int, ...]) -> Sizes | None:
    arrays, column_bits, label_bits, sample_bits = form
    rows, written = 1 << column_bits, threshold / (1 << sample_bits)
    if saturation_point(rows) < MIN_SATURATION * written and column_bits < COLUMN_BITS[-1]:
        return None
    share_bits = _share_bits(written, arrays)
    for slice_bits in range(shape_for(memory).slice_bits, -1, -1):
        shape = Shape(slice_bits, arrays, column_bits, label_bits)
        columns, giants = columns_in(memory // (arrays << slice_bits), shape, key_bits)
        sizes = Sizes(key_bits, *shape[:3], columns, label_bits, share_bits, giants, sample_bits)
        if columns >= 2 and sizes.memory >= (1 - MOST_UNUSED) * memory:
            break
    return sizes if 2 <= columns <= MOST_COLUMNS else None


def _share_bits(threshold: float, arrays: int) -> int:
    """Return the share bits with which a host at the threshold lacks a competing pair with a probability of 10^−7."""
    for bits in range(MOST_SHARE_BITS, 0, -1):
        if arrays * threshold * math.log1p(-(2.0**-bits)) <= math.log(1e-7):
            return bits
    return 0
