"""Results as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from superhosts.reports.rows import Row
from superhosts.text import printable

NAMED = 4  # sites that are named in a table


class OutputConsole(Console):
    """Standard output, word for word: no emoji for `:b:` in an IPv6 address, no markup in a file's name.

    Names of files and sites come from outside: what would control the terminal is escaped.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(file=stream, soft_wrap=True, emoji=False, markup=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Make text of a plain string, line by line: of every cell and title."""
        lines = (printable(line, most=len(line)) for line in text.split("\n"))
        return super().render_str("\n".join(lines), **options)

    def on_broken_pipe(self) -> None:
        """Leave it to the command line, which ends well when its reader has gone."""
        raise  # the error that rich is handling when it calls this


def host_table(rows: Sequence[Row], title: str, *, with_part: bool = False) -> Table:
    """Return a table of hosts; side and direction appear only where they differ, sites where a hub names them."""
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    with_part = with_part or len({(row["side"], row["direction"]) for row in rows}) > 1
    table.add_column("host", no_wrap=True)
    if with_part:
        table.add_column("side")
        table.add_column("direction")
    table.add_column("peers", justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    with_sites = any("sites" in row for row in rows)
    if with_sites:
        table.add_column("seen by")
    for row in rows:
        part = [row["side"], row["direction"]] if with_part else []
        sites = [_seen_by(row["sites"])] if with_sites else []
        table.add_row(row["host"], *part, f"{row['peers']:,}", interval(row), *sites)
    return table


def _seen_by(sites: list[Row]) -> str:
    """Name the sites that saw most of a host; a fleet may have hundreds."""
    named = ", ".join(f"{printable(site['site'])} {site['peers']:,}" for site in sites[:NAMED])
    return named + (f" and {len(sites) - NAMED} more" if len(sites) > NAMED else "")


def interval(row: Row) -> str:
    """Write an interval; a saturated host has only a lower bound."""
    if row["peers_high"] is None:
        return f"≥ {row['peers_low']:,} (saturated)"
    return f"{row['peers_low']:,} – {row['peers_high']:,}"


class Terminal:
    """One table for every window that has super hosts, one line for every other."""

    def __init__(self, console: Console, *, with_part: bool = False) -> None:
        self._console = console
        self._with_part = with_part

    def write_window(self, title: str, rows: Sequence[Row]) -> None:
        """Print the result of one window."""
        if rows:
            self._console.print(host_table(rows, title, with_part=self._with_part))
            self._console.print()
        else:
            self._console.print(f"{title}: none", highlight=False)
