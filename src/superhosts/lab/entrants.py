"""Makes the detectors of a comparison (`lineup.py`). Where a memory is given, all of them get it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from superhosts.core.text import setting
from superhosts.core.units import parse_size
from superhosts.detectors.detector import Detector
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import UsageError
from superhosts.lab.lineup import ENTRANTS, Entrant
from superhosts.lab.own import Adapted, MakeOwn, load_class, name_of
from superhosts.lab.panel import Contestant, Make
from superhosts.lab.rivals import RIVALS
from superhosts.lab.rivals.base import Rival


class SharedSettings(NamedTuple):
    """What all entrants of a comparison have in common."""

    threshold: float
    device: str
    memory: str | int | None = None  # of each; None: as its paper, or we, set it
    flows: int | None = None  # of a window, where they are known
    key: bytes | None = None  # None: that of the environment, else the public one


def _make(entrant: Entrant, shared: SharedSettings) -> Contestant:
    kind: type[Detector] | type[Rival] = (RIVALS | DETECTORS)[entrant.detector]
    rival = kind if issubclass(kind, Rival) else None
    device = "cpu" if rival is not None and not rival.runs_on_gpu else shared.device
    arguments: dict[str, Any] = {"key": shared.key, "device": device}
    if shared.memory is not None:
        arguments["memory"] = shared.memory
    if entrant.planned:
        arguments["flows"] = shared.flows
    if entrant.planned or (rival is not None and rival.wants_threshold):
        arguments["threshold"] = shared.threshold
    return kind(**arguments, **entrant.arguments)


def choose(
    detectors: Iterable[str | MakeOwn], shared: SharedSettings, on_left_out: Callable[[str, str], None] | None = None
) -> dict[str, Make[Contestant]]:
    """Return functions that make detectors, by the names that tables show; no detector means all of `ENTRANTS`.

    A detector is a name of `ENTRANTS`, a class of one's own (`own.py`), or module:Class. One that these settings rule
    out is left out: `on_left_out` gets its name and the reason.
    """
    own: dict[str, MakeOwn] = {}
    wanted: list[str] = []
    for each in detectors:
        name = each if isinstance(each, str) else name_of(each)
        if name in wanted:
            continue
        wanted.append(name)
        if not isinstance(each, str):
            own[name] = each
        elif ":" in each:
            own[name] = load_class(each)
        elif each not in ENTRANTS:
            known = f"one of {', '.join(ENTRANTS)}, or a class of your own as module:Class"
            raise UsageError(f"{setting('detector', each)}: {known}")
    wanted = wanted or list(ENTRANTS)
    given = {"threshold": shared.threshold, "memory": None if shared.memory is None else parse_size(shared.memory)}
    makers: dict[str, Make[Contestant]] = {
        name: partial(Adapted, own[name], given) if name in own else partial(_make, ENTRANTS[name], shared)
        for name in wanted
    }
    for name in own:
        makers[name]()  # An error of one's own detector is no reason to leave it out.
    for name in wanted:
        reason = _reason(name, makers[name], shared, wanted)
        if reason and len(makers) == 1:
            raise UsageError(f"no detector can take part: {name}: {reason}")
        if reason:
            del makers[name]
            if on_left_out is not None:
                on_left_out(name, reason)
    return makers


def _reason(name: str, make: Make[Contestant], shared: SharedSettings, wanted: list[str]) -> str | None:
    """Return why a detector cannot take part; None if it can."""
    if shared.memory is not None and name == "vbfa-long" and "vbfa" in wanted:
        return "of a given memory it is the same as vbfa"  # both have as long columns as the memory allows
    if name == "cube-dense" and "cube" in wanted and shared.device.startswith("cuda"):
        return "on a GPU it is the same as cube"  # which is dense from the first pair on there
    if shared.flows is None and name == "cube-planned":
        return "of unknown flows it is the same as cube-dense"
    try:
        make()
    except UsageError as error:
        return str(error)
    return None
