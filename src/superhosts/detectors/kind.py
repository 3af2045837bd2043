"""Checks whether two sketches, in memory or in files, can be merged, and names the settings that made them differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from superhosts.core.defaults import NAMES_SHARE
from superhosts.core.pairs import IPV4, TEXT, HostFormat, Part
from superhosts.core.text import setting
from superhosts.core.units import exact_size
from superhosts.detectors.engines.base import Geometry
from superhosts.errors import DifferenceError, GeometryError

_FINEST = 10  # log2 of the smallest step of sizes that are tried: 1 KiB


class Kind(NamedTuple):
    """A detector without its content: the properties that two sketches must have in common to be merged."""

    detector: str
    key: str | None  # the key's fingerprint; None if the detector does not hash
    geometry: Geometry | None  # None if the detector has no geometry
    format: HostFormat


def check_alike(mine: Kind, other: Kind) -> None:
    _check_detector(mine, other)
    _check_key(mine, other)
    _check_keys(mine, other)
    if mine.format.port != other.format.port:
        there, here = other.format.words, mine.format.words
        raise DifferenceError(f"cannot merge: {there} into {here}", there=there, here=here)
    if mine.format != other.format:
        text = f"cannot merge: hosts /{other.format.prefix} into hosts /{mine.format.prefix}"
        raise DifferenceError(text, there=_prefix(other.format), here=_prefix(mine.format))
    if mine.geometry is not None and other.geometry is not None and mine.geometry != other.geometry:
        raise _different_geometry(mine.geometry, other.geometry, mine.format)


def check_mergeable(mine: Mapping[Part, Kind], other: Mapping[Part, Kind]) -> None:
    """Raise MergeError if a part of `other` must not be merged into `mine`.

    A part that `mine` does not have yet must still have the same detector and key as the others.
    """
    for part, kind in other.items():
        if part in mine:
            check_alike(mine[part], kind)
        elif mine:
            first = next(iter(mine.values()))
            _check_detector(first, kind)
            _check_key(first, kind)
            _check_keys(first, kind)


def made_with(geometry: Geometry, format: HostFormat = IPV4) -> str:
    """Return the setting with which sketches of this geometry are made: --memory 128MiB or --geometry slices=64,….

    Of text keys, names take a share of the memory. Several memories may give one geometry; the roundest of them is
    named. A geometry that no memory gives was planned.
    """
    if not getattr(geometry, "turned_lines", True):
        return "an earlier version of superhosts"
    spelled: str = getattr(geometry, "spelled", "")  # Only cubes are made with a geometry in words.
    share = NAMES_SHARE if format == TEXT else 0
    for size in _round_sizes(geometry.memory * share // (share - 1) if share else geometry.memory):
        try:
            chosen = _chosen_for(geometry, size - size // share if share else size)
        except GeometryError:
            continue
        if chosen == geometry:
            return setting("memory", exact_size(size))
    return setting("geometry", spelled) if spelled else setting("memory", exact_size(geometry.memory))


def _chosen_for(geometry: Any, size: int) -> Any:
    """Return the geometry of the same type for a memory. Only that of a cube depends on the width of hosts."""
    choose = type(geometry).for_memory
    return choose(size, geometry.key_bits) if hasattr(geometry, "spelled") else choose(size)


def _round_sizes(size: int) -> Iterator[int]:
    """Yield the sizes next to `size` that are multiples of a large power of two or ten, then of smaller ones."""
    most = (size - 1).bit_length()
    yield from (1 << most, 1 << most >> 1)  # the latter because some geometries take a little more than they were given
    for bits in range(most, _FINEST - 1, -1):
        for step in (1 << bits, 10 ** (bits * 3 // 10)):
            yield -(-size // step) * step


def _different_geometry(mine: Geometry, other: Geometry, format: HostFormat) -> DifferenceError:
    field = next(name for name in mine._fields if getattr(mine, name) != getattr(other, name))
    sizes = f"{field} {getattr(other, field)}", f"{field} {getattr(mine, field)}"
    there, here = made_with(other, format), made_with(mine, format)
    text = f"cannot merge: geometry differs: {sizes[0]} into {sizes[1]}"
    if there == here:  # made by a program that gave the sizes themselves
        return DifferenceError(text, there=sizes[0], here=sizes[1])
    return DifferenceError(f"{text} ({there} into {here})", there=there, here=here)


def _prefix(format: HostFormat) -> str:
    return setting(f"ipv{format.family}_prefix", format.prefix)


def _check_detector(mine: Kind, other: Kind) -> None:
    if mine.detector != other.detector:
        there, here = setting("detector", other.detector), setting("detector", mine.detector)
        text = f"cannot merge {other.detector} into {mine.detector}: the detectors differ"
        raise DifferenceError(text, there=there, here=here)


def _check_keys(mine: Kind, other: Kind) -> None:
    if mine.format.keys != other.format.keys:
        there, here = other.format.words, mine.format.words
        raise DifferenceError(f"cannot merge: {there} into {here}", there=there, here=here)


def _check_key(mine: Kind, other: Kind) -> None:
    if mine.key != other.key:
        why = "sketches of two keys cannot be merged; all sites need the same key from the start"
        text = f"cannot merge: key {other.key} into key {mine.key}; {why}"
        raise DifferenceError(text, there=f"key {other.key}", here=f"key {mine.key}", advice=why)
