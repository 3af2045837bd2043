"""Detectors in .cube files: their validated headers, the detectors that are built from them, and which can be merged.

The caller passes the classes of detectors that it knows, by their names in files. A class checks the fields of its
parts, names the shapes of its arrays and builds a detector from them, by methods that `Detector` lists under "Files".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import NAMES_SHARE
from superhosts.core.fields import Check, FieldError, one_of, optional, record, refuse, whole
from superhosts.core.hashing import DEFAULT_KEY
from superhosts.core.pairs import IPV4, TEXT, HostFormat, Part, Window
from superhosts.core.text import counted, either, printable, setting
from superhosts.core.units import exact_size, format_size, parse_size
from superhosts.cubefile.container import CubeReader, File
from superhosts.cubefile.header import (
    EVIDENCE_WORDS,
    KEY_FIELD,
    WIDTH_FIELD,
    ArrayError,
    Entry,
    EvidenceKind,
    Notes,
    array_name,
    part_fields,
    part_of,
    read_notes,
)
from superhosts.detectors import hostnames
from superhosts.detectors.engines.base import ArrayShape
from superhosts.detectors.lock import give_lock
from superhosts.errors import DifferenceError, GeometryError, GpuMemoryError, MergeError, SketchFileError
from superhosts.jit.memory import memory_left

_FINEST = 10  # log2 of the smallest step of sizes that are tried: 1 KiB
Read = Callable[[str], NDArray[Any]]  # reads an array of a part
Classes = Mapping[str, type[Any]]  # classes of detectors by their names in files


class Kind(NamedTuple):
    """A detector without its content: the properties that two sketches must have in common to be merged."""

    detector: str
    key: str | None  # the key's fingerprint; None if the detector does not hash
    geometry: Any  # None if the detector has no geometry
    format: HostFormat


class Place(NamedTuple):
    device: str = "cpu"
    threads: int | None = None


class StoredPart(NamedTuple):
    number: int
    kind: Kind
    detector: type[Any]
    sides: dict[str, list[int]]  # of its arrays

    @property
    def memory(self) -> int:
        return int(self.detector._loaded_memory(self.kind, self.sides)) + hostnames.memory_for(self.sides)


class Stored(NamedTuple):
    file: str
    digest: str  # of the whole file, in hexadecimal; files of equal content have equal digests
    window: Window | None
    sites: frozenset[str]
    entries: Sequence[Entry]  # counters of sites, windows and parts
    unlisted: bool  # True if some sites or counters were dropped to bound the header
    partial: bool  # True if a scan was interrupted before the end of the window, of this sketch or one merged into it
    evidence: EvidenceKind | None  # its sample of pairs
    parts: dict[Part, StoredPart]  # in the order of the file

    @property
    def kinds(self) -> dict[Part, Kind]:
        return {part: stored.kind for part, stored in self.parts.items()}

    @property
    def memory(self) -> int:
        return sum(stored.memory for stored in self.parts.values())

    @property
    def keys(self) -> set[str]:
        """The fingerprints of the keys that the file was written with; none if nothing in it is hashed."""
        sample = {self.evidence.key} if self.evidence else set()
        return {kind.key for kind in self.kinds.values() if kind.key is not None} | sample

    def secret(self, key: bytes | str | None) -> bytes:
        """Return the key of this file: `key`, or without one the key at hand that the file names by its fingerprint.

        Raise MergeError if the file was written with another key.
        """
        from superhosts.core.keys import keys_at_hand  # Detectors that read no file need no keys of files.

        known = []
        for each in keys_at_hand(key):
            if self.keys <= {each.fingerprint}:
                return each.secret
            known.append(str(each))
        written = f"{self.file}: written with key {' and '.join(sorted(self.keys))}"
        way = either("give it with --key-file", "give it as key")
        raise MergeError(f"{written}; {way} (known here: {', '.join(known)})")


def memory_limit(max_memory: str | int | None, taken: int = 0) -> int:
    """Return the bytes for all sketches, the `taken` ones included; by default what machine or container have left."""
    return parse_size(max_memory) if max_memory is not None else memory_left() + taken


def check_memory(needed: int, limit: int, file: str) -> None:
    if needed > limit:
        reason = f"needs {format_size(needed)} of memory, the limit is {format_size(limit)}"
        raise SketchFileError(reason, file=file)


@contextmanager
def header_errors(file: str) -> Iterator[None]:
    """Convert errors from invalid content into a SketchFileError that names the file."""
    try:
        yield
    except (GpuMemoryError, MergeError, SketchFileError):
        raise
    except FieldError as error:
        raise SketchFileError(f"header {error}", file=file) from None
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise SketchFileError(f"damaged: invalid content ({printable(error)})", file=file) from None


@contextmanager
def array_errors(file: str, number: int) -> Iterator[None]:
    try:
        yield
    except ArrayError as error:
        raise SketchFileError(f"damaged: array {array_name(number, error.array)}: {error.problem}", file=file) from None


# Headers


def describe(reader: CubeReader, limit: int, classes: Classes) -> Stored:
    """Validate the whole header, and check that the file's detectors need at most `limit` bytes."""
    check_memory(reader.array_bytes(), limit, reader.name)
    arrays = reader.header["arrays"]
    try:
        notes, kinds = read_fields({name: value for name, value in reader.header.items() if name != "arrays"}, classes)
        parts = _check_arrays(kinds, arrays, notes.evidence, classes)
    except FieldError as error:
        raise SketchFileError(f"header {error}", file=reader.name) from None
    stored = Stored(reader.name, reader.digest.hex(), *notes, parts)
    check_memory(stored.memory, limit, reader.name)
    return stored


