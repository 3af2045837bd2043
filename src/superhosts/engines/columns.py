"""Bit columns: counting zeros, AND, OR. Shared by every sketch that is made of columns.

A column is g bits in g/64 words; a sketch is a matrix of columns. Beside it stand the zero counts of all columns, kept
up to date by whoever sets a bit, so that an answer does not begin by reading the whole sketch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.device import run_parallel, split_evenly

Words = NDArray[np.uint64]
Counts = NDArray[np.int32]


@compiled
def ones_of(word: np.uint64) -> np.uint64:
    """Count the set bits of a 64-bit word (LLVM knows this form and uses the machine's own instruction)."""
    x = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)


@compiled
def count_zeros(columns: Words, zeros: Counts, start: int, stop: int) -> None:
    """Count the zero bits of columns start..stop."""
    for c in range(start, stop):
        ones = np.uint64(0)
        for w in range(columns.shape[1]):
            ones += ones_of(columns[c, w])
        zeros[c] = columns.shape[1] * 64 - np.int64(ones)


@compiled
def or_columns(into: Words, other: Words, zeros: Counts, start: int, stop: int) -> None:
    """OR columns start..stop of another sketch into this one and count anew."""
    for c in range(start, stop):
        ones = np.uint64(0)
        for w in range(into.shape[1]):
            into[c, w] |= other[c, w]
            ones += ones_of(into[c, w])
        zeros[c] = into.shape[1] * 64 - np.int64(ones)


@compiled
def and_ones(columns: Words, chosen: NDArray[np.int64], start: int, stop: int) -> np.int64:
    """Count the ones of the AND of the chosen columns, in words start..stop."""
    ones = np.uint64(0)
    for w in range(start, stop):
        word = columns[chosen[0], w]
        for i in range(1, len(chosen)):
            word &= columns[chosen[i], w]
        ones += ones_of(word)
    return np.int64(ones)


@compiled
def common_zeros(columns: Words, chosen: NDArray[np.int64]) -> Counts:
    """Count the zeros of the AND of the columns that each row of `chosen` names."""
    zeros = np.empty(len(chosen), np.int32)
    for i in range(len(chosen)):
        zeros[i] = columns.shape[1] * 64 - and_ones(columns, chosen[i], 0, columns.shape[1])
    return zeros


def sum_arrays(zeros: Counts, edges: Sequence[int]) -> NDArray[np.int64]:
    """Return the zero bits of every array (second axis) in every slice (first axis)."""
    sums: NDArray[np.int64] = np.add.reduceat(zeros.reshape(-1, edges[-1]), edges[:-1], axis=1, dtype=np.int64)
    return sums


def recount(columns: Words, zeros: Counts, threads: int) -> None:
    """Count the zeros of all columns on all threads."""
    run_parallel(count_zeros, [(columns, zeros, a, b) for a, b in split_evenly(len(columns), threads)], threads)


def merge(into: Words, other: Words, zeros: Counts, threads: int) -> None:
    """OR one sketch's columns into another's on all threads, zero counts included."""
    run_parallel(or_columns, [(into, other, zeros, a, b) for a, b in split_evenly(len(into), threads)], threads)
