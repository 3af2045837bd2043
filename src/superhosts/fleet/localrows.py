"""The super hosts of one site, written at the site itself: what an edge reports besides sending its sketches.

The spool comes first: a destination that fails never delays it. Reports that could not be written wait in memory, up
to a limit, and are tried again with the next window. Files and senders have queues of their own and never fail here. A
window that a killed edge reads again gives the same rows, which a file takes once (`reports/patient.py`).

Late packets can reopen a window, and the second sketch then holds these packets only. The hub merges both. Here the
rows of the first report stay, and the reopened window is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Window
from superhosts.core.times import window_name
from superhosts.errors import OutputError
from superhosts.fleet.receipts import Say
from superhosts.output.base import Destination, Report
from superhosts.output.fanout import Destinations
from superhosts.output.rows import make_rows
from superhosts.pipeline.builder import WindowResult
from superhosts.sketch.evidence.patterns import judge_of

MAX_WAITING = 100  # reports
RECENT_WINDOWS = 1000  # windows whose reports are remembered


class LocalRows:
    """Writes the rows of a site's windows."""

    def __init__(self, destinations: Destinations, say: Say, *, max_waiting: int = MAX_WAITING) -> None:
        self.lost = 0  # reports that were dropped, because too many waited
        self.reopened = 0  # windows that late packets reopened after their report
        self._reported: deque[Window] = deque(maxlen=RECENT_WINDOWS)
        self._destinations, self._say, self._max_waiting = destinations, say, max_waiting
        self._waiting: deque[Report] = deque()
        self._failed = False  # the last attempt

    def add(self, result: WindowResult, exports: Sequence[dict[str, Any]] = ()) -> None:
        """Write the report of a window, and those that wait. `exports`: the status of inputs that are flow exports."""
        if result.window in self._reported:
            self.reopened += 1
            if self.reopened == 1:
                name = window_name(result.window)
                self._say(f"late packets reopened {name}: the hub counts them, the rows here do not")
            return
        self._reported.append(result.window)
        drops = result.drops
        judge = judge_of(result.sketch.evidence)
        rows = make_rows(result.window, result.found, partial=result.partial, drops=drops, exports=exports, judge=judge)
        self._waiting.append(Report(rows=rows, window=result.window))
        self.flush()
        if len(self._waiting) > self._max_waiting:
            self._waiting.popleft()
            self.lost += 1

    def flush(self) -> None:
        """Write the reports that wait, the oldest first, until one fails."""
        while self._waiting:
            try:
                self._destinations.write(self._waiting[0])
            except (OSError, OutputError) as error:
                if not self._failed:
                    self._say(
                        Notice(
                            f"ROWS NOT WRITTEN: {error}; sketches are sent all the same, retrying with every window",
                            "rows-not-written",
                            WARNING,
                        )
                    )
                self._failed = True
                return
            self._waiting.popleft()
        if self._failed:
            self._say(
                Notice("rows are written again" + (f"; reports lost: {self.lost}" if self.lost else ""), "recovered")
            )
        self._failed = False

    def finish(self, on_error: Callable[[OutputError], None]) -> None:
        """Write the reports that wait, for the last time; tell `on_error` if some are lost."""
        self.flush()
        self.lost += len(self._waiting)
        self._waiting.clear()
        if self.lost:
            on_error(OutputError(f"reports that --output never got: {self.lost}"))

    def status(self) -> dict[str, int]:
        """Return how many reports wait, how many were lost, and how many windows were reopened after their report."""
        return {"waiting": len(self._waiting), "lost": self.lost, "reopened": self.reopened}

    def outputs(self) -> dict[str, dict[str, int]]:
        """Return the counters of all destinations, by their names."""
        return self._destinations.all_status()

    def destinations(self) -> list[Destination]:
        """Return all destinations."""
        return self._destinations.each()

    def reopen(self) -> None:
        """Open files again that another program may have moved away."""
        self._destinations.reopen()
