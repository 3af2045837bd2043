"""Options and messages that several commands share."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from superhosts.errors import UsageError
from superhosts.text import printable

if TYPE_CHECKING:
    from superhosts.reports.background import Log

MOST_SAID = 10_000  # characters of a line for people
_log: Log | None = None  # where lines for people go while a daemon runs
Json = Annotated[bool, typer.Option("--json", help="Results as JSON Lines on standard output.")]
CsvFlag = Annotated[bool, typer.Option("--csv", help="Results as CSV on standard output.")]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Also write results to FILE (.jsonl, .csv, .parquet), or - for standard output. A run that ends replaces "
        "the file; a run without an end appends to it, and writes Parquet to a folder.",
    ),
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


def fail_with(errors: list[Any]) -> None:
    """End with the status of the first error after all else has run; each has been said already."""
    if errors:
        raise typer.Exit(errors[0].exit_status)


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
    from superhosts.reports.background import Log
    from superhosts.reports.streams import raw_stream

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
