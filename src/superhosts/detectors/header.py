"""The header of a .cube file, read and checked: what the sketch is, without its bits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superhosts import sketchfile
from superhosts.detectors.base import Detector
from superhosts.detectors.cube import Geometry
from superhosts.detectors.hashing import fingerprint
from superhosts.detectors.kinds import Kind, check_mergeable
from superhosts.detectors.narrow import DeviceError
from superhosts.detectors.registry import DETECTORS, GEOMETRIES
from superhosts.errors import GpuMemoryError, MergeError, SketchFileError
from superhosts.pairs import HostFormat, Part, Window
from superhosts.units import parse_size

Entry = dict[str, Any]  # counters of one site, window and part
LISTED_HOST = 16  # most bytes that a host of a list takes: a set has up to four slots for each


@dataclass(frozen=True)
class Stored:
    """What a file says of its sketch."""

    file: str
    digest: str  # of the whole file, as hexadecimal digits: equal content, equal digest
    window: Window | None
    sites: frozenset[str]
    entries: list[Entry]  # counters of sites, windows and parts
    kinds: dict[Part, Kind]  # in the order of the file

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The kinds of its parts in plain words and numbers, as JSON has them; `check_header` takes them."""
        return [_plain(part, kind) for part, kind in self.kinds.items()]

    def check_key(self, secret: bytes) -> None:
        """Refuse a file that was made with another key than this one."""
        mine = fingerprint(secret)
        for kind in self.kinds.values():
            if kind.key is not None and kind.key != mine:
                raise MergeError(f"{self.file}: was made with key {kind.key}, the key at hand is {mine} (--key-file)")


def read_header(
    path: str | Path,
    *,
    max_memory: str | int | None = None,
    trusted: bool = False,
    max_header: int = sketchfile.MAX_HEADER,
) -> Stored:
    """Check a whole file against its digest (unless that was done: `trusted`) and read its header, not its arrays.

    A header of more than `max_header` bytes is refused (SketchFileError) before it is read.
    """
    with sketchfile.Reader(path, trusted=trusted, max_header=max_header) as reader:
        header = describe(reader, memory_limit(max_memory))
        reader.places()
    return header


def check_header(expected: Stored | Sequence[Mapping[str, Any]], stored: Stored) -> None:
    """Refuse a file that cannot be merged with another, or with parts that are expected (`Stored.parts`).

    That is another detector, key, geometry or reading of hosts in a part that both have, and another detector or key in
    any part. The error names the file and both values.
    """
    kinds = expected.kinds if isinstance(expected, Stored) else dict(_kind_of(part) for part in expected)
    try:
        check_mergeable(kinds, stored.kinds)
    except MergeError as error:
        raise MergeError(f"{stored.file}: {error}") from None


def _plain(part: Part, kind: Kind) -> dict[str, Any]:
    described: dict[str, Any] = {**part._asdict(), "detector": kind.detector, "key": kind.key}
    if kind.geometry is None:
        return {**described, "key_bits": kind.format.key_bits, "format": list(kind.format)}
    return {**described, "geometry": dict(kind.geometry._asdict()), "format": list(kind.format)}


def _kind_of(entry: Mapping[str, Any]) -> tuple[Part, Kind]:
    """Read one part of a header, as far as it can be checked by itself."""
    name = entry["detector"]
    geometry = GEOMETRIES[name](**entry["geometry"]).check() if name in GEOMETRIES else None
    host, part = HostFormat(*map(int, entry["format"])), Part(entry["family"], entry["side"], entry["direction"])
    return part, Kind(name, entry["key"], geometry, host, "merge" not in DETECTORS[name].broken_laws)


def memory_limit(max_memory: str | int | None) -> int:
    """Return the most that a file may ask for; by default the machine's memory: more cannot be meant."""
    if max_memory is not None:
        return parse_size(max_memory)
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


