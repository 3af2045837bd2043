"""A copy of a hub's state from which another hub can go on, taken while the hub runs or when it has stopped.

A hub never changes a file in place: it writes a new one and renames it. So a hard link keeps a file as it is now, for
nothing. A window is consistent if its ledger is the same before and after its files were linked; otherwise it is linked
again. Alerts are copied by SQLite itself.

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
from pathlib import Path
from typing import NamedTuple

from superhosts.core.files import is_plain, remove_or_set_aside, replacing
from superhosts.errors import InputError, OutputError, UsageError
from superhosts.fleet.names import parse_window_name
from superhosts.fleet.slidingwindows import FOLDER as SLIDING
from superhosts.fleet.store import LEDGER

TEMPORARY = ".backup.tmp"  # in the state folder: links to the files that are being copied
SMALL = ("identity.json", "clock", "status.json")
OF_BROKER = ("hub.nk", "sites.json", "sites-outgoing.json", "sites-history.json", "join.json")
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
            _copy_alerts(alerts, folder / ALERTS)
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
    for path in sorted((state / SLIDING).glob("*.json")):
        (folder / SLIDING).mkdir(exist_ok=True)
        for _ in range(ATTEMPTS):
            before = _identity(path)
            for each in (path, path.with_suffix(".jsonl")):  # a report and its rows, as of one moment
                (folder / SLIDING / each.name).unlink(missing_ok=True)
                _link(each, folder / SLIDING / each.name)
            if _identity(path) == before:
                break
        else:
            raise OutputError(f"{path}: changes all the time; stop the hub, and try again")
    names = sorted(path.name for path in (state / "windows").iterdir() if parse_window_name(path.name))
    (folder / "windows").mkdir()
    windows = sum(_link_window(state / "windows" / name, folder / "windows" / name) for name in names)
    for name in ("past", "up"):
        if (state / name).is_dir():
            _link_files(state / name, folder / name)
    for queue in sorted(path for path in (state / "outputs").glob("*") if path.is_dir()):
        _link_files(queue, folder / "outputs" / queue.name)
    for name in SMALL:
        _link(state / name, folder / name)
    (folder / "broker").mkdir()
    for name in OF_BROKER:
        _link(state / "broker" / name, folder / "broker" / name)
    return windows


def _link_window(window: Path, target: Path) -> bool:
    """Link the files of a window, all as of one moment; return False if the window is gone."""
    for _ in range(ATTEMPTS):
        before = _identity(window / LEDGER)
        try:
            _link_files(window, target)
        except FileNotFoundError:
            if not window.is_dir():  # it was retired meanwhile
                shutil.rmtree(target, ignore_errors=True)
                return False
        else:
            if _identity(window / LEDGER) == before:
                return True
        shutil.rmtree(target, ignore_errors=True)
    raise OutputError(f"{window}: changes all the time; stop the hub, and try again")


def _link_files(source: Path, target: Path) -> None:
    """Link the plain files of a folder but hidden ones, which are temporary or set aside."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if not path.name.startswith(".") and is_plain(path):
            _link(path, target / path.name, missing_ok=False)


def _link(source: Path, target: Path, *, missing_ok: bool = True) -> None:
    """Link a file, or copy it where links are not possible."""
    with contextlib.suppress(*([FileNotFoundError] if missing_ok else [])):
        try:
            os.link(source, target, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except OSError:
            remove_or_set_aside(target)
            shutil.copy2(source, target, follow_symlinks=False)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _copy_alerts(source: Path, target: Path) -> None:
    """Copy a database that another process may be using."""
    if not source.is_file():
        raise UsageError(f"--alerts {source}: no such file")
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as read,
            contextlib.closing(sqlite3.connect(target)) as write,
        ):
            read.backup(write)
    except sqlite3.Error as error:
        raise InputError(f"cannot be copied: {error}", file=str(source)) from None
