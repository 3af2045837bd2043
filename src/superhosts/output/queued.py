"""A destination that must not block the run: its reports are written in the background, and wait in a queue."""

from __future__ import annotations

from collections.abc import Callable

from superhosts.core.notices import WARNING, Notice
from superhosts.errors import OutputError
from superhosts.output.background import Background
from superhosts.output.base import Destination, Report


class Queued(Destination):
    """Writes to another destination in the background.

    If a write fails (a full disk) it is repeated; if the destination blocks (a pipe whose reader does not read), the
    run waits for a moment only. Reports wait in memory meanwhile, up to a limit; those beyond it are dropped, counted
    and reported.
    """

    def __init__(self, inner: Destination, say: Callable[[str], None], background: Background | None = None) -> None:
        super().__init__(inner.name, inner.run)
        self.kind = inner.kind
        self._inner = inner
        self._say = say
        self._background = background or Background(inner.name, keeps=True)
        self._is_read = True  # the reader took the last report at once

    def _write(self, report: Report) -> None:
        was_read = self._is_read
        self._is_read = self._background.submit(lambda: self._inner.write(report))
        trouble = self._background.trouble
        state = "is NOT READ" if trouble is None else f"does NOT TAKE reports ({trouble})"
        event = "not-read" if trouble is None else "not-take"
        if was_read and not self._is_read:
            text = f"{self.name} {state}: reports for it wait in memory, the other destinations continue"
            self._say(Notice(text, event, WARNING))
        elif self._is_read and not was_read:
            self._say(Notice(f"{self.name} takes reports again{self._lost()}", "recovered"))
        elif self._background.dropped and self._background.dropped % 100 == 1:
            self._say(Notice(f"{self.name} {state}{self._lost()}", event, WARNING))

    def _lost(self) -> str:
        lost = self._background.dropped
        return f"; reports lost: {lost}" if lost else ""

    def reopen(self) -> None:
        """Open the destination's address again."""
        self._inner.reopen()

    def close(self) -> None:
        """Wait a moment for the queue, and report what is lost. OutputError: it could not be written."""
        lost = self._background.close() + self._background.dropped
        trouble = self._background.trouble
        if lost and trouble is not None:
            raise OutputError(f"{trouble}; reports lost: {lost}") from trouble
        if lost:
            self._say(f"{self.name} was not read: reports lost: {lost}")
        self._inner.close()

    def status(self) -> dict[str, int]:
        """Return the destination's counters, and how many reports wait or were dropped."""
        return self._inner.status() | {"waiting": self._background.waiting, "dropped": self._background.dropped}
