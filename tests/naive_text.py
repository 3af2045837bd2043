"""Tables of text read the slow and obvious way: csv, json, ipaddress, datetime and decimal. Imports nothing of ours.

A row is (family, source, destination, nanoseconds); what is bad or skipped is counted.
"""

from __future__ import annotations

import csv
import io
import ipaddress
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

Row = tuple[int, int, int, int]
UNSET = {"", "-", "null", "NULL", "None", "none", "nan", "NaN", "N/A", "\\N", "(empty)"}
BLANKS = "".join(map(chr, range(33)))
MOST = 2**63 - 1
_MAC = re.compile(r".{2}[:-].{2}[:-].{2}[:-].{2}[:-].{2}[:-].{2}", re.DOTALL)
_NUMBER = re.compile(r"(?=\.?[0-9])[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(
    r"(\d{4})([-/])(\d\d)\2(\d\d)(?:[T t_](\d\d):(\d\d)(?::(\d\d))?(?:[.,](\d+))?"
    r" *(Z|z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)


@dataclass
class Reading:
    rows: list[Row] = field(default_factory=list)
    bad: int = 0
    skipped: int = 0


def address(text: str) -> tuple[int, int] | None:
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 1 << 32:
        return 4, int(text)
    try:
        found = ipaddress.ip_address(text.split("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.version, int(found)


def number(text: str, unit: str = "") -> int | None:
    if not _NUMBER.fullmatch(text):
        return None
    with localcontext() as context:
        context.prec = 2000
        context.Emax, context.Emin = 10**6, -(10**6)
        value = Decimal(text)
        digits = {"s": 9, "ms": 6, "us": 3, "ns": 0}.get(unit)
        if digits is None:
            digits = 9 if value < 10**11 else 6 if value < 10**14 else 3 if value < 10**17 else 0
        nanoseconds = int(value.scaleb(digits))
    return nanoseconds if nanoseconds <= MOST else None


def time(text: str, unit: str = "") -> int | None:
    if len(text) < 10 or text[4] not in "-/":
        found = number(text, unit)
        return found if found is None or found < 9_214_646_400 * 10**9 else None
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, _, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), tzinfo=UTC)
    except ValueError:
        return None
    if int(second or 0) > 60 or not 1970 <= moment.year <= 2261:
        return None
    moment += timedelta(seconds=int(second or 0))
    if zone and zone[0] in "+-":
        hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
        if hours > 23 or minutes > 59:
            return None
        moment -= timedelta(minutes=hours * 60 + minutes) * (1 if zone[0] == "+" else -1)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = since.days * 86400 + since.seconds
    return None if seconds < 0 else seconds * 10**9 + int((fraction or "0")[:9].ljust(9, "0"))


def put(reading: Reading, src: str | None, dst: str | None, when: str | None, unit: str = "", blanks: str = "") -> None:
    """Add one row, given its three fields, without blanks around them; None: it lacks one."""
    ends = []
    for text in (src, dst):
        shown = text if text is None or not blanks else text.strip(blanks)
        if shown is None or shown in UNSET:
            ends.append(None)
        else:
            ends.append(address(shown) or (None if _MAC.fullmatch(shown) else 0))
    if ends == [None, None]:
        reading.skipped += 1
        return
    first, second = ends
    nanoseconds = None if when is None else time(when.strip(blanks) if blanks else when, unit)
    if not isinstance(first, tuple) or not isinstance(second, tuple) or first[0] != second[0] or nanoseconds is None:
        reading.bad += 1
    else:
        reading.rows.append((first[0], first[1], second[1], nanoseconds))


def read_csv(text: str, delimiter: str = ",", columns: tuple[str, str, str] = ("src", "dst", "time")) -> Reading:
    reading = Reading()
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header = [name.strip() for name in next(lines)]
    places = [header.index(name) for name in columns]
    for row in lines:
        if not row or [each.strip() for each in row] == header:
            continue
        if len(row) <= max(places):
            reading.bad += 1
        else:
            put(reading, *(row[place] for place in places), blanks=BLANKS)
    return reading


def read_json(text: str, paths: tuple[str, str, str], unit: str = "") -> Reading:
    """Read JSON Lines. Of equal keys the first counts."""
    reading = Reading()
    for line in text.split("\n"):
        if not line.strip(BLANKS):
            continue
        try:
            value = json.loads(line, object_pairs_hook=_first)
        except ValueError:
            reading.bad += 1
            continue
        if not isinstance(value, dict):
            reading.bad += 1
            continue
        put(reading, *(_text(_found(value, path)) for path in paths), unit=unit)
    return reading


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def _found(value: Any, path: str) -> Any:
    if path in value:
        return value[path]
    first, _, rest = path.partition(".")
    return _found(value[first], rest) if rest and isinstance(value.get(first), dict) else None


def _text(value: Any) -> str | None:
    """Return a value as a field has it; None for what is not a single value."""
    if value is None or isinstance(value, dict | list):
        return None
    return value if isinstance(value, str) else json.dumps(value)
