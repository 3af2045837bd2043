"""A set of mangled 32-bit hosts in open addressing, for detectors that must remember whom they have seen.

Mangled hosts are spread evenly, so their low bits choose the slot. An empty slot holds 0; one cell behind the slots
says whether host 0 is in. At most half of the slots are taken: the set doubles before that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled

Slots = NDArray[np.uint32]
FIRST_SLOTS = 1 << 10


@compiled
def insert(slots: Slots, host: np.uint32) -> bool:
    """Put a host into the set; True if it was not in. The slots must not all be taken."""
    capacity = len(slots) - 1
    if host == 0:
        if slots[capacity] != 0:
            return False
        slots[capacity] = 1
        return True
    place = np.int64(host) & (capacity - 1)
    while slots[place] != 0:
        if slots[place] == host:
            return False
        place = (place + 1) & (capacity - 1)
    slots[place] = host
    return True


@compiled
def is_crowded(slots: Slots, count: int) -> bool:
    """Say whether the set must grow before it takes another host."""
    return 2 * count >= len(slots) - 1


@compiled
def _insert_all(slots: Slots, hosts: Slots) -> int:
    added = 0
    for i in range(len(hosts)):
        added += insert(slots, hosts[i])
    return added


class HostSet:
    """The set, and how many hosts are in it."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all hosts and give their memory back."""
        self.slots: Slots = np.zeros(FIRST_SLOTS + 1, np.uint32)
        self.count = 0

    @property
    def memory(self) -> int:
        """Bytes that it takes."""
        return self.slots.nbytes

    def hosts(self) -> Slots:
        """Return the hosts in rising order."""
        return hosts_in(self.slots)

    def grow(self, hosts: int = 0) -> None:
        """Double, and go on until so many hosts more have room."""
        capacity = 2 * (len(self.slots) - 1)
        while 2 * (self.count + hosts) >= capacity:
            capacity *= 2
        slots = np.zeros(capacity + 1, np.uint32)
        _insert_all(slots, self.hosts())
        self.slots = slots

    def add(self, hosts: Slots) -> None:
        """Take in a column of hosts."""
        if is_crowded(self.slots, self.count + len(hosts)):
            self.grow(len(hosts))
        self.count += int(_insert_all(self.slots, hosts))


def hosts_in(slots: Slots) -> Slots:
    """Return the hosts of a set's slots in rising order."""
    hosts = slots[:-1][slots[:-1] != 0]
    hosts.sort()
    return np.concatenate([np.zeros(int(slots[-1] != 0), np.uint32), hosts])
