"""The detectors of a comparison: ours with their defaults, the rivals as their papers set them.

Where a memory is given, all of them get it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from superhosts.detectors.base import Detector
from superhosts.detectors.cbaa import Cbaa, PaperCbaa
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
    key: bytes | None = None  # None: that of the environment, else the public one


def _sized(terms: Terms) -> dict[str, Any]:
    return {"key": terms.key} | ({} if terms.memory is None else {"memory": terms.memory})


def _common(terms: Terms) -> dict[str, Any]:
    return _sized(terms) | {"device": terms.device}


ENTRANTS: dict[str, Callable[[Terms], Detector]] = {
    "cube": lambda terms: Cube(**_common(terms)),
    "cube-planned": lambda terms: Cube(**_common(terms), flows=terms.flows, threshold=terms.threshold),
    "cbaa": lambda terms: Cbaa(**_common(terms)),
    "cbaa-paper": lambda terms: PaperCbaa(**_common(terms)),
    "dcds": lambda terms: Dcds(**_common(terms)),
    "vbfa": lambda terms: Vbfa(reading="published", **_common(terms)),
    "vbfa-long": lambda terms: Vbfa(reading="long", **_common(terms)),
    "vbfa-wide": lambda terms: Vbfa(reading="wide", **_common(terms)),
    "gse": lambda terms: Gse(**_common(terms)),
    "filter": lambda terms: Filter(**_sized(terms), threshold=terms.threshold, device="cpu"),
    "spreadsketch": lambda terms: SpreadSketch(**_sized(terms), device="cpu"),
}


def choose(
    names: Iterable[str], terms: Terms, on_left_out: Callable[[str, str], None] | None = None
) -> dict[str, Make[Detector]]:
    """Return functions that make the named detectors; no name means all.

    A detector that the terms rule out is left out: `on_left_out` gets its name and the reason.
    """
    wanted = list(dict.fromkeys(names)) or list(ENTRANTS)
    for name in wanted:
        if name not in ENTRANTS:
            raise UsageError(f"--detector {name}: one of {', '.join(ENTRANTS)}")
    makers: dict[str, Make[Detector]] = {name: partial(ENTRANTS[name], terms) for name in wanted}
    for name in wanted:
        reason = _reason(name, makers[name], terms, wanted)
        if reason and len(makers) == 1:
            raise UsageError(f"no detector can take part: {name}: {reason}")
        if reason:
            del makers[name]
            if on_left_out is not None:
                on_left_out(name, reason)
    return makers


def _reason(name: str, make: Make[Detector], terms: Terms, wanted: list[str]) -> str | None:
    """Return why a detector cannot take part; None if it can."""
    try:
        make()
    except UsageError as error:
        return str(error)
    if terms.memory is not None and name == "vbfa-long" and "vbfa" in wanted:
        return "of a given memory it is the same as vbfa"  # both have as long columns as the memory allows
    return None
