"""The header of a .cube file, read and checked: what the sketch is, without its bits."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from superhosts.cubefile import container as sketchfile
from superhosts.detectors.base import Detector
from superhosts.detectors.hostlist import DeviceError
from superhosts.detectors.kinds import Kind, check_mergeable
from superhosts.detectors.registry import DETECTORS
from superhosts.engines.columns import Words
from superhosts.errors import GpuMemoryError, MergeError, SketchFileError
from superhosts.fields import FieldError
from superhosts.hashing import MASK32, fingerprint, make_key, mangle_column
from superhosts.memory import memory_left
from superhosts.pairs import Part, Window
from superhosts.sketches.grammar import build_kind, check_arrays, check_part, free_arrays, read_fields, shapes_of
from superhosts.text import printable
from superhosts.units import format_size, parse_size

Entry = dict[str, Any]  # counters of one site, window and part
LISTED_HOST = 16  # most bytes that a host of a list takes: a set has up to four slots for each
MOST_NOTES = 2500  # counters, and sites beside theirs, that a sketch keeps: with the longest names less than 1 MiB
SORTING = 3  # times that pairs of the exact detector are in memory while they are sorted in


@dataclass(frozen=True)
class Stored:
    """What a file says of its sketch."""

    file: str
    digest: str  # of the whole file, as hexadecimal digits: equal content, equal digest
    window: Window | None
    sites: frozenset[str]
    entries: list[Entry]  # counters of sites, windows and parts
    kinds: dict[Part, Kind]  # in the order of the file
    unlisted: bool  # whether there were more sites or counters than are kept
    partial: bool  # whether a scan was interrupted while its window, or that of one of its members, was open
    memory: int  # bytes that its detectors take once they are loaded

    @property
    def named_sites(self) -> frozenset[str]:
        """All sites that the header names, those of its counters too."""
        return self.sites | {entry["site"] for entry in self.entries if entry["site"]}

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
    sizes = {name: list(size) if isinstance(size, tuple) else size for name, size in kind.geometry._asdict().items()}
    return {**described, "geometry": sizes, "format": list(kind.format)}


def _kind_of(entry: Mapping[str, Any]) -> tuple[Part, Kind]:
    """Read one part as `Stored.parts` gives it."""
    return build_kind(check_part(dict(entry), "parts"))


def memory_limit(max_memory: str | int | None, taken: int = 0) -> int:
    """Return the most bytes that sketches may take together, of which `taken` are taken already.

    By default that is what the machine, or the container that this process runs in, has left for it.
    """
    return parse_size(max_memory) if max_memory is not None else memory_left() + taken


@contextmanager
def making_sense(file: str) -> Iterator[None]:
    """Turn errors over what a file's arrays hold into one that names the file."""
    try:
        yield
    except (DeviceError, GpuMemoryError, MergeError, SketchFileError):
        raise
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise SketchFileError(f"damaged: its content makes no sense ({printable(repr(error))})", file=file) from None


def describe(reader: sketchfile.Reader, limit: int) -> Stored:
    """Check all that a header says, and that its detectors would take no more than `limit` bytes."""
    reader.check_memory(limit)
    try:
        fields = read_fields({name: value for name, value in reader.header.items() if name != "arrays"})
        check_arrays(fields.kinds, reader.header["arrays"])
    except FieldError as error:
        raise SketchFileError(f"header {error}", file=reader.name) from None
    memory = _memory_of(fields.kinds, reader.header["arrays"])
    check_memory(memory, limit, reader.name)
    return Stored(reader.name, reader.digest.hex(), *fields, memory)


def check_memory(needed: int, limit: int, file: str) -> None:
    """Refuse a file for which there is no room."""
    if needed > limit:
        asks = f"asks for {format_size(needed)} of memory, the limit is {format_size(limit)}"
        raise SketchFileError(asks, file=file)


