"""The detectors and geometries that a file or a command line may name."""

from __future__ import annotations

from typing import Any

from superhosts.detectors.base import Detector
from superhosts.detectors.cbaa import Cbaa, PaperCbaa
from superhosts.detectors.cbaa.geometry import Geometry as CbaaGeometry
from superhosts.detectors.cube import Cube, Geometry
from superhosts.detectors.dcds import Dcds
from superhosts.detectors.dcds import Geometry as DcdsGeometry
from superhosts.detectors.exact import Exact
from superhosts.detectors.filter import Filter
from superhosts.detectors.filter import Geometry as FilterGeometry
from superhosts.detectors.gse import Geometry as GseGeometry
from superhosts.detectors.gse import Gse
from superhosts.detectors.spreadsketch import Geometry as SpreadSketchGeometry
from superhosts.detectors.spreadsketch import SpreadSketch
from superhosts.detectors.vbfa import Geometry as VbfaGeometry
from superhosts.detectors.vbfa import Vbfa

DETECTORS: dict[str, type[Detector]] = {
    "cube": Cube,
    "cbaa": Cbaa,
    "cbaa-paper": PaperCbaa,
    "exact": Exact,
    "dcds": Dcds,
    "vbfa": Vbfa,
    "gse": Gse,
    "filter": Filter,
    "spreadsketch": SpreadSketch,
}
GEOMETRIES: dict[str, Any] = {
    "cube": Geometry,
    "cbaa": CbaaGeometry,
    "cbaa-paper": CbaaGeometry,
    "dcds": DcdsGeometry,
    "vbfa": VbfaGeometry,
    "gse": GseGeometry,
    "filter": FilterGeometry,
    "spreadsketch": SpreadSketchGeometry,
}
