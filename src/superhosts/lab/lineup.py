"""The detectors of a comparison: how each is set and drawn, ours with their defaults, others as in their papers.

With a memory, others are set for it and for the threshold (`for_memory` of each).

A new rival is its module in `lab/rivals`, of its own name, and its lines here: help texts, scans, comparisons and
figures follow. Nothing of a detector is imported, because the help of commands shows the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

RIVALS = {  # their classes by name
    "dcds": "Dcds",
    "vbfa": "Vbfa",
    "gse": "Gse",
    "filter": "Filter",
    "spreadsketch": "SpreadSketch",
    "pairsample": "PairSample",
    "rgs": "Rgs",
}


class Entrant(NamedTuple):
    """A detector by its name, its colour and mark in figures, and arguments that differ from its defaults."""

    detector: str
    colour: str
    mark: str
    arguments: Mapping[str, Any] = MappingProxyType({})
    planned: bool = False  # for the flows and the threshold of the comparison
    is_open: bool = False  # an open mark, for a variant of another detector


ENTRANTS = {
    "cube": Entrant("cube", "vermillion", "o"),  # as users get it: exact while the pairs fit
    "cube-dense": Entrant("cube", "vermillion", "o", {"exact": False}, is_open=True),
    "cube-planned": Entrant("cube", "blue", "D", {"exact": False}, planned=True, is_open=True),
    "stream": Entrant("stream", "purple", "8"),
    "cbaa": Entrant("cbaa", "blue", "s"),
    "cbaa-paper": Entrant("cbaa-paper", "blue", "s", is_open=True),
    "dcds": Entrant("dcds", "green", "^"),
    "vbfa": Entrant("vbfa", "purple", "v"),
    "vbfa-long": Entrant("vbfa", "purple", "v", {"reading": "long"}, is_open=True),
    "vbfa-wide": Entrant("vbfa", "purple", ">", {"reading": "wide"}, is_open=True),
    "gse": Entrant("gse", "orange", "P"),
    "filter": Entrant("filter", "black", "X"),
    "spreadsketch": Entrant("spreadsketch", "sky", "p"),
    "pairsample": Entrant("pairsample", "green", "d", is_open=True),
    "rgs": Entrant("rgs", "sky", "*"),
}
