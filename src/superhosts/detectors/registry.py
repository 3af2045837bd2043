"""The detectors that files, scans and fleets can name. Add a new detector here."""

from __future__ import annotations

from superhosts.detectors.cbaa import Cbaa, PaperCbaa
from superhosts.detectors.cube import Cube
from superhosts.detectors.detector import Detector
from superhosts.detectors.exact import Exact
from superhosts.detectors.stream import Stream

DETECTORS: dict[str, type[Detector]] = {kind.name: kind for kind in (Cube, Cbaa, PaperCbaa, Exact, Stream)}
MERGED = [name for name, kind in DETECTORS.items() if "merge" not in kind.broken_laws]
