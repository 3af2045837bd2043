"""What a walk over frames or flow exports takes and gives: a tally of numbers, and columns of packets.

Columns are lent: their memory is used again for the next piece of a file. A few packets in such memory would hold all
of it, so these are copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import MOST_GROUP, Details, PacketBatch, PacketBlock
from superhosts.jit.cache import compiled
from superhosts.jit.memory import Lender
from superhosts.sources.base import PLAIN, Sampling, SourceCounters, Wants

Tally = NDArray[np.int64]

# The slots of a tally: the arguments and the results of a walk.
POSITION = 0  # where in the block the next record starts
STOP = 1  # do not read records that start here or later
LIMIT = 2  # read no record after this many packets (the columns hold few more)
TIME = 3  # of the latest packet, kept from walk to walk
SIMPLE = 4  # pcapng packets that carry no time of their own
PACKETS, IPV4, IPV6, NOT_IP, TRUNCATED, UNSUPPORTED_LINK = 5, 6, 7, 8, 9, 10  # IPV4 and IPV6 count rows
EARLIEST4, LATEST4, EARLIEST6, LATEST6 = 11, 12, 13, 14  # times of the packets in the columns, by family
WANTS = 15  # what is to be read besides the outermost addresses: a sum of the following
SAMPLE = 16  # six slots: which packets' details are wanted (`is_sampled`)
TALLY_SLOTS = 22
DETAILS, INNER, BOTH = 1, 2, 4  # write details; addresses of the innermost IP header; of the outermost and it
SAMPLED = 8  # of usual packets, write details only of those in the sample
VLAN, INTERFACE = 16, 32  # write the number of the outermost VLAN (0: none), or of the interface
GROUPED = VLAN | INTERFACE

_LATEST = 2**63 - 1


def wants_of(wants: Wants) -> int:
    sampled = SAMPLED * (wants.sampling is not None) | {"vlan": VLAN, "interface": INTERFACE}.get(wants.group, 0)
    return DETAILS * wants.details | {"outer": 0, "inner": INNER, "both": BOTH}[wants.tunnels] | sampled


def start_walk(tally: Tally, limit: int, stop: int = _LATEST) -> None:
    """Prepare a tally for a walk over at most `limit` packets, none of which starts at `stop` or behind it.

    A frame that holds several packets is read as a whole, so that there may be `MOST_SUBFRAMES` more.
    """
    tally[LIMIT], tally[STOP] = limit, stop
    tally[PACKETS:WANTS] = 0
    tally[EARLIEST4] = tally[EARLIEST6] = _LATEST
    tally[LATEST4] = tally[LATEST6] = ~_LATEST


_U = np.uint64


class Sampled(NamedTuple):
    start: int  # of the window whose sample it is, and its end; details of packets of other times are read
    end: int
    limit: Any  # the largest hash; uint64, like the words of the hash
    white: Any
    first: Any
    second: Any


def use_sampling(tally: Tally, sampling: Sampling | None) -> None:
    """Note in a tally what the sample is now. It only shrinks, so that what is read later has all that it needs."""
    if sampling is not None:
        start, end, limit = sampling.limit
        tally[SAMPLE], tally[SAMPLE + 1] = start, end
        tally[SAMPLE + 2 : SAMPLE + 6] = np.array([limit, *sampling.words], np.uint64).view(np.int64)


@compiled
def sampled_of(tally: Tally) -> Sampled:
    """Return what is noted in a tally."""
    words = tally[SAMPLE + 2], tally[SAMPLE + 3], tally[SAMPLE + 4], tally[SAMPLE + 5]
    return Sampled(tally[SAMPLE], tally[SAMPLE + 1], _U(words[0]), _U(words[1]), _U(words[2]), _U(words[3]))


@compiled
def is_sampled(src: np.uint32, dst: np.uint32, time: Any, sampled: Sampled) -> bool:
    """Return True if the details of a packet of IPv4 are needed."""
    x = (_U(min(src, dst)) << _U(32) | _U(max(src, dst))) ^ sampled.white  # `hashing.mangle64`; a tally has no key
    x = (x ^ (x >> _U(32))) * sampled.first
    x = (x ^ (x >> _U(29))) * sampled.second
    hashed = x ^ (x >> _U(32))
    return bool((hashed <= sampled.limit) | (time < sampled.start) | (time >= sampled.end))


_Span = tuple[int, int]  # the earliest and the latest time


class Columns(NamedTuple):
    src4: NDArray[np.uint32]
    dst4: NDArray[np.uint32]
    time4: NDArray[np.int64]
    src6: NDArray[np.uint64]
    dst6: NDArray[np.uint64]
    time6: NDArray[np.int64]
    details4: Details  # empty unless they are wanted
    details6: Details
    groups4: NDArray[np.uint16]  # empty unless they are wanted
    groups6: NDArray[np.uint16]


def new_columns(ipv4: int, ipv6: int, wants: Wants = PLAIN) -> Columns:
    """Return columns for this many rows of each family. Memory that is never written costs nothing."""
    return ColumnLender(ipv4, ipv6, wants).borrow()


def written(columns: Columns, tally: Tally) -> Columns:
    return first_rows(columns, int(tally[IPV4]), int(tally[IPV6]))


def first_rows(columns: Columns, narrow: int, wide: int) -> Columns:
    named: dict[str, Any] = columns._asdict()
    return Columns(**{name: column[: wide if name.endswith("6") else narrow] for name, column in named.items()})


def copied(columns: Columns, families: str = "46") -> Columns:
    """Return the columns with those of these families copied."""
    named: dict[str, Any] = columns._asdict()
    return Columns(**{name: column.copy() if name[-1] in families else column for name, column in named.items()})


def take(columns: Columns, tally: Tally, counters: SourceCounters, named: Callable[[int], str] = str) -> PacketBlock:
    """Return what a walk has written as a block, and count what it has not written. `named`: the name of a group."""
    counts = tally.tolist()
    counters.packets += counts[PACKETS] - counts[IPV4] - counts[IPV6]  # A packet in a tunnel may have two rows.
    counters.not_ip += counts[NOT_IP]
    counters.truncated += counts[TRUNCATED]
    counters.unsupported_link += counts[UNSUPPORTED_LINK]
    spans = (counts[EARLIEST4], counts[LATEST4]), (counts[EARLIEST6], counts[LATEST6])
    block = block_of(columns, *spans, details=bool(counts[WANTS] & DETAILS))
    return grouped(block, columns, named) if counts[WANTS] & GROUPED else block


def grouped(block: PacketBlock, columns: Columns, named: Callable[[int], str]) -> PacketBlock:
    """Return a block with a batch for each family and group, in the order of the packets within each."""
    found: list[PacketBatch] = []
    for batch in block:
        numbers = columns.groups4 if batch.family == 4 else columns.groups6
        order = np.argsort(numbers, kind="stable")
        edges = np.flatnonzero(np.diff(numbers[order])) + 1
        for rows in np.split(order, edges):
            group = re.sub("[^ -~]", "?", named(int(numbers[rows[0]])))[:MOST_GROUP]
            found.append(replace(batch.take(rows) if len(edges) else batch, group=group))
    return tuple(found)


def vlan_name(number: int) -> str:
    return f"vlan {number}" if number else "no vlan"


def block_of(columns: Columns, span4: _Span | None = None, span6: _Span | None = None, *, details: bool) -> PacketBlock:
    src4, dst4, time4, src6, dst6, time6, details4, details6, _, _ = columns
    block: PacketBlock = ()
    if len(time4):
        block += (PacketBatch(4, src4, dst4, time4, span4, details4 if details else None),)
    if len(time6):
        block += (PacketBatch(6, src6, dst6, time6, span6, details6 if details else None),)
    return block


NARROW_BYTES, WIDE_BYTES = 4 + 4 + 8, 16 + 16 + 8  # of a packet in the columns
DETAIL_BYTES = 8
_LEAST_PART = 4  # memory of which less than a quarter is used is not kept


class ColumnLender:
    """Lends columns for up to `ipv4` and `ipv6` packets. Any thread may borrow, and drop what it has borrowed."""

    def __init__(self, ipv4: int, ipv6: int, wants: Wants = PLAIN) -> None:
        self._ipv4, self._ipv6, self._details, self._groups = ipv4, ipv6, wants.details, wants_of(wants) & GROUPED
        more = DETAIL_BYTES * (wants.details + bool(self._groups))
        self._narrow, self._wide = Lender(ipv4 * (NARROW_BYTES + more)), Lender(ipv6 * (WIDE_BYTES + more))

    @property
    def made(self) -> int:
        return self._narrow.made + self._wide.made

    def borrow(self) -> Columns:
        """Return columns with any content. Memory that is never written costs nothing."""
        narrow, wide = self._ipv4, self._ipv6
        first, second = self._narrow.borrow(), self._wide.borrow()
        return Columns(
            first[8 * narrow : 12 * narrow].view(np.uint32),
            first[12 * narrow : 16 * narrow].view(np.uint32),
            first[: 8 * narrow].view(np.int64),
            second[: 16 * wide].view(np.uint64).reshape(wide, 2),
            second[16 * wide : 32 * wide].view(np.uint64).reshape(wide, 2),
            second[32 * wide : 40 * wide].view(np.int64),
            first[16 * narrow : 24 * narrow].view(np.uint64) if self._details else np.empty(0, np.uint64),
            second[40 * wide : 48 * wide].view(np.uint64) if self._details else np.empty(0, np.uint64),
            first[len(first) - 2 * narrow :].view(np.uint16) if self._groups else np.empty(0, np.uint16),
            second[len(second) - 2 * wide :].view(np.uint16) if self._groups else np.empty(0, np.uint16),
        )

    def kept(self, columns: Columns, tally: Tally) -> Columns:
        """Return the rows that a walk has written: views of what was lent, or copies if they use little of it."""
        few4, few6 = tally[IPV4] < self._ipv4 // _LEAST_PART, tally[IPV6] < self._ipv6 // _LEAST_PART
        return copied(written(columns, tally), "4" * bool(few4) + "6" * bool(few6))
