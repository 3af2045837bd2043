"""Results as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from superhosts.reports.rows import Row
from superhosts.text import printable

NAMED = 4  # sites that a table names per host


class OutputConsole(Console):
    """A console for standard output that prints text unchanged: no emoji for `:b:` in an IPv6 address, no markup.

    Names of files and sites are not trusted: control characters are escaped.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(file=stream, soft_wrap=True, emoji=False, markup=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Convert a string, such as a cell or a title, to text, line by line."""
        lines = (printable(line, most=len(line)) for line in text.split("\n"))
        return super().render_str("\n".join(lines), **options)

    def on_broken_pipe(self) -> None:
        """Leave the error to the command line, which then exits with status 0."""
        raise  # the error that rich is handling when it calls this


def host_table(rows: Sequence[Row], title: str, *, with_part: bool = False) -> Table:
    """Return a table of hosts. It shows side and direction only if they differ, and sites in reports of a hub."""
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
    """Name the sites that saw most peers of a host; a fleet may have hundreds of sites."""
    named = ", ".join(f"{printable(site['site'])} {site['peers']:,}" for site in sites[:NAMED])
    return named + (f" and {len(sites) - NAMED} more" if len(sites) > NAMED else "")


def interval(row: Row) -> str:
    """Format an interval; a saturated host has only a lower bound."""
    if row["peers_high"] is None:
        return f"≥ {row['peers_low']:,} (saturated)"
    return f"{row['peers_low']:,} – {row['peers_high']:,}"


class Terminal:
    """Prints a table for every window with super hosts, and one line for every other window."""

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
