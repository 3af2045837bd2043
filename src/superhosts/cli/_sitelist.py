"""The list of a hub's sites: who may send, and what the hub knows about each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from superhosts.core.text import printable
from superhosts.core.times import iso_time
from superhosts.core.units import SECOND, format_size
from superhosts.fleet.nats.enrolment import Enrolment, Outgoing
from superhosts.fleet.sites import is_wrong

NUMBERS = ("spool_sketches", "spool_bytes", "accepted", "refused", "slowed")
MISSING = "-"
TITLES = ("site", "key since", "seen", "version", "lag", "spool", "refused", "slowed", "clock")
Row = dict[str, Any]


def list_known(
    enrolled: list[Enrolment], outgoing: Mapping[str, Outgoing], known: Mapping[str, Any], now: float
) -> list[Row]:
    """Return what is known about each site, enrolled or heard; `known` is from the status of a hub."""
    keys = {each.site: each for each in enrolled}
    rows = []
    for site in sorted({*keys, *known}):
        key = keys.get(site, Enrolment(site, None, None, None))
        facts: Any = known.get(site)
        until = outgoing.get(site)
        rows.append(
            {
                **key._asdict(),
                "old_key_until": until and iso_time(int(until.until) * SECOND),
                **_row(facts if isinstance(facts, dict) else {}, now),
            }
        )
    return rows


def _row(facts: Row, now: float) -> Row:
    """Return the facts about a site in a status file, which may be of another release."""
    seen, end, clock = (_number(facts.get(name)) for name in ("seen", "window_end", "clock"))
    version, mismatch = (facts.get(name) for name in ("version", "mismatch"))
    return {
        "seen": None if seen is None else iso_time(int(seen) * SECOND),
        "seen_seconds": None if seen is None else round(now - seen, 1),
        "version": printable(version) if isinstance(version, str) else None,
        "lag_seconds": None if end is None else round(now - end, 1),
        **{name: _number(facts.get(name)) for name in NUMBERS},
        "clock_seconds": clock,
        "clock_wrong": None if clock is None else is_wrong(clock),
        "mismatch": printable(mismatch) if isinstance(mismatch, str) and mismatch else None,
    }


def _number(value: Any) -> Any:
    return value if type(value) in (int, float) and abs(value) < 1e15 else None


def table_of(rows: list[Row]) -> Table:
    """Return the sites as a table for people."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in TITLES:
        table.add_column(title, no_wrap=True, justify="left" if title in TITLES[:4] else "right")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> list[str]:
    waiting, size = row["spool_sketches"], row["spool_bytes"]
    return [
        row["site"],
        _key_text(row),
        _or_missing(row["seen_seconds"], lambda age: f"{age_text(age)} ago"),
        row["version"] or MISSING,
        _or_missing(row["lag_seconds"], age_text),
        MISSING if waiting is None else f"{waiting:,} ({format_size(size or 0)})" if waiting else "0",
        _or_missing(row["refused"], lambda count: f"{count:,}"),
        _or_missing(row["slowed"], lambda count: f"{count:,}"),
        _or_missing(row["clock_seconds"], lambda ahead: f"{ahead:+.1f} s" if abs(ahead) < 60 else age_text(ahead)),
    ]


def _key_text(row: Row) -> str:
    """Return since when a site has its key; a site without one sends by files, or to a hub that admits everybody."""
    if row["revoked"]:
        return "revoked"
    return "none" if row["key"] is None else (row["enrolled"] or "unknown")[:10]


def remarks(rows: list[Row]) -> Iterator[str]:
    """Return what somebody should know about sites besides their numbers."""
    for row in rows:
        site, clock = row["site"], row["clock_seconds"]
        if row["clock_wrong"]:
            way = "ahead of" if clock > 0 else "behind"
            yield f"the clock of {site} is {age_text(abs(clock))} {way} the hub's"
        if row["mismatch"]:
            yield f"nothing is taken from {site}: {row['mismatch']}"
        if row["old_key_until"]:
            yield f"an older key of {site} is accepted until {row['old_key_until']}"


def _or_missing(value: Any, show: Any) -> str:
    return MISSING if value is None else show(value)


def age_text(seconds: float) -> str:
    """Return an age in its largest unit: 12 s, 5 min, 3.2 h, 4 d."""
    sign, size = ("-" if seconds < 0 else ""), abs(seconds)
    if size < 120:
        return f"{sign}{size:.0f} s"
    if size < 7200:
        return f"{sign}{size / 60:.0f} min"
    return f"{sign}{size / 3600:.1f} h" if size < 48 * 3600 else f"{sign}{size / 86400:.0f} d"
