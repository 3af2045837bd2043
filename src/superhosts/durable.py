"""Files that survive a power cut: written whole under another name, synced, renamed, and the folder synced.

Folders and files are their owner's alone, whatever the umask; where others are to read them (`shared`), it decides.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from superhosts.errors import OutputError, UsageError
from superhosts.replacing import open_fresh, replacing, sync, sync_folder
from superhosts.text import printable


def hold_folder(folder: Path) -> IO[str]:
    """Keep a second process out of a folder, made if needed, for as long as the file that is returned is open.

    A folder that an earlier run has used is closed to other users.
    """
    try:
        make_folder(folder)
        if is_plain(folder / ".lock"):
            _close_to_others(folder)
        file = _open_lock(folder / ".lock")
    except OSError as error:
        raise OutputError(f"{error.filename or folder}: cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise UsageError(f"{folder}: another process works here; give each a folder of its own") from None
        return _open_lock(folder / ".lock")  # network mounts that know no locks
    return file


def _open_lock(path: Path) -> IO[str]:
    """Open a lock's file; a FIFO under its name is not waited for."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    file = os.fdopen(handle, "w")
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return file


def _close_to_others(folder: Path) -> None:
    """Take the rights of other users from a folder of our own."""
    found = folder.stat()
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)


def make_private(path: Path) -> None:
    """Let only its user read a file. Mounts that know no rights are left as they are."""
    with contextlib.suppress(PermissionError, NotImplementedError):
        path.chmod(0o600)


def is_open_to_others(folder: Path) -> bool:
    """Return True if every user of this machine may look into a folder."""
    return bool(folder.stat().st_mode & 0o007)


def is_plain_folder(path: Path) -> bool:
    """Return True if a path is a folder itself, not a link to one."""
    return stat.S_ISDIR(path.lstat().st_mode)


def is_plain(path: Path) -> bool:
    """Say whether a plain file has this name: no folder, no link, nothing that opening would wait for."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def copy_synced(source: Path, target: Path, *, shared: bool = False) -> None:
    """Copy a plain file, and have the copy on disk; the source may lie where others write."""
    handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as read:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(source))
        with open_fresh(target, shared=shared) as write:
            shutil.copyfileobj(read, write, 1 << 20)
            write.flush()
            sync(write.fileno())


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(0o700, exist_ok=True)
    try:
        sync_folder(folder.parent)
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()  # else the next attempt would find it, and not sync
        raise


def set_aside(path: Path) -> Path:
    """Rename what cannot be used to .NAME.aside (numbered where that is taken) beside it; return the new path."""
    name = os.fsdecode(os.fsencode(path.name)[:200])  # file systems take 255 bytes
    for number in itertools.count():
        target = path.with_name(f".{name}.aside" + (f".{number}" if number else ""))
        if not os.path.lexists(target):
            path.rename(target)
            sync_folder(target.parent)
            return target
    raise AssertionError


def make_way(path: Path) -> Path | None:
    """Remove the file that has this name; set aside what is no file, and return where it lies now."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):  # what unlinking a folder gives, depending on the system
        return set_aside(path)
    return None


def exposure(path: Path) -> str:
    """Return a warning about a file with a secret that everybody can read or change, nothing about others.

    A group that can read it is the operator's choice.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return ""  # it is said elsewhere that it cannot be read
    if not mode & (stat.S_IROTH | stat.S_IWOTH):
        return ""
    return f"{path}: everybody on this machine can read this secret (mode {mode:04o}): chmod 600 {path}"


def write_json(path: Path, content: Any, *, durable: bool = True, shared: bool = False) -> None:
    """Replace a small file at once. Without `durable` only readers are safe from half of it, not the power cut."""
    _write_lines(path, [json.dumps(content, indent=1)], durable=durable, shared=shared)


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Replace a file of JSON Lines at once, durably."""
    _write_lines(path, map(json.dumps, rows), durable=True)


def write_private(path: Path, text: str) -> None:
    """Replace a file that only its owner can read, whatever the umask, durably."""
    _write_lines(path, text.splitlines(), durable=True)


def _write_lines(path: Path, lines: Iterable[str], *, durable: bool, shared: bool = False) -> None:
    replaced = replacing(path, private=not shared, sole=True, durable=durable)
    with replaced as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    if durable:
        sync_folder(path.parent)


def read_json(path: Path) -> Any:
    """Read such a file; None where there is none or somebody has damaged it."""
    try:
        return parse_json(path)
    except (FileNotFoundError, ValueError):
        return None


def parse_json(path: Path) -> Any:
    """Read such a file. ValueError says what is wrong with one that somebody has damaged."""
    try:
        return json.loads(_read_plain(path))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _read_plain(path: Path) -> bytes:
    """Read a plain file; ValueError for what is something else, which opening or reading might wait for."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError(f"{path}: not a plain file")
    with os.fdopen(handle, "rb") as file:
        return file.read()


def read_state(path: Path, fits: Callable[[Any], bool], say: Callable[[str], None]) -> Any:
    """Read a file that a program keeps for its next start; None where there is none.

    One whose content does not fit, by damage or by somebody's hand, is set aside, and that is said.
    """
    try:
        content = parse_json(path)
        if fits(content):
            return content
        why = "its content is not what this program writes"
    except FileNotFoundError:
        return None
    except ValueError:
        why = "damaged"
    except OSError as error:
        why = f"it cannot be read: {error.strerror or error}"
    put_aside(path, why, say)
    return None


def put_aside(path: Path, why: str, say: Callable[[str], None]) -> None:
    """Set aside what cannot be used, and say so. OutputError where it cannot be moved."""
    try:
        target = set_aside(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"{path}: {why}, and it cannot be set aside: {error.strerror or error}") from None
    say(f"{printable(path)}: {why}; SET ASIDE as {printable(target.name)}")


def read_lines(path: Path) -> Iterator[Any]:
    """Read a file of JSON Lines; nothing where there is none. ValueError where somebody has damaged it."""
    try:
        text = _read_plain(path)
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except RecursionError:
            raise ValueError("nested too deeply") from None
