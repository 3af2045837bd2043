"""What shows a scan on the terminal while it runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from superhosts.cli._progress import ScanProgress
from superhosts.output.report import Report
from superhosts.pipeline.scan import Scan


class View(Protocol):
    """Shows a scan while it runs."""

    def of(self, run: Scan) -> AbstractContextManager[object]:
        """Show this run until the context is left."""

    def step(self, position: int, packets: int) -> None:
        """Show how far it is. The scan calls this often, between two blocks of packets."""

    def paused(self) -> AbstractContextManager[object]:
        """Make room while results are printed, perhaps on the same terminal."""

    def add(self, report: Report) -> None:
        """Take note of a window that has closed and was written."""


class ProgressView:
    """A progress bar; windows are shown by the destinations of results."""

    def __init__(self, *, wanted: bool) -> None:
        self._progress = ScanProgress(wanted=wanted)

    def of(self, run: Scan) -> AbstractContextManager[object]:
        """Show the bar until the context is left."""
        return self._progress.of(run.sources)

    def step(self, position: int, packets: int) -> None:
        """Move the bar."""
        self._progress.read(position, packets)

    def paused(self) -> AbstractContextManager[object]:
        """Clear the bar while results are printed."""
        return self._progress.paused()

    def add(self, report: Report) -> None:
        """Do nothing."""
