"""Fills a board with the windows of saved sketches, the newest first, in the background.

So the pages show the past after a restart, and of a folder alone. Each window is asked for by itself, and between two
the thread sleeps as long as the question took times `REST`: whoever counts packets on the same cores comes first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from superhosts.errors import SuperhostsError
from superhosts.pairs import Window
from superhosts.selection import Selection
from superhosts.views.board import MOST_POINTS, Board, shown_of
from superhosts.views.folder import Contents, Question, SketchFolder
from superhosts.views.naming import Annotate, unchanged

MOST_FILLED = 288  # windows, a day of five minutes each
REST = 3.0
AGAIN = 5.0  # seconds between two looks at a folder that grows


class Filling:
    """Asks the folder for windows that the board does not show."""

    def __init__(
        self,
        board: Board,
        folder: SketchFolder,
        selection: Callable[[], Selection],
        annotate: Annotate = unchanged,
    ) -> None:
        self.failed: dict[str, str] = {}  # windows that cannot be asked, and why
        self.left = 0  # windows that are still to be asked
        self._board, self._folder, self._selection, self._annotate = board, folder, selection, annotate
        self._asked: dict[Window, Contents] = {}  # what the folder had of each window when it was asked

    def start(self, stop: threading.Event, *, follow: bool, rest: float = REST) -> threading.Thread:
        """Fill in a thread of its own until `stop`; `follow`: look for new sketches again and again."""

        def run() -> None:
            while not stop.is_set():
                self.fill(stop, rest)
                if not follow or stop.wait(AGAIN):
                    return

        thread = threading.Thread(target=run, name="views", daemon=True)
        thread.start()
        return thread

    def fill(self, stop: threading.Event | None = None, rest: float = 0.0) -> None:
        """Ask for the newest windows that are not shown, and again for those whose files have changed."""
        shown = {each.window for each in self._board.windows()}
        there = self._folder.contents()
        newest = sorted(there, key=lambda window: (window.end, window.start), reverse=True)[:MOST_FILLED]
        waiting = [
            window
            for window in newest
            if self._asked.get(window) != there[window] and (window in self._asked or window not in shown)
        ]
        for number, window in enumerate(waiting):
            self.left = len(waiting) - number
            started = time.monotonic()
            self._asked[window] = there[window]
            try:
                question = Question(self._selection(), window.start, window.end, exactly=True)
                answer = self._folder.ask(question, patience=60.0)
            except (SuperhostsError, OSError, MemoryError) as error:
                self.failed[str(window.end)] = str(error)
                continue
            self.failed.pop(str(window.end), None)
            found = shown_of(replace(answer.report, rows=self._annotate(answer.report.rows)))
            self._board.put(found._replace(window=window, sites=answer.sites, points=found.points[:MOST_POINTS]))
            if stop is not None and stop.wait(rest * (time.monotonic() - started)):
                break
        self.left = 0
