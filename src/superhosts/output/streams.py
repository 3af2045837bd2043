"""The process's standard streams: closed ones, ones without a reader, and writing to them in a thread of its own."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

from superhosts.errors import OutputError

ERASE = "\r\x1b[K"  # returns to the beginning of a terminal's line and clears it
PATIENCE = 2.0  # seconds that the caller waits for a job
RETRY = 1.0  # seconds between two attempts at a job for which no caller waits
MOST_QUEUED = 100  # jobs in the queue
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
    with contextlib.suppress(OSError, ValueError):  # A stream that is no file has nothing to discard.
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


@dataclass(eq=False)
class Job:
    work: Callable[[], None]
    is_left: bool  # no caller waits for it any more
    is_done: bool = False
    has_answered: bool = False  # it is done, or has failed
    error: Exception | None = None


class Background:
    """Runs jobs one after the other in a thread of its own; the caller waits for each only `patience` seconds.

    A job that fails within that time raises its error at the caller. A job that takes longer is left to the thread,
    which retries it until it succeeds; with `keeps`, so is one that fails, and `trouble` says why. Further jobs queue
    behind it, at most `most`; beyond that they are dropped and counted.
    """

    def __init__(
        self,
        name: str = "standard output",
        *,
        patience: float = PATIENCE,
        most: int = MOST_QUEUED,
        retry: float = RETRY,
        keeps: bool = False,
    ) -> None:
        self.dropped = 0
        self.trouble: Exception | None = None  # why the first job has failed at its last attempt
        self._name, self._patience, self._most, self._retry, self._keeps = name, patience, most, retry, keeps
        self._jobs: deque[Job] = deque()  # the first is running
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    def submit(self, work: Callable[[], None]) -> bool:
        """Run some work; return True if it is done, False if it is queued or dropped. Raises what the work raises."""
        with self._changed:
            if len(self._jobs) >= self._most:
                self.dropped += 1
                return False
            job = Job(work, is_left=bool(self._jobs))
            self._jobs.append(job)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            if not job.is_left:
                self._changed.wait_for(lambda: job.has_answered, self._patience)
                job.is_left = not job.is_done
            if job.error is not None:
                raise job.error
            return job.is_done

    def close(self, patience: float | None = None) -> int:
        """Wait a moment for the queue; return how many jobs are not done. These may still be done later."""
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs, self._patience if patience is None else patience)
            return len(self._jobs)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs)
                job = self._jobs[0]
            error: Exception | None = None
            try:
                job.work()
            except Exception as caught:
                error = caught
            with self._changed:
                again = error is not None and (job.is_left or self._keeps)
                self.trouble = error if again else None
                job.has_answered = True
                if not again:
                    job.error, job.is_done = error, True
                    self._jobs.popleft()
                self._changed.notify_all()
            if again:
                time.sleep(self._retry)


class Log:
    """Log lines for standard error. No caller waits for them; lines that were lost are counted and reported."""

    def __init__(
        self, stream: TextIO, *, most: int = MOST_LINES, render: Callable[[str], str] = lambda text: text
    ) -> None:
        """`render` makes a line of a text about the log itself; other lines are lines already."""
        self._stream, self._render = stream, render
        self._background = Background("standard error", patience=0.0, most=most)
        self._failed = 0  # lines lost because the disk was full or the reader had gone
        self._told = 0  # lost lines that were reported
        self._status = ""  # the last line of the terminal, which is no message

    def show(self, status: str) -> None:
        """Show a last line on the terminal, in place of the one before, unless lines wait."""
        self._status = status
        if not self._background.waiting:
            self._background.submit(self._redraw)

    def _redraw(self) -> None:
        self._stream.write(f"{ERASE}{self._status}")
        with contextlib.suppress(OSError):
            self._stream.flush()

    def write(self, line: str) -> None:
        self._background.submit(lambda: self._put(line))

    def status(self) -> dict[str, int]:
        return {"waiting": self._background.waiting, "dropped": self._background.dropped + self._failed}

    def close(self, patience: float = PATIENCE) -> bool:
        """Wait a moment for the queue; return False if lines are still in it."""
        return self._background.close(patience) == 0

    def _put(self, line: str) -> None:
        lost = self._background.dropped + self._failed
        if lost > self._told:
            text = f"superhosts: log lines lost on standard error: {lost - self._told}"
            self._stream.write(f"{self._render(text)}\n")
        self._stream.write(f"{ERASE}{line}\n{self._status}" if self._status else f"{line}\n")
        try:
            self._stream.flush()
            self._told = lost
        except OSError:  # neither a full disk nor a reader that has gone may end the program
            self._failed += 1
