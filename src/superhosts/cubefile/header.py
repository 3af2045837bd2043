"""The header of a .cube file: notes about a sketch, and its numbered parts, whose arrays are called NUMBER/NAME.

Sketches come from other machines and are not trusted. Anything that the grammar does not allow is rejected with an
error that names the field. This module knows no detector: the fields of a part that depend on its detector are checked
by a function that the caller passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from superhosts.core import pairs
from superhosts.core.fields import Check, FieldError, name, one_of, optional, record, sequence, text, whole
from superhosts.core.pairs import COUNTS, KEYS, PORT_BITS, SIDES, HostFormat, Part, Window
from superhosts.cubefile.container import Arrays, File, write

# A contact that is unanswered is the difference of two others, and not stored.
_DIRECTIONS = (*pairs.DIRECTIONS, *(each for each in pairs.CONTACT_DIRECTIONS if not each.startswith("unanswered")))
MOST_PARTS = 2 * len(SIDES) * len(_DIRECTIONS) * len(COUNTS) * pairs.MOST_GROUPS
LEAST_EVIDENCE: Final = 1 << 10  # pairs of the smallest sample
MOST_EVIDENCE: Final = 1 << 22
EVIDENCE_WORDS: Final = {4: 6, 6: 10}  # words of a row of the sample, by address family
Entry = dict[str, Any]  # counters of one site, window and part


class ArrayError(ValueError):
    """Invalid content of an array of a part. Whoever knows the file and the part's number reports it."""

    def __init__(self, array: str, problem: str) -> None:
        super().__init__(f"array {array}: {problem}")
        self.array, self.problem = array, problem


class EvidenceKind(NamedTuple):
    pairs: int  # most pairs of each address family
    key: str
    lacking: bool = False  # it was merged with sketches that have none


class Notes(NamedTuple):
    window: Window | None = None
    sites: frozenset[str] = frozenset()
    entries: Sequence[Entry] = ()  # counters of sites, windows and parts
    unlisted: bool = False
    partial: bool = False
    evidence: EvidenceKind | None = None

    @property
    def fields(self) -> dict[str, Any]:
        evidence = self.evidence
        lacking = {"lacking": True} if evidence and evidence.lacking else {}
        return {
            "window": list(self.window) if self.window else None,
            "sites": sorted(self.sites),
            "counters": list(self.entries),
            **({"unlisted": True} if self.unlisted else {}),
            **({"partial": True} if self.partial else {}),
            **({"evidence": {"pairs": evidence.pairs, "key": evidence.key, **lacking}} if evidence else {}),
        }


NO_NOTES = Notes()


class WrittenPart(NamedTuple):
    part: Part
    fields: Mapping[str, Any]  # from which an empty detector of the same kind can be built
    arrays: Arrays


def array_name(number: int, name: str) -> str:
    return f"{number}/{name}"


def compose_header(parts: Iterable[WrittenPart], notes: Notes = NO_NOTES) -> dict[str, Any]:
    return {"parts": [{**written.part.fields, **written.fields} for written in parts], **notes.fields}


def write_parts(
    file: File, header: dict[str, Any], parts: Iterable[WrittenPart], others: Mapping[str, Any] | None = None
) -> None:
    arrays = {
        array_name(number, name): array for number, part in enumerate(parts) for name, array in part.arrays.items()
    }
    write(file, header, {**arrays, **(others or {})})


def read_notes(header: Mapping[str, Any], check_part: Check) -> tuple[Notes, list[Any]]:
    """Check a header without its arrays; return notes and parts as `check_part` does. Raise FieldError."""
    fields = record({"parts": sequence(check_part, 0, MOST_PARTS), **_NOTES}, _LATER_NOTES)(dict(header), "")
    sites = frozenset(fields["sites"])
    if len(sites) < len(fields["sites"]):
        raise FieldError("sites", "lists a site twice")
    notes = Notes(
        fields["window"],
        sites,
        fields["counters"],
        fields.get("unlisted", False),
        fields.get("partial", False),
        EvidenceKind(**fields["evidence"]) if "evidence" in fields else None,
    )
    return notes, fields["parts"]


# Checks of single fields


def _window(value: Any, place: str) -> Window:
    start, end = sequence(_TIME, 2, 2)(value, place)
    if start > end:
        raise FieldError(place, f"ends at {end}, before it starts at {start}")
    return Window(start, end)


def host_format(value: Any, place: str) -> HostFormat:
    family, prefix, *port = sequence(whole(0, 128), 2, 3)(value, place)
    one_of(4, 6, KEYS)(family, f"{place}[0]")
    check = one_of(pairs.INT64.prefix, pairs.TEXT.prefix) if family == KEYS else whole(1, 32 if family == 4 else 128)
    check(prefix, f"{place}[1]")
    if port:
        one_of(PORT_BITS)(port[0], f"{place}[2]")
        one_of(4, 6)(family, f"{place}[0]")
        whole(1, 128 - PORT_BITS)(prefix, f"{place}[1]")
    return HostFormat(family, prefix, bool(port))


def _entry(value: Any, place: str) -> Any:
    entry = _ENTRY(value, place)
    if entry["start"] > entry["end"]:
        raise FieldError(f"{place}.end", f"{entry['end']} is before the start, {entry['start']}")
    return entry


# All windows of 64-bit times are within these years.
_TIME = whole(-(1 << 64), 1 << 64, "a whole number: nanoseconds since 1970, in the years 1385 to 2554")
_COUNT = whole(0, (1 << 63) - 1)
_PART: dict[str, Check] = {"family": one_of(4, 6, KEYS), "side": one_of(*SIDES), "direction": one_of(*_DIRECTIONS)}
# Without them: hosts are counted, of all packets.
_LATER: dict[str, Check] = {
    "counts": one_of(*COUNTS),
    "filter": text(
        f"[a-z0-9 ,#-]{{0,{pairs.MOST_FILTER}}}", f"at most {pairs.MOST_FILTER} of a-z, 0-9, space, comma, # and -"
    ),
    "group": text(f"[ -~]{{0,{pairs.MOST_GROUP}}}", f"at most {pairs.MOST_GROUP} printable ASCII characters"),
}
KEY_FIELD = text("[0-9a-f]{16}", "16 hexadecimal digits")
WIDTH_FIELD = one_of(32, 64, 128)
_ENTRY = record(
    # The site of a scan without a name is empty.
    {"site": lambda value, place: value if value == "" else name(value, place), "start": _TIME, "end": _TIME},
    {**_PART, **_LATER, "pairs": _COUNT, "packets": _COUNT},
)
window_field, sites_field = optional(_window), sequence(name)
_NOTES: dict[str, Check] = {"window": window_field, "sites": sites_field, "counters": sequence(_entry)}
_EVIDENCE = record({"pairs": whole(LEAST_EVIDENCE, MOST_EVIDENCE), "key": KEY_FIELD}, {"lacking": one_of(True)})
_LATER_NOTES: dict[str, Check] = {"unlisted": one_of(True), "partial": one_of(True), "evidence": _EVIDENCE}


def part_fields(fields: Mapping[str, Check]) -> Check:
    return record({**_PART, "format": host_format, **fields}, _LATER)


def part_of(fields: Mapping[str, Any], place: str) -> Part:
    """Return the part that fields describe, after a check. Raise FieldError if they do not."""
    known = {**_PART, **_LATER}
    for missing in _PART.keys() - fields.keys():
        raise FieldError(f"{place}.{missing}", "missing")
    return Part(**{each: known[each](fields[each], f"{place}.{each}") for each in Part._fields if each in fields})
