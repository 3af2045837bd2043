"""Functions that compiled functions call are LLVM code for their callers, and work as functions of their own, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.codegen import JITCodeLibrary

from superhosts.jit.cache import _Code, compiled


@pytest.fixture(autouse=True)
def _nothing_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))


def make() -> tuple[Any, Any, Any]:
    """Return new functions: one, one that it calls, and one that this calls."""

    @compiled
    def lowest(x: int) -> int:
        return x + 1

    @compiled
    def middle(x: int) -> int:
        return 2 * lowest(x) + len(np.zeros(x))

    @compiled
    def highest(x: int) -> int:
        return middle(x) + lowest(x)

    return highest, middle, lowest


def test_callees_have_no_machine_code() -> None:
    highest, middle, lowest = make()
    assert highest(5) == 2 * 6 + 5 + 6
    assert len(highest.signatures) == 1
    for callee in (middle, lowest):
        assert callee.signatures == []
        (result,) = callee.inline_variant.overloads.values()
        assert isinstance(result.library, _Code)
        assert "wrapper" not in result.library.get_llvm_str()


def test_functions_of_numba_have_no_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    finalize = JITCodeLibrary._finalize_specific
    monkeypatch.setattr(JITCodeLibrary, "_finalize_specific", lambda each: (made.append(each.name), finalize(each)))

    @compiled
    def largest(x: int) -> Any:
        return np.full((x, x, 2), 3, np.int16).max()

    assert largest(5) == 3
    assert [name for name in made if name != "nrt"] == [largest.__qualname__]  # nrt: numba's memory, once in a process


def test_a_callee_that_python_calls_is_compiled_for_it() -> None:
    highest, middle, lowest = make()
    assert (highest(5), middle(5), lowest(5)) == (23, 17, 6)
    highest, middle, lowest = make()
    assert (lowest(5), middle(5), highest(5)) == (6, 17, 23)
    assert [len(each.signatures) for each in (highest, middle, lowest)] == [1, 1, 1]


def test_errors_of_callees_reach_python() -> None:
    @compiled
    def fails(x: int) -> int:
        if x > 3:
            raise ValueError("more than three", 3)
        if x < 0:
            raise OverflowError("below zero")
        return x

    @compiled
    def calls(x: int) -> int:
        return fails(x) + 1

    assert calls(3) == 4
    for wrong, problem, words in ((4, ValueError, ("more than three", 3)), (-1, OverflowError, ("below zero",))):
        with pytest.raises(problem) as caught:
            calls(wrong)
        assert caught.value.args == words


@compiled
def factorial(x: int) -> int:
    return 1 if x < 2 else x * factorial(x - 1)


@compiled
def twice_factorial(x: int) -> int:
    return 2 * factorial(x)


def test_a_function_may_call_itself() -> None:
    assert (factorial(5), twice_factorial(6)) == (120, 1440)


def test_types_of_callees_differ_by_caller() -> None:
    @compiled
    def add(x: Any, y: Any) -> Any:
        return x + y

    @compiled
    def both(x: int, y: float) -> Any:
        return add(x, x), add(x, y), add(y, y)

    assert both(1, 0.5) == (2, 1.5, 1.0)
    assert len(add.inline_variant.overloads) == 3  # type: ignore[attr-defined]
