"""Who takes part in a comparison: every detector at its own default, the rivals as their papers set them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from superhosts.detectors.base import Detector
from superhosts.detectors.cbaa import Cbaa
from superhosts.detectors.cube import Cube
from superhosts.detectors.dcds import Dcds
from superhosts.detectors.filter import Filter
from superhosts.detectors.gse import Gse
from superhosts.detectors.spreadsketch import SpreadSketch
from superhosts.detectors.vbfa import Vbfa
from superhosts.errors import UsageError
from superhosts.evaluation.panel import Make


class Terms(NamedTuple):
    """What all entrants of a comparison have in common."""

    threshold: float
    device: str
    memory: str | int | None = None  # of each; None: as its paper, or we, set it
    flows: int | None = None  # of a window, where they are known


def _cuda(terms: Terms) -> dict[str, Any]:
    return {"device": terms.device}


def _sized(terms: Terms) -> dict[str, Any]:
    return {} if terms.memory is None else {"memory": terms.memory}


ENTRANTS: dict[str, Callable[[Terms], Detector]] = {
    "cube": lambda terms: Cube(**_sized(terms), **_cuda(terms)),
    "cube-planned": lambda terms: Cube(**_sized(terms), **_cuda(terms), flows=terms.flows, threshold=terms.threshold),
    "cbaa": lambda terms: Cbaa(**_sized(terms), **_cuda(terms)),
    "cbaa-paper": lambda terms: Cbaa.paper(**_cuda(terms)),
    "dcds": lambda terms: Dcds(**_sized(terms), **_cuda(terms)),
    "vbfa": lambda terms: Vbfa(reading="published", **_cuda(terms)),
    "vbfa-long": lambda terms: Vbfa(reading="long", **_cuda(terms)),
    "vbfa-wide": lambda terms: Vbfa(reading="wide", **_cuda(terms)),
    "gse": lambda terms: Gse(**_sized(terms), **_cuda(terms)),
    "filter": lambda terms: Filter(**_sized(terms), threshold=terms.threshold, device="cpu"),
    "spreadsketch": lambda terms: SpreadSketch(**_sized(terms), device="cpu"),
}


def choose(names: Iterable[str], terms: Terms) -> dict[str, Make]:
    """Return what makes each of the named detectors; no name means all."""
    wanted = list(dict.fromkeys(names)) or list(ENTRANTS)
    for name in wanted:
        if name not in ENTRANTS:
            raise UsageError(f"--detector {name}: one of {', '.join(ENTRANTS)}")
    return {name: partial(ENTRANTS[name], terms) for name in wanted}
