"""The arrays that Python and the compiled loops of exports share: what each slot means."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]

# A datagram of a batch: where it is in the block of bytes, and when it was received (ns; 0: not known).
START, END, RECEIVED, REPLAYED = 0, 1, 2, 3  # REPLAYED: 1 for records that were held until their template came
DATAGRAM_SLOTS = 4
LONGEST = 65_535  # bytes of a datagram

# The slots of a tally: the place that a walk has reached, and what it counts.
DATAGRAM, AT, SET_END, STREAM = 0, 1, 2, 3  # AT is 0 at the start of a datagram
ROWS4, ROWS6 = 4, 5
DATAGRAMS, BAD, DAMAGED, UNKNOWN_VERSION = 6, 7, 8, 9
NOT_IP, TRUNCATED, UNSUPPORTED = 10, 11, 12  # records and samples without addresses, by reason
WRONG_TIMES, RECORDS, SAMPLES = 13, 14, 15
SECOND_ROWS = 16  # rows of packets in a tunnel that have one already
CLOCK = 17  # datagrams so far, by which use is told
WANTS = 18  # what is wanted of the first bytes of packets: a sum of the bits of frames.tally
TALLY_SLOTS = 19
FIRST_COUNT = ROWS4  # slots from here to CLOCK begin at zero with every block

# Why a walk returns.
DONE, ROOM, TEMPLATES, OPTIONS, UNKNOWN, FULL = 0, 1, 2, 3, 4, 5

# A stream: the messages of one exporter and one observation domain (source id, engine, sub-agent).
EXPECTED, IN_STEP, LOST, RESTARTS = 0, 1, 2, 3
STREAM_DATAGRAMS, STREAM_RECORDS, RATE, USED, BOOT, VERSION, DROPPED = 4, 5, 6, 7, 8, 9, 10
# Of IPFIX, the reading in which a message's number includes its own records (sequence.py).
LAST, BEFORE, CHAIN, OWN, OWN_OPTIONS, FITS, SCORE, OWN_LOST, OWN_RESTARTS = 11, 12, 13, 14, 15, 16, 17, 18, 19
STREAM_SLOTS = 20

# A plan: where the fields of a template's records are. Places are bytes from the start of a record, -1 if absent.
OWNER, TEMPLATE, KIND, LENGTH, HASH, PLAN_USED = 0, 1, 2, 3, 4, 5
FAMILY, SRC4, DST4, SRC6, DST6, IP_VERSION = 6, 7, 8, 9, 10, 11
TIME_KIND, TIME_AT, TIME_WIDTH, BOOT_AT = 12, 13, 14, 15
PROTOCOL, SPORT, DPORT, FLAGS, FLAGS_WIDTH, ICMP, ICMP_WIDTH = 16, 17, 18, 19, 20, 21, 22
REVERSE_AT, REVERSE_WIDTH, IS_BIFLOW, RATE_AT, RATE_WIDTH = 23, 24, 25, 26, 27
FRAME_AT, FRAME_LENGTH, FRAME_LINK = 28, 29, 30
FIRST_FIELD, FIELDS = 31, 32  # of records of varying length: rows of the table of fields
PLAN_SLOTS = 33

# Kinds of plans.
GONE, FIXED, VARYING, OPTION, WITHOUT_ADDRESSES = 0, 1, 2, 3, 4
# Families of a plan's records; FRAME: the record has the first bytes of a packet.
NO_FAMILY, BOTH, FRAME = 0, 46, 1
# Kinds of times.
NO_TIME, SECONDS, MILLISECONDS, NTP, UPTIME, BEFORE_EXPORT = 0, 1, 2, 3, 4, 5

VARIABLE = 65535  # the length of a field whose length is in each record
DAY = 86400 * 10**9
# No record with two addresses is shorter than this, so that a batch's rows can be bounded.
SHORTEST_RECORD = 8


class Tables(NamedTuple):
    """What the walks look up: streams by key, plans by stream and template."""

    stream_keys: NDArray[np.uint64]  # (streams, 3): address, high and low word, and version and domain
    stream_slots: NDArray[np.int32]  # open addressing: number of a stream, -1 if free
    streams: Rows
    plan_slots: NDArray[np.int32]
    plans: Rows
    fields: Rows  # (fields, 2): length and slot of the plan, -1 if it does not matter
    used: Rows  # (1,): streams in use
    secret: NDArray[np.uint64]  # (2,): nobody can choose keys that meet in the tables
