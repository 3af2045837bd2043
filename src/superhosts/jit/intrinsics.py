"""Instructions that Python lacks, for compiled loops: memory by address, vectors, fences, calls of C functions.

A compiled function that takes an array and branches counts references to the array, with two atomic operations for each
call: in a loop that calls a dozen functions for each line that is most of the time, and of the time to compile it. So
the walks over text take arrays, and the functions that they call take addresses, which are numbers. And one call can
take any number of arrays (`detectors/engines/pairset.py`). Nothing is checked here: an address must lie in an array
that the caller keeps.

LLVM translates vectors for every processor. All LLVM code and all private parts of numba are in this folder.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.core.types import int32, int64, uint64, void
from numba.core.types.containers import UniTuple
from numba.core.typing import signature
from numba.extending import intrinsic

from superhosts.jit.cache import jit_disabled

MARKED_BYTES = 16  # bytes that `byte_marks` compares at once
LINE_WORDS = 8  # words of a cache line
LANES = 4  # pairs whose places `store_places` computes together
_WORD, _LINE = ir.IntType(64), ir.VectorType(ir.IntType(64), LINE_WORDS)


def _load(bits: int) -> Any:
    def generate(_target: Any, builder: Any, _types: Any, values: Any) -> Any:
        address = builder.inttoptr(values[0], ir.IntType(bits).as_pointer())
        loaded = builder.load(address, "", 1)
        return loaded if bits == 64 else builder.zext(loaded, ir.IntType(64))

    return generate


def _store(bits: int) -> Any:
    def generate(target: Any, builder: Any, _types: Any, values: Any) -> Any:
        address = builder.inttoptr(values[0], ir.IntType(bits).as_pointer())
        value = values[1] if bits == 64 else builder.trunc(values[1], ir.IntType(bits))
        builder.store(value, address, 1)
        return target.get_dummy_value()

    return generate


@intrinsic  # type: ignore[untyped-decorator]
def byte_at(_context: Any, _address: Any) -> Any:
    return signature(int64, int64), _load(8)


@intrinsic  # type: ignore[untyped-decorator]
def word_at(_context: Any, _address: Any) -> Any:
    return signature(uint64, int64), _load(64)


@intrinsic  # type: ignore[untyped-decorator]
def number_at(_context: Any, _address: Any) -> Any:
    return signature(int64, int64), _load(64)


@intrinsic  # type: ignore[untyped-decorator]
def set_byte(_context: Any, _address: Any, _value: Any) -> Any:
    return signature(void, int64, int64), _store(8)


@intrinsic  # type: ignore[untyped-decorator]
def set_number(_context: Any, _address: Any, _value: Any) -> Any:
    return signature(void, int64, int64), _store(64)


@intrinsic  # type: ignore[untyped-decorator]
def fence(_context: Any) -> Any:
    """Keep reads and writes before this point before those behind it."""

    def generate(target: Any, builder: Any, _types: Any, _values: Any) -> Any:
        builder.fence("seq_cst")
        return target.get_dummy_value()

    return signature(void), generate


@intrinsic  # type: ignore[untyped-decorator]
def call_address(_context: Any, _address: Any, words: Any) -> Any:
    """Call the function at an address with 64-bit words; return a 32-bit status."""

    def generate(_target: Any, builder: Any, _signature: Any, values: Any) -> Any:
        address, arguments = values
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.IntType(32), [word] * len(words))
        unpacked = [builder.extract_value(arguments, number) for number in range(len(words))]
        return builder.call(builder.inttoptr(address, kind.as_pointer()), unpacked)

    return signature(int32, int64, UniTuple(int64, len(words))), generate


@intrinsic  # type: ignore[untyped-decorator]
def byte_marks(_context: Any, _address: Any) -> Any:
    """Return 48 bits about the 16 bytes at an address: which are not digits, above them which are dots, then zeros."""

    def generate(_target: Any, builder: Any, _types: Any, values: Any) -> Any:
        vector, bits, word = ir.VectorType(ir.IntType(8), MARKED_BYTES), ir.IntType(MARKED_BYTES), ir.IntType(64)
        text = builder.load(builder.inttoptr(values[0], vector.as_pointer()), "", 1)

        def compared(how: str, other: Any, number: int) -> Any:
            found = builder.icmp_unsigned(how, other, ir.Constant(vector, [number] * MARKED_BYTES))
            return builder.zext(builder.bitcast(found, bits), word)

        others = compared(">", builder.sub(text, ir.Constant(vector, [ord("0")] * MARKED_BYTES)), 9)
        dots = builder.shl(compared("==", text, ord(".")), ir.Constant(word, MARKED_BYTES))
        zeros = builder.shl(compared("==", text, ord("0")), ir.Constant(word, 2 * MARKED_BYTES))
        return builder.or_(others, builder.or_(dots, zeros))

    return uint64(uint64), generate


# The AND of cache lines in vector registers. A loop over the eight words of a line is too short for the compiler, which
# leaves it as it is. So the instructions are given as LLVM's vectors of eight words, which it maps to the registers of
# any CPU.


@intrinsic  # type: ignore[untyped-decorator]
def and_line(_context: Any, _into: Any, _source: Any, _rotation: Any, _fresh: Any) -> Any:
    """AND the line at address `source`, its words rotated right, into the line at address `into`.

    Return the OR of the words of the result: 0 if it is empty. If `fresh` has all bits set, the line at `into` has no
    content yet, and the result replaces it; otherwise `fresh` is 0.
    """

    def generate(_target: Any, builder: Any, _types: Any, values: Any) -> Any:
        into, source, rotation, fresh = values
        place = builder.inttoptr(into, _LINE.as_pointer())
        line = builder.load(builder.inttoptr(source, _LINE.as_pointer()), "", 8)
        rotate = ir.FunctionType(_LINE, [_LINE] * 3)
        turned = _call(builder, rotate, "llvm.fshr", line, line, _spread(builder, rotation))
        before = builder.or_(builder.load(place, "", 8), _spread(builder, fresh))
        result = builder.and_(turned, before)
        builder.store(result, place, 8)
        return _call(builder, ir.FunctionType(_WORD, [_LINE]), "llvm.vector.reduce.or", result)

    return uint64(uint64, uint64, uint64, uint64), generate


def _call(builder: Any, kind: Any, name: str, *values: Any) -> Any:
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"{name}.v{LINE_WORDS}i64"), values)


def _spread(builder: Any, word: Any) -> Any:
    none, numbers = ir.Constant(_LINE, ir.Undefined), ir.VectorType(ir.IntType(32), LINE_WORDS)
    first = builder.insert_element(none, word, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, none, ir.Constant(numbers, [0] * LINE_WORDS))


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


if jit_disabled():  # Plain Python reads memory through ctypes.

    def byte_at(address: int) -> int:
        return ctypes.c_uint8.from_address(int(address)).value

    def word_at(address: int) -> np.uint64:
        return np.uint64(ctypes.c_uint64.from_address(int(address)).value)

    def number_at(address: int) -> int:
        return ctypes.c_int64.from_address(int(address)).value

    def set_byte(address: int, value: int) -> None:
        ctypes.c_uint8.from_address(int(address)).value = value

    def set_number(address: int, value: int) -> None:
        ctypes.c_int64.from_address(int(address)).value = value

    def fence() -> None:
        """Do nothing: plain Python does not reorder."""
