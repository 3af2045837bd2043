"""A sketch: the detectors of one window, one for each address family, watched side and direction that was asked for.

It has the verbs of its detectors and is what a .cube file holds. Merging is exact and may be repeated: windows grow to
their hull, sites unite, and the counters of (site, window, part) are kept as entries of which equal ones count once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superhosts import sketchfile
from superhosts.detectors.base import Detector, SuperHost, SuperHosts
from superhosts.detectors.cbaa import Cbaa, PaperCbaa
from superhosts.detectors.cbaa.geometry import Geometry as CbaaGeometry
from superhosts.detectors.cube import Cube, Geometry
from superhosts.detectors.dcds import Dcds
from superhosts.detectors.dcds import Geometry as DcdsGeometry
from superhosts.detectors.exact import Exact
from superhosts.detectors.filter import Filter
from superhosts.detectors.filter import Geometry as FilterGeometry
from superhosts.detectors.gse import Geometry as GseGeometry
from superhosts.detectors.gse import Gse
from superhosts.detectors.hashing import fingerprint, secret_of
from superhosts.detectors.keyed import KeyedSketch
from superhosts.detectors.narrow import DeviceError
from superhosts.detectors.spreadsketch import Geometry as SpreadSketchGeometry
from superhosts.detectors.spreadsketch import SpreadSketch
from superhosts.detectors.vbfa import Geometry as VbfaGeometry
from superhosts.detectors.vbfa import Vbfa
from superhosts.device import choose_device, thread_count
from superhosts.errors import GpuMemoryError, MergeError, SketchFileError, UsageError
from superhosts.pairs import Host, HostFormat, Part, Window
from superhosts.units import parse_size

DETECTORS: dict[str, type[Detector]] = {
    "cube": Cube,
    "cbaa": Cbaa,
    "cbaa-paper": PaperCbaa,
    "exact": Exact,
    "dcds": Dcds,
    "vbfa": Vbfa,
    "gse": Gse,
    "filter": Filter,
    "spreadsketch": SpreadSketch,
}
_GEOMETRIES: dict[str, Any] = {
    "cube": Geometry,
    "cbaa": CbaaGeometry,
    "cbaa-paper": CbaaGeometry,
    "dcds": DcdsGeometry,
    "vbfa": VbfaGeometry,
    "gse": GseGeometry,
    "filter": FilterGeometry,
    "spreadsketch": SpreadSketchGeometry,
}
Entry = dict[str, Any]  # counters of one site, window and part
LISTED_HOST = 16  # most bytes that a host of a list takes: a set has up to four slots for each


class Found(NamedTuple):
    """A super host of a sketch: the host with its numbers, the part that saw it, and the detector's name."""

    part: Part
    row: SuperHost
    detector: str

    @property
    def host(self) -> Host:
        """The host."""
        return self.row.host

    @property
    def peers(self) -> int:
        """Its number of distinct peers."""
        return self.row.peers

    @property
    def peers_low(self) -> int:
        """Lower end of the 95 % interval."""
        return self.row.peers_low

    @property
    def peers_high(self) -> int | None:
        """Upper end of the 95 % interval; None where there is none."""
        return self.row.peers_high

    @property
    def saturated(self) -> bool:
        """Whether only a lower bound is known."""
        return self.row.saturated


