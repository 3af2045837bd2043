"""The list of detectors that files and command lines can name. Add a new detector here.

A detector is loaded when it is asked for: a scan with one of them does not wait for the others.
"""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Any, cast

from superhosts.detectors.base import Detector

_PLACES = {  # folder and class of each, by its `name`
    "cube": ("detectors.cube", "Cube"),
    "cbaa": ("detectors.cbaa", "Cbaa"),
    "cbaa-paper": ("detectors.cbaa", "PaperCbaa"),
    "exact": ("detectors.exact", "Exact"),
    "dcds": ("lab.rivals.dcds", "Dcds"),
    "vbfa": ("lab.rivals.vbfa", "Vbfa"),
    "gse": ("lab.rivals.gse", "Gse"),
    "filter": ("lab.rivals.filter", "Filter"),
    "spreadsketch": ("lab.rivals.spreadsketch", "SpreadSketch"),
    "pairsample": ("lab.rivals.pairsample", "PairSample"),
    "rgs": ("lab.rivals.rgs", "Rgs"),
}


class _Detectors(UserDict[str, type[Detector]]):
    """The classes of the detectors by name; the names are known before the classes are loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, Any] = dict(_PLACES)  # each replaced by its class when that is loaded

    def __getitem__(self, name: str) -> type[Detector]:
        kind = self.data[name]
        if isinstance(kind, tuple):
            folder, class_name = kind
            kind = self.data[name] = getattr(import_module(f"superhosts.{folder}"), class_name)
        return cast("type[Detector]", kind)


DETECTORS = _Detectors()
