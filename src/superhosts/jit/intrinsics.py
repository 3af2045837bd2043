"""Reads and writes of memory by address, for compiled loops over text and over tables of pairs.

A compiled function that takes an array and branches counts references to the array, with two atomic operations for each
call: in a loop that calls a dozen functions for each line that is most of the time, and of the time to compile it. So
the walks (delimitedloop.py, jsonloop.py) take arrays, and the functions that they call take addresses, which are
numbers. And one call can take any number of arrays (engines/pairmerging.py). Nothing is checked here: an address must
lie in an array that the caller keeps.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core.types import int64, uint64, void
from numba.core.typing import signature
from numba.extending import intrinsic

from superhosts.jit.cache import is_switched_off


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
    """Return the byte at an address."""
    return signature(int64, int64), _load(8)


@intrinsic  # type: ignore[untyped-decorator]
def word_at(_context: Any, _address: Any) -> Any:
    """Return the eight bytes at an address as an unsigned integer, the first one lowest."""
    return signature(uint64, int64), _load(64)


@intrinsic  # type: ignore[untyped-decorator]
def number_at(_context: Any, _address: Any) -> Any:
    """Return the int64 at an address."""
    return signature(int64, int64), _load(64)


@intrinsic  # type: ignore[untyped-decorator]
def set_byte(_context: Any, _address: Any, _value: Any) -> Any:
    """Write a byte."""
    return signature(void, int64, int64), _store(8)


@intrinsic  # type: ignore[untyped-decorator]
def set_number(_context: Any, _address: Any, _value: Any) -> Any:
    """Write an int64."""
    return signature(void, int64, int64), _store(64)


if is_switched_off():  # Plain Python reads memory through ctypes.

    def byte_at(address: int) -> int:
        """Return the byte at an address."""
        return ctypes.c_uint8.from_address(int(address)).value

    def word_at(address: int) -> np.uint64:
        """Return the eight bytes at an address."""
        return np.uint64(ctypes.c_uint64.from_address(int(address)).value)

    def number_at(address: int) -> int:
        """Return the int64 at an address."""
        return ctypes.c_int64.from_address(int(address)).value

    def set_byte(address: int, value: int) -> None:
        """Write a byte."""
        ctypes.c_uint8.from_address(int(address)).value = value

    def set_number(address: int, value: int) -> None:
        """Write an int64."""
        ctypes.c_int64.from_address(int(address)).value = value
