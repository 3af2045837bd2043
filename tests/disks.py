"""Small file systems of a test's own, which are really full."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def on_small_disk(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """A file system of 1 MiB that is full until the file make-room is there, and the words that run a process with it.

    Only that process sees what is in the returned folder.
    """
    if shutil.which("unshare") is None:
        pytest.skip("needs a small file system of its own: there is no unshare here")
    probe = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "t", str(folder)], capture_output=True)
    if probe.returncode:
        pytest.skip("needs a small file system of its own: user namespaces are not allowed here")
    small = folder / "small"
    small.mkdir()
    script = folder / "on_small_disk.sh"
    script.write_text(
        f"mount -t tmpfs -o size=1m small {small} || exit\n"
        f"head -c 968k /dev/zero > {small}/ballast 2> /dev/null\n"
        '"$@" & pid=$!\n'
        f"echo $pid > {folder}/program.pid\n"
        f"trap 'kill $pid' TERM\n"
        f"while [ ! -e {folder}/make-room ]; do sleep 0.1; done; rm {small}/ballast\n"
        "wait $pid; status=$?; while kill -0 $pid 2>/dev/null; do wait $pid; status=$?; done; exit $status\n"
    )
    return small, ("unshare", "-rm", "sh", str(script))
