"""What a hub keeps on disk: one folder per window, with the sites' sketches, their union, and a ledger.

    STATE/incoming/                             files in transit
    STATE/windows/20261114T120000Z-5m/
        20261114T120000Z-5m-ams-1a2b….cube      a site's sketch, as received
        merged.cube                             the union of the sketches that the ledger calls merged
        ledger.json                             the sketches received, and what was reported
        rows.jsonl                              the rows of the last report
    STATE/past/20261114T120000Z-5m.json         ledgers of windows whose sketches are gone

The union is computed from the sketches in the folder, so a sketch counts as merged once it is there, flushed to disk.
Everything else can be rebuilt after a crash. Unusable files (a damaged ledger, a folder or FIFO in place of a file) are
set aside, and the ledger is rebuilt from the folder. Methods take a window by its name, START-LENGTH.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from superhosts.core.fields import FLEET_NAME, Check, is_fleet_name, refuse, sequence, table, text, whole
from superhosts.core.files import (
    copy_durably,
    is_plain,
    is_plain_folder,
    make_folder,
    os_errors,
    parse_json,
    read_lines,
    rename_durably,
    set_aside,
    sync_folder,
    write_json,
)
from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import printable
from superhosts.errors import OutputError
from superhosts.fleet.clock import THIS_MACHINE, TimeSource, age_of
from superhosts.fleet.link import MAX_SAID, MERGED, REFUSED, Receipt, Say
from superhosts.fleet.names import SketchId, parse_window_name, site_named

UNKNOWN = 0  # the revision of a report whose number is lost
LATEST = 1e12  # seconds since 1970, later than any clock shows
MAX_REVISIONS = 1 << 53  # JSON readers may round larger numbers
NAMED = 20  # how many of these files the status names
UNION = "merged.cube"
LEDGER = "ledger.json"
ROWS = "rows.jsonl"  # the rows of a window's last report
MAX_REFUSED = 1000  # refused sketches to remember: no site can fill the memory with them
MAX_FORGOTTEN = 1000  # files of past windows to remove in one call
_SITE, _TEXT = text(FLEET_NAME.pattern, "a site"), text("(?s:.*)", "text")


@dataclass
class Issue:
    """One report of a window: the sketches in it, and the sites that are missing.

    A window that slides is made of panes, so it has no members of its own: the other fields are for it.
    """

    revision: int = 1
    members: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    content: str = ""  # a digest of the panes and their revisions
    sites: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # site → reason
    left_out: int = 0

    @classmethod
    def parse(cls, content: Any, window: str) -> Issue | None:
        """Validate a stored report; None if there was none. Raises ValueError if it is invalid."""
        if content is None:
            return None
        lists = {"members": _members(window), "missing": sequence(_SITE), "sites": sequence(_SITE)}
        numbers = {"revision": whole(UNKNOWN, MAX_REVISIONS), "left_out": whole(0, MAX_REVISIONS)}
        return cls(**_checked(content, {**lists, **numbers, "content": _TEXT, "refused": table(_TEXT)}))


@dataclass
class Ledger:
    """What a hub knows about one window. Times are in seconds since 1970, by this machine's clock."""

    first: float = 0.0  # when the first sketch arrived
    # When the first sketch arrived that is in no report, or the last report was made if that is later, or the window
    # was restored from the archive.
    unreported: float = 0.0
    known: list[str] = field(default_factory=list)  # all sketches ever accepted
    merged: list[str] = field(default_factory=list)  # sketches in the union on disk
    issued: Issue | None = None  # the last report that all destinations have
    issuing: Issue | None = None  # a report in progress: after a crash the same report is made again
    held: list[str] = field(default_factory=list)  # sites in the union whose sketch names are lost

    @classmethod
    def parse(cls, content: Any, window: str) -> Ledger:
        """Validate a stored ledger, written by this release or a newer one. Raises ValueError if it is invalid."""
        issues = dict.fromkeys(("issued", "issuing"), lambda value, place: Issue.parse(value, window))
        times = dict.fromkeys(("first", "unreported"), _time)
        names = {**dict.fromkeys(("known", "merged"), _members(window)), "held": sequence(_SITE)}
        return cls(**_checked(content, {**times, **names, **issues}))

    @property
    def is_due(self) -> bool:
        """Return True if the window has something that was not reported."""
        return self.issuing is not None or set(self.known) != set(self.issued.members if self.issued else ())

    @property
    def sites_to_report(self) -> set[str]:
        reported = set(self.issued.members if self.issued else ())
        return {SketchId.parse(name).site for name in list(self.known) if name not in reported}

    @property
    def names_lost(self) -> bool:
        """Return True if the window was reported, and the list of sketches in that report is lost."""
        return self.issued is not None and not self.issued.members

    @property
    def next_revision(self) -> int:
        """The number of the next report, always higher than all before."""
        return revision_after(self.issued.revision if self.issued else None)

    def adopt(self, issue: Issue, sites: Iterable[str] = ()) -> None:
        """Add what another source knows about the last report; `sites` are the sites in the union."""
        self.known += [name for name in issue.members if name not in self.known]
        own = self.issued or Issue(UNKNOWN)
        if issue.revision > own.revision or not own.members:
            self.issued = Issue(max(issue.revision, own.revision), list(issue.members), list(issue.missing))
        self.held = sorted({*self.held, *filter(is_fleet_name, sites)})  # one also in `known` does no harm

    def change(self, write: Callable[[], None], **changes: Any) -> None:
        """Change fields and write them; a failed write undoes the change, since only what is on disk counts."""
        before = {name: getattr(self, name) for name in changes}
        vars(self).update(changes)
        try:
            write()
        except OSError:
            vars(self).update(before)
            raise

    @property
    def sites(self) -> set[str]:
        return {SketchId.parse(name).site for name in list(self.known)} | set(self.held)


