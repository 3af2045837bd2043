"""Progress on standard error: a bar on a terminal, a plain line once a minute elsewhere.

    [==============>                         ]  35 %  1.4 of 4.0 GB  2.5 M packets/s  0:00:12 left

The bar is the last line of the terminal. Messages appear above it (`output/console.py`); a command that writes
results to the same terminal pauses it. Nothing runs in a thread of its own: the work says how far it is.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, Self, TypeVar

from superhosts.core.text import short_rate
from superhosts.output.console import say, show_status
from superhosts.output.report import Report
from superhosts.pipeline.scan import Scan

Item = TypeVar("Item")
REDRAWN = 0.1  # seconds between two drawings of a bar
LINES = 60.0  # seconds between two lines where there is no terminal
LONGEST, SHORTEST = 40, 8  # characters of a bar; without room for the shortest there is none
SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0))


class Progress:
    """How many items of some work are done. Without `wanted` it shows nothing.

    `on_terminal` and `width` are those of standard error, unless they are given.
    """

    def __init__(
        self,
        unit: str,
        total: float | None = None,
        *,
        wanted: bool = True,
        on_terminal: bool | None = None,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._unit, self._total = unit, total
        self._wanted, self._clock = wanted, clock
        self._on_terminal = _is_terminal() if on_terminal is None else on_terminal
        self._width = width
        self._began = self._last = 0.0
        self._is_running = False
        self._steps = 0  # items that are begun
        self._shown = ""  # on the terminal now

    def __enter__(self) -> Self:
        self._began = self._clock()
        self._last = -math.inf if self._on_terminal else self._began  # a bar appears at once
        self._is_running = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_running = False
        self._show("")

    def step(self) -> None:
        self.update(self._steps)
        self._steps += 1

    def over(self, items: Sequence[Item]) -> Iterator[Item]:
        """Yield the items one by one, and count those that are done."""
        self._total = len(items)
        for item in items:
            self.step()
            yield item

    def update(self, done: float, total: float | None = None) -> None:
        self._total = self._total if total is None else total
        if self._is_due(is_last=done == self._total):
            self._draw(done, [self._amount(done)])

    def busy(self, text: str) -> None:
        """Show on a terminal what is being done, until the next step."""
        if self._wanted and self._on_terminal and self._is_running:
            self._show(text[: (self._width or terminal_width()) - 1])

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Clear the bar while results are printed, perhaps on the same terminal."""
        shown = self._shown
        self._show("")
        try:
            yield
        finally:
            if self._is_running:
                self._show(shown)

    def _amount(self, done: float) -> str:
        return f"{done:,.0f} {self._unit}" if self._total is None else f"{done:,.0f} of {self._total:,.0f} {self._unit}"

    def _is_due(self, *, is_last: bool = False) -> bool:
        """Return True if a moment has passed since something was shown, or if a bar is to show the end."""
        if not (self._wanted and self._is_running):
            return False
        now = self._clock()
        if not (is_last and self._on_terminal) and now - self._last < (REDRAWN if self._on_terminal else LINES):
            return False
        self._last = now
        return True

    def _draw(self, done: float, words: list[str]) -> None:
        seconds = self._last - self._began
        if self._total:
            share = min(1.0, done / self._total)
            left = [f"{_clock_time(seconds / share - seconds)} left"] if share and seconds >= 1 else []
            words = [f"{share:4.0%}".replace("%", " %"), *words, *left]
        else:
            share = None
            words = [*words, _clock_time(seconds)]
        if not self._on_terminal:
            say(", ".join(word.strip() for word in words))
            return
        text, width = "  ".join(words), self._width or terminal_width()
        room = min(LONGEST, width - len(text) - 5)  # brackets, spaces, and the cursor behind the line
        if share is not None and room >= SHORTEST:
            text = f"{_bar(share, room)}  {text}"
        self._show(text if room >= SHORTEST or share is None else text[: width - 1])

    def _show(self, text: str) -> None:
        if text != self._shown:
            self._shown = text
            show_status(text)


class View(Protocol):
    def of(self, run: Scan) -> AbstractContextManager[object]: ...

    def step(self, position: int, packets: int) -> None: ...

    def reporting(self, report: Report) -> AbstractContextManager[object]:
        """Make room while a window is written, perhaps to the same terminal, and then take note of it."""


class ScanProgress(Progress):
    """How much of some inputs is read: their bytes, and the packets in them."""

    def __init__(self, **options: object) -> None:
        super().__init__("bytes", **options)  # type: ignore[arg-type]  # the options of `Progress`

    def of(self, run: Scan) -> Self:
        sizes = [source.size() for source in run.sources]
        self._total = None if None in sizes else sum(size or 0 for size in sizes)
        return self

    def step(self, position: int, packets: int) -> None:  # type: ignore[override]  # an item is a byte here
        if self._is_due():
            seconds = self._last - self._began
            count = [] if self._total else [f"{packets:,} packets"]
            rate = [f"{short_rate(packets / seconds)} packets/s"] if seconds > 0 else []
            self._draw(position, [self._amount(position), *count, *rate])

    def reporting(self, _report: Report) -> AbstractContextManager[object]:
        return self.paused()

    def _amount(self, done: float) -> str:
        name, size = next(each for each in SIZES if max(done, self._total or 0) >= each[1] or each[1] == 1)
        digits = 0 if size == 1 else 1
        whole = "" if self._total is None else f" of {self._total / size:,.{digits}f}"
        return f"{done / size:,.{digits}f}{whole} {name}"


def _is_terminal() -> bool:
    """Return True if standard error is a terminal that can clear a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Return the width of the terminal of standard error, or what COLUMNS says."""
    given = os.environ.get("COLUMNS", "")
    try:
        width = int(given) if given.isdigit() else 0
        return width or os.get_terminal_size(sys.stderr.fileno()).columns or 80  # a terminal may not know its width
    except (OSError, ValueError):
        return 80


def _bar(share: float, length: int) -> str:
    done = round(share * length)
    return f"[{('=' * (done - 1) + '>' if done else ''):{length}}]"


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
