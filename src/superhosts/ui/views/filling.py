"""Fills a board with the windows of saved sketches, the newest first, in the background.

So the pages show the past after a restart, and of a folder alone. Each window is asked for by itself, and between two
the thread sleeps as long as the question took times `REST`: whoever counts packets on the same cores comes first.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Part, Window
from superhosts.core.results import Selection
from superhosts.core.text import counted
from superhosts.errors import SuperhostsError
from superhosts.ui.metrics.windows import PartState
from superhosts.ui.views.board import Board, shown_of
from superhosts.ui.views.folder import BusyError, Contents, Question, SketchFolder
from superhosts.ui.views.naming import Annotate, unchanged

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
        self.parts: Mapping[Part, PartState] = {}  # how full the sketch of the newest window is
        self._board, self._folder, self._selection, self._annotate = board, folder, selection, annotate
        self._left = 0  # windows that are still to be asked
        self._asked: dict[Window, Contents] = {}  # what the folder had of each window when it was asked
        self._failed: dict[Window, str] = {}  # windows that cannot be asked, and why

    @property
    def notes(self) -> list[str]:
        """What is not shown yet, and what cannot be shown."""
        left = counted(self._left, "window of the folder is", "windows of the folder are")
        return ([f"{left} still to be read."] if self._left else []) + self.failures()

    def failures(self) -> list[str]:
        """Return what cannot be shown, and why."""
        found = []
        failed = dict(self._failed)  # another thread adds to it
        if failed:
            found.append(f"{counted(len(failed), 'window')} cannot be shown: {failed[max(failed)].rstrip('.')}.")
        if damaged := self._folder.damaged:
            found.append(f"{counted(len(damaged), 'file is no sketch', 'files are no sketches')}: {damaged[0]}.")
        if untimed := self._folder.untimed:
            found.append(f"{counted(len(untimed), 'sketch has', 'sketches have')} no time: {untimed[0]}.")
        return found

    def start(
        self, stop: threading.Event, say: Callable[[str], None], *, follow: bool, rest: float = REST
    ) -> threading.Thread:
        """Fill in a thread of its own until `stop`; `follow`: look for new sketches again and again.

        What cannot be shown is said once, until it changes.
        """

        def run() -> None:
            said: list[str] = []
            while not stop.is_set():
                try:
                    all_asked = self.fill(stop, rest)
                except Exception as error:  # Nobody sees what ends a thread.
                    say(
                        Notice(
                            f"windows of {self._folder.folder} cannot be shown: {error!r}: please report this",
                            "trouble",
                            WARNING,
                        )
                    )
                    return
                if (failures := self.failures()) != said:
                    self._board.touch()
                    for text in failures:
                        say(text)
                    said = failures
                if (all_asked and not follow) or stop.wait(AGAIN):
                    return

        thread = threading.Thread(target=run, name="views", daemon=True)
        thread.start()
        return thread

    def fill(self, stop: threading.Event | None = None, rest: float = 0.0) -> bool:
        """Ask for the newest windows that are not shown, and again for those whose files have changed.

        Return False if some must be asked again, because others had the turn, or the memory.
        """
        shown = {each.window for each in self._board.windows()}
        there = self._folder.contents()
        newest = sorted(there, key=lambda window: (window.end, window.start), reverse=True)[:MOST_FILLED]
        self._asked = {window: self._asked[window] for window in newest if window in self._asked}
        self._failed = {window: self._failed[window] for window in newest if window in self._failed}
        waiting = [
            window
            for window in newest
            if self._asked.get(window) != there[window] and (window in self._asked or window not in shown)
        ]
        try:
            for number, window in enumerate(waiting, 1):
                started = time.monotonic()
                self._left = len(waiting) - number
                if self._ask(window, is_newest=window == newest[0]):
                    self._asked[window] = there[window]
                if stop is not None and stop.wait(rest * (time.monotonic() - started)):
                    break
        finally:
            self._left = 0
        return all(self._asked.get(window) == there[window] for window in waiting)

    def _ask(self, window: Window, *, is_newest: bool) -> bool:
        """Ask for one window, and show it. Return False if it must be asked again."""
        try:
            question = Question(self._selection(), window.start, window.end, exactly=True)
            answer = self._folder.ask(question, patience=60.0, longest=math.inf)
        except (SuperhostsError, OSError, MemoryError) as error:
            self._failed[window] = str(error) or "too little memory"
            return not isinstance(error, BusyError | MemoryError)
        self._failed.pop(window, None)
        if is_newest:
            self.parts = answer.parts
        found = shown_of(replace(answer.report, rows=self._annotate(answer.report.rows)))
        self._board.put(found._replace(window=window, sites=answer.sites))
        return True
