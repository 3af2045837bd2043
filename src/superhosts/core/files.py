"""Files that appear whole or not at all: written under a temporary name, flushed to disk, then renamed.

A rename replaces whatever has the target's name. So a path from a user passes `replaceable` first: only plain files are
replaced, and a symbolic link is followed to its target. State files skip this step: in a folder where other users can
write, a link must not redirect a write. Temporary names begin with a dot and end in .tmp.

State files also survive a power failure: the folder is synced after the rename. By default only the owner can access
them and their folders, regardless of the umask. Where other users should read a file (`shared`), the umask decides.
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
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from superhosts.core.text import printable
from superhosts.errors import OutputError, SuperhostsError, UsageError

HEAD_BYTES = 4096  # of a file, by which it is recognised; fewer will do
SKETCH = b"\x89CUBE\r\n\x1a"  # the first bytes of a .cube file
CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}  # errors of file systems without fsync (network mounts)


class Replacement:
    """A file that replaces `target` once it is complete. The target does not change before `commit`.

    `private`: only the owner can read the file; otherwise the umask decides. `sole`: no other process or thread writes
    this file, so its temporary name is constant, and a program that is killed repeatedly leaves only one such file.
    """

    def __init__(self, target: Path, *, private: bool = False, sole: bool = False) -> None:
        self.target = target
        writer = "" if sole else f".{os.getpid()}-{threading.get_native_id()}"
        self.temporary = target.with_name(f".{target.name}{writer}.tmp")
        self._private = private

    def open(self) -> BinaryIO:
        return open_fresh(self.temporary, shared=not self._private)

    def commit(self, *, durable: bool = True) -> None:
        """Rename the temporary file, which must be closed. With `durable`, flush it to disk first."""
        if durable:
            handle = os.open(self.temporary, os.O_RDONLY)
            try:
                sync(handle)
            finally:
                os.close(handle)
        self.temporary.replace(self.target)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self.temporary.unlink()


@contextmanager
def replacing(target: Path, *, private: bool = False, sole: bool = False, durable: bool = True) -> Iterator[Path]:
    """Yield the path of an empty temporary file, which replaces `target` unless the with block fails."""
    replacement = Replacement(target, private=private, sole=sole)
    try:
        replacement.open().close()
        yield replacement.temporary
        replacement.commit(durable=durable)
    finally:
        replacement.abandon()


@contextmanager
def os_errors(problem: str, kind: type[SuperhostsError] = OutputError) -> Iterator[None]:
    """Raise `kind` in place of an OSError: the problem, which names the thing, and the system's reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"{problem}: {error.strerror or error}") from error


def output_errors(path: str | Path) -> AbstractContextManager[None]:
    return os_errors(f"{path}: cannot be written")


def replaceable(path: str | Path) -> Path:
    """Return a path, or the target of a symbolic link, to write to. Raise OutputError if it is not a plain file."""
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:  # This includes a link to a missing file, which will then be created.
        mode = stat.S_IFREG
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
    if not stat.S_ISREG(mode):
        text = f"it is {_kind(mode)}, and only plain files are replaced"
        raise OutputError(f"{path}: cannot be written: {text}") from OSError(errno.EINVAL, text, str(path))
    return Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def open_fresh(path: Path, *, shared: bool = False) -> BinaryIO:
    """Create a file for writing, after removing any file or link of that name."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if shared else 0o600), "wb")


def sync(handle: int) -> None:
    """Flush an open file to disk (fsync). Ignores file systems without fsync; raises any other error."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        sync(handle)
    finally:
        os.close(handle)


def rename_durably(source: Path, target: Path) -> None:
    source.replace(target)
    sync_folder(target.parent)


def remove_durably(*paths: Path) -> None:
    """Remove files, of which none comes back in a power failure."""
    for path in paths:
        path.unlink(missing_ok=True)
    for folder in {path.parent for path in paths}:
        sync_folder(folder)


def hold_folder(folder: Path) -> IO[str]:
    """Lock a folder, created if missing, against other processes. The lock lasts until the returned file is closed.

    If an earlier run has used the folder, access is removed from other users.
    """
    try:
        make_folder(folder)
        found = folder.stat()
        if is_plain(folder / ".lock") and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
            folder.chmod(0o700)
        file = hold_file(folder / ".lock")
    except OSError as error:
        raise OutputError(f"{error.filename or folder}: cannot be used: {error.strerror}") from None
    if file is None:
        raise UsageError(f"{folder}: another process is using this folder; give each process its own")
    return file


