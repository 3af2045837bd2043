"""superhosts finds hosts that talk to very many distinct peers, in one pass and in constant memory.

    import superhosts as sh

    cube = sh.Cube(memory="128MiB")
    cube.update(hosts, peers)
    for row in cube.super_hosts(threshold=1024):
        print(row.host, row.peers, row.peers_low, row.peers_high)

Public names are imported on first use, so `import superhosts` is fast and the command line shows its help without
loading numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from superhosts._version import __version__

if TYPE_CHECKING:
    from superhosts.detectors.cbaa import Cbaa
    from superhosts.detectors.columnsketch import ThresholdWarning
    from superhosts.detectors.cube import Cube, Geometry
    from superhosts.detectors.exact import Exact
    from superhosts.errors import GeometryError, InputError, MergeError, SketchFileError, SuperhostsError, UsageError
    from superhosts.keys import own_key
    from superhosts.network import Network
    from superhosts.pairs import PacketBatch, PairBatch, Part, Window
    from superhosts.pipeline.scan import scan
    from superhosts.results import SuperHost, SuperHosts
    from superhosts.sketches.bundle import Sketch, load
    from superhosts.sketches.uniting import union

_MODULES = {  # the module that defines each public name
    "Cbaa": "detectors.cbaa",
    "Cube": "detectors.cube",
    "Exact": "detectors.exact",
    "Geometry": "detectors.cube",
    "GeometryError": "errors",
    "InputError": "errors",
    "ThresholdWarning": "detectors.columnsketch",
    "MergeError": "errors",
    "Network": "network",
    "PacketBatch": "pairs",
    "PairBatch": "pairs",
    "Part": "pairs",
    "Sketch": "sketches.bundle",
    "SketchFileError": "errors",
    "SuperHost": "results",
    "SuperHosts": "results",
    "SuperhostsError": "errors",
    "UsageError": "errors",
    "Window": "pairs",
    "load": "sketches.bundle",
    "own_key": "keys",
    "scan": "pipeline.scan",
    "union": "sketches.uniting",
}

__all__ = [
    "Cbaa",
    "Cube",
    "Exact",
    "Geometry",
    "GeometryError",
    "InputError",
    "MergeError",
    "Network",
    "PacketBatch",
    "PairBatch",
    "Part",
    "Sketch",
    "SketchFileError",
    "SuperHost",
    "SuperHosts",
    "SuperhostsError",
    "ThresholdWarning",
    "UsageError",
    "Window",
    "__version__",
    "load",
    "own_key",
    "scan",
    "union",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'superhosts' has no attribute {name!r}")
    value = getattr(import_module(f"superhosts.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
