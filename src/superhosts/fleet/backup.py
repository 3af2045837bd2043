"""A copy of a hub's state from which another hub can go on, taken while the hub runs or when it has stopped.

A hub never changes a file in place: it writes a new one and renames it. So a hard link keeps a file as it is now, for
nothing. A window is consistent if its ledger is the same before and after its files were linked; otherwise it is linked
again. Databases (alerts, queues of destinations) are copied by SQLite itself.

The copy has what a hub cannot get again: windows, ledgers of past windows, sites and the hub's key, unions for an
upstream hub, reports for destinations. It has neither the queue of the broker nor sketches in transit, which edges send
again, nor the secrets of sites.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from superhosts.core.files import is_plain, remove_or_set_aside, replacing
from superhosts.errors import InputError, OutputError, UsageError
from superhosts.fleet.names import parse_window_name
from superhosts.fleet.slidingwindows import FOLDER as SLIDING
from superhosts.fleet.store import LEDGER
from superhosts.output.delivery import QUEUE

TEMPORARY = ".backup.tmp"  # in the state folder: links to the files that are being copied
SMALL = ("identity.json", "clock", "status.json")
OF_BROKER = ("hub.nk", "sites.json", "join.json")
ALERTS = "alerts.sqlite"
ATTEMPTS = 100  # to link a window that changes meanwhile


class Saved(NamedTuple):
    windows: int
    files: int


def save_state(state: Path, target: Path, alerts: Path | None = None) -> Saved:
    """Copy the state of a hub, and the file of its alerts, to a tar file that only its owner can read."""
    if not (state / "windows").is_dir():
        raise UsageError(f"--state {state}: not the state of a hub")
    folder = state / TEMPORARY
    try:
        shutil.rmtree(folder, ignore_errors=True)  # left by a command that was killed
        folder.mkdir(0o700)
        windows = _link_all(state, folder)
        if alerts is not None:
            if not alerts.is_file():
                raise UsageError(f"--alerts {alerts}: no such file")
            _copy_database(alerts, folder / ALERTS)
        files = sum(path.is_file() for path in folder.rglob("*"))
        with replacing(target, private=True) as fresh, tarfile.open(fresh, "w") as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name)
    except OSError as error:
        raise OutputError(f"{error.filename or target}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Saved(windows, files)


def _link_all(state: Path, folder: Path) -> int:
    """Link everything; return the number of windows.

    What was reported of windows that slide comes first: a copy that knows of a report also has the panes of it. Windows
    come before ledgers of past ones, as they become such.
    """
    for report in sorted((state / SLIDING).glob("*.json")):
        _link(partial(list, (report, report.with_suffix(".jsonl"))), folder / SLIDING, report)
    windows = 0
    (folder / "windows").mkdir()
    for window in sorted(path for path in (state / "windows").iterdir() if parse_window_name(path.name)):
        with contextlib.suppress(FileNotFoundError):  # it was retired meanwhile
            _link(partial(_files, window), folder / "windows" / window.name, window / LEDGER)
            windows += 1
    others = [state / "past", state / "up", *sorted((state / "outputs").glob("*"))]
    for source in filter(Path.is_dir, others):
        _link(partial(_files, source), folder / source.relative_to(state))
    for source in (state / "outputs").glob(f"*/{QUEUE}"):
        _copy_database(source, folder / source.relative_to(state))
    _link(lambda: [state / name for name in SMALL], folder)
    _link(lambda: [state / "broker" / name for name in OF_BROKER], folder / "broker")
    return windows


def _files(folder: Path) -> list[Path]:
    """Return the plain files of a folder but queues and hidden ones, which are temporary or set aside."""
    return [path for path in folder.iterdir() if not path.name.startswith((".", QUEUE)) and is_plain(path)]


def _link(sources: Callable[[], list[Path]], target: Path, ledger: Path | None = None) -> None:
    """Link the files that are there; with a ledger, all as of one moment, in which the ledger did not change."""
    target.mkdir(parents=True, exist_ok=True)
    for _ in range(ATTEMPTS):
        before = _identity(ledger)
        names = [path.name for path in sources() if _link_file(path, target / path.name)]
        if _identity(ledger) == before:
            return
        for name in names:
            (target / name).unlink()
    raise OutputError(f"{ledger}: changes all the time; stop the hub, and try again")


def _link_file(source: Path, target: Path) -> bool:
    """Link a file, or copy it where links are not possible; return False if it is gone."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        remove_or_set_aside(target)
        try:
            shutil.copy2(source, target, follow_symlinks=False)
        except FileNotFoundError:
            return False
    return True


def _identity(path: Path | None) -> tuple[int, int] | None:
    try:
        status = path.lstat() if path is not None else None
    except FileNotFoundError:
        return None
    return None if status is None else (status.st_ino, status.st_mtime_ns)


def _copy_database(source: Path, target: Path) -> None:
    """Copy a database that another process may be using."""
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as read,
            contextlib.closing(sqlite3.connect(target)) as write,
        ):
            read.backup(write)
    except sqlite3.Error as error:
        raise InputError(f"cannot be copied: {error}", file=str(source)) from None
