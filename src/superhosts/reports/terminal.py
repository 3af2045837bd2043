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
    all_exact = bool(rows) and all(row["exact"] for row in rows)
    table.add_column("peers (exact)" if all_exact else "peers", justify="right", no_wrap=True)
    if not all_exact:
        table.add_column("95 % interval", justify="right", no_wrap=True)
    with_sites = any("sites" in row for row in rows)
    if with_sites:
        table.add_column("seen by")
    for row in rows:
        part = [row["side"], row["direction"]] if with_part else []
        sites = [_seen_by(row["sites"])] if with_sites else []
        numbers = [peers_text(row)] if all_exact else [peers_text(row), interval(row)]
        table.add_row(row["host"], *part, *numbers, *sites)
    return table


def _seen_by(sites: list[Row]) -> str:
    """Name the sites that saw most peers of a host; a fleet may have hundreds of sites."""
    named = ", ".join(f"{printable(site['site'])} {peers_text(site)}" for site in sites[:NAMED])
    return named + (f" and {len(sites) - NAMED} more" if len(sites) > NAMED else "")


def peers_text(row: Row) -> str:
    """Format the peers of a row or of a site in it; of a saturated host only a lower bound is known."""
    return f"≥ {row['peers_low']:,}" if row["peers"] is None else f"{row['peers']:,}"


def interval(row: Row) -> str:
    """Format an interval. An exact number has none, and neither has a saturated host."""
    if row["exact"]:
        return "exact"
    if row["peers_high"] is None:
        return "saturated"
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
            self._console.print(title, highlight=False)
