"""Results on standard output: a table for people, JSON Lines or CSV for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TextIO

from superhosts.output.base import RUN_THAT_ENDS, Destination, Report, RunKind
from superhosts.output.formats import Csv, JsonLines
from superhosts.output.streams import silence_stdout, stdout_error

if TYPE_CHECKING:
    from superhosts.output.terminal import Terminal

Format = Literal["table", "json", "csv"]
STANDARD_OUTPUT = "standard output"  # its name in messages and in the status


class StandardOutput(Destination):
    """Standard output. In a run that ends, the first failed write is the last; an endless run may try again.

    If the reader of a pipe goes away, `write` raises BrokenPipeError, and the command ends with status 0. With
    `outlives_reader` the run goes on without its standard output instead: its results are wanted elsewhere, too.
    """

    def __init__(
        self,
        format: Format,
        run: RunKind = RUN_THAT_ENDS,
        *,
        stream: TextIO | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(STANDARD_OUTPUT, run)
        self.kind = "stdout"
        self.outlives_reader = run.endless
        self._say = say
        self._printer = _printer(format, run, stream)

    def _write(self, report: Report) -> None:
        self._guard(lambda: self._printer.write(report))

    def close(self) -> None:
        """Print what waits: the table of the first window, if no other came."""
        self._guard(self._printer.close)

    def _guard(self, act: Callable[[], None]) -> None:
        """Print something; a standard output that takes no more is an OutputError, or leaves the run without it."""
        try:
            act()
        except BrokenPipeError:
            if not self.outlives_reader:
                raise
            silence_stdout()
            self._printer = _Printer()
            if self._say is not None:
                self._say("the reader of standard output has gone; results go to the other destinations only")
        except OSError as error:
            if not self.run.endless:
                silence_stdout()
            raise stdout_error(error) from error


class _Printer:
    """Prints reports; this one prints nothing."""

    def write(self, report: Report) -> None:
        """Print a report, or keep it until it is known how."""

    def close(self) -> None:
        """Print what was kept."""


class _Lines(_Printer):
    """Prints rows for programs."""

    def __init__(self, lines: JsonLines | Csv) -> None:
        self._lines = lines

    def write(self, report: Report) -> None:
        self._lines.write(report.rows)


class _LateCsv(_Printer):
    """Prints rows as CSV whose columns follow from the first row."""

    def __init__(self, stream: TextIO, run: RunKind) -> None:
        self._stream, self._run = stream, run
        self._csv: Csv | None = None

    def write(self, report: Report) -> None:
        if not report.rows:
            return
        if self._csv is None:
            self._csv = Csv(self._stream, self._run.columns_of(report.rows))
        self._csv.write(report.rows)


def _printer(format: Format, run: RunKind, stream: TextIO | None) -> _Printer | Terminal:
    """Return what prints reports in a format."""
    if format == "table":
        from superhosts.output.terminal import OutputConsole, Terminal

        return Terminal(OutputConsole(stream), run)
    out = sys.stdout if stream is None else stream
    if format == "csv" and run.optional:
        return _LateCsv(out, run)
    return _Lines(JsonLines(out) if format == "json" else Csv(out, run.columns))