def _memory_of(kinds: Mapping[Part, Kind], arrays: list[dict[str, Any]]) -> int:
    """Return the bytes that the detectors of a file take once they are loaded."""
    shapes = {array["name"]: array["shape"] for array in arrays}
    total = 0
    for number, kind in enumerate(kinds.values()):
        if kind.geometry is None:
            total += SORTING * 8 * math.prod(shapes[f"{number}/pairs"])
        else:
            listed = sum(shapes[f"{number}/{name}"][0] for name in free_arrays(kind))
            total += kind.geometry.memory + LISTED_HOST * listed
    return total


def check_hosts(reader: sketchfile.Reader, stored: Stored, secret: bytes) -> None:
    """Refuse a file whose hosts have bits beyond the prefix that its header names.

    Only labels and pairs show hosts. A label that two sites' pairs of equal priority have mixed names a host that was
    never there, so a few of them prove nothing. Where a prefix fills its number (IPv4, /64, /128) nothing is read.
    """
    for number, kind in enumerate(stored.kinds.values()):
        spare = -kind.format.prefix % (32 if kind.format.family == 4 else 64)
        source = "pairs" if kind.geometry is None else "labels"
        if not spare or source not in shapes_of(kind):
            continue
        rows = reader.read_array(f"{number}/{source}")
        if not rows.size:
            continue
        last = rows[:, -3] if kind.geometry is None else _named_hosts(rows, kind, secret)[:, 1]
        wrong = np.count_nonzero(last & np.uint64((1 << spare) - 1))
        if 2 * wrong > len(last):
            place = f"parts[{number}].format[1]"
            beyond = f"{kind.format.prefix}, but {wrong:,} of {len(last):,} hosts have bits beyond it"
            raise SketchFileError(f"header {FieldError(place, beyond)}", file=reader.name)


def _named_hosts(labels: Words, kind: Kind, secret: bytes) -> Words:
    """Return the hosts that labels name as rows (high word, low word)."""
    labels = labels.reshape(-1, labels.shape[2])
    priority = labels >> np.uint64(32)
    labels = labels[(priority[:, 0] > 0) & (priority == priority[:, :1]).all(axis=1)]
    words = (labels & np.uint64(MASK32)).reshape(len(labels), -1, 2)  # two limbs to a word, the low one first
    mangled = np.zeros((len(labels), 2), np.uint64)
    mangled[:, 2 - words.shape[1] :] = (words[:, ::-1, 0]) | (words[:, ::-1, 1] << np.uint64(32))
    return mangle_column(mangled, kind.format.key_bits, True, make_key(secret))


def bound_notes(sites: set[str], entries: list[Entry]) -> tuple[set[str], list[Entry]]:
    """Return the sites and counters that a sketch keeps: the newest counters, their sites, and the first by name.

    A union of years has very many, and its header must stay small enough to be sent. What is kept of a union follows
    from what is kept of its members, whatever the order: merging stays exact and may be repeated.
    """
    if len(entries) > MOST_NOTES:
        entries = heapq.nsmallest(MOST_NOTES, entries, key=_newest_first)
    if len(sites) > MOST_NOTES:
        sites = {*heapq.nsmallest(MOST_NOTES, sites), *(sites & {entry["site"] for entry in entries})}
    return sites, entries


def _newest_first(entry: Entry) -> tuple[int, int, str]:
    return -entry.get("end", 0), -entry.get("start", 0), text_of(entry)


def text_of(entry: Entry) -> str:
    """Return an entry as text: equal entries, equal text."""
    return json.dumps(entry, sort_keys=True)


def make_empty(kind: Kind, secret: bytes, place: dict[str, Any]) -> Detector:
    """Return a detector of this kind that has seen nothing."""
    detector: Any = DETECTORS[kind.detector]
    if kind.geometry is None:
        made: Detector = detector(key_bits=kind.format.key_bits, **place)
    else:
        made = detector(geometry=kind.geometry, key=secret, **place)
    made.format = kind.format
    return made
