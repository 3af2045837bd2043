"""What a hub has reported of windows that slide. Their panes are in the store, like windows that do not slide.

    STATE/sliding/20261114T120000Z-5m.json      the last report, and one in progress
    STATE/sliding/20261114T120000Z-5m.jsonl     the rows of the last report that was made

The rows are on disk before the report counts as in progress. So a hub that is killed meanwhile writes the same rows
again, even if some pane has changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from superhosts.core.files import make_folder, parse_json, read_lines, write_json, write_lines
from superhosts.errors import OutputError
from superhosts.fleet.aside import Asides
from superhosts.fleet.clock import TimeSource, age_of
from superhosts.fleet.ledger import MAX_REVISIONS, UNKNOWN
from superhosts.fleet.parcels import parse_window_name

FOLDER = "sliding"
MAX_FORGOTTEN = 1000  # files to remove in one call


@dataclass
class WindowIssue:
    """One report of a window: what it was made of, and which sites took part."""

    revision: int = 1
    content: str = ""  # a digest of the panes and their revisions
    sites: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    left_out: int = 0

    @classmethod
    def parse(cls, found: Any) -> WindowIssue | None:
        """Validate a stored report; None if there was none. Raises ValueError if it is invalid."""
        if found is None:
            return None
        if not isinstance(found, dict):
            raise ValueError("not a report")
        issue = cls(**{name: found.get(name, value) for name, value in asdict(cls()).items()})
        numbers = all(type(number) is int for number in (issue.revision, issue.left_out))
        texts = [issue.content]
        for names in (issue.sites, issue.missing):
            texts += names if isinstance(names, list) else [None]
        refused = issue.refused.items() if isinstance(issue.refused, dict) else [(None, None)]
        texts += [text for pair in refused for text in pair]
        if not numbers or not UNKNOWN <= issue.revision < MAX_REVISIONS or issue.left_out < 0:
            raise ValueError("revision or left_out is not a number of reports or hosts")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("content, sites, missing or refused is not text")
        return issue


@dataclass
class WindowLedger:
    """What was reported of one window."""

    issued: WindowIssue | None = None  # the last report that all destinations have
    issuing: WindowIssue | None = None  # a report in progress, whose rows are on disk


class WindowLedgers:
    """The reports of windows that slide, each by its window's name."""

    def __init__(self, state: Path, asides: Asides, times: TimeSource) -> None:
        self._folder, self._asides, self._times = state / FOLDER, asides, times
        self._read: dict[str, WindowLedger] = {}
        try:
            make_folder(self._folder)
            for left in self._folder.glob(".*.tmp"):  # of a hub that was killed
                left.unlink()
        except OSError as error:
            raise OutputError(f"{self._folder}: cannot be made: {error.strerror}") from None

    def get(self, window: str) -> WindowLedger:
        """Return what was reported of a window. If that is damaged, the number of the last report is unknown."""
        if window not in self._read:
            self._read[window] = self._parse(window)
        return self._read[window]

    def _parse(self, window: str) -> WindowLedger:
        path = self._path(window)
        try:
            found = parse_json(path)
            if not isinstance(found, dict):
                raise ValueError("not what was reported of a window")
            return WindowLedger(WindowIssue.parse(found.get("issued")), WindowIssue.parse(found.get("issuing")))
        except FileNotFoundError:
            return WindowLedger()
        except ValueError as error:
            self._asides.put(path, f"{error}; the window is reported again")
            return WindowLedger(WindowIssue(UNKNOWN))

    def write(self, window: str) -> None:
        """Write to disk what was reported of a window."""
        write_json(self._path(window), asdict(self.get(window)))

    def rows(self, window: str) -> list[Any] | None:
        """Return the rows of a window's last report; None if they are damaged."""
        path = self._path(window, ".jsonl")
        try:
            return list(read_lines(path))
        except ValueError as error:
            self.leave_out_rows(window, error)
            return None

    def write_rows(self, window: str, rows: Iterable[Any]) -> None:
        """Write the rows of a window to disk."""
        write_lines(self._path(window, ".jsonl"), rows)

    def leave_out_rows(self, window: str, reason: object) -> None:
        """Set rows aside that are not those of a report."""
        self._asides.put(self._path(window, ".jsonl"), reason)

    def release(self, window: str) -> None:
        """Remove the rows of a window that cannot change any more, and free its memory. What was reported stays."""
        self._path(window, ".jsonl").unlink(missing_ok=True)
        self._read.pop(window, None)

    def forget(self, age: float) -> None:
        """Remove what is older than `age` seconds, a bounded number of files at a time."""
        gone = 0
        for path in self._folder.glob("*.json*"):
            window = parse_window_name(path.stem)
            with contextlib.suppress(OSError):  # not a file
                if window is not None and age_of(path.lstat().st_mtime, window.end, self._times.wall()) > age:
                    path.unlink()
                    self._read.pop(path.stem, None)
                    gone += 1
            if gone == MAX_FORGOTTEN:
                return

    def _path(self, window: str, ending: str = ".json") -> Path:
        return self._folder / f"{window}{ending}"
