"""Addresses of several pairs at once, in vector registers.

A processor has few units for 64-bit products and, on ARM, none that works on vectors of them. The product of a 32-bit
host takes two products of 32 bits, that of a folded one three, and vector registers compute four of these at a time.
LLVM finds none of this itself in a loop that also writes bits, so the instructions are given here; it translates them
for every processor.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core.types import void
from numba.core.typing import signature
from numba.extending import intrinsic

from superhosts.detectors.cube.geometry import LINE_BITS, Geometry
from superhosts.jit.cache import compiled

LANES = 4


class Lane(NamedTuple):
    """The numbers from which an array's addresses are computed, as uint64."""

    multiplier: np.uint64
    addend: np.uint64
    bits: np.uint64  # of the array in one slice; fewer than 2^32
    rows: np.uint64  # mask of a row
    turns: np.uint64  # mask of the row's turn


@compiled
def make_lane(draw: tuple[int, int], geometry: Geometry) -> Lane:
    """Return the numbers of one array."""
    turned = max(0, geometry.column_bits - LINE_BITS) * geometry.turned_lines
    return Lane(
        np.uint64(draw[0]),
        np.uint64(draw[1]),
        np.uint64(geometry.columns << geometry.column_bits),
        np.uint64((1 << geometry.column_bits) - 1),
        np.uint64(((1 << turned) - 1) << LINE_BITS),
    )


@intrinsic  # type: ignore[untyped-decorator]
def store_places(_context: Any, hosts: Any, pairs: Any, first: Any, places: Any, at: Any, lane: Any) -> Any:
    """Store the places in one array of LANES pairs, from index `first`, in the array `places` of uint32, from `at`.

    These are those of `place_in_array`. Hosts are mangled ones of 32 bits, or folded ones of 64. No index is tested.
    """

    def generate(target: Any, builder: Any, types: Any, values: Any) -> Any:
        word, half = ir.IntType(64), ir.IntType(32)
        words, halves = ir.VectorType(word, LANES), ir.VectorType(half, LANES)

        def address(array: int, index: int, kind: Any) -> Any:
            data = target.make_array(types.args[array])(target, builder, values[array]).data
            return builder.bitcast(builder.gep(data, [values[index]]), kind.as_pointer())

        def low(vector: Any) -> Any:
            return builder.trunc(vector, halves)

        def high(vector: Any) -> Any:
            return low(builder.lshr(vector, ir.Constant(words, [32] * LANES)))

        def shifted(vector: Any, bits: int) -> Any:
            return builder.lshr(vector, ir.Constant(halves, [bits] * LANES))

        def repeated(value: Any, kind: Any) -> Any:
            one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(half, 0))
            return builder.shuffle_vector(one, one, ir.Constant(halves, [0] * LANES))

        def constant(field: int) -> Any:
            return repeated(builder.trunc(builder.extract_value(values[5], field), half), halves)

        def product(left: Any, right: Any) -> Any:
            return builder.mul(builder.zext(left, words), builder.zext(right, words))

        is_wide = hosts.dtype.bitwidth == 64
        loaded = builder.load(address(0, 2, words if is_wide else halves), "", 4)
        host = low(loaded) if is_wide else loaded
        pair = builder.load(address(1, 2, halves), "", 4)
        multiplier = builder.extract_value(values[5], 0)
        upper = repeated(builder.trunc(builder.lshr(multiplier, ir.Constant(word, 32)), half), halves)
        hashed = builder.add(product(host, constant(0)), repeated(builder.extract_value(values[5], 1), words))
        top = builder.add(high(hashed), builder.mul(host, upper))
        if is_wide:
            top = builder.add(top, builder.mul(high(loaded), constant(0)))
        column = builder.and_(high(product(top, constant(2))), builder.not_(constant(3)))
        row = builder.and_(pair, builder.and_(constant(3), ir.Constant(halves, [~63 & 0xFFFFFFFF] * LANES)))
        row = builder.xor(row, builder.and_(shifted(low(hashed), 3), constant(4)))
        bit = builder.and_(builder.add(pair, shifted(low(hashed), 26)), ir.Constant(halves, [63] * LANES))
        builder.store(builder.or_(column, builder.or_(row, bit)), address(3, 4, halves), 4)
        return target.get_dummy_value()

    return signature(void, hosts, pairs, first, places, at, lane), generate
