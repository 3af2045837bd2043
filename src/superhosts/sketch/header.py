"""Read and validate the header of a .cube file: the description of a sketch, without its arrays."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from superhosts.core.fields import FieldError
from superhosts.core.keys import keys_at_hand
from superhosts.core.pairs import Part, Window
from superhosts.core.text import counted, either, printable
from superhosts.core.units import format_size, parse_size
from superhosts.cubefile.container import MAX_HEADER, CubeReader
from superhosts.cubefile.parts import ArrayError, array_name
from superhosts.detectors import hostnames
from superhosts.detectors.kinds import Kind
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import GpuMemoryError, MergeError, SketchFileError
from superhosts.jit.memory import memory_left
from superhosts.sketch.grammar import EvidenceKind, check_arrays, read_fields, shapes_of

Entry = dict[str, Any]  # counters of one site, window and part
# Counters, and sites besides those of the counters, that a sketch keeps: less than 1 MiB with the longest names.
MOST_NOTES = 2500


@dataclass(frozen=True)
class Stored:
    """The validated header of a sketch file."""

    file: str
    digest: str  # of the whole file, in hexadecimal; files of equal content have equal digests
    window: Window | None
    sites: frozenset[str]
    entries: list[Entry]  # counters of sites, windows and parts
    kinds: dict[Part, Kind]  # in the order of the file
    unlisted: bool  # True if some sites or counters were dropped to bound the header
    partial: bool  # True if a scan was interrupted before the end of the window, of this sketch or one merged into it
    evidence: EvidenceKind | None  # its sample of pairs
    memory: int  # bytes of its detectors once they are loaded

    @property
    def keys(self) -> set[str]:
        """The fingerprints of the keys that the file was written with; none if nothing in it is hashed."""
        sample = {self.evidence.key} if self.evidence else set()
        return {kind.key for kind in self.kinds.values() if kind.key is not None} | sample

    def secret(self, key: bytes | str | None) -> bytes:
        """Return the key of this file: `key`, or without one the key at hand that the file names by its fingerprint.

        Raise MergeError if the file was written with another key.
        """
        known = []
        for each in keys_at_hand(key):
            if self.keys <= {each.fingerprint}:
                return each.secret
            known.append(str(each))
        written = f"{self.file}: written with key {' and '.join(sorted(self.keys))}"
        way = either("give it with --key-file", "give it as key")
        raise MergeError(f"{written}; {way} (known here: {', '.join(known)})")


def read_header(path: str | Path, *, trusted: bool = False, max_header: int = MAX_HEADER) -> Stored:
    """Verify the digest of a file and read its header, but not its arrays.

    `trusted`: the caller has just verified the digest, and it is not computed again. Raise SketchFileError, without
    reading the header, if it is longer than `max_header` bytes.
    """
    with CubeReader(path, trusted=trusted, max_header=max_header) as reader:
        header = describe(reader, memory_limit(None))
        reader.places()
    return header


def memory_limit(max_memory: str | int | None, taken: int = 0) -> int:
    """Return the bytes that all sketches together may use, including the `taken` ones that are already in use.

    The default is what the machine, or the container of this process, has left.
    """
    return parse_size(max_memory) if max_memory is not None else memory_left() + taken


@contextmanager
def header_errors(file: str) -> Iterator[None]:
    """Convert errors from invalid array contents into a SketchFileError that names the file."""
    try:
        yield
    except (GpuMemoryError, MergeError, SketchFileError):
        raise
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise SketchFileError(f"damaged: invalid content ({printable(error)})", file=file) from None


@contextmanager
def array_errors(file: str, number: int) -> Iterator[None]:
    """Convert errors in the content of an array of part `number` into a SketchFileError that names both."""
    try:
        yield
    except ArrayError as error:
        raise SketchFileError(f"damaged: array {array_name(number, error.array)}: {error.problem}", file=file) from None


def describe(reader: CubeReader, limit: int) -> Stored:
    """Validate the whole header, and check that the file's detectors need at most `limit` bytes."""
    check_memory(reader.array_bytes(), limit, reader.name)
    try:
        fields = read_fields({name: value for name, value in reader.header.items() if name != "arrays"})
        check_arrays(fields.kinds, reader.header["arrays"], fields.evidence)
    except FieldError as error:
        raise SketchFileError(f"header {error}", file=reader.name) from None
    memory = _memory_of(fields.kinds, reader.header["arrays"])
    check_memory(memory, limit, reader.name)
    return Stored(reader.name, reader.digest.hex(), *fields, memory)


