"""Results of a program that does not end: rows are appended window by window, and a crash leaves whole lines only.

A file of lines (.jsonl, .csv) grows. Parquet cannot grow, so a folder gets one file for each window; a
later revision of a window replaces it. Files and folders that are made here belong to their user alone. Standard output
and standard error are written by threads of their own: a pipe that nobody reads holds nothing else up.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO, cast

from superhosts.errors import OutputError, UsageError
from superhosts.reports.files import Csv, JsonLines, OutputFile
from superhosts.reports.rows import HUB_COLUMNS, Row

PATIENCE = 2.0  # seconds that others wait for standard output
MOST_QUEUED = 100  # reports that wait for it
MOST_LINES = 1000  # lines that wait for standard error
RETRY = 1.0  # seconds between two attempts at a job that nobody waits for


class LinesFile:
    """A .jsonl or .csv file to which rows are added; what a crash has cut off is removed first."""

    def __init__(self, path: Path, columns: tuple[str, ...] = HUB_COLUMNS) -> None:
        self.path = path
        self._columns = columns
        self._file = self._open()

    def _open(self) -> io.FileIO:
        try:
            file = io.FileIO(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a+")
            _cut_behind_last_line(file)
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written: {error.strerror}") from error
        return file

    def reopen(self) -> None:
        """Go on in the file that has this name now: another program has moved the old one away."""
        old, self._file = self._file, self._open()
        old.close()

    def write(self, _window: str, rows: Sequence[Row]) -> None:
        """Add rows, and have them on disk before this returns; all of them or, where the disk is full, none."""
        text = io.StringIO()
        end = self._file.seek(0, os.SEEK_END)
        if self.path.suffix.lower() == ".csv":
            Csv(text, self._columns, header=end == 0).write(rows)
        else:
            JsonLines(text).write(rows)
        left = memoryview(text.getvalue().encode())
        try:
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(end)  # they are written again when there is room
            raise OutputError(f"{self.path}: cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _cut_behind_last_line(file: io.FileIO) -> None:
    """Remove what a crash has left of a line."""
    end = file.seek(0, os.SEEK_END)
    place = end
    while place:
        step = min(place, 4096)
        file.seek(place - step)
        newline = file.read(step).rfind(b"\n")
        if newline >= 0:
            place += newline + 1 - step
            break
        place -= step
    if place != end:
        file.truncate(place)


class ParquetFolder:
    """A folder with one Parquet file for each window."""

    def __init__(self, folder: Path, columns: tuple[str, ...] = HUB_COLUMNS) -> None:
        self.folder = folder
        self._columns = columns
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(0o700, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be made: {error.strerror}") from error
        OutputFile(
            folder / "probe.parquet", columns, private=True
        ).abandon()  # a missing package or right is said now, not later

    def write(self, window: str, rows: Sequence[Row]) -> None:
        """Write or replace the file of a window."""
        file = OutputFile(self.folder / f"{window}.parquet", self._columns, private=True)
        try:
            file.write(rows)
            file.close()
        except BaseException:
            file.abandon()
            raise

    def reopen(self) -> None:
        """Nothing is open between two windows."""

    def close(self) -> None:
        """Nothing is left to do."""


class Unbuffered(io.TextIOBase):
    """A descriptor (standard output, standard error) as a stream whose text is written at a flush.

    It goes past Python's own buffer: what stays there is written at the end of the program, which would hang where
    nobody reads.
    """

    def __init__(self, handle: int, encoding: str = "utf-8") -> None:
        self._handle = handle
        self._encoding = encoding
        self._text: list[str] = []
        self._is_cut = False  # the last attempt ended within a line

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """How text is written."""
        return self._encoding

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._handle

    def isatty(self) -> bool:
        """Return True if people look at it."""
        return os.isatty(self._handle)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Take text, which is written at the next flush."""
        self._text.append(text)
        return len(text)

    def flush(self) -> None:
        """Write what was taken. OSError: the rest is dropped, and whoever handed it in does so again."""
        data = ("\n" * self._is_cut + "".join(self._text)).encode(self._encoding, "backslashreplace")
        self._text.clear()
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._handle, left) :]
        finally:
            done = len(data) - len(left)
            self._is_cut = data[done - 1 : done] != b"\n" if done else self._is_cut and bool(data)


