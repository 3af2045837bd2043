"""The process's standard streams: closed ones, ones without a reader, and writing past Python's buffers."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import TextIO, cast

from superhosts.errors import OutputError

ERASE = "\r\x1b[K"  # returns to the beginning of a terminal's line and clears it


class ClosedOutput(io.TextIOBase):
    """Standard output that was closed before the program started (`>&-`)."""

    def write(self, _text: str) -> int:
        """Refuse text."""
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
    """Discard everything still to be written to standard output: it takes no more."""
    silence(sys.stdout)


def silence(stream: TextIO) -> None:
    """Discard everything still to be written to a standard stream, which the interpreter would try again at its end."""
    with contextlib.suppress(OSError, ValueError):  # A stream that is no file has nothing to discard.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def stdout_error(error: OSError) -> OutputError:
    """Return the error for a standard output that takes no more text."""
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
        """The encoding of the text."""
        return self._encoding

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._handle

    def isatty(self) -> bool:
        """Return True if it is a terminal."""
        return os.isatty(self._handle)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Keep text for the next flush."""
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
