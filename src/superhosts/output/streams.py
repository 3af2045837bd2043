"""The process's standard streams: closed ones, ones without a reader, and writing to them in a thread of its own."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Full, Queue
from typing import TextIO, cast

from superhosts.errors import OutputError

ERASE = "\r\x1b[K"  # returns to the beginning of a terminal's line and clears it
PATIENCE = 2.0  # seconds that the program waits for its last lines
MOST_LINES = 1000  # lines that wait for standard error


class ClosedOutput(io.TextIOBase):
    """Standard output that was closed before the program started (`>&-`)."""

    def write(self, _text: str) -> int:
        raise OutputError("standard output is closed")


def open_streams() -> None:
    """Replace standard streams that are closed; without standard error everything runs on silently.

    Their descriptors are occupied, so that no other file gets them and with it the text meant for the stream.
    """
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # open takes the lowest free descriptor
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # stays open as long as the program runs
    if sys.stdout is None:
        sys.stdout = ClosedOutput()


def silence_stdout() -> None:
    silence(sys.stdout)


def silence(stream: TextIO) -> None:
    """Discard everything still to be written to a standard stream, which the interpreter would try again at its end."""
    with contextlib.suppress(OSError, ValueError):  # A stream that is not a file has nothing to discard.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def stdout_error(error: OSError) -> OutputError:
    return OutputError(f"standard output: cannot be written: {error.strerror}")


def flush_stdout() -> None:
    """Write what is left in the buffer of standard output. A reader that has gone needs none of it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        silence_stdout()
        raise stdout_error(error) from error


def flush_stderr() -> None:
    """Write what is left in the buffer of standard error, or discard it.

    A log on a full disk, or one that nobody reads any more, must not change the exit status.
    """
    try:
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


class Unbuffered(io.TextIOBase):
    """A text stream over a descriptor (standard output, standard error) that writes at each flush.

    It bypasses Python's own buffer. The interpreter writes what remains in that buffer when it exits, and would hang
    there if the pipe is full and has no active reader.
    """

    def __init__(self, handle: int, encoding: str = "utf-8") -> None:
        self._handle = handle
        self._encoding = encoding
        self._text: list[str] = []
        self._is_mid_line = False  # the last flush failed in the middle of a line

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def fileno(self) -> int:
        return self._handle

    def isatty(self) -> bool:
        return os.isatty(self._handle)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._text.append(text)
        return len(text)

    def flush(self) -> None:
        """Write the text. If that fails (OSError), the rest of it is dropped: the caller writes it again."""
        data = ("\n" * self._is_mid_line + "".join(self._text)).encode(self._encoding, "backslashreplace")
        self._text.clear()
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._handle, left) :]
        finally:
            done = len(data) - len(left)
            if not left:
                self._is_mid_line = False
            elif done:
                self._is_mid_line = data[done - 1 : done] != b"\n"


def raw_stream(stream: TextIO) -> TextIO | None:
    """Return an unbuffered stream to the same descriptor; None if the stream has none."""
    try:
        stream.flush()
        return cast("TextIO", Unbuffered(stream.fileno(), stream.encoding))
    except (OSError, ValueError):
        return None


class Log:
    """Log lines for standard error, written in a thread. No caller waits; lines that were lost are counted and told."""

    def __init__(
        self, stream: TextIO, *, most: int = MOST_LINES, render: Callable[[str], str] = lambda text: text
    ) -> None:
        """`render` makes a line of a text about the log itself; other lines are lines already."""
        self._stream, self._render = stream, render
        self._lines: Queue[str | None] = Queue(
            most - 1
        )  # besides the one that is being written; None: the status alone
        self._lost = 0  # lines for which there was no room, or no disk, or no reader
        self._told = 0  # lost lines that were reported
        self._status = ""  # the last line of the terminal, which is not a message
        threading.Thread(target=self._run, name="standard error", daemon=True).start()

    def show(self, status: str) -> None:
        """Show a last line on the terminal, in place of the one before, unless lines wait."""
        self._status = status
        if not self._lines.unfinished_tasks:
            self.write(None)

    def write(self, line: str | None) -> None:
        try:
            self._lines.put_nowait(line)
        except Full:
            self._lost += 1

    def status(self) -> dict[str, int]:
        return {"waiting": self._lines.unfinished_tasks, "dropped": self._lost}

    def close(self, patience: float = PATIENCE) -> bool:
        """Wait a moment for the queue; return False if lines are still in it."""
        with self._lines.all_tasks_done:
            return self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, patience)

    def _run(self) -> None:
        while True:
            self._put(self._lines.get())
            self._lines.task_done()

    def _put(self, line: str | None) -> None:
        lost = self._lost
        if line is not None and lost > self._told:
            text = f"superhosts: log lines lost on standard error: {lost - self._told}"
            self._stream.write(f"{self._render(text)}\n")
        whole = "" if line is None else f"{line}\n"
        self._stream.write(f"{ERASE}{whole}{self._status}" if self._status or line is None else whole)
        try:
            self._stream.flush()
        except OSError:  # neither a full disk nor a reader that has gone may end the program
            self._lost += line is not None
        else:
            self._told = lost if line is not None else self._told
