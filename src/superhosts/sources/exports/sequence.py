"""Sequence numbers: what an exporter sent and nobody got.

The number counts records before the datagram (NetFlow v5, IPFIX) or datagrams (NetFlow v9, sFlow). A number a little
ahead is a gap, and what lies between is lost. A number a little behind belongs to a datagram that was overtaken: it was
counted as lost, and is not. A number far away is an exporter that was started again: nothing is known to be lost.

Some exporters of IPFIX (softflowd) number a message with the records up to its end, not before it (RFC 7011), and leave
out records of options. So losses are counted in both ways, and the one counts in which more messages follow from the
one before. While all messages have as many records, both ways are the same.
"""

from __future__ import annotations

from superhosts.jit.cache import compiled
from superhosts.sources.exports.layout import (
    BEFORE,
    CHAIN,
    EXPECTED,
    FITS,
    IN_STEP,
    LAST,
    LOST,
    OWN,
    OWN_LOST,
    OWN_OPTIONS,
    OWN_RESTARTS,
    RESTARTS,
    SCORE,
    Rows,
)

FEW_DATAGRAMS = 100_000  # by which a number of datagrams may be off without a restart
FEW_RECORDS = 3_000_000
UNKNOWN_STEP, IN_ORDER, OVERTAKEN = 0, 1, 2  # whether the next number is known, by the last datagram
MOST_SCORE = 100  # messages by which one way may be ahead: another program may take over the exporter's address
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
def judge_ipfix(streams: Rows, stream: int, sequence: int) -> None:
    """Take the number of a message of IPFIX, whose records are not known yet; note the loss before it in both ways."""
    is_known = streams[stream, IN_STEP] != UNKNOWN_STEP  # how many records the last message has
    if is_known and streams[stream, CHAIN] == 2:
        _judge_last(streams, stream)
    streams[stream, FITS] = int((sequence - streams[stream, EXPECTED]) & _MASK == 0) if is_known else -1
    streams[stream, BEFORE], streams[stream, LAST] = streams[stream, LAST], sequence
    streams[stream, CHAIN] = min(streams[stream, CHAIN] + 1, 2)
    streams[stream, OWN] = streams[stream, OWN_OPTIONS] = 0
    judge(streams, stream, sequence, 0, FEW_RECORDS)  # its records are added set by set


@compiled
def _judge_last(streams: Rows, stream: int) -> None:
    """Note the loss before the last message, if its number includes its own records."""
    step, least = (streams[stream, LAST] - streams[stream, BEFORE]) & _MASK, streams[stream, OWN]
    most = least + streams[stream, OWN_OPTIONS]
    if streams[stream, FITS] >= 0:
        score = streams[stream, SCORE] + int(least <= step <= most) - streams[stream, FITS]
        streams[stream, SCORE] = max(min(score, MOST_SCORE), -MOST_SCORE)
    if step <= most:
        return
    if step <= FEW_RECORDS:
        streams[stream, OWN_LOST] += step - most
    elif _MASK + 1 - step <= FEW_RECORDS // 100 and streams[stream, LAST] > FEW_RECORDS // 100:  # it was overtaken
        streams[stream, OWN_LOST] = max(streams[stream, OWN_LOST] - most, 0)
        streams[stream, LAST] = streams[stream, BEFORE]
    else:
        streams[stream, OWN_RESTARTS] += 1


@compiled
def add_records(streams: Rows, stream: int, count: int, slot: int) -> None:
    """Count the records of a set of IPFIX, whose header does not say how many there are. `slot`: OWN or OWN_OPTIONS."""
    streams[stream, slot] += count
    if streams[stream, IN_STEP] == OVERTAKEN:
        streams[stream, LOST] = max(streams[stream, LOST] - count, 0)
    else:
        streams[stream, EXPECTED] += count