@contextmanager
def making_sense(file: str) -> Iterator[None]:
    """Turn errors over what a header says into one that names the file."""
    try:
        yield
    except (DeviceError, GpuMemoryError, MergeError, SketchFileError):
        raise
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise SketchFileError(f"damaged: the header makes no sense ({error!r})", file=file) from None


def describe(reader: sketchfile.Reader, limit: int) -> Stored:
    """Check all that a header says, and that its arrays would take no more than `limit` bytes."""
    reader.check_memory(limit)
    with making_sense(reader.name):
        return _describe(reader, limit)


def _describe(reader: sketchfile.Reader, limit: int) -> Stored:
    header = reader.header
    window = Window(*map(int, header["window"])) if header["window"] else None
    sites, entries = frozenset(map(str, header["sites"])), list(header["counters"])
    shapes = {str(array["name"]): array["shape"] for array in header["arrays"]}
    kinds: dict[Part, Kind] = {}
    total = 0
    for number, entry in enumerate(header["parts"]):
        name = entry["detector"]
        if name not in DETECTORS:
            raise SketchFileError(f"holds a detector {name!r} that this version does not know", file=reader.name)
        part, kind = _kind_of(entry)
        geometry, host = kind.geometry, kind.format
        key_bits = entry["key_bits"] if geometry is None else geometry.key_bits
        if geometry is not None:
            expected = _shapes_of(geometry)
            if not all(_fits(shapes.get(f"{number}/{key}"), shape) for key, shape in expected.items()):
                raise SketchFileError("damaged: geometry and columns do not agree", file=reader.name)
            listed = sum(shapes[f"{number}/{key}"][0] for key, shape in expected.items() if None in shape)
            total += geometry.memory + LISTED_HOST * listed
            if total > limit:
                raise SketchFileError("asks for more memory than the limit", file=reader.name)
        if isinstance(geometry, Geometry):
            labels = geometry.total_columns, geometry.labels, geometry.limbs
            if not _fits(shapes.get(f"{number}/labels"), labels):
                raise SketchFileError("damaged: geometry and labels do not agree", file=reader.name)
        prefixes = {4: range(32, 33), 6: range(1, 129)}.get(host.family, ())
        if host.prefix not in prefixes or host.key_bits != key_bits or part.family != host.family:
            raise SketchFileError("damaged: hosts and keys do not agree", file=reader.name)
        if part in kinds:
            raise SketchFileError(f"damaged: holds {part} twice", file=reader.name)
        kinds[part] = kind
    return Stored(reader.name, reader.digest.hex(), window, sites, entries, kinds)


def make_empty(kind: Kind, secret: bytes, place: dict[str, Any]) -> Detector:
    """Return a detector of this kind that has seen nothing."""
    detector: Any = DETECTORS[kind.detector]
    if kind.geometry is None:
        made: Detector = detector(key_bits=kind.format.key_bits, **place)
    else:
        made = detector(geometry=kind.geometry, key=secret, **place)
    made.format = kind.format
    return made


def _shapes_of(geometry: Any) -> dict[str, tuple[int | None, ...]]:
    """Return the shapes of the arrays that a geometry decides; None where a side follows the traffic (lists of hosts).

    A sketch of columns has its bits; what else it has is as its own arrays are.
    """
    if hasattr(geometry, "array_shapes"):
        shapes: dict[str, tuple[int | None, ...]] = geometry.array_shapes()
        return shapes
    return {"bits": (geometry.total_columns, geometry.words)}


def free_arrays(kind: Kind) -> set[str]:
    """Return the arrays whose length follows the traffic."""
    return (
        set() if kind.geometry is None else {name for name, shape in _shapes_of(kind.geometry).items() if None in shape}
    )


def _fits(shape: Any, expected: tuple[int | None, ...]) -> bool:
    """Say whether a shape read from a header is the one expected."""
    if not isinstance(shape, list) or len(shape) != len(expected):
        return False
    return all(side == wanted or wanted is None for side, wanted in zip(shape, expected, strict=True))
