"""The detectors of a comparison by name, and how each is set: ours with their defaults, others as in their papers.

It imports no detector, because the help of `superhosts compare` shows the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Entrant(NamedTuple):
    """A detector of the registry by its name, and arguments that differ from its defaults."""

    detector: str
    arguments: Mapping[str, Any] = MappingProxyType({})
    planned: bool = False  # for the flows and the threshold of the comparison


ENTRANTS = {
    "cube": Entrant("cube"),  # as users get it: exact while the pairs fit
    "cube-dense": Entrant("cube", {"exact": False}),
    "cube-planned": Entrant("cube", {"exact": False}, planned=True),
    "cbaa": Entrant("cbaa"),
    "cbaa-paper": Entrant("cbaa-paper"),
    "dcds": Entrant("dcds"),
    "vbfa": Entrant("vbfa", {"reading": "published"}),
    "vbfa-long": Entrant("vbfa", {"reading": "long"}),
    "vbfa-wide": Entrant("vbfa", {"reading": "wide"}),
    "gse": Entrant("gse"),
    "filter": Entrant("filter"),
    "spreadsketch": Entrant("spreadsketch"),
    "pairsample": Entrant("pairsample"),
    "rgs": Entrant("rgs"),
}
