"""Progress on standard error, if that is a terminal: bars, and lines every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from superhosts.cli._console import say
from superhosts.sources.base import Source

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")
SECONDS = 2.0  # between two lines


def with_progress(
    items: Sequence[Item], *, clock: Callable[[], float] = time.monotonic, show: bool | None = None
) -> Iterator[Item]:
    """Return the items one by one, and write every few seconds how many sketches are done.

    `show` says whether to write at all; None: if standard error is a terminal.
    """
    show = sys.stderr.isatty() if show is None else show
    last = clock()
    for done, item in enumerate(items):
        if show and (now := clock()) - last > SECONDS:
            last = now
            say(f"{done:,} of {len(items):,} sketches …")
        yield item


def packet_progress(
    *, clock: Callable[[], float] = time.monotonic, show: bool | None = None
) -> Callable[[int, int], None]:
    """Return a function that writes the number of packets every few seconds; `show` as in `with_progress`."""
    shown = sys.stderr.isatty() if show is None else show
    last = clock()

    def write(_position: int, packets: int) -> None:
        nonlocal last
        if shown and (now := clock()) - last > SECONDS:
            last = now
            say(f"{packets:,} packets …")

    return write


class ScanProgress:
    """A bar with the rate and the time left, if `show`; otherwise nothing."""

    def __init__(
        self, *, show: bool, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bar = None
        self._clock = clock
        if show:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), DownloadColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
            self._bar = Progress(*columns, console=console or Console(stderr=True), transient=True)

    def over(self, sources: Sequence[Source]) -> ScanProgress:
        """Take the size of all inputs as the whole."""
        if self._bar is not None:
            sizes = [source.size() for source in sources]
            total = None if None in sizes else sum(size or 0 for size in sizes)
            self._task = self._bar.add_task("scan", total=total, rate="")
        return self

    def __enter__(self) -> None:
        if self._bar is not None:
            self._started = self._clock()
            self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, position: int, packets: int) -> None:
        """Show how far the scan is."""
        if self._bar is not None:
            rate = packets / max(1e-9, self._clock() - self._started)
            self._bar.update(self._task, completed=position, rate=f"{rate / 1e6:.1f} M packets/s")

    def pause(self) -> None:
        """Clear the bar while results are printed."""
        if self._bar is not None:
            self._bar.stop()

    def resume(self) -> None:
        """Show the bar again."""
        if self._bar is not None:
            self._bar.start()


class TaskProgress:
    """A bar of the tasks that are done, out of those known so far, if `show`; otherwise nothing."""

    def __init__(self, *, show: bool, console: Console | None = None) -> None:
        self._bar = None
        if show:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn())
            self._bar = Progress(*columns, console=console or Console(stderr=True), transient=True)
            self._task = self._bar.add_task("tasks", total=None)

    def update(self, done: int, total: int) -> None:
        """Show how far the work is."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Clear the bar, if it is shown, while something is printed."""
        shown = self._bar is not None and self._bar.live.is_started
        if self._bar is not None and shown:
            self._bar.stop()
        try:
            yield
        finally:
            if self._bar is not None and shown:
                self._bar.start()

    def __enter__(self) -> None:
        if self._bar is not None:
            self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
