"""The grammar of a .cube file's header: its fields, their valid values, and how they must agree with each other.

Sketches come from other machines and are not trusted. Anything that this grammar does not allow is rejected with an
error that names the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from superhosts.core.fields import Check, FieldError, name, one_of, optional, record, refuse, sequence, text, whole
from superhosts.core.pairs import (
    CONTACT_DIRECTIONS,
    COUNTS,
    DIRECTIONS,
    INT64,
    KEYS,
    MOST_FILTER,
    PORT_BITS,
    SIDES,
    TEXT,
    HostFormat,
    Part,
    Window,
)
from superhosts.cubefile.parts import array_name
from superhosts.detectors import hostnames
from superhosts.detectors.base import Detector
from superhosts.detectors.engines.base import ArrayShape
from superhosts.detectors.kinds import Kind
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import GeometryError
from superhosts.sketch.evidence import sample

# A contact that is unanswered is the difference of two others, and not stored.
_DIRECTIONS = (*DIRECTIONS, *(each for each in CONTACT_DIRECTIONS if not each.startswith("unanswered")))
EVIDENCE_ARRAYS = {f"evidence/{family}": width for family, width in sample.WIDTHS.items()}  # name: words of a row
MOST_PARTS = 2 * len(SIDES) * len(_DIRECTIONS) * len(COUNTS)


class Fields(NamedTuple):
    """The content of a header, except for its arrays."""

    window: Window | None
    sites: frozenset[str]
    entries: list[dict[str, Any]]
    kinds: dict[Part, Kind]
    unlisted: bool
    partial: bool
    evidence: EvidenceKind | None = None


class EvidenceKind(NamedTuple):
    """What a header says of its sample of pairs."""

    pairs: int  # most pairs of each address family
    key: str
    lacking: bool = False  # it was merged with sketches that have none


def read_fields(header: Mapping[str, Any]) -> Fields:
    """Check a header, except for its arrays, and return its content. Raise FieldError if it is invalid."""
    fields = _HEADER(dict(header), "")
    kinds: dict[Part, Kind] = {}
    for number, stored in enumerate(fields["parts"]):
        part, kind = build_kind(stored, f"parts[{number}]")
        if part in kinds:
            raise FieldError(f"parts[{number}]", f"duplicate part {part.words}")
        kinds[part] = kind
    sites = frozenset(fields["sites"])
    if len(sites) < len(fields["sites"]):
        raise FieldError("sites", "lists a site twice")
    return Fields(
        fields["window"],
        sites,
        fields["counters"],
        kinds,
        fields.get("unlisted", False),
        fields.get("partial", False),
        EvidenceKind(**fields["evidence"]) if "evidence" in fields else None,
    )


def build_kind(fields: Mapping[str, Any], place: str = "parts") -> tuple[Part, Kind]:
    """Return the part and kind that valid fields describe. Raise FieldError if the fields contradict each other."""
    geometry, host = fields.get("geometry"), fields["format"]
    part = Part(**{name: fields[name] for name in Part._fields if name in fields})
    detector = DETECTORS[fields["detector"]]
    if host.family != part.family:
        raise FieldError(f"{place}.format", f"{host.words} in a part of family {part.family}")
    if host.keys and not detector.takes_keys:
        raise FieldError(f"{place}.format", f"{host.words}, but {detector.name} takes addresses only")
    where, key_bits = ("key_bits", fields.get("key_bits")) if geometry is None else ("geometry", geometry.key_bits)
    if host.key_bits != key_bits:
        raise FieldError(f"{place}.{where}", f"{key_bits}-bit keys, but {host.words} need {host.key_bits} bits")
    if (fields["key"] is None) != (geometry is None and host.keys is None):
        raise FieldError(f"{place}.key", f"{fields['key'] or 'null'} for {host.words} of {detector.name}")
    return part, Kind(detector.name, fields["key"], geometry, host, "merge" not in detector.broken_laws)


def check_arrays(
    kinds: Mapping[Part, Kind], arrays: list[dict[str, Any]], evidence: EvidenceKind | None = None
) -> None:
    """Check that the arrays are exactly those that the parts and the evidence need, with the right types and shapes."""
    names = {array["name"] for array in arrays}
    expected = {
        name: ArrayShape((None, width))
        for name, width in EVIDENCE_ARRAYS.items()
        if evidence is not None and name in names
    }
    expected |= {
        array_name(number, name): shape
        for number, kind in enumerate(kinds.values())
        for name, shape in shapes_of(number, kind, arrays).items()
    }
    for number, array in enumerate(arrays):
        place, array_of_part = f"arrays[{number}]", array["name"]
        if array_of_part not in expected:
            raise FieldError(f"{place}.name", f"{array_of_part}: no part has this array, or it is listed twice")
        shape = expected.pop(array_of_part)
        one_of(shape.dtype)(array["dtype"], f"{place}.dtype")
        if not shape.fits(array["shape"]):
            raise FieldError(f"{place}.shape", f"{array['shape']}, must be {shape}")
    if expected:
        raise FieldError("arrays", f"missing {', '.join(sorted(expected))}")


def shapes_of(number: int, kind: Kind, arrays: list[dict[str, Any]]) -> dict[str, ArrayShape]:
    """Return the names and shapes of the arrays of part `number`, in the form of which the file has most arrays."""
    names = {array["name"] for array in arrays}
    forms = DETECTORS[kind.detector].file_shapes(kind)
    form = max(forms, key=lambda form: len(names & {array_name(number, name) for name in form}))
    return {**form, **hostnames.shapes_for(kind.format)}


# Checks of single fields


def _window(value: Any, place: str) -> Window:
    start, end = sequence(TIME, 2, 2)(value, place)
    if start > end:
        raise FieldError(place, f"ends at {end}, before it starts at {start}")
    return Window(start, end)


def _format(value: Any, place: str) -> HostFormat:
    """Check the format of hosts: prefixes of any length, up to a full address, or generic keys."""
    family, prefix, *port = sequence(whole(0, 128), 2, 3)(value, place)
    one_of(4, 6, KEYS)(family, f"{place}[0]")
    check = one_of(INT64.prefix, TEXT.prefix) if family == KEYS else whole(1, 32 if family == 4 else 128)
    check(prefix, f"{place}[1]")
    if port:
        one_of(PORT_BITS)(port[0], f"{place}[2]")
        one_of(4, 6)(family, f"{place}[0]")
        whole(1, 128 - PORT_BITS)(prefix, f"{place}[1]")
    return HostFormat(family, prefix, bool(port))


def _geometry(kind: Any) -> Check:
    """Return a check for the geometry of a detector: integers, or lists of them, that pass the geometry's own check.

    A field that files of an older version do not have has the value that it had then, which `older` returns.
    """
    types, older = get_type_hints(kind), kind.older() if hasattr(kind, "older") else {}
    size = whole(0, 1 << 40)
    checks = {field: size if types[field] is int else sequence(size, 0, 64) for field in kind._fields}
    if "key_bits" in checks:
        checks["key_bits"] = one_of(32, 64, 128)
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


def check_part(value: Any, place: str) -> Any:
    """Check a part. Its detector determines its fields."""
    if not isinstance(value, dict):
        raise refuse(value, place, "an object")
    if "detector" not in value:
        raise FieldError(f"{place}.detector", "missing")
    detector = DETECTORS[one_of(*DETECTORS)(value["detector"], f"{place}.detector")]
    return _part_fields(detector)(value, place)


@cache
def _part_fields(detector: type[Detector]) -> Check:
    """Return the check for a part with this detector."""
    fields = {**_PLACE, "detector": one_of(detector.name), "format": _format}
    if detector.geometry_type is None:
        return record({**fields, **_EXACT}, _LATER)
    return record({**fields, **_KEYED, "geometry": _geometry(detector.geometry_type)}, _LATER)


def _site_or_none(value: Any, place: str) -> Any:
    """Check the site of a counter. It is empty for a scan without a site name."""
    return value if value == "" else name(value, place)


def _entry(value: Any, place: str) -> Any:
    entry = _ENTRY(value, place)
    if entry["start"] > entry["end"]:
        raise FieldError(f"{place}.end", f"{entry['end']} is before the start, {entry['start']}")
    return entry


# All windows of 64-bit times are within these years.
TIME = whole(-(1 << 64), 1 << 64, "a whole number: nanoseconds since 1970, in the years 1385 to 2554")
_COUNT = whole(0, (1 << 63) - 1)
_PLACE: dict[str, Check] = {"family": one_of(4, 6, KEYS), "side": one_of(*SIDES), "direction": one_of(*_DIRECTIONS)}
# Without them: hosts are counted, of all packets.
_LATER: dict[str, Check] = {
    "counts": one_of(*COUNTS),
    "filter": text(f"[a-z0-9 ,#-]{{0,{MOST_FILTER}}}", f"at most {MOST_FILTER} of a-z, 0-9, space, comma, # and -"),
}
_KEYED: dict[str, Check] = {"key": text("[0-9a-f]{16}", "16 hexadecimal digits")}
_EXACT: dict[str, Check] = {"key": optional(_KEYED["key"]), "key_bits": one_of(32, 64, 128)}
_ENTRY = record(
    {"site": _site_or_none, "start": TIME, "end": TIME}, {**_PLACE, **_LATER, "pairs": _COUNT, "packets": _COUNT}
)
_HEADER = record(
    {
        "parts": sequence(check_part, 0, MOST_PARTS),
        "window": optional(_window),
        "sites": sequence(name),
        "counters": sequence(_entry),
    },
    {
        "unlisted": one_of(True),
        "partial": one_of(True),
        "evidence": record({"pairs": whole(sample.LEAST, sample.MOST), **_KEYED}, {"lacking": one_of(True)}),
    },
)
window_field, sites_field = optional(_window), sequence(name)
