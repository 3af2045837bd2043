"""Lines on standard error, for people or as JSON, and the exit status."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from superhosts.core.notices import ERROR, LONGEST, WARNING, Notice, as_warning, json_line, text_line
from superhosts.core.text import printable
from superhosts.errors import SuperhostsError, use_tracebacks
from superhosts.jit.compilation import NOTICE, after_ready, before_compiling, is_tested, tell_seconds
from superhosts.output.streams import ERASE


class Log(Protocol):
    """Takes lines for standard error. `show` puts a last line on the terminal, in place of the one before."""

    def write(self, text: str) -> None: ...
    def show(self, status: str) -> None: ...
    def status(self) -> dict[str, int]: ...


OUT_OF_MEMORY = "out of memory; use less --memory"
_log: Log | None = None
_is_json = False
_status = ""  # the last line of the terminal, which is not a message: how far the work is


def use_log(log: Log | None) -> None:
    global _log
    _log = log


def use_log_format(format: str) -> None:
    """Write all further lines as text, as JSON, or, with auto, as text on a terminal and else as JSON."""
    global _is_json
    _is_json = format == "json" or (format == "auto" and not sys.stderr.isatty())


def rendered(text: str) -> str:
    return json_line(text) if _is_json else text_line(text)


def has_log() -> bool:
    return _log is not None


def log_status() -> dict[str, int]:
    return _log.status() if _log is not None else {"waiting": 0, "dropped": 0}


def say(text: str) -> None:
    """Write one line for people to standard error; characters that cannot be shown are escaped.

    A log on a full disk, or one that nobody reads any more, changes neither the work nor its exit status. If something
    was compiled since the last line, a line before this one says how long that took.
    """
    tell_seconds()
    line = rendered(text)
    if _log is not None:
        _log.write(line)
        return
    _write(f"{ERASE}{line}\n{_status}" if _status else f"{line}\n")


def show_status(text: str) -> None:
    """Show how far the work is in the last line of the terminal, in place of what was there; "" removes it."""
    global _status
    if _is_json:  # on a terminal, too, there are lines for programs alone
        return
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
    sys.stderr.write(f"{printable(question, most=LONGEST)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def announce_compiling(*, quiet: bool = False) -> None:
    """Say once that loops are compiled, and then how long it took; if `quiet`, only on a terminal."""
    if is_tested() or (quiet and not sys.stderr.isatty()):
        before_compiling(lambda _: None)
        return
    screen = sys.stderr

    def show(left: str) -> None:
        if sys.stderr is screen:  # A live view has taken it otherwise.
            show_status(left)

    before_compiling(
        lambda what: say(Notice(NOTICE.format(what), "compiling")),
        lambda seconds: say(Notice(f"compiled in {seconds:.1f} s", "compiled", seconds=round(seconds, 1))),
        show if screen.isatty() else None,
    )


def warn_of_compiling() -> None:
    """Warn from now on of every loop that is compiled: the command is ready, and its traffic waits meanwhile."""

    def warn(loop: str, seconds: float) -> None:
        text = f"COMPILED LATE: {loop}, for {seconds:.1f} s in which traffic waited or was lost; please report this"
        tell(as_warning(Notice(text, "compiled-late", WARNING, loop=loop, seconds=round(seconds, 1))))

    after_ready(warn)


def tell(text: str) -> None:
    say(text.after("superhosts: ") if isinstance(text, Notice) else f"superhosts: {text}")


def say_error(error: object) -> None:
    say(Notice(f"superhosts: {error}", "error", ERROR))


class ReportedErrors:
    """Errors that are reported when they come, and kept for the exit status."""

    def __init__(self) -> None:
        self.found: list[SuperhostsError] = []

    def add(self, error: SuperhostsError) -> None:
        if len(self.found) < 100:  # one is enough for the exit status, and a folder may be followed for months
            self.found.append(error)
        say_error(error)


def say_traceback(text: str) -> None:
    for line in text.splitlines():
        say(Notice(line, "traceback", ERROR))


def show_tracebacks(wanted: bool) -> None:
    use_tracebacks(say_traceback if wanted else None)


def command_line(arguments: Sequence[str]) -> str:
    return shlex.join(["superhosts", *arguments[1:]])


def fail_with(errors: Sequence[Any]) -> None:
    """Exit with the status of the first error, if there is one. Each has been reported already."""
    if errors:
        raise SystemExit(errors[0].exit_status)
