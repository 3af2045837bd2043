"""Reads an input ahead in a thread of its own.

What is read ahead is bounded: a few blocks, or a share of memory that the run gives to inputs that take long to read.
An input may also be read before its turn. Then its errors wait in the queue behind its blocks, as always, and its
warnings are held back until its turn comes.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from superhosts.core.pairs import PacketBlock
from superhosts.core.profile import timed
from superhosts.jit.compilation import is_compiling
from superhosts.sources.base import Source, input_border
from superhosts.sources.pace import PACE, Pace

READ_AHEAD = 4  # blocks of an input that may wait to be processed, whatever its share
MOST_SHARE = 32 * 1024 * 1024  # bytes of blocks of an input that may wait, where memory allows
NOT_YET = -(1 << 63)  # before all times: nothing was read yet

Clock = Callable[[], float]
Item = tuple[float, PacketBlock] | BaseException | None


class Ahead:
    """An input that a thread reads ahead."""

    def __init__(
        self,
        source: Source,
        number: int,
        *,
        reached: int = NOT_YET,
        share: int = 0,
        stopped: Callable[[], bool],
        clock: Clock = time.monotonic,
        wake: threading.Event | None = None,
        pace: Pace = PACE,
    ) -> None:
        """Begin to read. `share`: bytes of blocks that may wait to be processed."""
        self.source = source
        self.number = number
        self.reached = reached  # earliest time of the next block, or of the last one until the next has been read
        self.taken = 0  # packets
        self.ended = False
        self.arrival = 0.0  # of the block that was taken last
        self._stopped = stopped
        self._clock = clock
        self._wake = wake or threading.Event()
        self._pace = pace
        self._waiting = _WaitingBlocks(share)
        self._left = False
        self._next: tuple[float, PacketBlock] | None = None
        threading.Thread(target=self._read, name=f"read {source.name}", daemon=True).start()

    def _read(self) -> None:
        try:
            with input_border(self.source.name):
                for block in self.source.blocks():
                    if not self._put((self._clock(), block), _size(block)):
                        return
            self._put(None)
        except BaseException as error:  # handed to the thread that takes the blocks
            self._put(error)

    @timed("wait")
    def _put(self, item: Item, size: int = 0) -> bool:
        while not self._left:
            if self._waiting.put(item, size, self._pace.wake):
                self._wake.set()
                return True
        return False

    @timed("wait")
    def _get(self) -> Item:
        return self._waiting.get(self._pace.wake)

    def leave(self) -> None:
        """Make the thread end soon; its blocks are no longer taken."""
        self._left = True
        self.source.stop()

    def ready(self, *, wait: bool = False) -> bool:
        """Return True if there is a block to take. Raises the errors of the reading thread."""
        while self._next is None and not self.ended:
            try:
                item = self._get() if wait else self._waiting.get(0)
            except queue.Empty:
                if not wait or self._stopped():
                    return False
                continue
            if item is None or isinstance(item, BaseException):
                self.ended = True
                if item is not None:
                    raise item
            elif any(len(batch) for batch in item[1]):
                self._next = item
                self.reached = min(batch.span[0] for batch in item[1] if len(batch))
        return self._next is not None

    def next_time(self) -> int | None:
        """Return the earliest time of the next block, None at the end. Waits for it."""
        return self.reached if self.ready(wait=True) else None

    def take(self) -> PacketBlock:
        """Return the next block. `ready` has returned True."""
        assert self._next is not None
        (self.arrival, block), self._next = self._next, None
        self.taken += sum(len(batch) for batch in block)
        return block

    def is_working(self) -> bool:
        """Return True if no block is ready but one is being read."""
        return not self.source.waits() and self._next is None and not self.ended


class _WaitingBlocks:
    """A queue between one thread that reads and one that takes: `READ_AHEAD` items, or more of few bytes."""

    def __init__(self, share: int) -> None:
        self._share = share
        self._bytes = 0
        self._items: deque[tuple[Item, int]] = deque()
        self._changed = threading.Condition()

    def put(self, item: Item, size: int, seconds: float) -> bool:
        """Append an item; return False if there was no room for it in that time."""

        def has_room() -> bool:
            return len(self._items) < READ_AHEAD or self._bytes + size <= self._share

        with self._changed:
            if not self._changed.wait_for(has_room, seconds):
                return False
            self._items.append((item, size))
            self._bytes += size
            self._changed.notify()
            return True

    def get(self, seconds: float) -> Item:
        """Remove the next item; `queue.Empty` if none came in that time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._items, seconds):
                raise queue.Empty
            item, size = self._items.popleft()
            self._bytes -= size
            self._changed.notify()
            return item


def _size(block: PacketBlock) -> int:
    columns = (column for batch in block for column in (batch.src, batch.dst, batch.time, batch.details))
    return sum(column.nbytes for column in columns if column is not None)


class HeldWarnings:
    """The warnings of an input, passed on when its turn comes; from then on at once."""

    def __init__(self, pass_on: Callable[[str], None]) -> None:
        self._pass_on = pass_on
        self._texts: list[str] | None = []
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        """Take a warning."""
        with self._lock:
            if self._texts is None:
                self._pass_on(text)
            else:
                self._texts.append(text)

    def release(self) -> None:
        """Pass on what was held back."""
        with self._lock:
            texts, self._texts = self._texts or [], None
            for text in texts:
                self._pass_on(text)


def hold_warnings(source: Source) -> HeldWarnings | None:
    """Hold back the warnings of an input; None if nothing takes them as they come."""
    if source.counters.on_warning is None:
        return None
    held = source.counters.on_warning = HeldWarnings(source.counters.on_warning)
    return held


def is_pipe(source: Source) -> bool:
    """Return True for live input that cannot be read again."""
    return source.live and not source.replays


def drain(
    inputs: Iterable[Ahead], attempt: Callable[[Callable[[], Any]], Any], seconds: float
) -> Iterator[PacketBlock]:
    """Yield what pipes delivered before a stop. Their readers were told to stop and end soon.

    They have so many `seconds`, without the time in which loops are compiled, and that of the caller: a reader whose
    loops are not compiled yet has still to read everything.
    """
    pipes, since = [ahead for ahead in inputs if is_pipe(ahead.source)], time.monotonic()
    while (pipes := [ahead for ahead in pipes if not ahead.ended]) and seconds > 0:
        counts = not is_compiling()
        for ahead in pipes:
            if attempt(ahead.ready):
                yield ahead.take()
                since = time.monotonic()
        time.sleep(0.001)
        seconds -= time.monotonic() - since if counts else 0
        since = time.monotonic()
