"""Sketches kept for later queries: other thresholds, longer windows, fewer sites; never who talked to whom.

    ARCHIVE/20261114/20261114T120000Z-5m-hub.cube     the union of all sites
    ARCHIVE/20261114/20261114T120000Z-5m-hub.json     the sketches in it, and the report that it was made for
    ARCHIVE/20261114/20261114T120000Z-5m-ams.cube     a site's own sketch, with --archive-sites

The names are those of `superhosts scan --save`; `superhosts hosts` and `explain` take the folder as it is. The archive
may outlive the hub's state: a window that the state has lost is restored from here. So nothing here is replaced by
less: a hub merges the archived union into the one that replaces it, and sets aside what cannot be merged.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from superhosts.core.fields import FLEET_NAME
from superhosts.core.files import (
    copy_durably,
    is_plain_folder,
    make_folder,
    os_errors,
    parse_json,
    sync_folder,
    write_json,
)
from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Window
from superhosts.core.text import counted, printable
from superhosts.core.times import compact_time
from superhosts.core.units import SECOND
from superhosts.detectors.stored import Stored
from superhosts.errors import MergeError, SketchFileError, UnreadableError
from superhosts.fleet.clock import THIS_MACHINE, Clock, TimeSource, age_of
from superhosts.fleet.link import Say
from superhosts.fleet.names import WINDOW_NAME, SketchId, parse_window_name
from superhosts.fleet.store import UNKNOWN, Issue, Quarantine
from superhosts.sketch.files import read_header
from superhosts.sketch.sketch import Sketch, load

# A sketch, or the note of a union; set aside (.NAME.aside.1) or being written (.NAME.123.tmp).
_OWN = re.compile(
    rf"\.?(?P<window>{WINDOW_NAME.pattern})-(?P<site>{FLEET_NAME.pattern})(?:\.cube|(?P<note>\.json))"
    r"(?:\.aside(?:\.[0-9]+)?|(?:\.[0-9-]+)?\.tmp)?"
)
LEFTOVER = 600.0  # age in seconds of a temporary file that no running program can be writing


class Expiring:
    """A folder from which the files of windows go that were written more than `keep` seconds ago; others never go."""

    def __init__(self, folder: Path, name: str, keep: float, say: Say) -> None:
        self.folder, self.keep = folder, keep
        self._name, self._say = name, say  # as the log calls it
        self._stuck_days: set[str] = set()  # days with files that could not be removed; these were logged

    def _own_files(self) -> Iterable[tuple[Path, Window]]:
        """Return all files that this program has made there, with their windows."""
        raise NotImplementedError

    def sweep(self, now: float) -> int:
        """Remove files that are too old at a given time, and what was left half written; return how many sketches.

        One call removes the sketches of at most one day: if the clock is wrong after all, an operator can still stop
        it. A day of which nothing can be removed is skipped.
        """
        days: dict[str, list[Path]] = {}
        for path, window in self._own_files():
            if path.suffix == ".tmp":
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime < now - LEFTOVER:
                        path.unlink()
            elif age_of(_written(path), window.end, now) > self.keep:
                days.setdefault(compact_time(window.start)[:8], []).append(path)
        for number, day in enumerate(sorted(days)):
            removed = self._remove(day, days[day])
            if not removed:
                continue
            gone, later = sum(path.suffix == ".cube" for path in removed), len(days) - number - 1
            rest = f"; those of {counted(later, 'more day')} go at the next looks" if later else ""
            text = f"{counted(gone, 'sketch', 'sketches')} of {day} removed"
            self._say(f"{self._name}: {text}: older than {self.keep / 86400:.3g} days{rest}")
            return gone
        return 0

    def _remove(self, day: str, files: list[Path]) -> list[Path]:
        """Remove files of one day, and its folder if that is empty; return what was removed, and log once what was not.

        A folder in place of a file is removed only if it is empty: its files may belong to somebody else.
        """
        removed: list[Path] = []
        stuck: list[str] = []
        for path in files:
            try:
                path.rmdir() if is_plain_folder(path) else path.unlink()
                removed.append(path)
            except FileNotFoundError:  # gone already
                pass
            except OSError as error:
                stuck.append(f"{printable(path)}: {error.strerror or error}")
        for folder in {path.parent for path in files} - {self.folder}:
            with contextlib.suppress(OSError):  # not empty yet
                folder.rmdir()
        if stuck and day not in self._stuck_days:
            self._stuck_days.add(day)
            text = f"{counted(len(stuck), 'file')} of {day}, like {stuck[0]}"
            self._say(Notice(f"{self._name}: NOT REMOVED: {text}", "not-removed", WARNING))
        return removed


SWEEP = 600.0  # seconds between two looks at a folder of --save


class SavedFolder(Expiring):
    """The sketches that a watch saves, and what it was writing when it was killed (`--keep`).

    No sites vouch for the clock. So one that is far off is believed only after some time, in which an operator can set
    it right.
    """

    def __init__(self, folder: Path, site: str, keep: float, say: Say, times: TimeSource = THIS_MACHINE) -> None:
        super().__init__(folder, f"--save {folder}", keep, say)
        self._times = times
        self._file = re.compile(rf"\.?({WINDOW_NAME.pattern})-{re.escape(site)}\.cube(?:\.[0-9]+-[0-9]+\.tmp)?")
        newest = max((_written(path) for path, _ in self._own_files()), default=0.0)
        self._clock = Clock(folder / ".clock", lambda: newest, say, times, patience=min(keep / 10, 86400.0))

    def run(self, stop: threading.Event) -> None:
        """Look for old files again and again."""
        while True:
            try:
                self.sweep_if_believed()
            except OSError as error:
                text = f"{self._name}: NOT REMOVED: {error.strerror or error}; retrying"
                self._say(Notice(text, "not-removed", WARNING))
            if stop.wait(min(SWEEP, self.keep)):
                return

    def sweep_if_believed(self) -> int:
        return self.sweep(self._times.wall()) if self._clock.is_believed({}) else 0

    def _own_files(self) -> Iterator[tuple[Path, Window]]:
        for path in self.folder.glob("*"):
            name = self._file.fullmatch(path.name)
            if name is None or path.name.startswith(".") != (path.suffix == ".tmp"):
                continue
            if (window := parse_window_name(name[1])) is not None:
                yield path, window


class Archive(Expiring):
    """A folder of sketches by day, each kept for `keep` seconds after it was written."""

    def __init__(
        self, folder: Path, *, keep: float, site: str, with_sites: bool, key: bytes | str | None, say: Say
    ) -> None:
        super().__init__(folder, "archive", keep, say)
        self._site, self._key, self.with_sites = site, key, with_sites
        self.quarantine = Quarantine(say)
        with os_errors(f"--archive {folder}: cannot be made"):
            make_folder(folder)
            if folder.stat().st_mode & 0o007:
                say(f"--archive {folder}: every user of this machine may read it; chmod 700 keeps them out")

    def union(self, window: str) -> Path:
        return self._place(window, self._site)

    def holds(self, window: str) -> bool:
        return os.path.lexists(self.union(window))

    def read_union(self, window: str) -> Stored | None:
        """Return the header of a window's union; None if there is none. A damaged union is set aside."""
        path = self.union(window)
        if not self.holds(window):
            return None
        try:
            if not path.is_file():
                raise SketchFileError("not a file", file=str(path))
            stored = read_header(path)
            if stored.window != parse_window_name(window):
                raise SketchFileError("contains another window than its name says", file=str(path))
        except (UnreadableError, OSError, MemoryError):
            raise
        except Exception as error:  # any damage, accidental or deliberate
            self.leave_out_union(window, error)
            return None
        return stored

    def leave_out_union(self, window: str, reason: object) -> None:
        """Set an unusable union aside, and keep a note that its window was reported."""
        if not os.path.lexists(self._note(window)):
            write_json(self._note(window), asdict(Issue(UNKNOWN)))
        self.quarantine.put(self.union(window), f"{reason}; the union of {window} is made without it", "left-out")

    def last_issue(self, window: str) -> Issue | None:
        """Return the last report of an archived window; its revision may be UNKNOWN."""
        note = self._note(window)
        try:
            issue = Issue.parse(parse_json(note), window)
        except FileNotFoundError:
            issue = None
        except ValueError as error:
            self.quarantine.put(note, error)
            issue = None
        return issue if issue is not None or not self.holds(window) else Issue(UNKNOWN)

    def add_union(self, path: Path, window: str, issue: Issue | None = None) -> None:
        """Store the union of a window, which contains the archived one, and the report that it was made for."""
        self._keep(path, self.union(window))
        if issue is not None:
            write_json(self._note(window), asdict(issue))

    def add_site(self, path: Path) -> None:
        """Store a site's own sketch. A second sketch of the same site and window is merged into the first."""
        sketch_id = SketchId.parse(path.name)
        own = f"{sketch_id.site}_site" if sketch_id.site == self._site else sketch_id.site  # the hub's is the union
        target = self._place(sketch_id.window_name, own)
        whole: Sketch | None = None
        try:
            if target.exists():
                whole = load(target, key=self._key)
        except (UnreadableError, OSError, MemoryError):
            raise
        except Exception as error:  # any damage, accidental or deliberate
            self.quarantine.put(target, error)
        if whole is None:
            self._keep(path, target)
            return
        try:
            whole.merge_file(path, key=self._key)
        except UnreadableError:
            raise
        except (MergeError, SketchFileError) as error:
            self._say(Notice(f"{path.name}: NOT ARCHIVED: {error}", "not-archived", WARNING))
        else:
            whole.save(target)
            sync_folder(target.parent)

    def senders(self, count: int, until: float) -> set[str]:
        """Return the sites of the last windows that ended by a given time, as far as known."""
        ending = f"-{self._site}.json"
        names = (path.name.removesuffix(ending) for path in self.folder.glob(f"*/*{ending}"))
        past = (name for name in names if (window := parse_window_name(name)) and window.end <= until * SECOND)
        last = sorted(past)[-count:]
        issues = [issue for name in last if (issue := self.last_issue(name)) is not None]
        return {SketchId.parse(name).site for issue in issues for name in issue.members}

    def newest(self) -> float:
        """Return when a sketch was last written here, in seconds since 1970; 0 if there is none."""
        return max((_written(path) for path in self.folder.glob("*/*.cube")), default=0.0)

    def _own_files(self) -> Iterator[tuple[Path, Window]]:
        """Yield all files that this archive has made (`_OWN`), with their windows."""
        for path in self.folder.glob("*/*"):
            name = _OWN.fullmatch(path.name)
            if name is None or path.parent.name != name["window"][:8] or (name["site"] != self._site and name["note"]):
                continue
            if (window := parse_window_name(name["window"])) is not None:
                yield path, window

    def _place(self, window: str, site: str) -> Path:
        return self.folder / window[:8] / f"{window}-{site}.cube"

    def _note(self, window: str) -> Path:
        return self.union(window).with_suffix(".json")

    def _keep(self, path: Path, target: Path) -> None:
        """Copy a file into the archive. A hard link would share any damage to the file."""
        make_folder(target.parent)
        copy_durably(path, target)


def _written(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:  # removed meanwhile
        return 0.0
