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
    from superhosts.core.keys import own_key
    from superhosts.core.pairs import PacketBatch, PairBatch, Part, Window
    from superhosts.core.results import SuperHost, SuperHosts
    from superhosts.detectors.base import Detector
    from superhosts.detectors.cbaa import Cbaa
    from superhosts.detectors.columnsketch import ThresholdWarning
    from superhosts.detectors.cube import Cube, Geometry
    from superhosts.detectors.exact import Exact
    from superhosts.errors import GeometryError, InputError, MergeError, SketchFileError, SuperhostsError, UsageError
    from superhosts.lab.calibration import Calibration
    from superhosts.lab.comparing import Comparison, compare
    from superhosts.lab.judging import calibrate
    from superhosts.lab.own import OwnDetector
    from superhosts.lab.plans import Plan, plan
    from superhosts.lab.rivals.dcds import Dcds
    from superhosts.lab.rivals.filter import Filter
    from superhosts.lab.rivals.gse import Gse
    from superhosts.lab.rivals.pairsample import PairSample
    from superhosts.lab.rivals.rgs import Rgs
    from superhosts.lab.rivals.spreadsketch import SpreadSketch
    from superhosts.lab.rivals.vbfa import Vbfa
    from superhosts.pipeline.network import Network
    from superhosts.pipeline.scan import Scan
    from superhosts.pipeline.scanning import scan
    from superhosts.pipeline.settings import Settings
    from superhosts.sketch.sketch import Sketch, load, union
    from superhosts.sources.synthetic.capture import synth

_MODULES = {  # the module that defines each public name
    "Calibration": "lab.calibration",
    "Cbaa": "detectors.cbaa",
    "Comparison": "lab.comparing",
    "Cube": "detectors.cube",
    "Dcds": "lab.rivals.dcds",
    "Detector": "detectors.base",
    "Exact": "detectors.exact",
    "Filter": "lab.rivals.filter",
    "Geometry": "detectors.cube",
    "GeometryError": "errors",
    "Gse": "lab.rivals.gse",
    "InputError": "errors",
    "MergeError": "errors",
    "Network": "pipeline.network",
    "OwnDetector": "lab.own",
    "PacketBatch": "core.pairs",
    "PairBatch": "core.pairs",
    "PairSample": "lab.rivals.pairsample",
    "Part": "core.pairs",
    "Plan": "lab.plans",
    "Rgs": "lab.rivals.rgs",
    "Scan": "pipeline.scan",
    "Settings": "pipeline.settings",
    "Sketch": "sketch.sketch",
    "SketchFileError": "errors",
    "SpreadSketch": "lab.rivals.spreadsketch",
    "SuperHost": "core.results",
    "SuperHosts": "core.results",
    "SuperhostsError": "errors",
    "ThresholdWarning": "detectors.columnsketch",
    "UsageError": "errors",
    "Vbfa": "lab.rivals.vbfa",
    "Window": "core.pairs",
    "calibrate": "lab.judging",
    "compare": "lab.comparing",
    "load": "sketch.sketch",
    "own_key": "core.keys",
    "union": "sketch.sketch",
    "plan": "lab.plans",
    "scan": "pipeline.scanning",
    "synth": "sources.synthetic.capture",
}

__all__ = [
    "Calibration",
    "Cbaa",
    "Comparison",
    "Cube",
    "Dcds",
    "Detector",
    "Exact",
    "Filter",
    "Geometry",
    "GeometryError",
    "Gse",
    "InputError",
    "MergeError",
    "Network",
    "OwnDetector",
    "PacketBatch",
    "PairBatch",
    "PairSample",
    "Part",
    "Plan",
    "Rgs",
    "Scan",
    "Settings",
    "Sketch",
    "SketchFileError",
    "SpreadSketch",
    "SuperHost",
    "SuperHosts",
    "SuperhostsError",
    "ThresholdWarning",
    "UsageError",
    "Vbfa",
    "Window",
    "__version__",
    "calibrate",
    "compare",
    "load",
    "own_key",
    "plan",
    "scan",
    "synth",
    "union",
]


if not TYPE_CHECKING:  # Type checkers would take any name for one that exists.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'superhosts' has no attribute {name!r}")
        value = getattr(import_module(f"superhosts.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
