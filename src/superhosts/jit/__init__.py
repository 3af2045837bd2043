"""Compiled loops: numba's compiler behind one decorator, and what loops need besides Python.

`cache.py` has the decorator `compiled` of every hot loop: machine code is kept on disk and used only if it is
what numba would compile now. Read it first. `ahead.py` compiles on all cores what a run is expected to need.
`compilation.py` tells users that compiling takes a while. Neither of the two imports numba. `intrinsics.py` has
instructions that Python lacks. `memory.py` says how much memory this process may use, and lends buffers that are used
again.

Private parts of numba and LLVM code stand here and nowhere else. pyproject.toml names the versions of numba that were
tested.
"""
