"""The numbers that a walk over frames takes and gives: the slots of a tally."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.sources.base import Wants

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
SAMPLE = 16  # six slots: which packets' details are wanted (`sampled.py`)
TALLY_SLOTS = 22
DETAILS, INNER, BOTH = 1, 2, 4  # write details; addresses of the innermost IP header; of the outermost and it
SAMPLED = 8  # of usual packets, write details only of those in the sample

_LATEST = 2**63 - 1


def wants_of(wants: Wants) -> int:
    """Return the content of the slot WANTS."""
    sampled = SAMPLED * (wants.sampling is not None)
    return DETAILS * wants.details | {"outer": 0, "inner": INNER, "both": BOTH}[wants.tunnels] | sampled


def start_walk(tally: Tally, limit: int, stop: int = _LATEST) -> None:
    """Prepare a tally for a walk over at most `limit` packets, none of which starts at `stop` or behind it.

    A frame that holds several packets is read as a whole, so that there may be `MOST_SUBFRAMES` more.
    """
    tally[LIMIT], tally[STOP] = limit, stop
    tally[PACKETS:WANTS] = 0
    tally[EARLIEST4] = tally[EARLIEST6] = _LATEST
    tally[LATEST4] = tally[LATEST6] = ~_LATEST
