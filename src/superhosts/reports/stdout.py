"""Results on standard output: a table for people, JSON Lines or CSV for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal, TextIO

from superhosts.reports.base import RUN_THAT_ENDS, Destination, Report, RunKind
from superhosts.reports.formats import Csv, JsonLines
from superhosts.reports.streams import silence_stdout, stdout_error

Format = Literal["table", "json", "csv"]


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
        with_part: bool = False,
        stream: TextIO | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__("standard output", run)
        self.outlives_reader = run.endless
        self._say = say
        self._print = _printer(format, run, with_part, stream)

    def _write(self, report: Report) -> None:
        try:
            self._print(report)
        except BrokenPipeError:
            if not self.outlives_reader:
                raise
            silence_stdout()
            self._print = lambda _report: None
            if self._say is not None:
                self._say("the reader of standard output has gone; results go to the other destinations only")
        except OSError as error:
            if not self.run.endless:
                silence_stdout()
            raise stdout_error(error) from error


def _printer(format: Format, run: RunKind, with_part: bool, stream: TextIO | None) -> Callable[[Report], None]:
    """Return the function that prints a report."""
    lines: JsonLines | Csv
    if format == "table":
        from superhosts.reports.terminal import OutputConsole, Terminal

        terminal = Terminal(OutputConsole(stream), with_part=with_part)
        return lambda report: terminal.write_window(report.title, report.rows)
    out = sys.stdout if stream is None else stream
    lines = JsonLines(out) if format == "json" else Csv(out, run.columns)
    return lambda report: lines.write(report.rows)
