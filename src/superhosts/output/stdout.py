"""Results on standard output: a table for people, JSON Lines or CSV for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TextIO

from superhosts.errors import OutputError
from superhosts.output.delivery import PATIENCE, BackgroundOutput, DeliveryOptions
from superhosts.output.destination import RUN_THAT_ENDS, STANDARD_OUTPUT, Destination, RunKind
from superhosts.output.formats import Csv, JsonLines
from superhosts.output.report import Report
from superhosts.output.streams import silence_stdout, stdout_error

if TYPE_CHECKING:
    from superhosts.output.table import Terminal

Format = Literal["table", "json", "csv", "ecs", "ocsf", "cef"]
RETRY = 1.0  # seconds between two attempts
MOST_QUEUED = 100  # reports


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
        self._is_read = True
        self._stream = sys.stdout if stream is None else stream
        self._table: Terminal | None = None
        self._lines: JsonLines | Csv | None = None
        if format == "table":
            # Here, because rich takes 100 ms to load, and no other format needs it.
            from superhosts.output.table import OutputConsole, Terminal

            self._table = Terminal(OutputConsole(stream), run)
        elif format != "csv":
            self._lines = JsonLines(self._stream, "" if format == "json" else format, run.site)
        elif not run.optional:  # else the columns depend on the first row
            self._lines = Csv(self._stream, run.columns)

    def _write(self, report: Report) -> None:
        if not self._is_read:
            return
        with self._guard():
            if self._table is not None:
                self._table.write(report)
                return
            if self._lines is None and report.rows:
                self._lines = Csv(self._stream, self.run.columns_of(report.rows))
            if self._lines is not None:
                self._lines.write(report.rows)

    def close(self) -> None:
        with self._guard():
            if self._table is not None:
                self._table.close()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Print something; a standard output that takes no more is an OutputError, or leaves the run without it."""
        try:
            yield
        except BrokenPipeError:
            if not self.outlives_reader:
                raise
            silence_stdout()
            if self._say is not None and self._is_read:
                self._say("the reader of standard output has gone; results go to the other destinations only")
            self._is_read = False
        except OSError as error:
            if not self.run.endless:
                silence_stdout()
            raise stdout_error(error) from error


class BackgroundStdout(BackgroundOutput):
    """Standard output of a service. If its reader blocks (a pipe that is not read), the run waits for a moment only.

    Reports wait in memory meanwhile; the oldest beyond a limit are dropped, counted and reported.
    """

    def __init__(
        self, inner: Destination, say: Callable[[str], None], *, most: int = MOST_QUEUED, patience: float = PATIENCE
    ) -> None:
        options = DeliveryOptions(wait=patience, most=most, say=say, first_pause=RETRY, last_pause=RETRY)
        super().__init__(inner, options, patience=patience)

    def close(self) -> None:
        """Wait a moment for the queue. OutputError: it could not be written; a reader that does not read is none."""
        text = self._finish()
        if text and self.counters.failures:
            raise OutputError(text)
        if text:
            self._say(text)
