"""Rows as lines of a table: which columns it has, how wide they are, and what happens if they do not fit.

An address is never cut. If a table with a window column is too wide, every window gets a table of its own; if that is
too wide, the column of intervals is left out; sites of a hub go to lines of their own.
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

from superhosts.core.text import at_least, printable
from superhosts.core.times import shown_row_time, shows_local, window_cell
from superhosts.output.destination import RUN_THAT_ENDS, RunKind
from superhosts.output.report import Report, Row, known_peers

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


def width_of(console: Console) -> int | None:
    """Return the width that lines should fit into; None if the output is not a terminal and COLUMNS is not set."""
    return console.width if console.is_terminal or os.environ.get("COLUMNS", "").isdigit() else None


class Terminal:
    """Prints reports as tables."""

    def __init__(self, console: Console, run: RunKind = RUN_THAT_ENDS) -> None:
        self._console = console
        self._width = width_of(console)
        self._varying = run.varying
        self._many = True if run.endless else run.many_windows
        self._first: Report | None = None  # waits for the second one
        self._columns = Columns(window=True)  # of the table of many windows, so far
        self._widths: Widths = EXPECTED  # of the same
        self._headed: Columns | None = None  # columns that the last header names

    def write(self, report: Report) -> None:
        """Print the report of one window; the first one waits if there may be others."""
        if self._many is None and self._first is None:
            self._first = report
            return
        if self._first is not None:
            first, self._first, self._many = self._first, None, True
            self._print_window(first)
        self._print_window(report)

    def close(self) -> None:
        """Print the report that waits."""
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
        """Print a table under a heading; without rows, the heading alone."""
        heading = _plain(report.heading)
        if not rows:
            self._print(heading)
            return
        columns = columns_of(rows, self._varying)
        table = [cells_of(row, "", columns) for row in rows]
        widths = widths_of(table, {})
        if columns.interval and self._is_too_wide(widths):
            table = [without_interval(row, cells) for row, cells in zip(rows, table, strict=True)]
            widths = widths_of(table, {})
        self._print(heading, _bold(header_line(widths, columns)), *self._lines(rows, table, widths), "")

    def _print_among_others(self, report: Report, rows: list[Row]) -> None:
        """Print the rows of a window in the table of all windows, and before them what they do not say."""
        columns = self._columns.united(columns_of(rows, self._varying))
        window = window_cell(report.window)
        table = [cells_of(row, window, columns) for row in rows]
        widths = widths_of(table, self._widths)
        if self._is_too_wide(widths):
            self._many = False
            self._print_alone(report, rows)
            return
        note = [_note(report)] if report.is_incomplete or report.notes else []
        head = [] if columns == self._headed else [_bold(header_line(widths, columns))]
        space = [""] if head and self._headed else []
        self._print(*space, *head, *note, *self._lines(rows, table, widths))
        # Only now: a write that failed changes nothing.
        self._columns, self._widths, self._headed = columns, {**self._widths, **widths}, columns

    def _is_too_wide(self, widths: Widths) -> bool:
        return self._width is not None and total_width(widths) > self._width

    def _lines(self, rows: Sequence[Row], table: Sequence[dict[str, str]], widths: Widths) -> list[str]:
        return [
            line for row, cells in zip(rows, table, strict=True) for line in body_lines(row, cells, widths, self._width)
        ]

    def _print(self, *lines: str | Text) -> None:
        """Print lines in one piece."""
        self._console.print(Text("\n").join(Text(line) if isinstance(line, str) else line for line in lines))


def _bold(line: str) -> Text:
    return Text(line, style="bold")


def _note(report: Report) -> str:
    """Return what the rows of a window do not say, as a line of the table of all windows."""
    title = [] if report.rows and not report.is_incomplete else [report.title]
    notes = [f"({note})" for note in report.notes]
    return f"{window_cell(report.window)}  {_plain(' '.join([*title, *notes]))}"


def _plain(text: str) -> str:
    """Return untrusted text as one line."""
    return printable(text, most=len(text))


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
