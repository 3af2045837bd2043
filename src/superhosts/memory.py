"""How much memory this process may take: the machine's, or less where a container or a limit says so.

A container's limit stands in the file system of control groups: at the process's own group or at any above it, in
version 2 (`memory.max`) or 1 (`memory.limit_in_bytes`). The least of all counts.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

PROC = Path("/proc/self")
_FILES = {"cgroup2": "memory.max", "cgroup": "memory.limit_in_bytes"}


def memory_of_machine(proc: Path = PROC) -> int:
    """Return the most bytes that this process can ever have: of machine, control groups and its own limit."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min([physical, *([] if own == resource.RLIM_INFINITY else [own]), *_group_limits(proc)])


def memory_left(proc: Path = PROC) -> int:
    """Return the bytes that this process can have beyond those that it has."""
    return max(0, memory_of_machine(proc) - _resident(proc))


def _resident(proc: Path) -> int:
    try:
        return int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # other systems than Linux
        return 0


def _group_limits(proc: Path) -> Iterator[int]:
    """Give the limits of the process's control groups."""
    for file in _limit_files(proc):
        for line in _lines(file):
            if line.isdecimal():  # else "max"
                yield int(line)


@cache
def _limit_files(proc: Path) -> list[Path]:
    """Return the files with limits of the process's control groups, up to the root of what is mounted.

    Limits may change while a process runs; its groups stay.
    """
    groups = _groups(proc)
    found = []
    for kind, root, mount in _mounts(proc):
        if kind in groups:
            group = PurePosixPath(groups[kind])
            inside = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()  # a container's own
            found += [mount / folder / _FILES[kind] for folder in (inside, *inside.parents)]
    return found


def _groups(proc: Path) -> dict[str, str]:
    """Return the process's group in each kind of hierarchy that limits memory."""
    groups = {}
    for line in _lines(proc / "cgroup"):
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers:
            groups["cgroup2"] = path
        elif "memory" in controllers.split(","):
            groups["cgroup"] = path
    return groups


def _mounts(proc: Path) -> Iterator[tuple[str, str, Path]]:
    """Give the kind, root and place of the mounted hierarchies of control groups."""
    for line in _lines(proc / "mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in _FILES:
            continue
        if kind[0] == "cgroup2" or "memory" in kind[2].split(","):
            yield kind[0], fields[3], Path(_unescaped(fields[4]))


def _unescaped(path: str) -> str:
    """Return a path of mountinfo, which writes spaces and such as octal numbers, as it is."""
    return path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []
