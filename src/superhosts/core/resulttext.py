"""Results as text for a Python prompt and as HTML for a notebook: the first rows, with the columns that tell something.

Peers of a saturated host are shown as a lower bound. Everything is escaped, because names of hosts come from traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from superhosts.core.pairs import Window
from superhosts.core.text import at_least, counted, printable
from superhosts.core.times import window_span

SHOWN = 10  # rows

# Rows are those of `results`, which imports this module.


def text_table(title: str, rows: Sequence[Any], total: int, window: Window | None) -> str:
    """Return a result as text: <SuperHosts: 12 hosts> and its first `rows`."""
    lines = [f"<{_heading(title, total, window)}>"]
    cells = _cells(rows)
    if rows:
        widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        for row in cells:
            padded = (
                cell.rjust(width) if column in (1, 2) else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append(f"  {'  '.join(padded)}".rstrip())
    if total > len(rows):
        lines.append(f"  … {total - len(rows):,} more")
    return "\n".join(lines)


def html_table(title: str, rows: Sequence[Any], total: int, window: Window | None) -> str:
    """Return a result as a table in HTML with its first `rows`."""
    names, *cells = _cells(rows)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells)
    more = f"<p>… {total - len(rows):,} more</p>" if total > len(rows) else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    return f"<div><p>{escape(_heading(title, total, window))}</p>{table}{more}</div>"


def _heading(title: str, total: int, window: Window | None) -> str:
    when = f", {window_span(window)}" if window and window.is_timed else ""
    return f"{title}: {counted(total, 'host')}{when}"


def _cells(rows: Sequence[Any]) -> list[list[str]]:
    """Return the cells of a table with its heading: host, peers, their interval, and what tells the parts apart."""
    parts = {row.part[1:] for row in rows}
    several = [len({part[i] for part in parts}) > 1 for i in range(2)]
    names = [name for name, varies in zip(("side", "direction"), several, strict=True) if varies]
    table = [["host", "peers", "95 %", *names]]
    for row in rows:
        known = at_least(row.peers, row.peers_low)
        high = "" if row.peers_high is None else f"{row.peers_low:,}–{row.peers_high:,}"
        interval = "exact" if row.exact else high
        table.append([printable(row.host), known, interval, *(getattr(row.part, name) for name in names)])
    return table