def read_fields(header: Mapping[str, Any], classes: Classes) -> tuple[Notes, dict[Part, Kind]]:
    """Check a header, except for its arrays, and return its content. Raise FieldError if it is invalid."""

    def check_part(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise refuse(value, place, "an object")
        if "detector" not in value:
            raise FieldError(f"{place}.detector", "missing")
        detector: Any = classes[one_of(*classes)(value["detector"], f"{place}.detector")]
        return _part_check(detector)(value, place)

    notes, checked = read_notes(header, check_part)
    kinds: dict[Part, Kind] = {}
    for number, fields in enumerate(checked):
        place = f"parts[{number}]"
        part, host = part_of(fields, place), fields["format"]
        if host.family != part.family:
            raise FieldError(f"{place}.format", f"{host.words} in a part of family {part.family}")
        kind = _build_kind(fields, classes[fields["detector"]], place)
        if part in kinds:
            raise FieldError(place, f"duplicate part {part.words}")
        kinds[part] = kind
    return notes, kinds


@cache
def _part_check(detector: type[Any]) -> Check:
    own: dict[str, Check] = {"key": optional(KEY_FIELD), "key_bits": WIDTH_FIELD}
    if detector.geometry_type is not None:
        own = {"key": KEY_FIELD, "geometry": _geometry_check(detector.geometry_type)}
    return part_fields({"detector": one_of(detector.name), **own})


def _geometry_check(kind: Any) -> Check:
    """Return a check for a geometry. `older` has the fields that older files lack."""
    older = kind.older() if hasattr(kind, "older") else {}
    checks = {field: WIDTH_FIELD if field == "key_bits" else whole(0, 1 << 40) for field in kind._fields}
    fields = record(
        {field: check for field, check in checks.items() if field not in older},
        {field: checks[field] for field in older},
    )

    def check(value: Any, place: str) -> Any:
        sizes = {**older, **fields(value, place)}
        try:
            return kind(**sizes).check()
        except GeometryError as error:
            raise FieldError(place, str(error)) from None

    return check


def _build_kind(fields: Mapping[str, Any], detector: type[Any], place: str) -> Kind:
    """Return the kind that valid fields describe. Raise FieldError if the fields contradict each other."""
    geometry, host = fields.get("geometry"), fields["format"]
    where, key_bits = ("key_bits", fields.get("key_bits")) if geometry is None else ("geometry", geometry.key_bits)
    if host.keys and host.key_bits not in detector.widths:
        raise FieldError(f"{place}.format", f"{host.words}, but {detector.name} takes addresses only")
    if host.key_bits != key_bits:
        raise FieldError(f"{place}.{where}", f"{key_bits}-bit keys, but {host.words} need {host.key_bits} bits")
    if (fields["key"] is None) != (geometry is None and host.keys is None):
        raise FieldError(f"{place}.key", f"{fields['key'] or 'null'} for {host.words} of {detector.name}")
    return Kind(detector.name, fields["key"], geometry, host)


def _check_arrays(
    kinds: Mapping[Part, Kind], arrays: list[dict[str, Any]], evidence: EvidenceKind | None, classes: Classes
) -> dict[Part, StoredPart]:
    stored = {array["name"]: array["shape"] for array in arrays}
    expected = {
        name: ArrayShape((None, width))
        for name, width in ((f"evidence/{family}", words) for family, words in EVIDENCE_WORDS.items())
        if evidence is not None and name in stored
    }
    shapes = {
        part: _shapes_of(number, kind, classes[kind.detector], stored)
        for number, (part, kind) in enumerate(kinds.items())
    }
    for number, own in enumerate(shapes.values()):
        expected |= {array_name(number, name): shape for name, shape in own.items()}
    for number, array in enumerate(arrays):
        place, name = f"arrays[{number}]", array["name"]
        if name not in expected:
            raise FieldError(f"{place}.name", f"{name}: no part has this array, or it is listed twice")
        shape = expected.pop(name)
        one_of(shape.dtype)(array["dtype"], f"{place}.dtype")
        if not shape.fits(array["shape"]):
            raise FieldError(f"{place}.shape", f"{array['shape']}, must be {shape}")
    if expected:
        raise FieldError("arrays", f"missing {', '.join(sorted(expected))}")
    return {
        part: StoredPart(number, kind, classes[kind.detector], {each: stored[array_name(number, each)] for each in own})
        for number, ((part, kind), own) in enumerate(zip(kinds.items(), shapes.values(), strict=True))
    }


def _shapes_of(number: int, kind: Kind, detector: type[Any], stored: Mapping[str, Any]) -> dict[str, ArrayShape]:
    """Return the names and shapes of the arrays of part `number`, in the form of which the file has most arrays."""
    forms = detector._file_shapes(kind)
    form = max(forms, key=lambda form: len(stored.keys() & {array_name(number, name) for name in form}))
    return {**form, **(hostnames.SHAPES if kind.format == TEXT else {})}


# Content


def check_hosts(reader: CubeReader, stored: Stored, secret: bytes) -> None:
    """Raise SketchFileError if most hosts of a part have bits set beyond the prefix that the header names.

    Only labels and stored pairs reveal hosts. If two sites have pairs of equal priority, merging mixes their labels
    into a host that never existed, so a few such hosts prove nothing. If a prefix fills its word (IPv4, /64, /128),
    nothing is read.
    """
    for number, kind, detector, sides in stored.parts.values():
        spare = -kind.format.prefix % (32 if kind.format.family == 4 else 64)
        if not spare or kind.format.port:  # the port lies beyond the prefix
            continue
        with array_errors(reader.name, number):
            last = detector._shown_hosts(
                kind, secret, sides, lambda name, number=number: reader.read_array(array_name(number, name))
            )
        if last is None:
            continue
        last = np.unique(last)  # a host may have several labels
        wrong = np.count_nonzero(last & np.uint64((1 << spare) - 1))
        if 2 * wrong > len(last):
            place = f"parts[{number}].format[1]"
            beyond = f"{kind.format.prefix}, but bits beyond it are set in {wrong:,} of {counted(len(last), 'host')}"
            raise SketchFileError(f"header {FieldError(place, beyond)}", file=reader.name)


def build(reader: CubeReader, stored: Stored, secret: bytes, place: Place) -> dict[Part, Any]:
    detectors, buffers = {}, {}
    with header_errors(reader.name):
        for part, (_, kind, detector, sides) in stored.parts.items():
            detectors[part] = made = detector._make_empty(kind, secret, place)
            own, names = hostnames.apart(sides)
            buffers[part] = {**made._buffers(own), **hostnames.buffers(names)}
        named = {
            array_name(number, name): array
            for number, arrays in enumerate(buffers.values())
            for name, array in arrays.items()
        }
        reader.arrays(named, place.threads or 1)
        for number, (part, arrays) in enumerate(buffers.items()):
            with array_errors(reader.name, number):
                detectors[part].load_arrays(arrays)
    return detectors


class Storable:
    """What detectors and sketches have in common: a lock of their own, copies, and .cube files as bytes."""

    lock: AbstractContextManager[object]
    __hash__ = None  # type: ignore[assignment]  # Its content changes.

    def __new__(cls, *_arguments: Any, **_named: Any) -> Self:
        made = super().__new__(cls)
        give_lock(made)
        return made

    @classmethod
    def _with_state(cls, state: dict[str, Any]) -> Self:
        made = cls.__new__(cls)
        vars(made).update(state)
        return made

    def copy(self) -> Self:
        raise NotImplementedError

    def _write(self, file: File, *, pairs: bool) -> None:
        """Write a .cube file, with the pairs of exact cubes or without."""
        raise NotImplementedError

    @classmethod
    def load(cls, *file: Any, **options: Any) -> Self:
        raise NotImplementedError

    def __copy__(self) -> Self:
        return self.copy()  # Never a shallow copy: two locks would guard the same content.

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickle, (type(self), self.to_bytes(pairs=True))

    @final
    def to_bytes(self, *, pairs: bool = False) -> bytes:
        """Return the content of the .cube file that `save` writes.

        With `pairs`, exact cubes write who talked to whom, as in a pickle: unions of what is read are exact, too.
        """
        file = BytesIO()
        self._write(file, pairs=pairs)
        return file.getvalue()

    @classmethod
    def from_bytes(
        cls,
        data: bytes | bytearray | memoryview,
        *,
        key: bytes | str | None = None,
        device: str = "cpu",
        threads: int | None = None,
        max_memory: str | int | None = None,
    ) -> Self:
        """Return what `to_bytes` returned as an object again. The arguments are those of `load`."""
        return cls.load(BytesIO(data), key=key, device=device, threads=threads, max_memory=max_memory)


def unpickle(kind: type[Any], data: bytes) -> Any:
    """Load the .cube file in a pickle of a detector or sketch. Raise MergeError if its key is not at hand."""
    try:
        # SUPERHOSTS_KEY would stand for the key of every file, but the public key is known to everybody.
        return kind.from_bytes(data, key=DEFAULT_KEY)
    except MergeError:
        pass
    try:
        return kind.from_bytes(data)
    except MergeError:
        with CubeReader(BytesIO(data)) as reader:
            fields = [*reader.header["parts"], reader.header.get("evidence") or {}]
        keys = sorted({each["key"] for each in fields if each.get("key")})
        way = f"exchange bytes: {kind.__name__}.from_bytes(data, key=…) takes what to_bytes() returns"
        needs = f"a pickle holds no key; this one needs key {' and '.join(keys)}"
        raise MergeError(f"{needs}: set SUPERHOSTS_KEY to it, or {way}") from None


# Whether two sketches, in memory or in files, can be merged; errors name the settings that made them differ.


def check_alike(mine: Kind, other: Kind) -> None:
    _check_common(mine, other)
    if mine.format.port != other.format.port:
        there, here = other.format.words, mine.format.words
        raise DifferenceError(f"cannot merge: {there} into {here}", there=there, here=here)
    if mine.format != other.format:
        text = f"cannot merge: hosts /{other.format.prefix} into hosts /{mine.format.prefix}"
        there, here = (setting(f"ipv{each.format.family}_prefix", each.format.prefix) for each in (other, mine))
        raise DifferenceError(text, there=there, here=here)
    if mine.geometry is not None and other.geometry is not None and mine.geometry != other.geometry:
        field = next(
            name for name in mine.geometry._fields if getattr(mine.geometry, name) != getattr(other.geometry, name)
        )
        sizes = [f"{field} {getattr(each.geometry, field)}" for each in (other, mine)]
        text = f"cannot merge: geometry differs: {sizes[0]} into {sizes[1]}"
        there, here = (made_with(each.geometry, mine.format) for each in (other, mine))
        if there == here:  # made by a program that gave the sizes themselves
            raise DifferenceError(text, there=sizes[0], here=sizes[1])
        raise DifferenceError(f"{text} ({there} into {here})", there=there, here=here)


def check_mergeable(mine: Mapping[Part, Kind], other: Mapping[Part, Kind]) -> None:
    """Raise MergeError if a part of `other` must not be merged into `mine`.

    A part that `mine` does not have yet must still have the same detector and key as the others.
    """
    for part, kind in other.items():
        if part in mine:
            check_alike(mine[part], kind)
        elif mine:
            _check_common(next(iter(mine.values())), kind)


def _check_common(mine: Kind, other: Kind) -> None:
    """Check what all parts of a sketch have in common: the detector, the key, and whether hosts are generic keys."""
    if mine.detector != other.detector:
        there, here = setting("detector", other.detector), setting("detector", mine.detector)
        text = f"cannot merge {other.detector} into {mine.detector}: the detectors differ"
        raise DifferenceError(text, there=there, here=here)
    if mine.key != other.key:
        why = "sketches of two keys cannot be merged; all sites need the same key from the start"
        text = f"cannot merge: key {other.key} into key {mine.key}; {why}"
        raise DifferenceError(text, there=f"key {other.key}", here=f"key {mine.key}", advice=why)
    if mine.format.keys != other.format.keys:
        there, here = other.format.words, mine.format.words
        raise DifferenceError(f"cannot merge: {there} into {here}", there=there, here=here)


def made_with(geometry: Any, format: HostFormat = IPV4) -> str:
    """Return the setting with which sketches of this geometry are made: --memory 128MiB or --geometry slices=64,….

    Of text keys, names take a share of the memory. Several memories may give one geometry; the roundest of them is
    named. A geometry that no memory gives was planned.
    """
    if not getattr(geometry, "turned_lines", True):
        return "an earlier version of superhosts"
    spelled: str = getattr(geometry, "spelled", "")  # Only cubes are made with a geometry in words.
    share, for_memory = NAMES_SHARE if format == TEXT else 0, type(geometry).for_memory
    for size in _round_sizes(geometry.memory * share // (share - 1) if share else geometry.memory):
        try:
            given = size - size // share if share else size
            # Only the geometry of a cube depends on the width of hosts.
            chosen = for_memory(given, geometry.key_bits) if spelled else for_memory(given)
        except GeometryError:
            continue
        if chosen == geometry:
            return setting("memory", exact_size(size))
    return setting("geometry", spelled) if spelled else setting("memory", exact_size(geometry.memory))


def _round_sizes(size: int) -> Iterator[int]:
    """Yield the sizes next to `size` that are multiples of a large power of two or ten, then of smaller ones."""
    most = (size - 1).bit_length()
    yield from (1 << most, 1 << most >> 1)  # the latter because some geometries take a little more than they were given
    for bits in range(most, _FINEST - 1, -1):
        for step in (1 << bits, 10 ** (bits * 3 // 10)):
            yield -(-size // step) * step
