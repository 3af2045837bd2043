"""superhosts finds hosts that talk to very many distinct peers, in one pass and in constant memory.

    import superhosts as sh

    cube = sh.Cube(memory="128MiB")
    cube.update(hosts, peers)
    for row in cube.super_hosts(threshold=1024):
        print(row.host, row.peers, row.peers_low, row.peers_high)

Public names are imported on first use, so `import superhosts` is fast and the command line shows its help without
loading numba. The stub `__init__.pyi` declares them.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_LINES = Path(__file__).with_suffix(".pyi").read_text("utf-8").splitlines()
_MODULES = {line.split()[-1]: line.split()[1] for line in _LINES if line.startswith("from ")}

__all__ = sorted([*_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'superhosts' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
