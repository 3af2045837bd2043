"""The compiled walk over captured frames, which pcap, pcapng and the ring of a live capture share.

A format has five functions, which the compiler puts into the walk (`jit.inlined`). References to arrays are not counted
there: that takes atomic operations, for some packets more than all else.

- `begin(layout)` returns the state of a walk: a named tuple with at least the fields of `State`.
- `usual(block, at, layout, state)` returns whether the record at `at` is a usual one, the start and end of its frame,
  where the next record starts, and the time.
- `advance(state, records)` returns the state behind so many usual records.
- `record(block, at, layout, state, time, tally)` reads any record. It returns PACKET, SKIP or why the walk stops, the
  start and end of the frame, where the next record starts, the time, and the new state.
- `finish(layout, state)` notes in `layout` what the next walk needs.
- `group(block, at, start, end, state, wants)` returns the number of a packet's group; `at` is that of a usual record,
  else -1.

`piece_loop` makes of a walk the loop that reads a piece of a capture file: its bytes in small steps, walked while they
are in the cache. Nothing says where in the middle of a file a record starts. The loop guesses: it takes the first place
from which a chain of plausible records leads on. Whoever uses the piece must confirm the guess (`capture.PieceReader`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from superhosts.core.pairs import SKIPPED
from superhosts.jit.cache import compiled, inlined
from superhosts.sources.frames.columns import (
    DETAILS,
    EARLIEST4,
    EARLIEST6,
    GROUPED,
    IPV4,
    IPV6,
    LATEST4,
    LATEST6,
    LIMIT,
    PACKETS,
    POSITION,
    SAMPLED,
    STOP,
    TIME,
    WANTS,
    Columns,
    Tally,
    is_sampled,
    sampled_of,
)
from superhosts.sources.frames.headers import (
    QUICK_BYTES,
    find_headers,
    glance,
    is_ipv4,
    is_whole,
    peek,
    put_ipv4,
    put_ipv6,
    type_end,
)
from superhosts.sources.frames.links import ETHERNET, MOST_SUBFRAMES, Bytes, byte, half, ip_header, is_wrapped, vlan_of

ENDLESS = 1 << 62  # a run of any number of records
PACKET, SKIP, MORE = -1, -2, 0  # what a record is: a packet, no packet, or not whole; larger numbers are the format's

CHAIN = 16  # records that make a guess
LEAST_CHAIN = 2  # records that make a guess if there are no more bytes to look at
STEP_BYTES = 256 * 1024  # read at once: a part of the cache that each core has to itself
ROOM_BYTES = 2 * STEP_BYTES + 64 * 1024  # of a buffer: a step, and a record of the usual size
_BEYOND = 4096  # bytes read behind a piece, where its last record ends

_pread = types.ExternalFunction("pread", types.intp(types.int32, types.voidptr, types.uintp, types.int64))

Rows = NDArray[np.int64]  # of a lister, by frame: start, end, link, time
Lister = Callable[[Bytes, Any, Tally, Rows], int]
Walk = Callable[[Bytes, Any, Tally, Columns], int]
Loop = Callable[[int, tuple[int, int, int], Any, Bytes, Tally, Columns], int]


class State(NamedTuple):
    link: int  # of their frames
    run: int  # how many of them `usual` may read; 0 where it finds none
    shortest: int  # bytes of a record


@inlined
def stay(state: Any, records: int) -> Any:
    """Return the state of a format that does not count records."""
    return state


@inlined
def note_nothing(layout: Any, state: Any) -> None:
    """Note nothing at the end of a walk."""


@inlined
def group_of(block: Bytes, at: int, start: int, end: int, state: Any, wants: int) -> int:
    """Return the number of the VLAN of a frame; its interface is not known."""
    return vlan_of(block, start, end, state.link)


def make_walk(
    begin: Any,
    usual: Any,
    record: Any,
    finish: Any = note_nothing,
    advance: Any = stay,
    group: Any = group_of,
    *,
    rich: bool,
    name: str,
) -> Walk:
    """Return the compiled walk of a format; `name` is that of its machine code.

    The rich one reads whatever is wanted and every kind of link; the other one reads addresses on links with simple
    headers, which takes a third of the time to compile. Both are one text: the compiler knows `rich`.
    """

    def walk(block: Bytes, layout: Any, tally: Tally, columns: Columns) -> int:
        """Read the whole records of a block, at most as many packets as the tally allows; return why it stopped."""
        src4, dst4, time4, src6, dst6, time6, details4, details6, groups4, groups6 = columns
        at, limit, reason = tally[POSITION], tally[LIMIT], MORE
        time, packets, ipv4, ipv6 = tally[TIME], tally[PACKETS], tally[IPV4], tally[IPV6]
        earliest4, latest4, earliest6, latest6 = tally[EARLIEST4], tally[LATEST4], tally[EARLIEST6], tally[LATEST6]
        wants, sampled = tally[WANTS], sampled_of(tally)
        state = begin(layout)
        last = min(tally[STOP] - 1, len(block) - state.shortest)  # where the last record can start
        while packets < limit and at <= last:
            if state.run:  # a run of usual records that are not tunnels
                before, most = ipv4, ipv4 + min(limit - packets, state.run)
                while ipv4 < most and at <= last:
                    found, start, end, after, when = usual(block, at, layout, state)
                    if not found:
                        break
                    row = np.uint64(ipv4)
                    put_ipv4(block, start + 14, ipv4, src4, dst4)
                    if rich and wants:
                        details = SKIPPED
                        if not wants & SAMPLED or is_sampled(src4[row], dst4[row], when, sampled):
                            protocol, first, flags, left = peek(block, start + 14, end, 4)
                            details = glance(protocol, first, flags, left, wants)
                            if not details:
                                break
                        if wants & DETAILS:
                            details4[row] = details
                        if wants & GROUPED:
                            groups4[row] = group(block, at, start, end, state, wants)
                    time4[row] = time = when
                    earliest4, latest4 = min(earliest4, time), max(latest4, time)
                    ipv4 += 1
                    at = after
                packets += ipv4 - before
                state = advance(state, ipv4 - before)
                if packets >= limit or at > last:
                    break
            what, start, end, after, time, state = record(block, at, layout, state, time, tally)
            if what >= 0:
                reason = what
                break
            if what == SKIP:
                at = after
                continue
            header = details = second = second_details = following = parts = number = 0
            if rich and wants & GROUPED:
                number = group(block, -1, start, end, state, wants)
            if state.link == ETHERNET and end - start >= QUICK_BYTES:
                header = start + type_end(half(block, start + 12))
                if not is_whole(half(block, header - 2), byte(block, header) >> 4, end - header):
                    header = 0
                if rich and header and wants:
                    protocol, first, flags, left = peek(block, header, end, byte(block, header) >> 4)
                    details = glance(protocol, first, flags, left, wants)
                    if not details:
                        header = 0
            part, is_simple = state.link, not wants and not is_wrapped(state.link)
            while True:  # once for each packet of the frame
                if not header:
                    if rich:
                        if is_simple:
                            header = ip_header(block, start, end, part)
                        else:
                            headers = find_headers(block, start, end, part, wants)
                            header, details, second, second_details, following, part = headers
                    else:
                        header = ip_header(block, start, end, part)
                if header < 0:
                    tally[-header] += 1
                    header = 0
                while header:
                    if is_ipv4(block, header):
                        put_ipv4(block, header, ipv4, src4, dst4)
                        time4[np.uint64(ipv4)] = time
                        if rich and wants & DETAILS:
                            details4[np.uint64(ipv4)] = details
                        if rich and wants & GROUPED:
                            groups4[np.uint64(ipv4)] = number
                        earliest4, latest4 = min(earliest4, time), max(latest4, time)
                        ipv4 += 1
                    else:
                        put_ipv6(block, header, ipv6, src6, dst6)
                        time6[np.uint64(ipv6)] = time
                        if rich and wants & DETAILS:
                            details6[np.uint64(ipv6)] = details
                        if rich and wants & GROUPED:
                            groups6[np.uint64(ipv6)] = number
                        earliest6, latest6 = min(earliest6, time), max(latest6, time)
                        ipv6 += 1
                    header, details, second = second, second_details, 0
                packets += 1
                parts += 1
                if not following or parts == MOST_SUBFRAMES:
                    break
                start = following
            at = after
        tally[POSITION], tally[TIME], tally[PACKETS], tally[IPV4], tally[IPV6] = at, time, packets, ipv4, ipv6
        tally[EARLIEST4], tally[LATEST4], tally[EARLIEST6], tally[LATEST6] = earliest4, latest4, earliest6, latest6
        finish(layout, state)
        return reason

    walk.__qualname__ = name
    return compiled(walk, counts=False)


def make_lister(begin: Any, record: Any, finish: Any = note_nothing, *, name: str) -> Lister:
    """Return a compiled walk of a format that writes where frames start and end, their link and time."""

    def list_frames(block: Bytes, layout: Any, tally: Tally, rows: Rows) -> int:
        at, time, packets, reason = tally[POSITION], tally[TIME], tally[PACKETS], MORE
        state = begin(layout)
        while packets < tally[LIMIT] and at <= len(block) - state.shortest:
            what, start, end, after, time, state = record(block, at, layout, state, time, tally)
            if what >= 0:
                reason = what
                break
            if what == PACKET:
                rows[packets, 0], rows[packets, 1], rows[packets, 2], rows[packets, 3] = start, end, state.link, time
                packets += 1
            at = after
        tally[POSITION], tally[TIME], tally[PACKETS] = at, time, packets
        finish(layout, state)
        return reason

    list_frames.__qualname__ = name
    return compiled(list_frames)


def piece_loop(guess: Callable[..., int], walk: Walk, name: str) -> Loop:
    """Return the compiled loop for a format, given its guess and its walk, and a name for its machine code."""

    def read_piece(
        file: int, place: tuple[int, int, int], layout: Any, buffer: Bytes, tally: Tally, columns: Columns
    ) -> int:
        """Read the records that start in a piece of a file and return where the first of them starts, -1 if unknown.

        `place` has the start and the end of the piece, and a time near those of its packets. The piece ends early where
        the file ends, at damage, at a record that does not fit into the buffer, and at one that the walk does not read:
        tally[POSITION] is where it ends in the file.
        """
        offset, end, near = place
        filled, begins = 0, -1
        while True:
            step = min(STEP_BYTES, len(buffer) - filled, max(end - offset - filled, 0) + _BEYOND)
            got = _pread(file, buffer[filled:].ctypes, step, offset + filled)
            if got <= 0:  # the end of the file, an error or a full buffer
                break
            filled += got
            if begins < 0:
                first = guess(buffer[:filled], layout, near)
                if first < 0:
                    return -1
                begins, tally[POSITION] = offset + first, first
            tally[STOP] = end - offset
            reason = walk(buffer[:filled], layout, tally, columns)
            start = tally[POSITION]
            if reason or start >= end - offset:
                break
            if start:
                for at in range(start, filled):  # the start of a record, whose end is read next
                    buffer[at - start] = buffer[at]
                offset, filled, tally[POSITION] = offset + start, filled - start, 0
        tally[POSITION] += offset
        return begins

    read_piece.__qualname__ = name
    return compiled(read_piece)
