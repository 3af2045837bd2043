"""From packets that wait to the rows of their pairs: an open hash table of rows."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.compiled import compiled
from superhosts.sketch.evidence.marks import mark_of
from superhosts.sketch.evidence.rows import DEEDS, HASH, LOWER, LOWER_PORTS, NARROW, PACKETS, SERVICE, Rows
from superhosts.sketch.evidence.sightings import (
    CLASS_AT,
    HASH_AT,
    HASH_BITS,
    HIGH_END,
    NO_SERVICE,
    PORTLESS,
    deed_of,
    mixed,
    service_of,
)

Words = NDArray[np.uint64]

# A packet that waits: the hash of its pair, its details, its time, and of IPv6 the lower and the higher address.
WAITING_HASH, WAITING_DETAIL, WAITING_TIME, WAITING_ENDS = range(4)
TURNED: Final = 1 << 63  # a bit of the details: the higher end has sent the packet
BLOCK = 128  # packets whose rows are fetched before they are written

_U = np.uint64
_ZERO, _ONE = _U(0), _U(1)


class Table(NamedTuple):
    """Rows in the order of their arrival, and an open hash table of their numbers."""

    rows: Rows
    slots: NDArray[np.int32]  # number of a row, or -1
    used: NDArray[np.int64]  # rows


def empty_table(size: int, width: int) -> Table:
    """Return a table with room for twice the pairs of a sample. The system provides pages as they are written."""
    slots = 4 << (size - 1).bit_length()
    return Table(np.empty((2 * size, width), np.uint64), np.full(slots, -1, np.int32), np.zeros(1, np.int64))


@compiled
def note(waiting: Words, first: int, used: int, limit: np.uint64, table: Table) -> int:
    """Note packets up to the limit in the rows of their pairs; return how many are done: all, unless it is full."""
    rows, slots, count = table
    last, touched = _U(len(slots) - 1), _ZERO
    for start in range(first, used, BLOCK):
        stop = min(start + BLOCK, used)
        for packet in range(start, stop):  # so that the memory fetches several rows at a time
            number = np.int64(slots[waiting[packet, WAITING_HASH] & last])
            number = number if number >= 0 else np.int64(0)
            touched ^= rows[number, HASH] ^ rows[number, LOWER_PORTS + 1]  # A row is in two lines of the cache.
        for packet in range(start, stop):
            hashed = waiting[packet, WAITING_HASH]
            if hashed > limit:
                continue
            place = hashed & last
            number = np.int64(slots[place])
            while number >= 0 and rows[number, HASH] != hashed:
                place = (place + _ONE) & last
                number = np.int64(slots[place])
            if number < 0:
                number = count[0]
                if number == len(rows):
                    return packet
                slots[place] = number
                count[0] = number + 1
                rows[number, HASH], rows[number, SERVICE] = hashed, _U(NO_SERVICE)
                rows[number, DEEDS] = rows[number, PACKETS] = _ZERO
                rows[number, LOWER_PORTS] = rows[number, LOWER_PORTS + 1] = _ZERO
                for word in range(rows.shape[1] - NARROW):
                    rows[number, LOWER + word] = waiting[packet, WAITING_ENDS + word]
            detail = waiting[packet, WAITING_DETAIL]
            turned = detail & _U(TURNED) != _ZERO
            sent, received = deed_of(detail)
            if turned:
                sent, received = received, sent
            rows[number, DEEDS] |= sent | received << _U(HIGH_END)
            rows[number, PACKETS] |= mark_of(mixed(mixed(waiting[packet, WAITING_TIME]) ^ detail))
            service, whose = service_of(detail)
            if whose >= 0:
                at_higher = _U((whose == 1) != turned)
                what = mixed(mixed(service << _U(2) | at_higher) ^ hashed)  # of another pair it is another one
                kept = service | what >> _U(64 - HASH_BITS) << _U(HASH_AT) | at_higher
                rows[number, SERVICE] = min(rows[number, SERVICE], kept)
                if service >> _U(CLASS_AT) != _U(PORTLESS):
                    rows[number, LOWER_PORTS + np.int64(at_higher)] |= mark_of(what)
    return used if touched | _ONE else 0  # what was touched must seem to matter


@compiled
def compact(table: Table, limit: np.uint64) -> None:
    """Remove the rows with hashes above a limit."""
    rows, slots, used = table
    slots[:] = -1
    last, kept = _U(len(slots) - 1), 0
    for number in range(used[0]):
        if rows[number, HASH] > limit:
            continue
        for word in range(rows.shape[1]):
            rows[kept, word] = rows[number, word]
        place = rows[kept, HASH] & last
        while slots[place] >= 0:
            place = (place + _ONE) & last
        slots[place] = kept
        kept += 1
    used[0] = kept
