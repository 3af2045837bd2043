"""The AND of cache lines in vector registers.

A loop over the eight words of a line is too short for the compiler, which leaves it as it is. So the instructions are
given as LLVM's vectors of eight words, which it maps to the registers of any CPU.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core.types import uint64
from numba.extending import intrinsic

from superhosts.detectors.cube.addressing import LINE_WORDS

_WORD, _LINE = ir.IntType(64), ir.VectorType(ir.IntType(64), LINE_WORDS)


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
    """Call a function of LLVM that works on lines."""
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"{name}.v{LINE_WORDS}i64"), values)


def _spread(builder: Any, word: Any) -> Any:
    """Return a line of which every word is this one."""
    none, numbers = ir.Constant(_LINE, ir.Undefined), ir.VectorType(ir.IntType(32), LINE_WORDS)
    first = builder.insert_element(none, word, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, none, ir.Constant(numbers, [0] * LINE_WORDS))
