"""One file, URL or pipe as a source: what does not depend on its format.

A file that was read to its end has an identity, by which the next run recognises it. What is written to a pipe is read
once, as it arrives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from superhosts.core.pairs import PacketBlock
from superhosts.sources.base import Source, SourceCounters, Stopped
from superhosts.sources.inputs import Input
from superhosts.sources.urls import is_url

COMPRESSED = (".gz", ".zst", ".xz")


class Reader(Protocol):
    """What a source has open while it reads."""

    def position(self) -> int:
        """Return the bytes of the input read so far."""

    def close(self) -> None:
        """Close the input."""


AnyReader = TypeVar("AnyReader", bound=Reader)


class FileSource(Source, Generic[AnyReader]):
    """A source that is one input. Subclasses know a format: they open `_reader`, and implement `_look` and `_read`."""

    def __init__(self, file: Input) -> None:
        self.name = file.name
        self.replays = file.reopens
        self.live = file.live
        self.counters = SourceCounters()
        self._input = file
        self._reader: AnyReader | None = None
        self._position = 0  # where the reader was when it was closed
        self._first_time: int | None = None
        self._first_known = False
        self._opening: int | None = None  # time of the very first packet of a file, stray or not
        self._finished: dict[str, tuple[int, int]] = {}

    @abstractmethod
    def _look(self) -> int | None:
        """Return the time at which the input begins, None for an empty input; note `_opening` if it is a file."""

    @abstractmethod
    def _read(self) -> Iterator[PacketBlock]:
        """Yield the packets. `blocks` closes the reader at the end."""

    def _find_opening(self) -> None:
        """Note the time of the very first packet of a file."""
        self.first_time()

    def first_time(self) -> int | None:
        """Return the time at which the input begins; None for an empty input."""
        if not self._first_known:
            self._first_time = self._look()
            self._first_known = True
        return self._first_time

    def blocks(self) -> Iterator[PacketBlock]:
        """Yield the packets, once."""
        identity = self.identity()  # before reading: meanwhile another file may take its name
        span = Span(self._opening)
        try:
            for block in self._read():
                span.add(block)
                yield block
            if identity is not None:
                self._finished[identity] = span.ends()
        except Stopped:
            return
        finally:
            self.close()

    def identity(self) -> str | None:
        """Return a name by which later runs recognise a file; None if it is empty or cannot be read again."""
        if self.replays and self._opening is None:
            self._find_opening()
        return identity_of(self._input.path, self._opening) if self.replays and self._opening is not None else None

    def waits(self) -> bool:
        """Return True if a pipe has been empty for a moment."""
        return self._input.waiting.waits

    def stop(self) -> None:
        """End the reading of a pipe soon."""
        self._input.waiting.stopped = True

    def finished(self) -> dict[str, tuple[int, int]]:
        """Return the file, once it was read to its end."""
        return dict(self._finished)

    def position(self) -> int:
        """Bytes of the input (compressed, if it is) read so far."""
        reader = self._reader  # read once: the reading thread may set it to None
        return self._position if reader is None else reader.position()

    def size(self) -> int | None:
        """Bytes of the whole input, None for a pipe."""
        return self._input.size

    def close(self) -> None:
        """Close the input. Done by itself at the end of `blocks`."""
        if self._reader is not None:
            self._position = self._reader.position()
            self._reader.close()
            self._reader = None


class Span:
    """The earliest and the latest time of a file's packets, given that of the first."""

    def __init__(self, time: int | None) -> None:
        self._first = self._last = time or 0

    def add(self, block: PacketBlock) -> None:
        """Take in a block."""
        for batch in block:
            if len(batch):
                self._first = min(self._first, batch.span[0])
                self._last = max(self._last, batch.span[1])

    def ends(self) -> tuple[int, int]:
        """Return the earliest and the latest time."""
        return self._first, self._last


def without_compression(name: str) -> str:
    """Return a file's name without the ending that compressing it adds."""
    return next((name.removesuffix(ending) for ending in COMPRESSED if name.endswith(ending)), name)


def identity_of(path: str | Path, first: int) -> str:
    """Return the identity of a file, given the time of its first packet.

    Compressing a file after its rotation does not change its identity; another file under the same name, as in a ring
    of files, has another one.
    """
    name = str(path) if is_url(path) else str(Path(path).absolute())
    return f"{without_compression(name)}@{first}"
