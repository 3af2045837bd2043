"""Files that survive a power cut: written whole under another name, synced, renamed, and the folder synced."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from superhosts.errors import OutputError, UsageError


def hold_folder(folder: Path) -> IO[str]:
    """Keep a second process out of a folder, made if needed, for as long as the file that is returned is open."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
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


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. File systems that cannot (network mounts) are left as they are."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def place(source: Path, target: Path) -> None:
    """Rename a synced file into place, durably."""
    source.replace(target)
    sync_folder(target.parent)


def write_json(path: Path, content: Any, *, durable: bool = True) -> None:
    """Replace a small file at once. Without `durable` only readers are safe from half of it, not the power cut."""
    _write(path, [json.dumps(content, indent=1)], durable=durable)


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Replace a file of JSON Lines at once, durably."""
    _write(path, map(json.dumps, rows), durable=True)


def _write(path: Path, lines: Iterable[str], *, durable: bool) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
            file.flush()
            if durable:
                os.fsync(file.fileno())
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
    except (FileNotFoundError, ValueError):
        return None


def read_lines(path: Path) -> Iterator[Any]:
    """Read a file of JSON Lines; nothing where there is none, up to the damage where somebody has damaged it."""
    with contextlib.suppress(FileNotFoundError, ValueError), path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
