"""The layout of a sketch's detectors in a file: numbered parts, whose arrays are called NUMBER/NAME."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from superhosts.core.pairs import Part
from superhosts.cubefile.container import Arrays, File, write

NO_NOTES: Mapping[str, Any] = {"window": None, "sites": [], "counters": []}
NO_ARRAYS: Mapping[str, Any] = {}


class StoredPart(NamedTuple):
    """One detector as stored in a file."""

    part: Part
    header: Mapping[str, Any]  # the fields from which an empty detector of the same kind can be built
    arrays: Arrays


class ArrayError(ValueError):
    """Invalid content of an array of a part. Whoever knows the file and the part's number reports it."""

    def __init__(self, array: str, problem: str) -> None:
        super().__init__(f"array {array}: {problem}")
        self.array, self.problem = array, problem


def array_name(number: int, name: str) -> str:
    """Return the name in a file of an array of part `number`."""
    return f"{number}/{name}"


def compose_header(parts: Iterable[StoredPart], notes: Mapping[str, Any] = NO_NOTES) -> dict[str, Any]:
    """Return the header of a sketch. The notes are its other fields: window, sites, counters and flags."""
    return {"parts": [{**stored.part.fields, **stored.header} for stored in parts], **notes}


def write_parts(
    file: File, header: dict[str, Any], parts: Iterable[StoredPart], others: Mapping[str, Any] = NO_ARRAYS
) -> None:
    """Write a .cube file with this header, the arrays of the parts, and others by their names."""
    arrays = {
        array_name(number, name): array for number, stored in enumerate(parts) for name, array in stored.arrays.items()
    }
    write(file, header, {**arrays, **others})
