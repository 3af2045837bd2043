"""The header of a .cube file, read and checked: what the sketch is, without its bits."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from superhosts.cubefile.container import MAX_HEADER, CubeReader
from superhosts.cubefile.parts import array_name
from superhosts.detectors.hostlist import DeviceError
from superhosts.detectors.kinds import Kind
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import GpuMemoryError, MergeError, SketchFileError
from superhosts.fields import FieldError
from superhosts.hashing import fingerprint
from superhosts.memory import memory_left
from superhosts.pairs import Part, Window
from superhosts.sketches.grammar import check_arrays, read_fields, shapes_of
from superhosts.text import printable
from superhosts.units import format_size, parse_size

Entry = dict[str, Any]  # counters of one site, window and part
MOST_NOTES = 2500  # counters, and sites beside theirs, that a sketch keeps: with the longest names less than 1 MiB


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

    def check_key(self, secret: bytes) -> None:
        """Refuse a file that was made with another key than this one."""
        mine = fingerprint(secret)
        for kind in self.kinds.values():
            if kind.key is not None and kind.key != mine:
                raise MergeError(f"{self.file}: was made with key {kind.key}, the key at hand is {mine} (--key-file)")


def read_header(path: str | Path, *, trusted: bool = False, max_header: int = MAX_HEADER) -> Stored:
    """Check a whole file against its digest (unless that was done: `trusted`) and read its header, not its arrays.

    A header of more than `max_header` bytes is refused (SketchFileError) before it is read.
    """
    with CubeReader(path, trusted=trusted, max_header=max_header) as reader:
        header = describe(reader, memory_limit(None))
        reader.places()
    return header


def memory_limit(max_memory: str | int | None, taken: int = 0) -> int:
    """Return the most bytes that sketches may take together, of which `taken` are taken already.

    By default that is what the machine, or the container that this process runs in, has left for it.
    """
    return parse_size(max_memory) if max_memory is not None else memory_left() + taken


@contextmanager
def header_errors(file: str) -> Iterator[None]:
    """Turn errors over what a file's arrays hold into one that names the file."""
    try:
        yield
    except (DeviceError, GpuMemoryError, MergeError, SketchFileError):
        raise
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise SketchFileError(f"damaged: its content makes no sense ({printable(repr(error))})", file=file) from None


def describe(reader: CubeReader, limit: int) -> Stored:
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


def sides_of(number: int, kind: Kind, arrays: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return the sides of the stored arrays of the number-th part."""
    sides = {array["name"]: array["shape"] for array in arrays}
    return {name: sides[array_name(number, name)] for name in shapes_of(kind)}


def _memory_of(kinds: Mapping[Part, Kind], arrays: list[dict[str, Any]]) -> int:
    """Return the bytes that the detectors of a file take once they are loaded."""
    return sum(
        DETECTORS[kind.detector].loaded_memory(kind, sides_of(number, kind, arrays))
        for number, kind in enumerate(kinds.values())
    )


def check_hosts(reader: CubeReader, stored: Stored, secret: bytes) -> None:
    """Refuse a file whose hosts have bits beyond the prefix that its header names.

    Only labels and pairs show hosts. A label that two sites' pairs of equal priority have mixed names a host that was
    never there, so a few of them prove nothing. Where a prefix fills its number (IPv4, /64, /128) nothing is read.
    """
    for number, kind in enumerate(stored.kinds.values()):
        spare = -kind.format.prefix % (32 if kind.format.family == 4 else 64)
        read = partial(_read_part, reader, number)
        last = DETECTORS[kind.detector].shown_hosts(kind, secret, read) if spare else None
        if last is None:
            continue
        wrong = np.count_nonzero(last & np.uint64((1 << spare) - 1))
        if 2 * wrong > len(last):
            place = f"parts[{number}].format[1]"
            beyond = f"{kind.format.prefix}, but {wrong:,} of {len(last):,} hosts have bits beyond it"
            raise SketchFileError(f"header {FieldError(place, beyond)}", file=reader.name)


def _read_part(reader: CubeReader, number: int, name: str) -> Any:
    return reader.read_array(array_name(number, name))


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