def hold_file(path: Path) -> IO[str] | None:
    """Lock a file, made if missing, against other processes until it is closed; None: another one has locked it."""
    file = _open_lock(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            file.close()
            return None
    return file  # Some network mounts do not support locks.


def _open_lock(path: Path) -> IO[str]:
    return os.fdopen(_open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW), "w")


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file, to which no link leads, to read."""
    return os.fdopen(_open_plain(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")


def _open_plain(path: Path, flags: int) -> int:
    """Open a plain file. Raise OSError (EINVAL) for anything else, on which opening or reading could block."""
    handle = os.open(path, flags | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return handle


def is_plain_folder(path: Path) -> bool:
    return stat.S_ISDIR(path.lstat().st_mode)


def is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def copy_durably(source: Path, target: Path, *, shared: bool = False) -> None:
    """Copy a plain file, which appears under its new name at once or not at all."""
    temporary = target.with_name(f".{target.name}.tmp")
    copy_synced(source, temporary, shared=shared)
    rename_durably(temporary, target)


def copy_synced(source: Path, target: Path, *, shared: bool = False) -> None:
    with open_plain(source) as read, open_fresh(target, shared=shared) as write:
        shutil.copyfileobj(read, write, 1 << 20)
        write.flush()
        sync(write.fileno())


def make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(0o700, exist_ok=True)
    try:
        sync_folder(folder.parent)
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()  # Otherwise the next attempt would find the folder and skip the sync.
        raise


def set_aside(path: Path) -> Path:
    """Rename an unusable file or folder to .NAME.aside, with a number if that is taken; return the new path."""
    name = os.fsdecode(os.fsencode(path.name)[:200])  # File systems limit names to 255 bytes.
    for number in itertools.count():
        target = path.with_name(f".{name}.aside" + (f".{number}" if number else ""))
        if not os.path.lexists(target):
            path.rename(target)
            sync_folder(target.parent)
            return target
    raise AssertionError


def remove_or_set_aside(path: Path) -> Path | None:
    """Remove the file at a path. If it is a folder, set it aside and return its new path."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):  # Which of these unlinking a folder raises depends on the system.
        return set_aside(path)
    return None


def exposure_warning(path: Path) -> str:
    """Return a warning if all users, or another owner than root, have access to a secret file; else an empty text."""
    try:
        status = path.stat()
    except OSError:
        return ""  # The code that reads the secret reports this error.
    mode, user = stat.S_IMODE(status.st_mode), os.geteuid()
    if status.st_uid not in (0, user):
        return f"{path}: this secret belongs to another user (number {status.st_uid}); run: chown {user} {path}"
    if not mode & (stat.S_IROTH | stat.S_IWOTH):
        return ""
    return f"{path}: all users of this machine have access to this secret (mode {mode:04o}); run: chmod 600 {path}"


def write_json(path: Path, content: Any, *, durable: bool = True, shared: bool = False) -> None:
    """Replace a small file atomically. Without `durable` it may be lost in a power failure."""
    _write_text(path, json.dumps(content, indent=1) + "\n", durable=durable, shared=shared)


def write_private(path: Path, text: str) -> None:
    _write_text(path, text if text.endswith("\n") else f"{text}\n")


def _write_text(path: Path, text: str, *, durable: bool = True, shared: bool = False) -> None:
    with replacing(path, private=not shared, sole=True, durable=durable) as temporary:
        temporary.write_text(text, encoding="utf-8")
    if durable:
        sync_folder(path.parent)


def read_json(path: Path) -> Any:
    """Read a JSON file. Return None if it is missing or damaged."""
    try:
        return parse_json(path)
    except (FileNotFoundError, ValueError):
        return None


def parse_json(path: Path) -> Any:
    """Read a JSON file. Raise ValueError, with the reason, if it is damaged or not a plain file."""
    try:
        with os.fdopen(_open_plain(path, os.O_RDONLY), "rb") as file:
            return json.load(file)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise ValueError(f"{path}: not a plain file") from None
        raise


def read_state(path: Path, check: Callable[[Any, str], Any], say: Callable[[str], None]) -> Any:
    """Read a state file, None if there is none. One that does not pass `check` (core/fields.py) is set aside."""
    try:
        return check(parse_json(path), "")
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, OverflowError, TypeError) as error:
        why = f"not what this program writes ({printable(error, 100)})"
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
    set_aside_and_report(path, why, say)
    return None


def set_aside_and_report(path: Path, why: str, say: Callable[[str], None]) -> None:
    """Set aside an unusable file and report it through `say`. Raise OutputError if it cannot be renamed."""
    try:
        target = set_aside(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"{path}: {why}, and it cannot be set aside: {error.strerror or error}") from None
    from superhosts.core.notices import WARNING, Notice  # Few programs set a file aside.

    say(Notice(f"{printable(path)}: {why}; SET ASIDE as {printable(target.name)}", "set-aside", WARNING))
