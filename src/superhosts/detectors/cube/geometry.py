"""The geometry of a labelled cube: all sizes are powers of two except the numbers of columns, which fill the memory."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from superhosts.core import defaults
from superhosts.core.hashing import MAX_ARRAYS
from superhosts.core.pairs import check_width
from superhosts.core.units import format_size, parse_count, parse_size
from superhosts.detectors.engines.base import ArrayShape
from superhosts.detectors.formulas import (
    GIANT_BITS,
    MOST_COLUMNS,
    Sizes,
    check_limits,
    column_bytes,
    columns_in,
    shape_for,
)
from superhosts.errors import GeometryError

SHARE_BITS = 3  # pairs in the highest eighth of priorities compete for labels
LINE_BITS = 9  # log2 of the rows of a cache line

# The text form of a geometry: the name of each number, its field, and whether the field is its logarithm.
_NUMBERS = {
    "slices": ("slice_bits", True),
    "arrays": ("arrays", False),
    "columns": ("columns", False),
    "rows": ("column_bits", True),
    "labels": ("label_bits", True),
    "share": ("share_bits", True),
    "giants": ("giants", False),
    "sample": ("sample_bits", True),
}
_OPTIONAL = {"giants": 0, "sample": 1}  # numbers that need not be given, and what they are then
_EXAMPLE = "write it as superhosts plan prints it: slices=64,arrays=5,columns=47,rows=65536,labels=64,share=8,giants=1"


class Geometry(Sizes):
    """Sizes of a cube, with all that follows from them."""

    __slots__ = ()

    @staticmethod
    def older() -> dict[str, int]:
        """Return the fields that files of version 2 do not have, and what they were then."""
        return {"giants": 0, "sample_bits": 0, "turned_lines": 0}

    @classmethod
    def for_memory(cls, memory: str | int, key_bits: int = 32) -> Self:
        """Return the geometry that fills `memory`, of the shape for this memory."""
        size = parse_size(memory)
        shape = shape_for(size)
        check_width(key_bits)
        parts = shape.arrays << shape.slice_bits
        plain, giants = columns_in(size // parts, shape, key_bits)
        one = column_bytes(shape.column_bits, shape.label_bits, key_bits)
        if plain < 2:
            rule = f"two columns in each of {shape.arrays} arrays of {1 << shape.slice_bits} slices"
            raise GeometryError(f"memory {format_size(size)} is too small: {rule} take {format_size(2 * one * parts)}")
        if plain > MOST_COLUMNS:
            most = format_size(MOST_COLUMNS * one * parts)
            rule = f"{MOST_COLUMNS:,} columns, the most, in each of {shape.arrays} arrays of {1 << shape.slice_bits:,}"
            raise GeometryError(f"memory {format_size(size)} is too large: {rule} slices take {most}")
        return cls(key_bits, *shape[:3], plain, shape.label_bits, SHARE_BITS, giants, shape.sample_bits).check()

    @classmethod
    def for_traffic(
        cls, memory: str | int, key_bits: int = 32, *, flows: str | int, threshold: float = defaults.THRESHOLD
    ) -> Self:
        """Return the geometry with the least predicted error. A memory that is too small for the flows is refused."""
        from superhosts.detectors.plan.choice import best_sizes, check_suffices  # Most cubes are not planned.

        pairs = parse_count(flows)
        sizes = best_sizes(parse_size(memory), pairs, threshold, key_bits)
        check_suffices(sizes, pairs, threshold, memory)
        return cls(*sizes).check()

    def check(self) -> Self:
        """Return this geometry if it is valid; otherwise raise GeometryError with the rule that it breaks."""
        limits = {
            "slice_bits": (0, 16),
            "arrays": (1, MAX_ARRAYS),
            "column_bits": (6, 20),
            "columns": (2, MOST_COLUMNS),
            "label_bits": (0, 10),
            "share_bits": (0, GIANT_BITS if self.giants else 16),  # The pairs of giant columns also compete for labels.
            "giants": (0, MOST_COLUMNS),
            "sample_bits": (0, 8),
            "turned_lines": (0, 1),
        }
        check_width(self.key_bits)
        check_limits(self, limits)
        return self

    @classmethod
    def parse(cls, text: str, key_bits: int = 32) -> Self:
        """Parse the text form of a geometry (see `spelled`), with the names in any order."""
        given: dict[str, int] = {}
        for word in text.split(","):
            name, _, number = word.strip().partition("=")
            if name not in _NUMBERS or name in given or not re.fullmatch("[1-9][0-9]{0,8}", number):
                raise GeometryError(f"{text!r} is not a geometry: {word!r} is invalid; {_EXAMPLE}")
            given[name] = int(number)
        missing = _NUMBERS.keys() - given.keys() - _OPTIONAL.keys()
        if missing:
            raise GeometryError(f"{text!r} is not a geometry: {', '.join(sorted(missing))} missing; {_EXAMPLE}")
        given = _OPTIONAL | given
        for name, (_, is_power) in _NUMBERS.items():
            if is_power and given[name].bit_count() != 1:
                raise GeometryError(f"{text!r} is not a geometry: {name}={given[name]} must be a power of two")
        fields = {
            field: given[name].bit_length() - 1 if is_power else given[name]
            for name, (field, is_power) in _NUMBERS.items()
        }
        return cls(key_bits=key_bits, **fields).check()

    @property
    def spelled(self) -> str:
        """The text form of this geometry for the command line, which does not depend on the width of hosts."""
        numbers = {
            name: 1 << getattr(self, field) if is_power else getattr(self, field)
            for name, (field, is_power) in _NUMBERS.items()
        }
        return ",".join(f"{name}={number}" for name, number in numbers.items() if number != _OPTIONAL.get(name))

    @property
    def words(self) -> int:
        """64-bit words per column."""
        return 1 << (self.column_bits - 6)

    @property
    def limbs(self) -> int:
        """Words per label: one for each 32 bits of a host."""
        return self.key_bits // 32

    @property
    def labels(self) -> int:
        """Labels per column."""
        return 1 << self.label_bits

    @property
    def plain_columns(self) -> int:
        """Columns in the whole cube without the giant ones; they come first and have labels."""
        return self.arrays * self.columns << self.slice_bits

    @property
    def total_columns(self) -> int:
        """Columns in the whole cube, with the giant ones."""
        return self.plain_columns + (self.arrays * self.giants << self.slice_bits)

    @property
    def giant_zeros(self) -> int:
        """Giant columns are read for hosts whose AND of plain columns has fewer zeros than this."""
        return self.rows // 8 if self.giants else 0

    @property
    def edges(self) -> list[int]:
        """Index of each array's first plain column within a slice, followed by the number of these in a slice."""
        return [array * self.columns for array in range(self.arrays + 1)]

    @property
    def exact_pairs(self) -> int:
        """The most distinct pairs of which a cube keeps a set, with exact answers: as many as fit half its memory.

        Tables of pairs are filled to three quarters at most. 32-bit hosts with wider peers, which no capture has, take
        twice the memory.
        """
        words = 1 if self.key_bits == 32 else self.key_bits // 64 + 1
        return self.memory * 3 // 8 // (8 * words)

    def array_shapes(self) -> dict[str, ArrayShape]:
        """Return the shapes of columns and labels."""
        return {
            "bits": ArrayShape((self.total_columns, self.words)),
            "labels": ArrayShape((self.plain_columns, self.labels, self.limbs)),
        }


class Search(NamedTuple):
    """The limits that a host with at least `threshold` peers satisfies."""

    zeros: int  # maximum of zeros in a column and in the AND
    priority: int  # minimum priority of a label that names it
    elsewhere: int  # minimum priority of its labels in all arrays, whoever they name
    first_words: int
    first_ones: int  # minimum of ones in the first `first_words` words of the AND
    second_words: int
    second_ones: int  # minimum of ones in the first `second_words` words of the AND
    third_words: int
    third_ones: int  # minimum of ones in the first `third_words` words of the AND