class Job:
    """Something to be written."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.done = threading.Event()
        self.is_left = False  # nobody waits for it any more
        self.error: Exception | None = None


class Background:
    """Does jobs one after the other in a thread of its own, and waits for each only for a moment.

    Who hands in a job learns of its failure within that moment. A job that takes longer is left to the thread, which
    tries until it succeeds; behind it others queue, up to a limit. Beyond that they are dropped and counted.
    """

    def __init__(self, name: str = "standard output", *, patience: float = PATIENCE, most: int = MOST_QUEUED) -> None:
        self.dropped = 0
        self._name = name
        self._patience, self._most = patience, most
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()  # the first is being done
        self._arrived = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """How many jobs are not done."""
        return len(self._jobs)

    def hand(self, work: Callable[[], None]) -> bool:
        """Have something done; return False where that is not sure now. Raises what the work raises."""
        job = Job(work)
        with self._lock:
            job.is_left = bool(self._jobs)
            if len(self._jobs) >= self._most:
                self.dropped += 1
                return False
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._arrived.set()
        return False if job.is_left else self._wait_for(job)

    def _wait_for(self, job: Job) -> bool:
        job.done.wait(self._patience)
        with self._lock:
            job.is_left = not job.done.is_set()
        if job.error is not None:
            raise job.error
        return not job.is_left

    def close(self, patience: float | None = None) -> int:
        """Wait a moment for what is queued; return how many jobs are not done. These may still be done later."""
        until = time.monotonic() + (self._patience if patience is None else patience)
        while (jobs := list(self._jobs)) and (left := until - time.monotonic()) > 0:
            jobs[0].done.wait(left)
        return len(self._jobs)

    def _run(self) -> None:
        while True:
            self._arrived.wait()
            self._arrived.clear()
            while self._jobs:
                self._do(self._jobs[0])

    def _do(self, job: Job) -> None:
        try:
            job.work()
            error = None
        except Exception as caught:
            error = caught
        with self._lock:
            again = error is not None and job.is_left
            if not again:
                job.error = error
                self._jobs.popleft()
                job.done.set()
        if again:
            time.sleep(RETRY)


class Log:
    """Lines for people. Nobody waits for them; those that standard error never got are counted, and that is said."""

    def __init__(self, stream: TextIO, *, most: int = MOST_LINES) -> None:
        self._stream = stream
        self._background = Background("standard error", patience=0.0, most=most)
        self._failed = 0  # lines that a full disk did not take
        self._told = 0

    def write(self, line: str) -> None:
        """Have a line written soon, after all before it."""
        self._background.hand(lambda: self._put(line))

    def status(self) -> dict[str, int]:
        """Return how many lines wait for standard error, and how many it never got."""
        return {"waiting": self._background.waiting, "dropped": self._background.dropped + self._failed}

    def close(self, patience: float = PATIENCE) -> bool:
        """Wait a moment for what is queued; return False where that is not written."""
        return self._background.close(patience) == 0

    def _put(self, line: str) -> None:
        lost = self._background.dropped + self._failed
        if lost > self._told:
            self._stream.write(f"superhosts: lines that standard error never got: {lost - self._told}\n")
        self._stream.write(f"{line}\n")
        try:
            self._stream.flush()
            self._told = lost
        except OSError:  # a log on a full disk, or whose reader has gone, ends nothing
            self._failed += 1


def raw_stream(stream: TextIO) -> TextIO | None:
    """Return a stream to the same place that leaves nothing in Python's buffers; None where it is no descriptor."""
    try:
        stream.flush()
        return cast("TextIO", Unbuffered(stream.fileno(), stream.encoding))
    except (OSError, ValueError):
        return None


def open_running(path: Path) -> LinesFile | ParquetFolder:
    """Open what `--output` names: a .jsonl or .csv file, or a folder for Parquet."""
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".csv"):
        return LinesFile(path)
    if suffix == ".parquet":
        raise UsageError(f"--output {path}: Parquet cannot be appended to; name a folder, which gets a file per window")
    return ParquetFolder(path)
