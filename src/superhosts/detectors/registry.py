"""The list of detectors that files and command lines can name. Add a new detector here."""

from __future__ import annotations

from superhosts.detectors.base import Detector
from superhosts.detectors.cbaa import Cbaa, PaperCbaa
from superhosts.detectors.cube import Cube
from superhosts.detectors.dcds import Dcds
from superhosts.detectors.exact import Exact
from superhosts.detectors.filter import Filter
from superhosts.detectors.gse import Gse
from superhosts.detectors.pairsample import PairSample
from superhosts.detectors.rgs import Rgs
from superhosts.detectors.spreadsketch import SpreadSketch
from superhosts.detectors.vbfa import Vbfa

_ALL: tuple[type[Detector], ...] = (
    Cube,
    Cbaa,
    PaperCbaa,
    Exact,
    Dcds,
    Vbfa,
    Gse,
    Filter,
    SpreadSketch,
    PairSample,
    Rgs,
)
DETECTORS = {detector.name: detector for detector in _ALL}
