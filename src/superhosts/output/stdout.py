"""Results on standard output: a table for people, JSON Lines or CSV for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TextIO

from superhosts.core.notices import WARNING, Notice
from superhosts.errors import OutputError
from superhosts.output.destination import RUN_THAT_ENDS, STANDARD_OUTPUT, Destination, RunKind
from superhosts.output.formats import Csv, JsonLines
from superhosts.output.report import Report
from superhosts.output.streams import Background, silence_stdout, stdout_error

if TYPE_CHECKING:
    from superhosts.output.table import Terminal

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
        stream: TextIO | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(STANDARD_OUTPUT, run)
        self.kind = "stdout"
        self.outlives_reader = run.endless
        self._say = say
        self._printer: Terminal | _Lines | None = _printer(format, run, stream)  # None: the reader has gone

    def _write(self, report: Report) -> None:
        if self._printer is not None:
            self._guard(lambda printer: printer.write(report))

    def close(self) -> None:
        if self._printer is not None:
            self._guard(lambda printer: printer.close())

    def _guard(self, act: Callable[[Terminal | _Lines], None]) -> None:
        """Print something; a standard output that takes no more is an OutputError, or leaves the run without it."""
        assert self._printer is not None
        try:
            act(self._printer)
        except BrokenPipeError:
            if not self.outlives_reader:
                raise
            silence_stdout()
            self._printer = None
            if self._say is not None:
                self._say("the reader of standard output has gone; results go to the other destinations only")
        except OSError as error:
            if not self.run.endless:
                silence_stdout()
            raise stdout_error(error) from error


class _Lines:
    """Prints rows for programs. The columns of CSV may depend on the first row."""

    def __init__(self, format: Format, run: RunKind, stream: TextIO) -> None:
        self._stream, self._run = stream, run
        self._lines: JsonLines | Csv | None = None
        if format == "json":
            self._lines = JsonLines(stream)
        elif not run.optional:
            self._lines = Csv(stream, run.columns)

    def write(self, report: Report) -> None:
        if self._lines is None and report.rows:
            self._lines = Csv(self._stream, self._run.columns_of(report.rows))
        if self._lines is not None:
            self._lines.write(report.rows)

    def close(self) -> None:
        """Do nothing: all is printed."""


def _printer(format: Format, run: RunKind, stream: TextIO | None) -> Terminal | _Lines:
    if format == "table":
        # Here, because rich takes 100 ms to load, and no other format needs it.
        from superhosts.output.table import OutputConsole, Terminal

        return Terminal(OutputConsole(stream), run)
    return _Lines(format, run, sys.stdout if stream is None else stream)


class BackgroundOutput(Destination):
    """Writes to another destination, standard output, in a thread of its own.

    If a write fails (a full disk) it is repeated; if the destination blocks (a pipe whose reader does not read), the
    run waits for a moment only. Reports wait in memory meanwhile, up to a limit; those beyond it are dropped, counted
    and reported.
    """

    def __init__(self, inner: Destination, say: Callable[[str], None], background: Background | None = None) -> None:
        super().__init__(inner.name, inner.run)
        self.kind = inner.kind
        self._inner = inner
        self._say = say
        self._background = background or Background(inner.name, keeps=True)
        self._is_read = True  # the reader took the last report at once

    def _write(self, report: Report) -> None:
        was_read = self._is_read
        self._is_read = self._background.submit(lambda: self._inner.write(report))
        trouble, dropped = self._background.trouble, self._background.dropped
        state = "is NOT READ" if trouble is None else f"does NOT TAKE reports ({trouble})"
        event = "not-read" if trouble is None else "not-take"
        lost = f"; reports lost: {dropped}" if dropped else ""
        if was_read and not self._is_read:
            text = f"{self.name} {state}: reports for it wait in memory, the other destinations continue"
            self._say(Notice(text, event, WARNING))
        elif self._is_read and not was_read:
            self._say(Notice(f"{self.name} takes reports again{lost}", "recovered"))
        elif dropped % 100 == 1:
            self._say(Notice(f"{self.name} {state}{lost}", event, WARNING))

    def reopen(self) -> None:
        self._inner.reopen()

    def close(self) -> None:
        """Wait a moment for the queue, and report what is lost. OutputError: it could not be written."""
        lost = self._background.close() + self._background.dropped
        trouble = self._background.trouble
        if lost and trouble is not None:
            raise OutputError(f"{trouble}; reports lost: {lost}") from trouble
        if lost:
            self._say(f"{self.name} was not read: reports lost: {lost}")
        self._inner.close()

    def status(self) -> dict[str, int]:
        return self._inner.status() | {"waiting": self._background.waiting, "dropped": self._background.dropped}
