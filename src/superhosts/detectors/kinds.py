"""Checks whether two sketches, in memory or in files, can be merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from superhosts.engines.geometry import Geometry
from superhosts.errors import MergeError
from superhosts.pairs import HostFormat, Part


class Kind(NamedTuple):
    """A detector without its content: the properties that two sketches must have in common to be merged."""

    detector: str
    key: str | None  # the key's fingerprint; None if the detector does not hash
    geometry: Geometry | None  # None if the detector has no geometry
    format: HostFormat
    merges: bool = True  # False if the detector does not support merging


def check_alike(mine: Kind, other: Kind) -> None:
    """Raise MergeError, which names both values, if `other` must not be merged into `mine`."""
    if mine.detector != other.detector:
        raise MergeError(f"cannot merge {other.detector} into {mine.detector}: the detectors differ")
    _check_key(mine, other)
    if mine.geometry is not None and mine.geometry != other.geometry:
        for name in mine.geometry._fields:
            here, there = getattr(mine.geometry, name), getattr(other.geometry, name)
            if here != there:
                raise MergeError(f"cannot merge: geometry differs: {name} {there} into {name} {here}")
    if mine.format != other.format:
        raise MergeError(f"cannot merge: hosts /{other.format.prefix} into hosts /{mine.format.prefix}")
    if not mine.merges:
        raise MergeError(f"cannot merge {mine.detector} sketches: a pair that both have seen would count twice")


def check_mergeable(mine: Mapping[Part, Kind], other: Mapping[Part, Kind]) -> None:
    """Raise MergeError if a part of `other` must not be merged into `mine`.

    A part that `mine` does not have yet must still have the same detector and key as the others.
    """
    for part, kind in other.items():
        if part in mine:
            check_alike(mine[part], kind)
        elif mine:
            first = next(iter(mine.values()))
            if first.detector != kind.detector:
                raise MergeError(f"cannot merge {kind.detector} into {first.detector}: the detectors differ")
            _check_key(first, kind)


def _check_key(mine: Kind, other: Kind) -> None:
    if mine.key != other.key:
        why = "sketches of two keys cannot be merged; all sites need the same key from the start"
        raise MergeError(f"cannot merge: key {other.key} into key {mine.key}; {why}")
