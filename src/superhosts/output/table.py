"""Tables for people: the hosts of windows (`Terminal`), and one host over time (`print_timeline`).

An address is never cut. If a table with a window column is too wide, every window gets a table of its own; if that is
too wide, the column of intervals is left out; sites of a hub go to lines of their own.

One window is a table under a heading. Many windows are one table with a column that names the window, whose rows appear
as windows close. Such a table begins with columns that are wide enough for IPv4 addresses; columns become wider, and
new ones appear under a new header, when rows need them. If it is not known beforehand how many windows there will be,
the first one waits for the second one, or for the end.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any, NamedTuple, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from superhosts.core.hosttable import HOST_COLUMNS, host_name, interval_text, is_exact, peers_text
from superhosts.core.text import printable
from superhosts.core.times import shown_row_time, shows_local, window_cell
from superhosts.output.destination import RUN_THAT_ENDS, RunKind
from superhosts.output.report import Report, Row, known_peers

NAMED = 4  # sites that a table names per host
GAP = 2  # spaces between two columns
FIXED = "\N{NO-BREAK SPACE}"  # between a site and its number, where no line is broken
MOST_NAME = 40  # characters of a host's name
LEAST_ROOM = 24  # characters of the last column, in which the sites of a hub are wrapped
# Widths of a table whose later rows are not known yet: an IPv4 address, and numbers below a million.
EXPECTED = {"host": 15, "peers": 7, "95 % interval": 17}
MOST_BAR = 40  # characters of the longest bar
LEAST_BAR = 5  # characters for which a bar is worth its place
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")

Cells = dict[str, str]  # by the names of columns
Widths = Mapping[str, int]  # by the names of columns, or by their titles


class Columns(NamedTuple):
    """Columns of a table besides host and peers: names of HOST_COLUMNS, window, and sites (of rows of a hub)."""

    names: frozenset[str] = frozenset()
    counts: str = ""  # what is counted, if not peers

    @classmethod
    def of(cls, rows: Sequence[Row], varying: Iterable[str] = ()) -> Columns:
        """Return the columns that rows need: what differs between them, or will (`varying`), and what is not exact."""
        parts = ("site", "group", "side", "direction")
        needed = {name: name in varying or len({row.get(name) for row in rows}) > 1 for name in parts}
        needed |= {name: any(name in row for row in rows) for name in ("sites", "pattern")}
        needed |= {"interval": not all(map(is_exact, rows)), "name": any(map(host_name, rows))}
        counts = max((row.get("counts", "") for row in rows), default="")
        return cls(frozenset(name for name, is_needed in needed.items() if is_needed), counts)

    def united(self, other: Columns) -> Columns:
        return Columns(self.names | other.names, self.counts or other.counts)

    def titles(self) -> Cells:
        """Return the titles of the columns, in order; times have their zone, and counted peers say so."""
        window = "window (local time)" if shows_local() else "window (UTC)"
        wanted = {"host", "peers", *self.names}
        titles = {name: column.title for name, column in HOST_COLUMNS.items() if name in wanted}
        peers = self.counts or titles["peers"]
        titles["peers"] = peers if "interval" in wanted else f"{peers} (exact)"
        return ({"window": window} if "window" in wanted else {}) | titles

    def cells(self, row: Row, window: str = "") -> Cells:
        cells = {name: window if name == "window" else HOST_COLUMNS[name].write(row) for name in self.titles()}
        return cells | ({"name": printable(host_name(row), MOST_NAME)} if "name" in self.names else {})


class _Layout:
    def __init__(self, columns: Columns, rows: Sequence[Row], least: Widths, window: str = "") -> None:
        self.columns, self.rows = columns, rows
        self.titles = columns.titles()
        self.cells = [columns.cells(row, window) for row in rows]
        self.widths = self._measure(least)

    def _measure(self, least: Widths) -> Widths:
        return {
            name: max(cell_len(title), least.get(title, 0), *(cell_len(cells[name]) for cells in self.cells))
            for name, title in self.titles.items()
        }

    def fits(self, width: int | None) -> bool:
        return width is None or sum(self.widths.values()) + GAP * (len(self.widths) - 1) <= width

    def leave_out_interval(self) -> None:
        self.titles.pop("interval")
        for row, cells in zip(self.rows, self.cells, strict=True):
            if not is_exact(row) and row["peers"] is not None:
                cells["peers"] = f"≈ {cells['peers']}"
        self.widths = self._measure({})

    @property
    def header(self) -> str:
        line = _joined(self.titles, self.widths)
        return f"{line}{' ' * GAP}seen by" if "sites" in self.columns.names else line.rstrip()

    def lines(self, width: int | None) -> list[str]:
        return [
            line
            for row, cells in zip(self.rows, self.cells, strict=True)
            for line in _body_lines(row, _joined(cells, self.widths), width)
        ]


def table_lines(rows: Sequence[Row], varying: Iterable[str], width: int | None) -> tuple[str, list[str]]:
    """Return the header and the lines of a table of one window, without intervals if they do not fit."""
    columns = Columns.of(rows, varying)
    layout = _Layout(columns, rows, {})
    if "interval" in columns.names and not layout.fits(width):
        layout.leave_out_interval()
    return layout.header, layout.lines(width)


def _body_lines(row: Row, line: str, width: int | None) -> list[str]:
    if "sites" not in row:
        return [line.rstrip()]
    sites, used = _seen_by(row["sites"]), cell_len(line) + GAP
    if width is None or width - used >= LEAST_ROOM:
        first, *more = _wrapped(sites, None if width is None else width - used) or [""]
        return [f"{line}{' ' * GAP}{first}".rstrip(), *(" " * used + text for text in more)]
    return [line.rstrip(), *(f"    {text}" for text in _wrapped(f"seen by {sites}", width - 4))]


def _joined(cells: Cells, widths: Widths) -> str:
    padded = []
    for name, width in widths.items():
        space = " " * (width - cell_len(cells[name]))
        is_number = name in HOST_COLUMNS and HOST_COLUMNS[name].is_number
        padded.append(space + cells[name] if is_number else cells[name] + space)
    return (" " * GAP).join(padded)


def _wrapped(text: str, width: int | None) -> list[str]:
    """Return text in lines that fit a width, broken between sites only."""
    if width is None:
        lines = [text]
    else:
        lines = textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False)
    return [line.replace(FIXED, " ") for line in lines]


def _seen_by(sites: list[Row]) -> str:
    """Name the sites that saw most peers of a host; a fleet may have hundreds of sites."""
    named = [f"{printable(site['site'])} {peers_text(site)}".replace(" ", FIXED) for site in sites[:NAMED]]
    more = f"{FIXED}and {len(sites) - NAMED} more".replace(" ", FIXED) if len(sites) > NAMED else ""
    return ", ".join(named) + more


class OutputConsole(Console):
    """A console for standard output that prints text unchanged: no emoji for `:b:` in an IPv6 address, no markup.

    Names of files and sites are not trusted: control characters are escaped.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(file=stream, soft_wrap=True, emoji=False, markup=False)

    def render_str(self, text: str, **options: Any) -> Text:
        lines = (printable(line, most=len(line)) for line in text.split("\n"))
        return super().render_str("\n".join(lines), **options)

    def on_broken_pipe(self) -> None:
        """Leave the error to the command line, which then exits with status 0."""
        raise  # the error that rich is handling when it calls this


