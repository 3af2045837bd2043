"""Sequence numbers: what an exporter sent and nobody got.

The number counts records before the datagram (NetFlow v5, IPFIX) or datagrams (NetFlow v9, sFlow). A number a little
ahead is a gap, and what lies between is lost. A number a little behind belongs to a datagram that was overtaken: it was
counted as lost, and is not. A number far away is an exporter that was started again: nothing is known to be lost.
"""

from __future__ import annotations

from superhosts.compiled import compiled
from superhosts.sources.exports.layout import EXPECTED, IN_STEP, LOST, RESTARTS, Rows

FEW_DATAGRAMS = 100_000  # by which a number of datagrams may be off without a restart
FEW_RECORDS = 3_000_000
UNKNOWN_STEP, IN_ORDER, OVERTAKEN = 0, 1, 2  # whether the next number is known, by the last datagram
_MASK = 0xFFFFFFFF


@compiled
def judge(streams: Rows, stream: int, sequence: int, count: int, few: int) -> None:
    """Take a datagram's number, and how much it counts itself; note the loss before it."""
    ahead = (sequence - streams[stream, EXPECTED]) & _MASK
    if streams[stream, IN_STEP] != UNKNOWN_STEP and ahead:
        behind = _MASK + 1 - ahead
        if ahead <= few:
            streams[stream, LOST] += ahead
        elif behind <= few // 100 and sequence > few // 100:
            streams[stream, LOST] = max(streams[stream, LOST] - count, 0)
            streams[stream, IN_STEP] = OVERTAKEN
            return
        else:
            streams[stream, RESTARTS] += 1
    streams[stream, EXPECTED] = sequence + count
    streams[stream, IN_STEP] = IN_ORDER


@compiled
def add_records(streams: Rows, stream: int, count: int) -> None:
    """Count the records of a set of IPFIX, whose header does not say how many there are."""
    if streams[stream, IN_STEP] == OVERTAKEN:
        streams[stream, LOST] = max(streams[stream, LOST] - count, 0)
    else:
        streams[stream, EXPECTED] += count
