"""Windows that overlap are made while packets are counted: the next pane does not wait for the merges of this one.

Only for inputs that end: they keep all cores busy. Live traffic leaves time for merges, and its windows come at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

from superhosts.pipeline.building import WindowResult
from superhosts.pipeline.sliding import SlidingPanes


class SlidingAhead:
    """Makes the window of one pane in a thread of its own. All methods are for the thread that counts.

    `on_idle` is called when no window is being made, and the last one was taken.
    """

    def __init__(self, sliding: SlidingPanes, on_idle: Callable[[], None]) -> None:
        self._sliding, self._on_idle = sliding, on_idle
        self._thread = ThreadPoolExecutor(1, "superhosts-windows")
        self._begun: Future[list[WindowResult]] | None = None

    @property
    def is_busy(self) -> bool:
        """Return True if a window is being made, or was not asked for yet."""
        return self._begun is not None

    def add(self, pane: WindowResult) -> Iterator[WindowResult]:
        """Begin with the window of a pane. Yield those that come before it."""
        for _, detector in pane.sketch:
            detector.flush()  # while the window before is still being made
        yield from self.finish()
        yield from self._sliding.advance(self._sliding.number_of(pane))  # one by one: each takes the memory of a sketch
        self._begun = self._thread.submit(lambda: list(self._sliding.add(pane)))

    def done(self) -> Iterator[WindowResult]:
        """Yield the window that was begun, if it is ready."""
        if self._begun is not None and self._begun.done():
            yield from self.finish()

    def finish(self) -> Iterator[WindowResult]:
        """Wait for the window that was begun, and yield it."""
        begun, self._begun = self._begun, None
        if begun is not None:
            yield from begun.result()
        self._on_idle()

    def wait(self) -> None:
        """Wait until nothing changes the panes; what is made is yielded later."""
        if self._begun is not None:
            wait([self._begun])

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()
        self._begun = None
