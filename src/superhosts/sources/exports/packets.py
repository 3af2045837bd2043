"""The first bytes of a packet within an export: sFlow's header records, and sections of frames in IPFIX."""

from __future__ import annotations

import numpy as np

from superhosts.jit.cache import compiled
from superhosts.sources.exports.layout import (
    NOT_IP,
    ROWS4,
    ROWS6,
    SECOND_ROWS,
    TRUNCATED,
    UNSUPPORTED,
    WANTS,
    Bytes,
    Rows,
)
from superhosts.sources.frames import columns as frames_columns
from superhosts.sources.frames.columns import Columns
from superhosts.sources.frames.headers import find_headers, is_ipv4, put_ipv4, put_ipv6

_NOT_IP, _TRUNCATED = frames_columns.NOT_IP, frames_columns.TRUNCATED


@compiled
def _put_row(block: Bytes, header: int, details: int, time: int, room: Columns, tally: Rows) -> None:
    """Write the packet whose IP header is at `header`."""
    if is_ipv4(block, header):
        row = tally[ROWS4]
        put_ipv4(block, header, row, room.src4, room.dst4)
        room.time4[row] = time
        if len(room.details4):
            room.details4[row] = np.uint64(details)
        tally[ROWS4] += 1
    else:
        row = tally[ROWS6]
        put_ipv6(block, header, row, room.src6, room.dst6)
        room.time6[row] = time
        if len(room.details6):
            room.details6[row] = np.uint64(details)
        tally[ROWS6] += 1


@compiled
def put_frame(block: Bytes, place: tuple[int, int], link: int, time: int, room: Columns, tally: Rows) -> bool:
    """Write the packet that begins with block[place]; return False, and count why, if it has no addresses."""
    start, end = place
    header, details, second, second_details, _, _ = find_headers(block, start, end, link, tally[WANTS])
    if header < 0:
        tally[NOT_IP if header == -_NOT_IP else TRUNCATED if header == -_TRUNCATED else UNSUPPORTED] += 1
        return False
    _put_row(block, header, details, time, room, tally)
    if second:
        _put_row(block, second, second_details, time, room, tally)
        tally[SECOND_ROWS] += 1
    return True
