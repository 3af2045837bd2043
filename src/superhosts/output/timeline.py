"""One host over time and sites: one line with a bar per window and site."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from superhosts.core.text import printable
from superhosts.core.times import shown_row_time
from superhosts.output.rows import Row, known_peers
from superhosts.output.table import interval, peers_text
from superhosts.output.terminal import width_of

MOST = 40  # characters of the longest bar
LEAST = 5  # characters for which a bar is worth its place
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


def print_timeline(console: Console, rows: Sequence[Row], unions: Sequence[Row]) -> None:
    """Print rows of windows and sites with bars, then the unions. Of several sites, each has a letter and a colour."""
    sites = sorted({row["site"] for row in rows})
    letters = {site: ascii_uppercase[number % 26] if sites[1:] else "█" for number, site in enumerate(sites)}
    colours = {site: COLOURS[number % len(COLOURS)] for number, site in enumerate(sites)}
    with_part = len({(row["side"], row["direction"]) for row in (*rows, *unions)}) > 1
    most = max(1, *map(known_peers, rows))
    cells = [_cells(row, shown_row_time(row["window_start"] or "no window"), row["site"], with_part) for row in rows]
    cells += [_cells(row, "union", "", with_part) for row in unions]
    lines = _aligned(cells)
    longest = _longest_bar(console, lines)
    for row, line in zip(rows, lines, strict=False):
        peers = known_peers(row)
        length = max(int(peers > 0), round(longest * peers / most)) if longest else 0
        bar = Text(letters[row["site"]] * length, style=colours[row["site"]])
        console.print(Text(line + "  " if length else line) + bar, highlight=False)
    for line in lines[len(rows) :]:
        console.print(line, highlight=False)
    if len(sites) > 1:
        console.print(", ".join(f"{letters[site]} {site or 'no site'}" for site in sites), highlight=False)


def _longest_bar(console: Console, lines: list[str]) -> int:
    """Return the length of the longest bar: what the lines leave of the width, or none."""
    width = width_of(console)
    room = MOST if width is None else min(MOST, width - 2 - max(map(cell_len, lines)))
    return room if room >= LEAST else 0


def _cells(row: Row, window: str, site: str, with_part: bool) -> list[str]:
    part = [f"{row['side']} {row['direction']}"] if with_part else []
    return [window, printable(site), *part, peers_text(row), interval(row)]


def _aligned(cells: list[list[str]]) -> list[str]:
    """Align cells in columns; the last two are numbers, aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numbers = len(widths) - 2
    return [
        "  ".join(
            text.rjust(w) if i >= numbers else text.ljust(w)
            for i, (text, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]