def revision_after(last: int | None) -> int:
    """Return the number of the report after report `last`; None: there was none.

    If the last number is lost, this is the time in seconds: no window has had a report every second.
    """
    if last is None:
        return 1
    return last + 1 if last != UNKNOWN else max(2, int(time.time()))


def _checked(content: Any, checks: dict[str, Check]) -> dict[str, Any]:
    """Return the known fields of a stored object. Raises ValueError if one is invalid."""
    if not isinstance(content, dict):
        raise ValueError("not what this program writes")
    return {name: check(content[name], name) for name, check in checks.items() if name in content}


def _time(value: Any, place: str) -> float:
    if type(value) not in (int, float) or not 0 <= value < LATEST:
        raise refuse(value, place, "a time")
    return float(value)


def _members(window: str) -> Check:
    def check(value: Any, place: str) -> Any:
        if not isinstance(value, str) or not _is_named_for(value, window):
            raise refuse(value, place, f"a sketch of {window}")
        return value

    return sequence(check)


def _is_named_for(name: str, window: str) -> bool:
    return name.startswith(f"{window}-") and site_named(name) is not None


class Quarantine:
    """Sets unusable files aside: renamed in their folder, named in the log and counted in the status.

    Nothing is deleted, so that an operator can inspect it, and no damaged or hostile file stops the hub. Safe to use
    from several threads.
    """

    def __init__(self, say: Say) -> None:
        self.count = 0
        self._say = say
        self._lock = threading.Lock()
        self._last: deque[str] = deque(maxlen=NAMED)  # paths

    @property
    def last(self) -> list[str]:
        with self._lock:
            return list(self._last)

    def put(self, path: Path, reason: object, event: str = "set-aside") -> None:
        """Set a file or folder aside and log the reason. Raises OSError if it cannot be renamed."""
        try:
            where = f"kept as {set_aside(path).name}"
        except FileNotFoundError:
            where = "it is gone"
        with self._lock:
            self.count += 1
            self._last.append(str(path))
        why = str(reason).removeprefix(f"{path}: ")  # an error about a file repeats its path
        phrase = event.replace("-", " ").upper()
        self._say(Notice(f"{phrase}: {path}: {printable(why, MAX_SAID)} ({where})", event, WARNING))


