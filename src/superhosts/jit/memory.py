"""Determine how much memory this process may use: that of the machine, or less if a container or ulimit restricts it.

The limits of a container are files of its control groups (cgroups): the process's own group and all of its ancestors,
in version 2 (`memory.max`) or version 1 (`memory.limit_in_bytes`). The smallest limit applies.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

PROC = Path("/proc/self")
SPARE = 16 << 20  # bytes that a process has left unless it is out of memory
_FILES = {"cgroup2": "memory.max", "cgroup": "memory.limit_in_bytes"}


def memory_of_machine(proc: Path = PROC) -> int:
    """Return the bytes that this process can use at most: the minimum over machine, control groups and RLIMIT_AS."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min([physical, *([] if own == resource.RLIM_INFINITY else [own]), *_group_limits(proc)])


def memory_left(proc: Path = PROC) -> int:
    return max(0, memory_of_machine(proc) - memory_used(proc))


def is_out_of_memory() -> bool:
    """Return True if even a small request fails: a MemoryError was not the fault of one huge request."""
    try:
        bytearray(SPARE)
    except MemoryError:
        return True
    return False


def memory_used(proc: Path = PROC) -> int:
    try:
        return int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # not Linux
        return 0


def _group_limits(proc: Path) -> Iterator[int]:
    for file in _limit_files(proc):
        for line in _lines(file):
            if line.isdecimal():  # "max" means no limit.
                yield int(line)


@cache
def _limit_files(proc: Path) -> list[Path]:
    """Return the limit files of the process's control groups and their ancestors. Limits may change, paths do not."""
    groups = _groups(proc)
    found = []
    for kind, root, mount in _mounts(proc):
        if kind in groups:
            group = PurePosixPath(groups[kind])
            # In a container the mount may show only the container's own group.
            inside = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
            found += [mount / folder / _FILES[kind] for folder in (inside, *inside.parents)]
    return found


def _groups(proc: Path) -> dict[str, str]:
    groups = {}
    for line in _lines(proc / "cgroup"):
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers:
            groups["cgroup2"] = path
        elif "memory" in controllers.split(","):
            groups["cgroup"] = path
    return groups


def _mounts(proc: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield the kind, root and mount point of each mounted cgroup hierarchy that limits memory."""
    for line in _lines(proc / "mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in _FILES:
            continue
        if kind[0] == "cgroup2" or "memory" in kind[2].split(","):
            path = re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), fields[4])
            yield kind[0], fields[3], Path(path)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []
