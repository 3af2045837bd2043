"""The detectors that files, scans and fleets can name. Add a new detector here."""

from __future__ import annotations

from superhosts.detectors.cbaa import Cbaa, PaperCbaa
from superhosts.detectors.cube import Cube
from superhosts.detectors.detector import Detector
from superhosts.detectors.exact import Exact

DETECTORS: dict[str, type[Detector]] = {kind.name: kind for kind in (Cube, Cbaa, PaperCbaa, Exact)}