class Sketch:
    """The detectors of one window. `sh.load` gives one; `scan` makes one for every window."""

    def __init__(
        self, make: Callable[[Part], Detector] | None = None, *, window: Window | None = None, site: str = ""
    ) -> None:
        self._make = make
        self.parts: dict[Part, Detector] = {}
        self.window = window
        self.sites: set[str] = {site} if site else set()
        self.entries: list[Entry] = []

    @classmethod
    def of(cls, detector: Detector) -> Sketch:
        """Return a bundle of one detector alone."""
        sketch = cls()
        sketch.parts[Part(family=detector.format.family)] = detector
        return sketch

    def part(self, part: Part) -> Detector:
        """Return the detector of a part, made when it is first needed."""
        if part not in self.parts:
            if self._make is None:
                raise UsageError(f"this sketch has no part {part}")
            self.parts[part] = self._make(part)
        return self.parts[part]

    @property
    def memory(self) -> int:
        """Bytes of all its detectors."""
        return sum(detector.memory for detector in self.parts.values())

    def super_hosts(self, threshold: float) -> list[Found]:
        """Return the hosts of at least `threshold` peers in all parts, most peers first."""
        return self.collect(lambda _, detector: detector.super_hosts(threshold))

    def top(self, count: int) -> list[Found]:
        """Return the `count` hosts with most peers, over all parts."""
        return self.collect(lambda _, detector: detector.top(count))[:count]

    def collect(self, ask: Callable[[Part, Detector], SuperHosts]) -> list[Found]:
        """Ask every part, and put the answers in one order: most peers first."""
        found = [
            Found(part, row, detector.name) for part, detector in self.parts.items() for row in ask(part, detector)
        ]
        return sorted(found, key=lambda item: (-item.row.peers, item.part, int_of(item.row.host)))

    def estimate(self, host: str | Host) -> list[Found]:
        """Return one host's number of peers in every part of its address family."""
        family = 6 if ":" in str(host) else 4
        chosen = [(part, detector) for part, detector in self.parts.items() if part.family == family]
        return [Found(part, detector.estimate(host), detector.name) for part, detector in chosen]

    def merge(self, other: Sketch) -> None:
        """Take in another sketch, whole or, when any part does not fit, not at all."""
        for part, detector in other.parts.items():
            mine = self.parts.get(part)
            if mine is not None:
                _check_alike(mine, detector)
            elif self.parts and other.parts:
                _check_same_kind(next(iter(self.parts.values())), detector)
        for part, detector in other.parts.items():
            if part in self.parts:
                self.parts[part].merge(detector)
            else:
                self.parts[part] = detector.copy()  # what is merged in later must not reach the other sketch
        if other.window is not None:
            mine_window = self.window or other.window
            self.window = Window(min(mine_window.start, other.window.start), max(mine_window.end, other.window.end))
        self.sites |= other.sites
        self.entries += [entry for entry in other.entries if entry not in self.entries]

    def clear(self) -> None:
        """Forget all pairs."""
        for detector in self.parts.values():
            detector.clear()
        self.entries = []

    def __iter__(self) -> Iterator[tuple[Part, Detector]]:
        return iter(self.parts.items())

    def save(self, path: str | Path) -> None:
        """Write a .cube file."""
        parts, arrays = [], {}
        for number, (part, detector) in enumerate(self.parts.items()):
            parts.append({**part._asdict(), **detector.header()})
            arrays.update({f"{number}/{name}": array for name, array in detector.arrays().items()})
        header = {
            "parts": parts,
            "window": list(self.window) if self.window else None,
            "sites": sorted(self.sites),
            "counters": self.entries,
        }
        sketchfile.write(path, header, arrays)


def load(
    path: str | Path,
    *,
    key: bytes | str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    max_memory: str | int | None = None,
) -> Sketch:
    """Read a .cube file onto a device. A sketch made with another key is refused."""
    limit = _default_limit() if max_memory is None else parse_size(max_memory)
    choose_device(device)  # a device that is not there is said before the file is read
    place = {"device": device, "threads": thread_count() if threads is None else threads}
    with sketchfile.Reader(path) as reader:
        reader.check_memory(limit)
        try:
            return _build(reader, secret_of(key), place, limit)
        except (DeviceError, GpuMemoryError, MergeError, SketchFileError):
            raise
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            raise SketchFileError(f"damaged: the header makes no sense ({error!r})", file=str(path)) from None


