"""Tables of hosts for people: the columns, their titles, and how each value is written.

Every table uses this declaration: those of commands and of `watch` (`output/table.py`), `superhosts top`, and the text
and HTML of results at a Python prompt, which are made here. A row is a result row (docs/reference/rows.md). Of a
saturated host only a lower bound is known. Everything is made printable, because names come from traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from superhosts.core.pairs import Window
from superhosts.core.text import aligned, at_least, counted, printable
from superhosts.core.times import window_span

SHOWN = 10  # rows of a result at a Python prompt
MOST_NAME = 80  # characters of a host's name
Row = Mapping[str, Any]


class HostColumn(NamedTuple):
    title: str
    write: Callable[[Row], str]
    is_number: bool = False  # aligned to the right
    short: str = ""  # the title where there is little room


def peers_text(row: Row) -> str:
    return at_least(row["peers"], row["peers_low"])


def is_exact(row: Row) -> bool:
    """Return True if peers were counted. Rows of older windows do not tell: their interval is a single number then."""
    exact = row.get("exact")
    return row["peers_low"] == row["peers"] == row["peers_high"] if exact is None else bool(exact)


def interval_text(row: Row) -> str:
    if is_exact(row):
        return "exact"
    low, high = row["peers_low"], row["peers_high"]
    return "saturated" if high is None else f"{low:,} – {high:,}"


def host_name(row: Row) -> str:
    number, name = row.get("asn"), row.get("as_name") or ""
    network = f"AS{number} {name}".strip() if number else name
    return str(row.get("label") or row.get("name") or network or row.get("country") or "")


HOST_COLUMNS = {
    "site": HostColumn("site", lambda row: printable(row.get("site", ""))),
    "group": HostColumn("group", lambda row: printable(row.get("group", ""))),
    "host": HostColumn("host", lambda row: printable(row["host"])),
    "side": HostColumn("side", lambda row: printable(row.get("side", ""))),
    "direction": HostColumn("direction", lambda row: printable(row.get("direction", ""))),
    "peers": HostColumn("peers", peers_text, is_number=True),
    "interval": HostColumn("95 % interval", interval_text, is_number=True, short="95 %"),
    "pattern": HostColumn("pattern", lambda row: printable(row.get("pattern") or "", MOST_NAME)),
    "name": HostColumn("name", lambda row: printable(host_name(row), MOST_NAME)),
}


def text_table(title: str, rows: Sequence[Any], total: int, window: Window | None) -> str:
    lines = [f"<{_heading(title, total, window)}>"]
    if rows:
        columns, cells = _cells(rows)
        table = [[column.short or column.title for column in columns], *cells]
        lines += [f"  {line}" for line in aligned(table, [column.is_number for column in columns])]
    if total > len(rows):
        lines.append(f"  … {total - len(rows):,} more")
    return "\n".join(lines)


def html_table(title: str, rows: Sequence[Any], total: int, window: Window | None) -> str:
    columns, cells = _cells(rows)
    head = "".join(f"<th>{escape(column.short or column.title)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells)
    more = f"<p>… {total - len(rows):,} more</p>" if total > len(rows) else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    return f"<div><p>{escape(_heading(title, total, window))}</p>{table}{more}</div>"


def _heading(title: str, total: int, window: Window | None) -> str:
    when = f", {window_span(window)}" if window and window.is_timed else ""
    return f"{title}: {counted(total, 'host')}{when}"


def _cells(rows: Sequence[Any]) -> tuple[list[HostColumn], list[list[str]]]:
    varying = [name for name in ("side", "direction") if len({getattr(row, name) for row in rows}) > 1]
    columns = [HOST_COLUMNS[name] for name in ("host", "peers", "interval", *varying)]
    fields = ("host", "peers", "peers_low", "peers_high", "exact", *varying)
    found = [{name: getattr(row, name) for name in fields} for row in rows]
    return columns, [[column.write(row) for column in columns] for row in found]
