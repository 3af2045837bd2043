"""Compiled functions that other compiled functions call: LLVM code that is inlined there, and no more.

numba makes a whole program of every function that a compiled one calls: wrappers with which Python and C call it, and
optimized machine code of all three. The caller uses none of that. It contains the LLVM code of its callees and is
optimized with it, so a callee of a callee is optimized several times. The loops that fill a cube
have dozens of callees: half of their compilation made code that nobody runs.

So a compiled function has a twin for calls from compiled functions (`give_twin`). The twin ends with the LLVM code that
numba writes. If Python calls the function, too, the function itself is compiled as usual.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher

from superhosts.jit.compiling import compiling


class _Code(JITCodeLibrary):  # type: ignore[misc]
    """The LLVM code of a function as numba writes it, to be linked into callers. There is no machine code of it."""

    codegen = SimpleNamespace(set_env=lambda _name, _environment: None)  # The caller's machine code has environments.

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, as for functions that are not defined; numba asks for the wrapper that Python would call."""
        self._ensure_finalized()
        return 0

    def _finalize_final_module(self) -> None:
        """Say that nothing is missing."""
        self._finalized = True

    def _optimize_functions(self, ll_module: Any) -> None:
        """Only say how large types are. The callers optimize the code once they contain it."""
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Leave the code as it is."""


class _CalleeCompiler(Compiler):  # type: ignore[misc]
    """Compiles a function as far as its callers need it."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a Python function."""
        self.state.library = _Code(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


class CallerCompiler(Compiler):  # type: ignore[misc]
    """Compiles a function for Python, with the environments of its callees: constants that they read at run time."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a Python function."""
        with compiling(func.__qualname__):
            result = super().compile_extra(func)
        for environment in result._find_referenced_environments():
            result.library.codegen.set_env(environment.env_name, environment)
        return result


class _Caller(CPUDispatcher):  # type: ignore[misc]
    """A compiled function that is its twin where compiled functions refer to it."""

    @functools.cached_property
    def twin(self) -> Any:
        """The twin, made when a function that calls it is compiled: most runs compile nothing."""
        options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        return CPUDispatcher(
            self.py_func, targetoptions={**self.targetoptions, **options}, pipeline_class=_CalleeCompiler
        )

    @property
    def _numba_type_(self) -> Any:
        return self._type if self.is_compiling else self.twin._type  # or it calls itself


def give_twin(dispatcher: Any) -> None:
    """Let compiled functions call the twin of a compiled function."""
    dispatcher.__class__ = _Caller
