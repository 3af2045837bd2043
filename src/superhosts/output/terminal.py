"""Results as tables for people.

One window is a table under a heading. Many windows are one table with a column that names the window, whose rows
appear as windows close. Such a table begins with columns that are wide enough for IPv4 addresses; columns become wider,
and new ones appear under a new header, when rows need them. If it is not known beforehand how many windows there will
be, the first one waits for the second one, or for the end.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from superhosts.core.text import printable
from superhosts.core.times import window_cell
from superhosts.output.base import RUN_THAT_ENDS, Report, RunKind
from superhosts.output.rows import Row
from superhosts.output.table import (
    EXPECTED,
    Columns,
    Widths,
    body_lines,
    cells_of,
    columns_of,
    header_line,
    total_width,
    widths_of,
    without_interval,
)


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
