"""Files that survive a power cut: written whole under another name, synced, renamed, and the folder synced."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import itertools
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from superhosts.errors import OutputError, UsageError

CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}  # what a file system (network mounts) says that has no sync


def hold_folder(folder: Path) -> IO[str]:
    """Keep a second process out of a folder, made if needed, for as long as the file that is returned is open."""
    try:
        make_folder(folder)
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise OutputError(f"{folder}: cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise UsageError(f"{folder}: another process works here; give each a folder of its own") from None
        return (folder / ".lock").open("w")  # network mounts that know no locks
    return file


def open_fresh(path: Path) -> BinaryIO:
    """Make a file that was not there; what stood under its name (a link of somebody else's, too) is removed first."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb")


def copy_synced(source: Path, target: Path) -> None:
    """Copy a plain file, and have the copy on disk; the source may lie where others write."""
    handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as read:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(source))
        with open_fresh(target) as write:
            shutil.copyfileobj(read, write, 1 << 20)
            write.flush()
            sync(write.fileno())


def sync(handle: int) -> None:
    """Have an open file on disk. File systems that cannot are left as they are; a sync that fails is an error."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        sync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    try:
        sync_folder(folder.parent)
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()  # else the next attempt would find it, and not sync
        raise


def place(source: Path, target: Path) -> None:
    """Rename a synced file into place, durably."""
    source.replace(target)
    sync_folder(target.parent)


def set_aside(path: Path) -> Path:
    """Rename what cannot be used to .NAME.aside (numbered where that is taken) beside it; return the new path."""
    for number in itertools.count():
        target = path.with_name(f".{path.name}.aside" + (f".{number}" if number else ""))
        if not os.path.lexists(target):
            path.rename(target)
            sync_folder(target.parent)
            return target
    raise AssertionError


def write_json(path: Path, content: Any, *, durable: bool = True) -> None:
    """Replace a small file at once. Without `durable` only readers are safe from half of it, not the power cut."""
    _write(path, [json.dumps(content, indent=1)], durable=durable)


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Replace a file of JSON Lines at once, durably."""
    _write(path, map(json.dumps, rows), durable=True)


def _write(path: Path, lines: Iterable[str], *, durable: bool) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open_fresh(temporary) as binary, io.TextIOWrapper(binary, encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
            file.flush()
            if durable:
                sync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def read_json(path: Path) -> Any:
    """Read such a file; None where there is none or somebody has damaged it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, RecursionError, ValueError):
        return None


def read_lines(path: Path) -> Iterator[Any]:
    """Read a file of JSON Lines; nothing where there is none, up to the damage where somebody has damaged it."""
    with contextlib.suppress(FileNotFoundError, RecursionError, ValueError), path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
