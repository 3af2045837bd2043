"""The super hosts of one site, written at the site itself: what an edge reports besides sending its sketches.

The spool comes first: a destination that fails never delays it. Reports that could not be written wait in memory, up
to a limit, and are tried again with the next window. A restart may write the rows of a window again.
"""

from __future__ import annotations

from collections import deque

from superhosts.errors import OutputError
from superhosts.fleet.receipts import Say
from superhosts.pipeline.building import WindowResult
from superhosts.reports.base import Report
from superhosts.reports.fanout import Destinations
from superhosts.reports.rows import make_rows

MOST_WAITING = 100  # reports


class LocalRows:
    """Writes the rows of a site's windows."""

    def __init__(self, destinations: Destinations, say: Say) -> None:
        self.lost = 0  # reports that were dropped, because too many waited
        self._destinations, self._say = destinations, say
        self._waiting: deque[Report] = deque()
        self._failed = False  # the last attempt

    def add(self, result: WindowResult) -> None:
        """Write the report of a window, and those that wait."""
        rows = make_rows(result.window, result.found, partial=result.partial, revision=result.revision)
        self._waiting.append(Report(rows=rows, window=result.window, revision=result.revision))
        if len(self._waiting) > MOST_WAITING:
            self._waiting.popleft()
            self.lost += 1
        self.flush()

    def flush(self) -> None:
        """Write the reports that wait, the oldest first, until one fails."""
        while self._waiting:
            try:
                self._destinations.write(self._waiting[0])
            except (OSError, OutputError) as error:
                if not self._failed:
                    self._say(f"ROWS NOT WRITTEN: {error}; sketches are sent all the same, retrying with every window")
                self._failed = True
                return
            self._waiting.popleft()
        if self._failed:
            self._say("rows are written again" + (f"; reports lost: {self.lost}" if self.lost else ""))
        self._failed = False

    def status(self) -> dict[str, int]:
        """Return how many reports wait, and how many were lost."""
        return {"waiting": len(self._waiting), "lost": self.lost}
