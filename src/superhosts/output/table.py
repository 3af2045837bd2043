"""Rows as lines of a table: which columns it has, how wide they are, and what happens if they do not fit.

An address is never cut. If a table with a window column is too wide, every window gets a table of its own; if that is
too wide, the column of intervals is left out; sites of a hub go to lines of their own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len

from superhosts.core.text import at_least, printable
from superhosts.core.times import shows_local
from superhosts.output.rows import Row

NAMED = 4  # sites that a table names per host
GAP = 2  # spaces between two columns
FIXED = "\N{NO-BREAK SPACE}"  # between a site and its number, where no line is broken
MOST_NAME = 40  # characters of a host's name
LEAST_ROOM = 24  # characters of the last column, in which the sites of a hub are wrapped
EXACT, PEERS, INTERVAL = "peers (exact)", "peers", "95 % interval"
NOUNS = (PEERS, "ports", "host-ports")  # what is counted
NUMBERS = (*NOUNS, *(f"{noun} (exact)" for noun in NOUNS), INTERVAL)  # aligned to the right
# Widths of a table whose later rows are not known yet: an IPv4 address, and numbers below a million.
EXPECTED = {"host": 15, PEERS: 7, INTERVAL: 17}

Widths = Mapping[str, int]


class Columns(NamedTuple):
    """Which columns a table has besides host and peers."""

    window: bool = False
    site: bool = False
    side: bool = False
    direction: bool = False
    interval: bool = False
    sites: bool = False  # that saw the host, in rows of a hub
    counts: str = ""  # what is counted, if not peers
    pattern: bool = False  # what the peers look like, where there is evidence
    name: bool = False  # a label, a name or the network of a host, where one was looked for

    def united(self, other: Columns) -> Columns:
        """Return the columns that either has."""
        values: list[Any] = [mine or others for mine, others in zip(self, other, strict=True)]
        return Columns(*values)


def columns_of(rows: Sequence[Row], varying: Iterable[str] = ()) -> Columns:
    """Return the columns that rows need: what differs between them, or will (`varying`), and what is not exact."""
    differs = {
        name: name in varying or len({row.get(name) for row in rows}) > 1 for name in ("site", "side", "direction")
    }
    interval = any(not row["exact"] for row in rows)
    counts = max((row.get("counts", "") for row in rows), default="")
    return Columns(
        **differs,
        interval=interval,
        sites=any("sites" in row for row in rows),
        counts=counts,
        pattern=any("pattern" in row for row in rows),
        name=any(_name(row) for row in rows),
    )


def cells_of(row: Row, window: str, columns: Columns) -> dict[str, str]:
    """Return the cells of a row by the names of their columns."""
    cells = {"window": window} if columns.window else {}
    cells |= {"site": printable(row.get("site", ""))} if columns.site else {}
    cells |= {"host": printable(row["host"])}
    cells |= {"side": row["side"]} if columns.side else {}
    cells |= {"direction": row["direction"]} if columns.direction else {}
    noun = columns.counts or PEERS
    cells |= (
        {noun: peers_text(row), INTERVAL: interval(row)} if columns.interval else {f"{noun} (exact)": peers_text(row)}
    )
    cells |= {"pattern": row.get("pattern") or ""} if columns.pattern else {}
    return cells | ({"name": _name(row)} if columns.name else {})


def _name(row: Row) -> str:
    """Return how a host is called: by its operator, by DNS, or by whose network it is in."""
    network = " ".join(filter(None, (f"AS{row['asn']}" if row.get("asn") else "", row.get("as_name"))))
    return printable(row.get("label") or row.get("name") or network or row.get("country") or "", MOST_NAME)


def widths_of(lines: Sequence[Mapping[str, str]], least: Widths) -> dict[str, int]:
    """Return the width of every column of some cells; `least` are widths that it has at least."""
    names = lines[0] if lines else {}
    return {
        name: max(cell_len(name), least.get(name, 0), *(cell_len(cells[name]) for cells in lines)) for name in names
    }


def total_width(widths: Widths) -> int:
    """Return the width of a line."""
    return sum(widths.values()) + GAP * (len(widths) - 1)


def without_interval(row: Row, cells: Mapping[str, str]) -> dict[str, str]:
    """Return cells without the interval; the number of peers shows that it is an estimate."""
    kept = {name: text for name, text in cells.items() if name != INTERVAL}
    noun = next(noun for noun in NOUNS if noun in cells)
    return kept | ({} if row["exact"] or row["peers"] is None else {noun: f"≈ {cells[noun]}"})


def header_line(widths: Widths, columns: Columns) -> str:
    """Return the line that names the columns, and the zone of times."""
    names = {name: name for name in widths}
    if columns.window:
        names["window"] = "window (local time)" if shows_local() else "window (UTC)"
    line = _joined(names, widths)
    return f"{line}{' ' * GAP}seen by" if columns.sites else line.rstrip()


def body_lines(row: Row, cells: Mapping[str, str], widths: Widths, width: int | None) -> list[str]:
    """Return the lines of a row: one, or more if the sites of a hub do not fit into it."""
    line = _joined(cells, widths)
    if "sites" not in row:
        return [line.rstrip()]
    sites, used = _seen_by(row["sites"]), cell_len(line) + GAP
    room = None if width is None else width - used
    if width is None or room is None or room >= LEAST_ROOM:
        first, *more = _wrapped(sites, room) or [""]
        return [f"{line}{' ' * GAP}{first}".rstrip(), *(" " * used + text for text in more)]
    return [line.rstrip(), *(f"    {text}" for text in _wrapped(f"seen by {sites}", width - 4))]


def _wrapped(text: str, width: int | None) -> list[str]:
    """Return text in lines that fit a width, broken between sites only."""
    if width is None:
        lines = [text]
    else:
        lines = textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False)
    return [line.replace(FIXED, " ") for line in lines]


def _joined(cells: Mapping[str, str], widths: Widths) -> str:
    return (" " * GAP).join(
        " " * (widths[name] - cell_len(cells[name])) + cells[name]
        if name in NUMBERS
        else cells[name] + " " * (widths[name] - cell_len(cells[name]))
        for name in widths
    )


def _seen_by(sites: list[Row]) -> str:
    """Name the sites that saw most peers of a host; a fleet may have hundreds of sites."""
    named = [f"{printable(site['site'])} {peers_text(site)}".replace(" ", FIXED) for site in sites[:NAMED]]
    more = f"{FIXED}and {len(sites) - NAMED} more".replace(" ", FIXED) if len(sites) > NAMED else ""
    return ", ".join(named) + more


def peers_text(row: Row) -> str:
    """Format the peers of a row or of a site in it; of a saturated host only a lower bound is known."""
    return at_least(row["peers"], row["peers_low"])


def interval(row: Row) -> str:
    """Format the interval of a row."""
    return interval_words(row["peers_low"], row["peers_high"], is_exact=row["exact"])


def interval_words(low: int, high: int | None, *, is_exact: bool) -> str:
    """Format an interval. An exact number has none, and neither has a saturated host, whose `high` is None."""
    if is_exact:
        return "exact"
    return "saturated" if high is None else f"{low:,} – {high:,}"
