"""Detectors that work in small steps, so that a few pairs take the ways of millions."""

from __future__ import annotations

from typing import TypeVar

from superhosts.detectors.detector import Detector
from superhosts.detectors.engines.base import Tuning

Kind = TypeVar("Kind", bound=Detector)


def tuned(kind: type[Kind], tuning: Tuning) -> type[Kind]:
    return type(kind.__name__, (kind,), {"tuning": tuning})