class WindowStore:
    """The windows of a hub. Safe to use from several threads."""

    def __init__(self, state: Path, say: Say = lambda text: None, times: TimeSource = THIS_MACHINE) -> None:
        self.state, self.times = state, times
        self.incoming, self._windows, self._past = state / "incoming", state / "windows", state / "past"
        self.lock = threading.RLock()
        self.quarantine = Quarantine(say)
        self.fresh: set[str] = set()  # sketches whose checksums this process has verified
        self.heard: dict[str, int] = {}  # site → end of the window of its latest sketch since the start
        self._refused: dict[str, str] = {}  # name → reason; not stored, since a hub with other options may accept them
        with os_errors(f"{state}: cannot be made"):
            for folder in (self.incoming, self._windows, self._past):
                make_folder(folder)
        try:
            self._empty_incoming()
            self._ledgers = {window: self._recover(window) for window in self._windows_on_disk()}
        except OSError as error:
            raise OutputError(f"{error.filename or state}: cannot be used: {error.strerror or error}") from None

    def _empty_incoming(self) -> None:
        """Remove files in transit: they have no receipt, so they will be sent again."""
        for left in list(self.incoming.iterdir()):
            if left.name.startswith("."):  # set aside earlier
                continue
            if left.is_dir() and not left.is_symlink():
                self.quarantine.put(left, "a folder where sketches arrive")
            else:
                left.unlink(missing_ok=True)

    def _windows_on_disk(self) -> list[str]:
        """Return the windows that have a folder; remove what a killed hub has left of others."""
        for folder in list(self._windows.iterdir()):
            if folder.name.startswith(".") and parse_window_name(folder.name[1:]):  # being retired
                shutil.rmtree(folder, ignore_errors=True)
            elif not parse_window_name(folder.name):
                continue  # not ours
            elif not is_plain_folder(folder):
                self.quarantine.put(folder, "named like a window, and not a folder")
            elif all(path.name.startswith(".") and path.suffix == ".tmp" for path in folder.iterdir()):
                shutil.rmtree(folder, ignore_errors=True)  # neither a sketch nor a union has reached it
        return sorted(path.name for path in self._windows.iterdir() if parse_window_name(path.name))

    def _recover(self, window: str) -> Ledger:
        """Read or rebuild a ledger, and add sketches that are in the folder only: the hub was killed in between."""
        folder = self.folder(window)
        found, damaged = self.read_ledger(folder / LEDGER, window, f"; made again from what lies in {folder}")
        before = self._past_ledger(window) if found is None else None  # the window was being restored from the archive
        reported = found is None and os.path.lexists(folder / UNION)
        ledger = found or before or Ledger()
        if reported:
            revisions = [row.get("revision") for row in self.rows(window) if isinstance(row, dict)]
            ledger.adopt(Issue(max((each for each in revisions if type(each) is int and each > 0), default=UNKNOWN)))
        for path in folder.glob("*.cube"):
            if path.name != UNION and not path.name.startswith(".") and not _is_member(path, window):
                self.quarantine.put(path, "not a sketch of this window")
        for path in self.sketches(window):
            if path.name not in ledger.known:
                self._enter(ledger, path.name)
        ledger.unreported = ledger.unreported or self.times.wall()  # without a time it would never be retired
        if damaged or before is not None or reported:
            write_json(folder / LEDGER, asdict(ledger))
            (self._past / f"{window}.json").unlink(missing_ok=True)  # its content is in the new ledger
        return ledger

    def read_ledger(self, path: Path, window: str, way: str = "") -> tuple[Ledger | None, bool]:
        """Return a ledger, None if it is missing or damaged, and whether it is damaged: then it is set aside."""
        try:
            return Ledger.parse(parse_json(path), window), False
        except FileNotFoundError:
            return None, False
        except ValueError as error:
            self.quarantine.put(path, f"{error}{way}")
            return None, True

    def rows(self, window: str) -> list[Any]:
        """Return the rows of a window's last report, up to the first damaged line."""
        path, rows = self.folder(window) / ROWS, list[Any]()
        try:
            rows.extend(read_lines(path))
        except ValueError as error:
            self.quarantine.put(path, error)
        return rows

    def windows(self) -> list[str]:
        with self.lock:
            return sorted(self._ledgers)

    def ledger(self, window: str) -> Ledger:
        with self.lock:
            return self._ledgers[window]

    def folder(self, window: str) -> Path:
        return self._windows / window

    def sketches(self, window: str) -> list[Path]:
        return sorted(path for path in self.folder(window).glob("*-*-*.cube") if _is_member(path, window))

    def sketch(self, name: str) -> Path | None:
        """Return where a site's sketch lies; None if it was removed, or is not a file."""
        path = self.folder(SketchId.parse(name).window_name) / name
        return path if is_plain(path) else None

    def receipt(self, name: str) -> Receipt | None:
        window = SketchId.parse(name).window_name
        with self.lock:
            if name in self._refused:
                return Receipt(name, REFUSED, self._refused[name])
            ledger = self._ledgers.get(window) or self._past_ledger(window)
        return Receipt(name, MERGED) if ledger is not None and name in ledger.known else None

    def refusals(self, window: str) -> dict[str, str]:
        with self.lock:
            sketch_ids = [(SketchId.parse(name), reason) for name, reason in self._refused.items()]
        return {sketch_id.site: reason for sketch_id, reason in sketch_ids if sketch_id.window_name == window}

    def count_of(self, sketch_id: SketchId) -> int:
        with self.lock:
            known = list(self._ledgers[sketch_id.window_name].known) if sketch_id.window_name in self._ledgers else []
        return sum(SketchId.parse(name).site == sketch_id.site for name in known)

    def has(self, window: str) -> bool:
        with self.lock:
            return window in self._ledgers

    def is_past(self, window: str) -> bool:
        return window not in self._ledgers and os.path.lexists(self._past / f"{window}.json")

    def add(self, path: Path, name: str) -> None:
        """Move a checked sketch into its window's folder; when this returns, it counts as merged."""
        sketch_id = SketchId.parse(name)
        window = sketch_id.window_name
        with self.lock:
            if window not in self._ledgers:
                make_folder(self.folder(window))
            rename_durably(path, self.folder(window) / name)
            ledger = self._ledgers.setdefault(window, Ledger())  # not earlier: a window exists from its first sketch on
            self.fresh.add(name)
            if name not in ledger.known:
                self._enter(ledger, name)
            self.heard[sketch_id.site] = sketch_id.window.end
            self.write(window)

    def _enter(self, ledger: Ledger, name: str) -> None:
        now = self.times.wall()
        if not ledger.known:
            ledger.first = now
        if set(ledger.known) == set(ledger.issued.members if ledger.issued else ()):
            ledger.unreported = now
        ledger.known.append(name)

    def refuse(self, name: str, reason: str) -> None:
        with self.lock:
            self._refused[name] = reason
            while len(self._refused) > MAX_REFUSED:
                del self._refused[next(iter(self._refused))]

    def reopen(self, window: str, union: Path) -> None:
        """Restore a window, with its union from the archive.

        If this store has lost the ledger, the hub learns from the archive what was reported (`Ledger.adopt`).
        """
        with self.lock:
            if window in self._ledgers:
                return  # restored already
            ledger = self._past_ledger(window) or Ledger(first=self.times.wall(), issued=Issue(UNKNOWN))
            folder = self.folder(window)
            make_folder(folder)
            copy_durably(union.resolve(), folder / UNION)
            ledger.unreported = self.times.wall()
            self._ledgers[window] = ledger
            self.write(window)
            (self._past / f"{window}.json").unlink(missing_ok=True)

    def drop_sketches(self, window: str) -> None:
        with self.lock:
            merged = set(self.ledger(window).merged)
            for path in self.sketches(window) if is_plain(self.folder(window) / UNION) else ():
                if path.name in merged:
                    path.unlink(missing_ok=True)

    def retire(self, window: str) -> None:
        """Keep only the ledger of a window, and nothing if it had no sketch: its sketches may still come.

        The folder is renamed before it is removed: half of a window must never pass for the whole.
        """
        with self.lock:
            ledger = self._ledgers[window]
            if ledger.known or ledger.issued:
                write_json(self._past / f"{window}.json", asdict(ledger))
            going = self.folder(f".{window}")
            shutil.rmtree(going, ignore_errors=True)
            self.folder(window).rename(going)
            del self._ledgers[window]
            sync_folder(self._windows)
            shutil.rmtree(going, ignore_errors=True)

    def forget_past(self, age: float) -> None:
        """Remove ledgers of past windows that are older than `age` seconds, a bounded number at a time."""
        remove_old(self._past, age, self.times.wall())

    def write(self, window: str) -> None:
        with self.lock:
            write_json(self.folder(window) / LEDGER, asdict(self._ledgers[window]))

    def newest(self) -> float:
        """Return when a ledger was last written, in seconds since 1970; 0 if there is none."""
        times = [0.0]
        for path in (*self._windows.glob(f"*/{LEDGER}"), *self._past.glob("*.json")):
            with contextlib.suppress(OSError):
                times.append(path.lstat().st_mtime)
        return max(times)

    def _past_ledger(self, window: str) -> Ledger | None:
        """Return the ledger of a retired window. A damaged one is replaced: the window remains retired."""
        path = self._past / f"{window}.json"
        found, damaged = self.read_ledger(path, window)
        if not damaged:
            return found
        ledger = Ledger(first=self.times.wall(), unreported=self.times.wall(), issued=Issue(UNKNOWN))
        write_json(path, asdict(ledger))
        return ledger


def remove_old(folder: Path, age: float, now: float) -> list[str]:
    """Remove what a folder has of windows older than `age` seconds, a bounded number at a time; return their names."""
    gone: list[str] = []
    for path in folder.glob("*.json*"):
        window = parse_window_name(path.stem)
        with contextlib.suppress(OSError):  # restored meanwhile, or not a file
            if window is not None and age_of(path.lstat().st_mtime, window.end, now) > age:
                path.unlink()
                gone.append(path.stem)
        if len(gone) == MAX_FORGOTTEN:
            break
    return gone


def _is_member(path: Path, window: str) -> bool:
    """Return True if a plain file has the name of a site's sketch of this window."""
    return _is_named_for(path.name, window) and is_plain(path)