def print_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    left: int = 1,
    tight: bool = False,
    wraps: bool = False,
) -> None:
    """Print a table of words and numbers to standard output.

    `left`: how many columns are aligned to the left. `wraps`: the first one may take two lines.
    """
    from rich.table import Table  # here: tables of windows are made without it

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, collapse_padding=tight)
    for number, name in enumerate(titles):
        table.add_column(name, justify="left" if number < left else "right", no_wrap=not wraps or number > 0)
    for row in rows:
        table.add_row(*row)
    OutputConsole().print(table)


def width_of(console: Console) -> int | None:
    """Return the width that lines should fit into; None if the output is not a terminal and COLUMNS is not set."""
    return console.width if console.is_terminal or os.environ.get("COLUMNS", "").isdigit() else None


class Terminal:
    def __init__(self, console: Console, run: RunKind = RUN_THAT_ENDS) -> None:
        self._console = console
        self._width = width_of(console)
        self._varying = run.varying
        self._many = True if run.endless else run.many_windows
        self._first: Report | None = None  # waits for the second one
        self._columns = Columns(frozenset({"window"}))  # of the table of many windows, so far
        self._widths: Widths = EXPECTED  # of the same
        self._headed: Columns | None = None  # columns that the last header names

    def write(self, report: Report) -> None:
        """Print the report of one window; the first one waits if there may be others."""
        if self._many is None and self._first is None:
            self._first = report
            return
        if self._first is not None:
            self._many = True
        self.close()
        self._print_window(report)

    def close(self) -> None:
        if self._first is not None:
            first, self._first = self._first, None
            self._print_window(first)

    def _print_window(self, report: Report) -> None:
        rows = list(report.rows)
        if not self._many:
            self._print_alone(report, rows)
        elif rows:
            self._print_among_others(report, rows)
        else:
            self._print(_note(report))

    def _print_alone(self, report: Report, rows: list[Row]) -> None:
        table: list[str | Text] = []
        if rows:
            header, lines = table_lines(rows, self._varying, self._width)
            table = [Text(header, style="bold"), *lines, ""]
        self._print(_plain(report.heading), *table)

    def _print_among_others(self, report: Report, rows: list[Row]) -> None:
        columns = self._columns.united(Columns.of(rows, self._varying))
        layout = _Layout(columns, rows, self._widths, window_cell(report.window))
        if not layout.fits(self._width):
            self._many = False
            self._print_alone(report, rows)
            return
        note = [_note(report)] if report.is_incomplete or report.notes else []
        head = [] if columns == self._headed else [Text(layout.header, style="bold")]
        space = [""] if head and self._headed else []
        self._print(*space, *head, *note, *layout.lines(self._width))
        # Only now: a write that failed changes nothing.
        self._columns, self._headed = columns, columns
        self._widths = {**self._widths, **{layout.titles[name]: width for name, width in layout.widths.items()}}

    def _print(self, *lines: str | Text) -> None:
        self._console.print(Text("\n").join(Text(line) if isinstance(line, str) else line for line in lines))


