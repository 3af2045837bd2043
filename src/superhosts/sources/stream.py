"""The bytes of an input, in order, once: of files, URLs and pipes."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from superhosts.core.profile import timed
from superhosts.errors import InputError
from superhosts.sources.base import PACE, Pace, Stopped

_HEAD = 6  # bytes by which compressions are told apart
_BRIEFLY = 0.02  # seconds without bytes that do not count as waiting: a busy pipe, too, is empty for moments


class Waiting:
    """Flags of a reader that waits for bytes: whether it waits, and whether to stop. A signal handler may set them."""

    def __init__(self, pace: Pace = PACE) -> None:
        self.pace = pace
        self.waits = False
        self.stopped = False


class Stream(Protocol):
    compression: str  # its name; "" for plain bytes
    ended_early: str  # a message if the compressed data ended early; else ""

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view` and return how much; 0 at the end. Waits only when nothing is there."""

    def position(self) -> int:
        """Bytes of the input (compressed, if it is) read so far."""

    def unread(self, data: bytes) -> None:
        """Return these bytes, which were read before, with the next call of `readinto`."""

    def close(self) -> None: ...


class PlainStream:
    compression = ended_early = ""

    def __init__(self, name: str, file: Any, live: bool, waiting: Waiting | None = None) -> None:
        self.name = name
        self.live = live  # return what is there instead of waiting for more
        self._file = file
        self._waiting = waiting
        self._poll = _poll_for(file) if waiting is not None else None
        self._read: Callable[[memoryview], int | None] = getattr(file, "readinto1", file.readinto)
        self._head = b""
        self._position = 0
        self._until = 0.0  # when a stopped reader ends

    def head(self) -> bytes:
        """Return the first bytes (fewer only if there are no more) without consuming them."""
        while len(self._head) < _HEAD:
            more = bytearray(_HEAD - len(self._head))
            got = self._readinto(memoryview(more))
            if not got:
                break
            self._head += more[:got]
        return self._head

    def readinto(self, view: memoryview) -> int:
        got = min(len(self._head), len(view))
        view[:got], self._head = self._head[:got], self._head[got:]
        if got <= _HEAD:  # the head alone is not a packet: wait for more
            got += self._readinto(view[got:])
        self._position += got
        return got

    def unread(self, data: bytes) -> None:
        self._head = data + self._head
        self._position -= len(data)

    @timed("read", amount=lambda got, *_: got)
    def _readinto(self, view: memoryview) -> int:
        try:
            self._wait()
            while (got := self._read(view)) is None:  # a non-blocking pipe
                select.select([self._file], [], [])
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", file=self.name) from error
        return got

    def _wait(self) -> None:
        """Wait until there is something to read, so that `read` itself never blocks a reader that is stopped."""
        if self._poll is None or self._waiting is None:
            return
        pause = _BRIEFLY
        while not self._waiting.stopped:
            if self._poll.poll(1000 * pause):
                self._waiting.waits = False
                return
            self._waiting.waits, pause = True, self._waiting.pace.wake
        self._until = self._until or time.monotonic() + self._waiting.pace.linger
        left = self._until - time.monotonic()
        if left <= 0 or not self._poll.poll(1000 * left):
            raise Stopped

    def position(self) -> int:
        return self._position

    def close(self) -> None:
        """Close the file, unless it is stdin."""
        if self._file not in standard_input():
            self._file.close()


def _poll_for(file: Any) -> Any:
    try:
        descriptor = file.fileno()
    except OSError:  # not a real file, as under a test runner
        return None
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll


def standard_input() -> list[Any]:
    """Return stdin without its buffer, if it has one, and stdin itself.

    A poll does not see bytes in a buffer, and a thread that waits in a buffered read at the end of the process holds a
    lock that makes the process crash.
    """
    buffered = None if sys.stdin is None else sys.stdin.buffer
    return [] if buffered is None else [getattr(buffered, "raw", buffered), buffered]
