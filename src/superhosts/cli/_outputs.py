"""Options and destinations that several commands share."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from superhosts.errors import OutputError, UsageError
from superhosts.text import printable

if TYPE_CHECKING:
    from superhosts.pairs import Window
    from superhosts.reports.rows import Row
    from superhosts.reports.running import Log

PARTIAL = "partial: interrupted"  # of a window, in the title of its table
MOST_SAID = 10_000  # characters of a line for people
_log: Log | None = None  # where lines for people go while a daemon runs
Json = Annotated[bool, typer.Option("--json", help="Results as JSON Lines on standard output.")]
CsvFlag = Annotated[bool, typer.Option("--csv", help="Results as CSV on standard output.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Also write results to FILE (.jsonl, .csv, .parquet)."),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(help="File that holds the secret key; without it SUPERHOSTS_KEY, else a public default key."),
]
MemoryTotal = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Refuse sketches that would take more memory than this, all together.",
        show_default="what this machine or container has left",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option("--threshold", "-t", help="Least number of distinct peers.", show_default="1024"),
]
Top = Annotated[
    int | None,
    typer.Option(
        "--top",
        "-n",
        help="Only the K hosts with most peers; without --threshold however few they have, down to the 16 or so that a "
        "sketch can name.",
    ),
]


def read_key(path: Path | None) -> bytes | None:
    """Return the key from a file, without the newline at its end; None where no file is given."""
    if path is None:
        return None
    try:
        key = path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise UsageError(f"--key-file {path}: cannot be read: {error.strerror}") from None
    from superhosts.durable import exposure
    from superhosts.hashing import check_secret

    if warning := exposure(path):
        say(f"superhosts: {warning}")
    return check_secret(key, f"--key-file {path}")


def parse_share(option: str, text: str) -> float:
    """Read a share like 1% or 0.01."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share < 1:
        raise UsageError(f"--{option} {text}: write a share of the super hosts, like 1% or 0.01")
    return share


def command_line(arguments: list[str]) -> str:
    """Return the command as a user would type it."""
    return shlex.join(["superhosts", *arguments[1:]])


class ClosedOutput(io.TextIOBase):
    """Standard output that was closed before the program started (`>&-`)."""

    def write(self, _text: str) -> int:
        """Refuse text."""
        raise OutputError("standard output is closed")


def open_streams() -> None:
    """Make the most of standard streams that are closed: without standard error all goes on, unsaid.

    Their descriptors are taken, so that no other file gets them, with what is meant for the streams.
    """
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest one that is free
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # as long as the program runs
    if sys.stdout is None:
        sys.stdout = ClosedOutput()


def has_output(output: Path | None) -> bool:
    """Return True if standard output is open. If not, results need a file (OutputError)."""
    if not isinstance(sys.stdout, ClosedOutput):
        return True
    if output is None:
        raise OutputError("standard output is closed; write results to a file with --output")
    return False


class Outputs:
    """The destinations of one run: a table, JSON Lines or CSV on standard output, and a file."""

    def __init__(
        self,
        *,
        json: bool = False,
        csv: bool = False,
        table: bool = True,
        output: Path | None = None,
        with_part: bool = False,
        columns: tuple[str, ...] | None = None,
        stream: TextIO | None = None,
    ) -> None:
        from superhosts.reports.files import Csv, JsonLines, OutputFile
        from superhosts.reports.rows import COLUMNS

        if json and csv:
            raise UsageError("--json and --csv: choose one")
        if (json or csv or table) and not has_output(output):
            json = csv = table = False
        self.runs_on = False  # whether a failed write is tried again later
        self._file = OutputFile(output) if output is not None else None
        self.others = output is not None  # whether somebody but standard output waits for the results
        out = sys.stdout if stream is None else stream
        self._stream: Any = JsonLines(out) if json else Csv(out, columns or COLUMNS) if csv else None
        self._terminal: Any = None
        if self._stream is None and table:
            from superhosts.reports.terminal import OutputConsole, Terminal

            self._terminal = Terminal(OutputConsole(stream), with_part=with_part)

    def write(self, title: str, rows: Sequence[Row]) -> None:
        """Hand the rows of one window to every destination."""
        try:
            if self._stream is not None:
                self._stream.write(rows)
            elif self._terminal is not None:
                self._terminal.write_window(title, rows)
        except BrokenPipeError:
            if not self.others:
                raise
            forget_stdout()  # the reader went away; the file and the saved sketches are still wanted
            self._stream = self._terminal = None
            if self.runs_on:
                say("superhosts: nobody reads standard output any more; results go on to the other destinations only")
        except OSError as error:
            if not self.runs_on:
                forget_stdout()
            raise OutputError(f"standard output: cannot be written: {error.strerror}") from error
        self.write_file(rows)

    def write_file(self, rows: Sequence[Row]) -> None:
        """Hand rows to the file alone."""
        if self._file is not None:
            self._file.write(rows)

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is not None:
            if kind is None or kind is KeyboardInterrupt:  # a live scan ends like this; whole windows are kept
                self._file.close()
            else:
                self._file.abandon()


def window_title(window: Window | None, least: float | None, top: int | None, count: int) -> str:
    """Say what a table shows: which window, and hosts of how many peers."""
    from superhosts.times import iso_time

    span = f"{iso_time(window.start)} to {iso_time(window.end)}" if window else "no window"
    hosts = "host" if count == 1 else "hosts"
    what = f"{count} {hosts} with at least {least:,g} peers" if least is not None else f"top {count} {hosts}"
    return f"{span}: {what}" + (f", the top {top}" if top is not None and least is not None else "")


def fail_with(errors: list[Any]) -> None:
    """End with the status of the first error after all else has run; each has been said already."""
    if errors:
        raise typer.Exit(errors[0].exit_status)


def forget_stdout() -> None:
    """Send what is still to be written nowhere: standard output takes no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell_packets() -> Callable[[int, int], None]:
    """Return what tells a person, every few seconds, how many packets have been read; files and pipes get nothing."""
    last = time.monotonic()

    def tell(_position: int, packets: int) -> None:
        nonlocal last
        if sys.stderr.isatty() and time.monotonic() - last > 2:
            last = time.monotonic()
            say(f"{packets:,} packets …")

    return tell


@contextmanager
def log_in_background() -> Iterator[None]:
    """Write lines for people in a thread of its own: a standard error that nobody reads must not stop a daemon."""
    global _log
    from superhosts.reports.running import Log, raw_stream

    stream = raw_stream(sys.stderr)
    if stream is None or _log is not None:
        yield
        return
    _log = Log(stream)
    try:
        yield
    finally:
        if _log.close():
            _log = None  # else the last words of the program must not wait, either


def log_status() -> dict[str, int]:
    """Return how many lines wait for standard error, and how many it never got."""
    return _log.status() if _log is not None else {"waiting": 0, "dropped": 0}


def say(text: str) -> None:
    """Write one line for people to standard error; what cannot be shown in it is escaped."""
    line = printable(text, most=MOST_SAID)
    if _log is not None:
        _log.write(line)
        return
    sys.stderr.write(f"{line}\n")  # at once: print writes the newline apart, and lines of two threads run together
    sys.stderr.flush()
