"""Files that appear whole or not at all: written under a temporary name, flushed to disk, then renamed.

A rename replaces whatever has the target's name: a device, a FIFO, or a symbolic link instead of the file that it
points to. So a path from a user passes `replaceable` first: only plain files are replaced, and a symbolic link is
followed to the file that it points to. State files skip this step: in a folder where other users can write, a link
must not redirect a write.

Temporary names begin with a dot and end in .tmp, so that no program mistakes an unfinished file for a finished one.
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
        """Create the temporary file."""
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
        """Remove the temporary file, if there is one."""
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
def output_errors(path: str | Path) -> Iterator[None]:
    """Convert an OSError into an OutputError that names the file."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error


def replaceable(path: str | Path) -> Path:
    """Return the file to write for `path`: the target of a symbolic link, or else the path itself.

    Raise OutputError if the path exists and is not a plain file.
    """
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
    """Flush the directory entries of a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        sync(handle)
    finally:
        os.close(handle)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a file that has already been synced, and sync the new name."""
    source.replace(target)
    sync_folder(target.parent)
