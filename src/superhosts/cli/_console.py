"""Lines for people on standard error, and the exit status."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import typer

from superhosts.reports.streams import ERASE
from superhosts.text import printable

LONGEST_LINE = 10_000  # characters of a line for people


class Log(Protocol):
    """Takes lines for standard error and writes them in a thread of its own."""

    def write(self, text: str) -> None:
        """Take one line."""

    def show(self, status: str) -> None:
        """Show a last line on the terminal, in place of the one before."""

    def status(self) -> dict[str, int]:
        """Return how many lines wait, and how many were dropped."""


_log: Log | None = None
_status = ""  # the last line of the terminal, which is no message: how far the work is


def use_log(log: Log | None) -> None:
    """Send all further lines to a log; None: to standard error again."""
    global _log
    _log = log


def has_log() -> bool:
    """Return True if lines go to a log."""
    return _log is not None


def log_status() -> dict[str, int]:
    """Return how many lines wait for standard error, and how many were dropped."""
    return _log.status() if _log is not None else {"waiting": 0, "dropped": 0}


def say(text: str) -> None:
    """Write one line for people to standard error; characters that cannot be shown are escaped.

    A log on a full disk, or one that nobody reads any more, changes neither the work nor its exit status.
    """
    line = printable(text, most=LONGEST_LINE)
    if _log is not None:
        _log.write(line)
        return
    _write(f"{ERASE}{line}\n{_status}" if _status else f"{line}\n")


def show_status(text: str) -> None:
    """Show how far the work is in the last line of the terminal, in place of what was there; "" removes it."""
    global _status
    _status = text
    if _log is not None:
        _log.show(text)
    else:
        _write(f"{ERASE}{text}")


def _write(text: str) -> None:
    with contextlib.suppress(OSError):  # It stays in the buffer, and comes with the next line that can be written.
        sys.stderr.write(text)  # one call: print writes the newline separately, and lines of threads would mix
        sys.stderr.flush()


def is_terminal() -> bool:
    """Return True if somebody can be asked: questions and answers go to a terminal."""
    return sys.stderr.isatty() and sys.stdin is not None and sys.stdin.isatty()


def confirmed(question: str) -> bool:
    """Ask a question on the terminal; return True if the answer is y or yes."""
    sys.stderr.write(f"{printable(question, most=LONGEST_LINE)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def tell(text: str) -> None:
    """Write one line for the operator of a service, which the journal or the container's log keeps."""
    say(f"superhosts: {text}")


def command_line(arguments: Sequence[str]) -> str:
    """Return the command as a user would type it."""
    return shlex.join(["superhosts", *arguments[1:]])


def fail_with(errors: Sequence[Any]) -> None:
    """Exit with the status of the first error, if there is one. Each has been reported already."""
    if errors:
        raise typer.Exit(errors[0].exit_status)
