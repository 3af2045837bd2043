"""The sizes of a labelled cube, and what follows from them alone."""

from __future__ import annotations

from typing import Protocol

from superhosts.detectors.plan.formulas import GIANT_SAMPLE, column_bytes, saturation_point


class CubeSizes(Protocol):
    """The sizes of a labelled cube, named as in its geometry."""

    @property
    def key_bits(self) -> int:
        """Bits of a host."""

    @property
    def slice_bits(self) -> int:
        """There are 2^slice_bits slices."""

    @property
    def arrays(self) -> int:
        """Columns per host."""

    @property
    def column_bits(self) -> int:
        """A column has 2^column_bits rows."""

    @property
    def columns(self) -> int:
        """Columns per array and slice, without the giant ones."""

    @property
    def label_bits(self) -> int:
        """A column has 2^label_bits labels."""

    @property
    def share_bits(self) -> int:
        """One in 2^share_bits pairs competes for labels."""

    @property
    def giants(self) -> int:
        """Giant columns per array and slice."""

    @property
    def sample_bits(self) -> int:
        """One in 2^sample_bits pairs is written at all."""


def memory_of(sizes: CubeSizes) -> int:
    """Return the bytes of columns and labels. Giant columns have no labels."""
    plain, giant = column_bytes(sizes.column_bits, sizes.label_bits, sizes.key_bits), (1 << sizes.column_bits) // 8
    return sizes.arrays * (sizes.columns * plain + sizes.giants * giant) << sizes.slice_bits


def coarsest_sample(sizes: CubeSizes) -> int:
    """Return how many pairs come to one in the columns that measure the largest hosts."""
    return (GIANT_SAMPLE if sizes.giants else 1) << sizes.sample_bits


def most_peers(sizes: CubeSizes) -> int:
    """Return the most peers that can be measured."""
    return saturation_point(1 << sizes.column_bits, sample=coarsest_sample(sizes))