def _build(reader: sketchfile.Reader, secret: bytes, place: dict[str, Any], limit: int) -> Sketch:
    header = reader.header
    sketch = Sketch(window=Window(*map(int, header["window"])) if header["window"] else None)
    sketch.sites = set(map(str, header["sites"]))
    sketch.entries = list(header["counters"])
    prepared: sketchfile.Arrays = {}
    shapes = {str(array["name"]): array["shape"] for array in header["arrays"]}
    total = 0
    for number, entry in enumerate(header["parts"]):
        name = entry["detector"]
        if name not in DETECTORS:
            raise SketchFileError(f"holds a detector {name!r} that this version does not know", file=reader.name)
        if entry["key"] is not None and entry["key"] != fingerprint(secret):
            mine = fingerprint(secret)
            raise MergeError(f"{reader.name}: was made with key {entry['key']}, the key at hand is {mine} (--key-file)")
        detector: Detector
        if name == "exact":
            detector = Exact(key_bits=int(entry["key_bits"]), **place)
        else:
            geometry = _GEOMETRIES[name](**entry["geometry"]).check()
            expected = _shapes_of(geometry)
            if not all(_fits(shapes.get(f"{number}/{key}"), shape) for key, shape in expected.items()):
                raise SketchFileError("damaged: geometry and columns do not agree", file=reader.name)
            listed = sum(shapes[f"{number}/{key}"][0] for key, shape in expected.items() if None in shape)
            total += geometry.memory + LISTED_HOST * listed
            if total > limit:
                raise SketchFileError("asks for more memory than the limit", file=reader.name)
            detector = DETECTORS[name](geometry=geometry, key=secret, **place)  # type: ignore[call-arg]
            for key, array in detector.arrays().items():
                free = None in expected.get(key, ())
                prepared[f"{number}/{key}"] = np.zeros(shapes[f"{number}/{key}"], array.dtype) if free else array
        host, part = HostFormat(*map(int, entry["format"])), Part(entry["family"], entry["side"], entry["direction"])
        prefixes = {4: range(32, 33), 6: range(1, 129)}.get(host.family, ())
        if host.prefix not in prefixes or host.key_bits != detector.key_bits or part.family != host.family:
            raise SketchFileError("damaged: hosts and keys do not agree", file=reader.name)
        if part in sketch.parts:
            raise SketchFileError(f"damaged: holds {part} twice", file=reader.name)
        detector.format = host
        sketch.parts[part] = detector
    missing = prepared.keys() - shapes.keys()
    if missing:
        raise SketchFileError(f"damaged: no array {', '.join(sorted(missing))}", file=reader.name)
    arrays = reader.arrays(prepared)
    for number, detector in enumerate(sketch.parts.values()):
        if isinstance(detector, KeyedSketch):
            own, start = f"{number}/", len(f"{number}/")
            detector.load_arrays({name[start:]: arrays[name] for name in prepared if name.startswith(own)})
        elif isinstance(detector, Exact):
            detector.restore_arrays({"pairs": arrays[f"{number}/pairs"]})
    return sketch


def _shapes_of(geometry: Any) -> dict[str, tuple[int | None, ...]]:
    """Return the shapes of the arrays that a geometry decides; None where a side follows the traffic (lists of hosts).

    A sketch of columns has its bits; what else it has is as its own arrays are.
    """
    if hasattr(geometry, "array_shapes"):
        shapes: dict[str, tuple[int | None, ...]] = geometry.array_shapes()
        return shapes
    return {"bits": (geometry.total_columns, geometry.words)}


def _fits(shape: Any, expected: tuple[int | None, ...]) -> bool:
    """Say whether a shape read from a header is the one expected."""
    if not isinstance(shape, list) or len(shape) != len(expected):
        return False
    return all(side == wanted or wanted is None for side, wanted in zip(shape, expected, strict=True))


def _default_limit() -> int:
    """Return the machine's memory: a file that asks for more cannot be meant."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _check_alike(mine: Detector, other: Detector) -> None:
    if isinstance(mine, KeyedSketch):
        mine.check_alike(other)
    elif type(mine) is not type(other):
        raise MergeError(f"cannot merge {other.name} into {mine.name}: another detector")
    elif mine.format != other.format:
        raise MergeError(f"cannot merge: hosts /{other.format.prefix} into hosts /{mine.format.prefix}")


def _check_same_kind(mine: Detector, other: Detector) -> None:
    """Refuse a part of another key or detector even where nothing stands in its place yet."""
    if type(mine) is not type(other):
        raise MergeError(f"cannot merge {other.name} into {mine.name}: another detector")
    if isinstance(mine, KeyedSketch) and isinstance(other, KeyedSketch) and mine.fingerprint != other.fingerprint:
        raise MergeError(f"cannot merge: key {other.fingerprint} into key {mine.fingerprint}; all sites need one key")


def int_of(host: Host) -> int:
    """Return a number by which hosts sort."""
    return int(host) if not hasattr(host, "network_address") else int(host.network_address)
