"""A copy of a hub's state from which another hub can go on, taken while the hub runs or when it has stopped.

SQLite copies databases, each as of one moment. A hub never changes another file in place: it writes a new one and
renames it. So a hard link keeps such a file as it is now, for nothing. The hub's own database comes before the sketches
that it tells of: sketches that arrive in between are found in the folders, as after a crash.

The copy has what a hub cannot get again: windows, ledgers of past windows, sites and the hub's key, unions for an
upstream hub, reports for destinations. It has neither the queue of the broker nor sketches in transit, which edges send
again, nor the secrets of sites.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import tarfile
from pathlib import Path
from typing import NamedTuple

from superhosts.core.files import is_plain, remove_or_set_aside, replacing
from superhosts.errors import InputError, OutputError, UsageError
from superhosts.fleet.names import parse_window_name
from superhosts.fleet.store import DATABASE, RETIRED

TEMPORARY = ".backup.tmp"  # in the state folder: the files that are being copied
SMALL = ("identity.json", "clock", "status.json")
OF_BROKER = ("hub.nk", "sites.json", "join.json")
ALERTS = "alerts.sqlite"
SQLITE = b"SQLite format 3\0"  # the first bytes of a database


class Saved(NamedTuple):
    windows: int
    files: int


def save_state(state: Path, target: Path, alerts: Path | None = None) -> Saved:
    """Copy the state of a hub, and the file of its alerts, to a tar file that only its owner can read."""
    if not any(path.exists() for path in (state / "windows", state / "broker" / "sites.json")):
        raise UsageError(f"--state {state}: not the state of a hub")
    if alerts is not None and not alerts.is_file():
        raise UsageError(f"--alerts {alerts}: no such file")
    folder = state / TEMPORARY
    try:
        shutil.rmtree(folder, ignore_errors=True)  # left by a command that was killed
        folder.mkdir(0o700)
        windows = _copy_all(state, folder)
        if alerts is not None:
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


def _copy_all(state: Path, folder: Path) -> int:
    """Copy everything; return the number of windows."""
    _copy([state / DATABASE], folder)
    windows = []
    (folder / "windows").mkdir()
    for window in sorted(path for path in (state / "windows").glob("*") if parse_window_name(path.name)):
        target = folder / "windows" / window.name
        with contextlib.suppress(FileNotFoundError):
            _copy(list(window.iterdir()), target)
        if window.is_dir():
            windows.append(window.name)
        else:  # it was retired meanwhile
            shutil.rmtree(target, ignore_errors=True)
    if (folder / DATABASE).exists():
        with contextlib.closing(sqlite3.connect(folder / DATABASE)) as database, database:
            database.execute(RETIRED, (json.dumps(windows),))
    for source in filter(
        Path.is_dir, [*(state / name for name in ("past", "sliding", "up")), *sorted((state / "outputs").glob("*"))]
    ):
        _copy(list(source.iterdir()), folder / source.relative_to(state))
    _copy([state / name for name in SMALL], folder)
    _copy([state / "broker" / name for name in OF_BROKER], folder / "broker")
    return len(windows)


def _copy(sources: list[Path], folder: Path) -> None:
    """Copy the plain files that are there, but hidden ones, which are temporary or set aside."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sources:
        if path.name.startswith(".") or path.name.endswith(("-wal", "-shm")) or not is_plain(path):
            continue
        with contextlib.suppress(FileNotFoundError):  # gone meanwhile
            with path.open("rb") as file:
                is_database = file.read(len(SQLITE)) == SQLITE
            _copy_database(path, folder / path.name) if is_database else _link(path, folder / path.name)


def _link(source: Path, target: Path) -> None:
    """Link a file, or copy it where links are not possible."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        remove_or_set_aside(target)
        shutil.copy2(source, target, follow_symlinks=False)


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
