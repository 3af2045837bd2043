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
    from superhosts.detectors.base import Detector
    from superhosts.detectors.cbaa import Cbaa
    from superhosts.detectors.columnsketch import ThresholdWarning
    from superhosts.detectors.cube import Cube, Geometry
    from superhosts.detectors.dcds import Dcds
    from superhosts.detectors.exact import Exact
    from superhosts.detectors.filter import Filter
    from superhosts.detectors.gse import Gse
    from superhosts.detectors.pairsample import PairSample
    from superhosts.detectors.rgs import Rgs
    from superhosts.detectors.spreadsketch import SpreadSketch
    from superhosts.detectors.vbfa import Vbfa
    from superhosts.errors import GeometryError, InputError, MergeError, SketchFileError, SuperhostsError, UsageError
    from superhosts.evaluation.calibration import Calibration
    from superhosts.evaluation.comparing import Comparison, compare
    from superhosts.evaluation.judging import calibrate
    from superhosts.evaluation.own import OwnDetector
    from superhosts.evaluation.plans import Plan, plan
    from superhosts.keys import own_key
    from superhosts.network import Network
    from superhosts.pairs import PacketBatch, PairBatch, Part, Window
    from superhosts.pipeline.scan import Scan
    from superhosts.pipeline.scanning import scan
    from superhosts.pipeline.settings import Settings
    from superhosts.results import SuperHost, SuperHosts
    from superhosts.sketches.bundle import Sketch, load
    from superhosts.sketches.uniting import union
    from superhosts.synthetic.writing import synth

_MODULES = {  # the module that defines each public name
    "Calibration": "evaluation.calibration",
    "Cbaa": "detectors.cbaa",
    "Comparison": "evaluation.comparing",
    "Cube": "detectors.cube",
    "Dcds": "detectors.dcds",
    "Detector": "detectors.base",
    "Exact": "detectors.exact",
    "Filter": "detectors.filter",
    "Geometry": "detectors.cube",
    "GeometryError": "errors",
    "Gse": "detectors.gse",
    "InputError": "errors",
    "MergeError": "errors",
    "Network": "network",
    "OwnDetector": "evaluation.own",
    "PacketBatch": "pairs",
    "PairBatch": "pairs",
    "PairSample": "detectors.pairsample",
    "Part": "pairs",
    "Plan": "evaluation.plans",
    "Rgs": "detectors.rgs",
    "Scan": "pipeline.scan",
    "Settings": "pipeline.settings",
    "Sketch": "sketches.bundle",
    "SketchFileError": "errors",
    "SpreadSketch": "detectors.spreadsketch",
    "SuperHost": "results",
    "SuperHosts": "results",
    "SuperhostsError": "errors",
    "ThresholdWarning": "detectors.columnsketch",
    "UsageError": "errors",
    "Vbfa": "detectors.vbfa",
    "Window": "pairs",
    "calibrate": "evaluation.judging",
    "compare": "evaluation.comparing",
    "load": "sketches.bundle",
    "own_key": "keys",
    "union": "sketches.uniting",
    "plan": "evaluation.plans",
    "scan": "pipeline.scanning",
    "synth": "synthetic.writing",
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