def check_memory(needed: int, limit: int, file: str) -> None:
    """Raise SketchFileError if a file needs more than `limit` bytes."""
    if needed > limit:
        reason = f"needs {format_size(needed)} of memory, the limit is {format_size(limit)}"
        raise SketchFileError(reason, file=file)


def stored_shapes(number: int, kind: Kind, arrays: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return the shapes of the stored arrays of part `number`."""
    shapes = {array["name"]: array["shape"] for array in arrays}
    return {name: shapes[array_name(number, name)] for name in shapes_of(number, kind, arrays)}


def _memory_of(kinds: Mapping[Part, Kind], arrays: list[dict[str, Any]]) -> int:
    """Return the bytes that the detectors of a file use once they are loaded."""
    total = 0
    for number, kind in enumerate(kinds.values()):
        sides = stored_shapes(number, kind, arrays)
        total += DETECTORS[kind.detector].loaded_memory(kind, sides) + hostnames.memory_for(sides)
    return total


def check_hosts(reader: CubeReader, stored: Stored, secret: bytes) -> None:
    """Raise SketchFileError if most hosts of a part have bits set beyond the prefix that the header names.

    Only labels and stored pairs reveal hosts. If two sites have pairs of equal priority, merging mixes their labels
    into a host that never existed, so a few such hosts prove nothing. If a prefix fills its word (IPv4, /64, /128),
    nothing is read.
    """
    for number, kind in enumerate(stored.kinds.values()):
        spare = -kind.format.prefix % (32 if kind.format.family == 4 else 64)
        if not spare or kind.format.port:  # the port lies beyond the prefix
            continue
        with array_errors(reader.name, number):
            last = DETECTORS[kind.detector].shown_hosts(kind, secret, _PartArrays(reader, number))
        if last is None:
            continue
        wrong = np.count_nonzero(last & np.uint64((1 << spare) - 1))
        if 2 * wrong > len(last):
            place = f"parts[{number}].format[1]"
            beyond = f"{kind.format.prefix}, but bits beyond it are set in {wrong:,} of {counted(len(last), 'host')}"
            raise SketchFileError(f"header {FieldError(place, beyond)}", file=reader.name)


class _PartArrays(Mapping[str, Any]):
    """The arrays of part `number` of a file. Each is read when it is taken."""

    def __init__(self, reader: CubeReader, number: int) -> None:
        self._reader, self._number = reader, number

    def __getitem__(self, name: str) -> Any:
        return self._reader.read_array(array_name(self._number, name))

    def __iter__(self) -> Iterator[str]:
        names = (array["name"] for array in self._reader.header["arrays"])
        return (
            name.removeprefix(array_name(self._number, "")) for name in names if name.startswith(f"{self._number}/")
        )

    def __contains__(self, name: object) -> bool:
        return name in set(self)

    def __len__(self) -> int:
        return len(list(self))


def bound_notes(sites: set[str], entries: list[Entry]) -> tuple[set[str], list[Entry]]:
    """Return the sites and counters that a sketch keeps: the newest counters, their sites, and the first sites by name.

    A union of years has very many, and its header must stay small enough to be sent. What a union keeps depends only
    on what its members keep, in any order, so merging remains exact and idempotent.
    """
    if len(entries) > MOST_NOTES:
        entries = heapq.nsmallest(MOST_NOTES, entries, key=_newest_first)
    if len(sites) > MOST_NOTES:
        sites = {*heapq.nsmallest(MOST_NOTES, sites), *(sites & {entry["site"] for entry in entries})}
    return sites, entries


def _newest_first(entry: Entry) -> tuple[int, int, str]:
    return -entry.get("end", 0), -entry.get("start", 0), entry_text(entry)


def entry_text(entry: Entry) -> str:
    """Return an entry as text. Equal entries have equal text."""
    return json.dumps(entry, sort_keys=True)
