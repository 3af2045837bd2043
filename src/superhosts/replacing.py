"""Files that appear whole or not at all: written under a temporary name, flushed to disk, then renamed.

A rename replaces whatever has the name: a device, a FIFO, the link instead of the file that it points to. So a path
that a user gives passes `replaceable` first: only plain files are replaced, and a symbolic link leads to the file that
is written. State files do without: in a folder where others can write, a link must not lead anywhere else.

Temporary names begin with a dot and end in .tmp, so that no program takes an unfinished file for a finished one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from superhosts.errors import OutputError

CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}  # errors of file systems (network mounts) without fsync


class Replacement:
    """A file that takes the place of `target` when it is complete. Until `commit` the target stays as it is.

    `private`: only the owner can read it; otherwise the umask decides. `sole`: nobody else writes this file, so its
    temporary name is always the same, and a program that is killed again and again leaves one such file, not many.
    """

    def __init__(self, target: Path, *, private: bool = False, sole: bool = False) -> None:
        self.target = target
        writer = "" if sole else f".{os.getpid()}-{threading.get_native_id()}"
        self.temporary = target.with_name(f".{target.name}{writer}.tmp")
        self._private = private

    def open(self) -> BinaryIO:
        """Create the temporary file."""
        return open_fresh(self.temporary, shared=not self._private)

    def commit(self, *, durable: bool = True) -> None:
        """Rename the temporary file, which must be closed. A durable one is flushed to disk first."""
        if durable:
            handle = os.open(self.temporary, os.O_RDONLY)
            try:
                sync(handle)
            finally:
                os.close(handle)
        self.temporary.replace(self.target)

    def abandon(self) -> None:
        """Remove the temporary file, if there is one."""
        with contextlib.suppress(OSError):
            self.temporary.unlink()


@contextmanager
def replacing(target: Path, *, private: bool = False, sole: bool = False, durable: bool = True) -> Iterator[Path]:
    """Yield the temporary path of an empty file; what the block writes there replaces `target`, unless it fails."""
    replacement = Replacement(target, private=private, sole=sole)
    try:
        replacement.open().close()
        yield replacement.temporary
        replacement.commit(durable=durable)
    finally:
        replacement.abandon()


@contextmanager
def output_errors(path: str | Path) -> Iterator[None]:
    """Turn an operating system's error into an OutputError that names the file."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error


def replaceable(path: str | Path) -> Path:
    """Return the file to write for `path`: the target of a symbolic link, else the path itself.

    Raises OutputError for anything that exists and is not a plain file.
    """
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:  # Also a link to a missing file: then its target is created.
        mode = stat.S_IFREG
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
    if not stat.S_ISREG(mode):
        text = f"it is {_kind(mode)}, and only a plain file is replaced"
        raise OutputError(f"{path}: cannot be written: {text}") from OSError(errno.EINVAL, text, str(path))
    return Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def open_fresh(path: Path, *, shared: bool = False) -> BinaryIO:
    """Create a file for writing. Whatever had its name (also somebody else's link) is removed first."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if shared else 0o600), "wb")


def sync(handle: int) -> None:
    """Flush an open file to disk (fsync). File systems without fsync are accepted; any other failure is an error."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        sync(handle)
    finally:
        os.close(handle)


def place(source: Path, target: Path) -> None:
    """Rename a file that is on disk already, and flush the new name to disk."""
    source.replace(target)
    sync_folder(target.parent)
