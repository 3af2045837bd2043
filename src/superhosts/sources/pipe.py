"""A pipe or standard input: which format it has shows when its first bytes come, which may take hours."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from superhosts.core.pairs import PacketBlock
from superhosts.sources.base import PLAIN, Source, SourceCounters, Stopped, Wants
from superhosts.sources.inputs import Input


class PipeSource(Source):
    """An input whose bytes come once. `recognise` opens it once its first bytes are there."""

    replays = False

    def __init__(self, pipe: Input, recognise: Callable[[Input], Source]) -> None:
        self.name = pipe.name
        self.live = pipe.live
        self.counters = SourceCounters()
        self._input = pipe
        self._recognise = recognise
        self._source: Source | None = None
        self._threads: int | None = None
        self._one_window = False
        self._wants = PLAIN

    def use_threads(self, threads: int) -> None:
        """Let no more than this many threads read it."""
        self._threads = threads

    def use_one_window(self) -> None:
        """Take all packets as one window."""
        self._one_window = True

    def want(self, wants: Wants) -> None:
        """Take note of what is to be read besides addresses and times."""
        self._wants = wants

    def _recognised(self) -> Source:
        """Return the source that reads it, waiting for the first bytes."""
        if self._source is None:
            source = self._recognise(self._input)
            source.counters.on_warning = self.counters.on_warning
            if self._threads is not None:
                source.use_threads(self._threads)
            if self._one_window:
                source.use_one_window()
            source.want(self._wants)
            self._source, self.counters = source, source.counters
        return self._source

    def first_time(self) -> int | None:
        """Time of the first packet, which is kept; None for an empty input."""
        return self._recognised().first_time()

    def blocks(self) -> Iterator[PacketBlock]:
        """Yield the packets, once."""
        try:
            source = self._recognised()
        except Stopped:
            return
        yield from source.blocks()

    def position(self) -> int:
        """Bytes read so far."""
        return 0 if self._source is None else self._source.position()

    def size(self) -> int | None:
        """Bytes of a file on standard input; None for a pipe."""
        return self._input.size

    def waits(self) -> bool:
        """Return True if the pipe is empty, and has been for a moment."""
        return self._input.waiting.waits

    def stop(self) -> None:
        """End the reading soon."""
        self._input.waiting.stopped = True
