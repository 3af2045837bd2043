"""Where a file may be placed that is written under a temporary name and then renamed.

A rename replaces whatever has the name: a device, a FIFO, the link instead of the file that it points to. So every
writer that renames asks here first, and puts its temporary file beside the answer.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from superhosts.errors import OutputError


def replaceable(path: str | Path) -> Path:
    """Return the file to write for `path`: the target of a symbolic link, else the path itself.

    What exists and is no plain file is refused (OutputError).
    """
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:  # also where a link points to nothing: then the target is made
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
