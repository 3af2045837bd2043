"""Memory: how much this process may use, and buffers that are used again when nobody has them any more.

A process may use the memory of the machine, or less if a container or ulimit restricts it.

The limits of a container are files of its control groups (cgroups): the process's own group and all of its ancestors,
in version 2 (`memory.max`) or version 1 (`memory.limit_in_bytes`). The smallest limit applies.

Threads that work on packets fill a megabyte every half millisecond. Memory that is fresh from the system for each of
these costs a tenth of that time, because the system has to clear it; and to give it back stops all threads for a
moment. So memory is lent, and goes back to the lender when the last view of it is gone.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import re
import resource
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

PROC = Path("/proc/self")
SPARE = 16 << 20  # bytes that a process has left unless it is out of memory
LEAST_REUSED = 1 << 22  # bytes from which on memory comes from the system for each array, and goes back to it
_FILES = {"cgroup2": "memory.max", "cgroup": "memory.limit_in_bytes"}


def memory_of_machine(proc: Path = PROC) -> int:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    groups = [int(line) for file in _limit_files(proc) for line in _lines(file) if line.isdecimal()]  # "max": no limit
    return min([physical, *([] if own == resource.RLIM_INFINITY else [own]), *groups])


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


class Lender:
    """Lends arrays of `size` bytes. Any thread may borrow and drop one. Bytes that are never written cost nothing."""

    def __init__(self, size: int, *, huge: bool = False, most: int | None = None) -> None:
        self.size = size
        self.huge = huge  # in huge pages where the system has them: for memory that is used as a whole
        self.made = 0  # times that memory came from the system
        self._free: deque[mmap.mmap] = deque(maxlen=most)  # memory that nobody has; more goes back to the system

    def borrow(self) -> NDArray[np.uint8]:
        """Return bytes with any content. Their memory comes back when the array, and with it every view, is gone."""
        try:
            memory = self._free.pop()
        except IndexError:  # all of it is lent
            memory = new_memory(self.size, huge=self.huge)
            self.made += 1  # nearly right if two threads do this at once
        lent = np.frombuffer(memory, np.uint8)  # the base of its views, as its own base is not an array
        weakref.finalize(lent, self._free.append, memory).atexit = False
        return lent


class Reuse:
    """While one of these objects exists, memory of `new_words` that need not be cleared is lent by it."""

    _users: ClassVar[weakref.WeakSet[Reuse]] = weakref.WeakSet()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, most: int) -> None:
        """Keep the memory of at most so many arrays of each size that nobody has."""
        self._most = most
        self._lenders: dict[int, Lender] = {}  # by size
        with self._lock:
            self._users.add(self)

    @classmethod
    def lender(cls, size: int) -> Lender | None:
        """Return a lender of arrays of this size; None if nobody would use them again."""
        with cls._lock:
            user = next(iter(cls._users), None)
        return None if user is None else user._lenders.setdefault(size, Lender(size, huge=True, most=user._most))


def new_words(shape: tuple[int, ...], *, cleared: bool) -> NDArray[np.uint64]:
    """Return an array of words: zeros, or with any content, which may be memory that was used before."""
    if cleared:
        return np.zeros(shape, np.uint64)  # by the system, and only where it is used
    size = 8 * math.prod(shape)
    lender = Reuse.lender(size) if size >= LEAST_REUSED else None
    return np.empty(shape, np.uint64) if lender is None else lender.borrow().view(np.uint64).reshape(shape)


def new_memory(size: int, *, huge: bool) -> mmap.mmap:
    try:
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise MemoryError(f"no {size:,} bytes of memory") from error
        raise
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # The system has none.
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
