"""The one way this package compiles a hot loop: numba, without the GIL, cached on disk.

Hot loops are scalar Python functions. Each stays callable as plain Python (`function.py_func`), which is how
tests hold it against the oracle, and the same scalar functions are called from CUDA kernels.

numba invalidates a cached function when its own file changes, but not when a function that it calls from
another file changes. A kernel built from last week's hash function would be wrong in silence, so here every
cached function carries a stamp of all the package's source files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

_sources = [path.stat() for path in Path(__file__).parent.rglob("*.py")]
_STAMP = (max(stat.st_mtime for stat in _sources), sum(stat.st_size for stat in _sources))


def compiled(function: Function) -> Function:
    """Compile `function` with numba when it is first called; keep the result on disk."""
    try:
        dispatcher = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to keep it in: a read-only install without a home
        return cast(Function, numba.njit(nogil=True, error_model="numpy")(function))
    if hasattr(dispatcher, "_cache"):  # not when numba is switched off
        dispatcher._cache._cache_file._source_stamp = _STAMP
    return cast(Function, dispatcher)


def is_cold(function: Callable[..., Any]) -> bool:
    """Say whether `function` still has to be compiled on this machine (nothing usable on disk)."""
    dispatcher = cast(Any, function)
    cache = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    return not getattr(dispatcher, "signatures", True) and (cache is None or not cache._load_index())
