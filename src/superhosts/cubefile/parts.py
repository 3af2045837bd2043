"""How the detectors of a bundle lie in a file: numbered parts, whose arrays are named by number and name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from superhosts.cubefile.container import Arrays, write
from superhosts.pairs import Part

NO_NOTES: Mapping[str, Any] = {"window": None, "sites": [], "counters": []}


class StoredPart(NamedTuple):
    """One detector as a file holds it."""

    part: Part
    header: Mapping[str, Any]  # what is needed to build an empty detector like it
    arrays: Arrays


def array_name(number: int, name: str) -> str:
    """Return the name that an array of the number-th part has in a file."""
    return f"{number}/{name}"


def compose_header(parts: Iterable[StoredPart], notes: Mapping[str, Any] = NO_NOTES) -> dict[str, Any]:
    """Return the header of a bundle. The notes are the header's other fields: window, sites, counters, and marks."""
    return {"parts": [{**stored.part._asdict(), **stored.header} for stored in parts], **notes}


def write_parts(path: str | Path, header: dict[str, Any], parts: Iterable[StoredPart]) -> None:
    """Write a .cube file."""
    arrays = {
        array_name(number, name): array for number, stored in enumerate(parts) for name, array in stored.arrays.items()
    }
    write(path, header, arrays)
