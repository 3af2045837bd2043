"""A hash set of mangled 32-bit hosts with open addressing, for detectors that remember the hosts they have seen.

Mangled hosts are uniformly distributed, so their low bits select the slot. An empty slot is 0; an extra cell after the
slots is non-zero if host 0 is in the set. The set doubles before more than half of the slots are in use.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.cache import compiled

Slots = NDArray[np.uint32]


@compiled
def insert(slots: Slots, host: np.uint32) -> bool:
    """Add a host to the set and return True if it was not in the set yet. At least one slot must be free."""
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
    """Return True if the set must grow before it can take another host."""
    return 2 * count >= len(slots) - 1


@compiled
def _insert_all(slots: Slots, hosts: Slots) -> int:
    added = 0
    for i in range(len(hosts)):
        added += insert(slots, hosts[i])
    return added


class HostSet:
    """A set of hosts that grows as needed."""

    def __init__(self, initial_slots: int) -> None:
        self._initial_slots = initial_slots
        self.clear()

    def clear(self) -> None:
        """Remove all hosts and release their memory."""
        self.slots: Slots = np.zeros(self._initial_slots + 1, np.uint32)
        self.count = 0

    @property
    def memory(self) -> int:
        """Bytes of the set."""
        return self.slots.nbytes

    def hosts(self) -> Slots:
        """Return the hosts in ascending order."""
        return hosts_in(self.slots)

    def grow(self, hosts: int = 0) -> None:
        """Double the set at least once, until `hosts` more hosts fit."""
        capacity = 2 * (len(self.slots) - 1)
        while 2 * (self.count + hosts) >= capacity:
            capacity *= 2
        slots = np.zeros(capacity + 1, np.uint32)
        _insert_all(slots, self.hosts())
        self.slots = slots

    def add(self, hosts: Slots) -> None:
        """Add an array of hosts."""
        if is_crowded(self.slots, self.count + len(hosts)):
            self.grow(len(hosts))
        self.count += int(_insert_all(self.slots, hosts))


def hosts_in(slots: Slots) -> Slots:
    """Return the hosts in the slots of a set, in ascending order."""
    hosts = slots[:-1][slots[:-1] != 0]
    hosts.sort()
    return np.concatenate([np.zeros(int(slots[-1] != 0), np.uint32), hosts])
