"""What a hub keeps on disk: one folder per window, with the sites' sketches and their union, and one database.

    STATE/hub.sqlite                            of each window the sketches received, what was reported, and its rows
    STATE/incoming/                             files in transit
    STATE/windows/20261114T120000Z-5m/
        20261114T120000Z-5m-ams-1a2b….cube      a site's sketch, as received
        merged.cube                             the union of the sketches that the ledger calls merged

The union is computed from the sketches in the folder, so a sketch counts as merged once it is there, flushed to disk.
Everything else can be rebuilt after a crash. Unusable files (a damaged database, a folder or FIFO in place of a file)
are set aside, and ledgers are rebuilt from the folders. Methods take a window by its name, START-LENGTH.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from superhosts.core.database import Database, Format
from superhosts.core.fields import FLEET_NAME, Check, is_fleet_name, record, refuse, sequence, table, text, whole
from superhosts.core.files import (
    copy_durably,
    is_plain,
    is_plain_folder,
    make_folder,
    open_plain,
    os_errors,
    parse_json,
    remove_durably,
    remove_or_set_aside,
    rename_durably,
    set_aside,
    sync_folder,
)
from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import printable
from superhosts.core.units import SECOND
from superhosts.errors import InputError, OutputError
from superhosts.fleet.clock import RECORD, THIS_MACHINE, TimeSource
from superhosts.fleet.link import MAX_SAID, MERGED, REFUSED, Receipt, Say
from superhosts.fleet.names import SketchId, parse_window_name, site_named

UNKNOWN = 0  # the revision of a report whose number is lost
LATEST = 1e12  # seconds since 1970, later than any clock shows
MAX_REVISIONS = 1 << 53  # JSON readers may round larger numbers
NAMED = 20  # how many of these files the status names
UNION = "merged.cube"
DATABASE = "hub.sqlite"
MAX_REFUSED = 1000  # refused sketches to remember: no site can fill the memory with them
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
        checks = {**lists, **numbers, "content": _TEXT, "refused": table(_TEXT)}
        return cls(**record({}, checks, others=True)(content, ""))


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
        return cls(**record({}, {**times, **names, **issues}, others=True)(content, ""))

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


# Kinds of ledgers: of windows that have a folder, of those that were retired, and of windows that are made of panes.
# An open window without its folder counts as new: somebody has taken it away.
OPEN, PAST, SLIDING = "open", "past", "sliding"
FORMAT = Format(
    "the state of a hub",
    1,
    "ledgers",
    """
    CREATE TABLE IF NOT EXISTS ledgers (kind TEXT, window TEXT, ended REAL NOT NULL, written REAL NOT NULL,
        content BLOB NOT NULL, PRIMARY KEY (kind, window)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS rows (kind TEXT, window TEXT, content BLOB NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (kind, window)) WITHOUT ROWID;
    CREATE TRIGGER IF NOT EXISTS forget_rows AFTER DELETE ON ledgers BEGIN
        DELETE FROM rows WHERE kind = old.kind AND window = old.window;
    END;
    """,
)
# Makes open windows past of which the folders are gone: the parameter has the others, as a list of JSON.
RETIRED = (
    f"UPDATE OR REPLACE ledgers SET kind = '{PAST}'"
    f" WHERE kind = '{OPEN}' AND window NOT IN (SELECT value FROM json_each(?))"
)


class Ledgers:
    """The ledgers of all windows, and the rows of their last reports, in one database. Errors of the disk are OSErrors.

    The database also has, in seconds since 1970, when a window `ended` and when its ledger was `written`.
    """

    def __init__(self, state: Path, quarantine: Quarantine, say: Say, times: TimeSource) -> None:
        self._say, self._times = say, times
        damaged: list[Path] = []

        def put_aside(path: Path, why: str) -> None:
            quarantine.put(path, f"{why}; made again from what lies in the folders")
            damaged.append(path)

        self._database = Database.opened(state / DATABASE, FORMAT, put_aside)
        moved = self._take_over(state, quarantine)
        is_gone = self._database.is_new and not (damaged or moved) and os.path.lexists(state / RECORD)
        if is_gone:
            text = f"{state / DATABASE}: it is missing or empty; made again from what lies in the folders"
            say(Notice(f"LEDGERS LOST: {text}", "ledgers-lost", WARNING))
        lost = times.wall() if damaged or is_gone else self._database.state().get("lost")
        self._lost = lost if isinstance(lost, int | float) else 0.0  # when an earlier database was lost
        with suppress(OutputError):  # The disk is full, so the next start finds an empty database, too.
            self._database.save(**({"lost": lost} if damaged or is_gone else {}))

    def close(self) -> None:
        self._database.close()

    def begin(self, window: str) -> Ledger:
        """Return the ledger of a window that has none; after a loss of the database, it may have been reported."""
        return Ledger(issued=Issue(UNKNOWN) if _end(window) < self._lost else None)

    def read(self, window: str, kind: str = OPEN) -> Ledger | None:
        """Return a stored ledger; if it is damaged, one of a window of which the number of the report is unknown."""
        with self._reading() as database:
            asked = "SELECT CAST(content AS BLOB) FROM ledgers WHERE kind = ? AND window = ?"
            found = database.execute(asked, (kind, window)).fetchone()
        try:
            return None if found is None else Ledger.parse(json.loads(found[0]), window)
        except (ValueError, RecursionError) as error:
            why = printable(error, MAX_SAID)
            self._say(Notice(f"DAMAGED: the ledger of {window}: {why}; it is made again", "damaged", WARNING))
        ledger = _unknown(self._times.wall())
        self.write(window, ledger, kind=kind)
        return ledger

    def rows(self, window: str, kind: str = OPEN) -> list[Any] | None:
        """Return the rows of a window's last report; None if there are none, or they are damaged."""
        with self._reading() as database:
            asked = "SELECT CAST(content AS BLOB), checksum FROM rows WHERE kind = ? AND window = ?"
            found = database.execute(asked, (kind, window)).fetchone()
        if found is None:
            return None
        content, checksum = found
        if zlib.crc32(content) != checksum:
            self._say(Notice(f"DAMAGED: the rows of the last report of {window}; left out", "damaged", WARNING))
            return None
        return [json.loads(line) for line in content.splitlines()]

    def write(self, window: str, ledger: Ledger, rows: bytes | None = None, kind: str = OPEN) -> None:
        """Write a ledger, and the rows (`as_lines`) of its report if they are given. An empty ledger is removed."""
        with self._transaction() as database:
            _write(database, kind, window, self._times.wall(), ledger, rows)

    def past(self) -> set[str]:
        with self._reading() as database:
            found = database.execute("SELECT CAST(window AS BLOB) FROM ledgers WHERE kind = ?", (PAST,))
            return {window.decode(errors="replace") for (window,) in found}

    def retire(self, window: str) -> None:
        """Make an open window past, and drop its rows."""
        with self._transaction() as database:
            database.execute("DELETE FROM rows WHERE kind = ? AND window = ?", (OPEN, window))
            changed = "UPDATE OR REPLACE ledgers SET kind = ?, written = ? WHERE kind = ? AND window = ?"
            database.execute(changed, (PAST, self._times.wall(), OPEN, window))

    def forget(self, age: float) -> None:
        """Remove ledgers older than `age` seconds, as `age_of` tells."""
        now = self._times.wall()
        with self._transaction() as database:
            old = "DELETE FROM ledgers WHERE max(written, iif(ended <= ?, ended, 0)) < ?"
            database.execute(old, (now, now - age))

    def newest(self) -> float:
        """Return when a ledger was last written, in seconds since 1970; 0 if there is none."""
        with self._reading() as database:
            asked = "SELECT ifnull(max(written), 0) FROM ledgers WHERE written BETWEEN 0 AND ?"
            return float(database.execute(asked, (LATEST,)).fetchone()[0])

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        return _with_os_errors(self._database.reading())

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return _with_os_errors(self._database.transaction())

    def _take_over(self, state: Path, quarantine: Quarantine) -> int:
        """Read the ledgers and rows that release 0.1 has kept in files, and remove these; return how many windows."""
        found = [(PAST, path.stem, path, path.with_suffix(".jsonl")) for path in state.glob("past/*.json")]
        found += [(SLIDING, path.stem, path, path.with_suffix(".jsonl")) for path in state.glob("sliding/*.json")]
        for path in state.glob("windows/*/ledger.json"):
            found.append((OPEN, path.parent.name, path, path.with_name("rows.jsonl")))
        found = [each for each in found if parse_window_name(each[1])]
        if not found:
            return 0
        with self._transaction() as database:
            for kind, window, path, rows in found:
                written = path.lstat().st_mtime
                try:
                    ledger = Ledger.parse(parse_json(path), window)
                except ValueError as error:
                    quarantine.put(path, error)
                    ledger = _unknown(written)
                lines = None
                with suppress(OSError, ValueError), open_plain(rows) as file:
                    lines = as_lines(map(json.loads, file))
                _write(database, kind, window, written, ledger, lines)
        remove_durably(*(path for _, _, path, _ in found))
        for *_, rows in found:
            remove_or_set_aside(rows)
        for folder in ("past", "sliding"):
            with suppress(OSError):  # not there, or not empty
                (state / folder).rmdir()
        return len(found)


@contextmanager
def _with_os_errors(work: AbstractContextManager[sqlite3.Connection]) -> Iterator[sqlite3.Connection]:
    try:
        with work as database:
            yield database
    except (InputError, OutputError) as error:
        is_full = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
        raise OSError(errno.ENOSPC if is_full else errno.EIO, str(error)) from error


def _unknown(now: float) -> Ledger:
    """Return the ledger of a window that may have been reported, and nothing is known of that."""
    return Ledger(first=now, unreported=now, issued=Issue(UNKNOWN))


def _write(
    database: sqlite3.Connection, kind: str, window: str, written: float, ledger: Ledger, rows: bytes | None
) -> None:
    if not (ledger.known or ledger.issued or ledger.issuing):
        database.execute("DELETE FROM ledgers WHERE kind = ? AND window = ?", (kind, window))
        return
    values = kind, window, _end(window), written, json.dumps(ledger, default=vars).encode()
    database.execute("INSERT OR REPLACE INTO ledgers VALUES (?, ?, ?, ?, ?)", values)
    if rows is not None:
        database.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", (kind, window, rows, zlib.crc32(rows)))


def as_lines(rows: Iterable[Any]) -> bytes:
    return b"".join(f"{json.dumps(row)}\n".encode() for row in rows)


def _end(window: str) -> float:
    span = parse_window_name(window)
    return 0.0 if span is None else span.end / SECOND


class WindowStore:
    """The windows of a hub. Safe to use from several threads."""

    def __init__(self, state: Path, say: Say = lambda text: None, times: TimeSource = THIS_MACHINE) -> None:
        self.state, self.times = state, times
        self.incoming, self._windows = state / "incoming", state / "windows"
        self.lock = threading.RLock()
        self.quarantine = Quarantine(say)
        self.fresh: set[str] = set()  # sketches whose checksums this process has verified
        self.heard: dict[str, int] = {}  # site → end of the window of its latest sketch since the start
        self._refused: dict[str, str] = {}  # name → reason; not stored, since a hub with other options may accept them
        with os_errors(f"{state}: cannot be made"):
            for folder in (self.incoming, self._windows):
                make_folder(folder)
        try:
            self.ledgers = Ledgers(state, self.quarantine, say, times)
            self._empty_incoming()
            self._open = {window: self._recover(window) for window in self._windows_on_disk()}
            self._past = self.ledgers.past()  # may contain windows that are open again
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
            elif all(path.suffix == ".tmp" for path in folder.iterdir()) and self.ledgers.read(folder.name) is None:
                shutil.rmtree(folder, ignore_errors=True)  # neither a sketch nor a union has reached it
        return sorted(path.name for path in self._windows.iterdir() if parse_window_name(path.name))

    def _recover(self, window: str) -> Ledger:
        """Read or rebuild a ledger, and add sketches that are in the folder only: the hub was killed in between."""
        folder = self.folder(window)
        stored = self.ledgers.read(window) or self.ledgers.read(window, PAST)  # it was being restored from the archive
        ledger = stored or self.ledgers.begin(window)
        if stored is None and os.path.lexists(folder / UNION):
            ledger.issued = Issue(UNKNOWN)
        for path in folder.glob("*.cube"):
            if path.name != UNION and not path.name.startswith(".") and not _is_member(path, window):
                self.quarantine.put(path, "not a sketch of this window")
        for path in self.sketches(window):
            if path.name not in ledger.known:
                self._enter(ledger, path.name)
        ledger.unreported = ledger.unreported or self.times.wall()  # without a time it would never be retired
        if stored is None:
            self.ledgers.write(window, ledger)
        return ledger

    def windows(self) -> list[str]:
        with self.lock:
            return sorted(self._open)

    def ledger(self, window: str) -> Ledger:
        with self.lock:
            return self._open[window]

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
            ledger = self._open.get(window) or self.ledgers.read(window, PAST)
        return Receipt(name, MERGED) if ledger is not None and name in ledger.known else None

    def refusals(self, window: str) -> dict[str, str]:
        with self.lock:
            sketch_ids = [(SketchId.parse(name), reason) for name, reason in self._refused.items()]
        return {sketch_id.site: reason for sketch_id, reason in sketch_ids if sketch_id.window_name == window}

    def count_of(self, sketch_id: SketchId) -> int:
        with self.lock:
            known = list(self._open[sketch_id.window_name].known) if sketch_id.window_name in self._open else []
        return sum(SketchId.parse(name).site == sketch_id.site for name in known)

    def has(self, window: str) -> bool:
        with self.lock:
            return window in self._open

    def is_past(self, window: str) -> bool:
        return window not in self._open and window in self._past

    def add(self, path: Path, name: str) -> None:
        """Move a checked sketch into its window's folder; when this returns, it counts as merged."""
        sketch_id = SketchId.parse(name)
        window = sketch_id.window_name
        with self.lock:
            if window not in self._open:
                make_folder(self.folder(window))
            rename_durably(path, self.folder(window) / name)
            # Not earlier: a window exists from its first sketch on.
            ledger = self._open.setdefault(window, self.ledgers.begin(window))
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
            if window in self._open:
                return  # restored already
            ledger = self.ledgers.read(window, PAST) or _unknown(self.times.wall())
            folder = self.folder(window)
            make_folder(folder)
            copy_durably(union.resolve(), folder / UNION)
            self.write(window, replace(ledger, unreported=self.times.wall()))

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
            self.ledgers.retire(window)
            if self._open[window].known or self._open[window].issued:
                self._past.add(window)
            going = self.folder(f".{window}")
            shutil.rmtree(going, ignore_errors=True)
            self.folder(window).rename(going)
            del self._open[window]
            sync_folder(self._windows)
            shutil.rmtree(going, ignore_errors=True)

    def forget(self, age: float) -> None:
        """Remove ledgers older than `age` seconds."""
        with self.lock:
            self.ledgers.forget(age)
            self._past = self.ledgers.past()

    def write(self, window: str, ledger: Ledger | None = None, rows: bytes | None = None) -> None:
        """Write the ledger of an open window to disk, and only then count with a new one; see `Ledgers.write`."""
        with self.lock:
            ledger = ledger or self._open[window]
            self.ledgers.write(window, ledger, rows)
            self._open[window] = ledger


def _is_member(path: Path, window: str) -> bool:
    """Return True if a plain file has the name of a site's sketch of this window."""
    return _is_named_for(path.name, window) and is_plain(path)