def _note(report: Report) -> str:
    title = [] if report.rows and not report.is_incomplete else [report.title]
    notes = [f"({note})" for note in report.notes]
    return f"{window_cell(report.window)}  {_plain(' '.join([*title, *notes]))}"


def _plain(text: str) -> str:
    return printable(text, most=len(text))


def print_timeline(console: Console, rows: Sequence[Row], unions: Sequence[Row]) -> None:
    """Print rows of windows and sites with bars, then the unions. Of several sites, each has a letter and a colour."""
    sites = sorted({row["site"] for row in rows})
    letters = {site: ascii_uppercase[number % 26] if sites[1:] else "█" for number, site in enumerate(sites)}
    colours = {site: COLOURS[number % len(COLOURS)] for number, site in enumerate(sites)}
    with_part = len({(row["side"], row["direction"]) for row in (*rows, *unions)}) > 1
    most = max(1, *map(known_peers, rows))
    cells: list[Cells] = []
    for row in (*rows, *unions):
        is_union = len(cells) >= len(rows)
        window = "union" if is_union else shown_row_time(row["window_start"] or "no window")
        cell = {"window": window, "site": "" if is_union else printable(row["site"])}
        cell |= {"part": f"{row['side']} {row['direction']}"} if with_part else {}
        cells.append(cell | {"peers": peers_text(row), "interval": interval_text(row)})
    widths = {name: max(cell_len(cell[name]) for cell in cells) for name in cells[0]}
    lines = [_joined(cell, widths) for cell in cells]
    width = width_of(console)
    room = MOST_BAR if width is None else min(MOST_BAR, width - 2 - max(map(cell_len, lines)))
    longest = room if room >= LEAST_BAR else 0
    for row, line in zip(rows, lines, strict=False):
        peers = known_peers(row)
        length = max(int(peers > 0), round(longest * peers / most)) if longest else 0
        bar = Text(letters[row["site"]] * length, style=colours[row["site"]])
        console.print(Text(line + "  " if length else line) + bar, highlight=False)
    for line in lines[len(rows) :]:
        console.print(line, highlight=False)
    if len(sites) > 1:
        console.print(", ".join(f"{letters[site]} {site or 'no site'}" for site in sites), highlight=False)
