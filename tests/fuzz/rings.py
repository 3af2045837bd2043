"""The walk over a ring against the oracle: absurd offsets, lengths and counts, in memory between two fences."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import strategies as st

import rings as r
from fuzz.captures import frame_of
from fuzz.mutations import NUMBERS, apply, edits
from fuzz.targets import target
from guards import between_guards
from superhosts.sources.frames import columns as cols
from superhosts.sources.livecapture import BLOCKS, DAMAGED, PLACE_SLOTS, TWICE, Cursor, Layout, walk_ring

SIZE, BLOCKS_OF_RING, MOST = 1024, 4, 64
_EDGES = tuple(SIZE - distance for distance in (0, 1, 14, 34, 47, 48, 60, 66, 67, 68, 69, 80, 114, 128))
_HARDWARE = (r.ETHER, r.ETHER, r.LOOPBACK, r.NONE, 512, 778, 802, r.RADIOTAP)


def make(random: Random) -> bytes:
    """Return a ring of a few packets in each block, with a lie now and then."""
    data = b""
    fields: list[tuple[int, int]] = []  # where a number stands on which the walk relies, and its bytes
    for start in range(0, BLOCKS_OF_RING * SIZE, SIZE):
        packets = []
        for _ in range(random.randrange(5)):
            hardware = random.choice(_HARDWARE)
            frame = frame_of(random, 1)[:100]
            kind = random.choice((0x0800, 0x86DD, 0x0806))
            net = random.choice((14, 14, 0, 18, 200, -30))
            time = random.randrange(2**32) * r.SECOND + random.randrange(r.SECOND)
            packets.append(r.Packet(frame, time, hardware, random.choice((0, 3, 4)), kind, net))
        data += r.block(packets, SIZE, random.choice((1, 1, 1, 1, 3, 0x80000001, 0, 2)))
        fields += [(start + 12, 4), (start + 16, 4)]
        at = start + 48
        for one in packets:
            fields += [(at, 4), (at + 12, 4), (at + 24, 2), (at + 26, 2)]
            at += len(r.packet(one, None))
    changed = bytearray(data)
    for at, length in random.sample(fields, random.choice((0, 1, 1, 2))):
        value = random.choice((*NUMBERS, *_EDGES, random.randrange(2 * SIZE))) & (1 << 8 * length) - 1
        changed[at : at + length] = value.to_bytes(length, "little")
    return bytes(changed)


def walked(data: bytes, cooked: bool, limit: int) -> r.Reading:
    """Walk a ring with the product, in steps of at most `limit` packets."""
    words, found = between_guards(len(data))[-len(data) :].view(np.uint32), r.Reading()
    words[:] = np.frombuffer(data, np.uint32)
    tally, place = np.zeros(cols.TALLY_SLOTS, np.int64), np.zeros(PLACE_SLOTS, np.int64)
    columns = cols.new_columns(limit, limit)
    layout = Layout(SIZE, len(data) // SIZE, int(cooked))
    while True:
        cols.start_walk(tally, limit)
        walk_ring(words.view(np.uint8), Cursor(words, place, layout), tally, columns)
        counts = tally.tolist()
        ends = zip(columns.src4.tolist(), columns.dst4.tolist(), columns.time4.tolist(), strict=True)
        found.ipv4 += list(ends)[: counts[cols.IPV4]]
        wide = zip(columns.src6.tolist(), columns.dst6.tolist(), columns.time6.tolist(), strict=True)
        found.ipv6 += [(a << 64 | b, c << 64 | d, time) for (a, b), (c, d), time in wide][: counts[cols.IPV6]]
        found.not_ip += counts[cols.NOT_IP]
        found.truncated += counts[cols.TRUNCATED]
        found.unsupported += counts[cols.UNSUPPORTED_LINK]
        if not counts[cols.PACKETS]:
            found.twice, found.damaged, found.blocks = (int(place[slot]) for slot in (TWICE, DAMAGED, BLOCKS))
            assert not words[2 :: SIZE // 4][: found.blocks].any()  # given back
            return found


_rings = st.builds(
    lambda number, changes: apply(make(Random(number)), changes)[: SIZE * BLOCKS_OF_RING].ljust(
        SIZE * BLOCKS_OF_RING, b"\0"
    ),
    st.integers(0, 2**32 - 1),
    st.just([]) | edits,
)


@target(st.tuples(_rings, st.booleans(), st.integers(1, MOST)))
def rings(case: tuple[bytes, bool, int]) -> None:
    data, cooked, limit = case
    assert walked(data, cooked, limit) == r.read(data, SIZE, cooked)
