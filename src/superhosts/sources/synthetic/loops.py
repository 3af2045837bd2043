"""The hot loops of synthetic traffic: peers of hosts, packets of flows, their order on the link, distinct rows.

Random numbers are hashes of a key and a counter, one sequence per host or per flow: what is drawn does not depend on
how many threads draw it, and a loop that runs twice over the same flows draws the same numbers without storing them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.jit.cache import compiled

CLIENT, SERVER, SWEEP, PROBE, VICTIM = range(5)  # what an inner host does; see traffic.py
CLIENT_BLOCKS = 4096  # /16 networks in which ordinary outer hosts live
PIECE = 64  # packets of a flow that travel as one train; longer flows come back several times in the window

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32, _S16, _S24 = (np.uint64(shift) for shift in (27, 30, 31, 32, 16, 24))
_LOW16 = np.uint64(0xFFFF)
_UNIT = 2.0**-53
_S11 = np.uint64(11)


@compiled
def mix(x: np.uint64) -> np.uint64:
    """Scramble 64 bits, one to one."""
    x = (x ^ (x >> _S30)) * _MIX_1
    x = (x ^ (x >> _S27)) * _MIX_2
    return x ^ (x >> _S31)


@compiled
def allowed(address: np.uint64, outside: NDArray[np.uint64]) -> bool:
    """Return True if an IPv4 address may be an outer host: unicast, not loopback, not of the monitored network."""
    octet = address >> _S24
    return bool(
        octet >= np.uint64(1)
        and octet <= np.uint64(223)
        and octet != np.uint64(127)
        and (address >> outside[1]) != outside[0]
    )


@compiled
def draw_peers(
    hosts: tuple[int, int],
    offsets: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    blocks: NDArray[np.uint32],
    outside: NDArray[np.uint64],
    peers: NDArray[np.uint32],
) -> None:
    """Draw distinct outer peers for the hosts of a range; host h owns peers[offsets[h]:offsets[h + 1]].

    `outside` holds the monitored network >> its host bits, those host bits, the number of popular servers, the key.
    """
    log_servers = np.log(float(outside[2]))
    largest = 1
    for host in range(hosts[0], hosts[1]):
        largest = max(largest, offsets[host + 1] - offsets[host])
    slots = 4
    while slots < 2 * largest:
        slots *= 2
    table = np.empty(slots, np.uint32)  # the peers of the present host, to keep them distinct; 0 is a free slot
    for host in range(hosts[0], hosts[1]):
        first, last, kind = offsets[host], offsets[host + 1], kinds[host]
        state = mix(outside[3] + np.uint64(host) * _GOLDEN)
        if kind == SWEEP:  # addresses one after the other: distinct by construction
            address = (np.uint64(blocks[state % np.uint64(CLIENT_BLOCKS)]) << _S16) | (mix(state) & _LOW16)
            for flow in range(first, last):
                while not allowed(address, outside):
                    address = ((address | _LOW16) + np.uint64(1)) & np.uint64(0xFFFFFFFF)
                peers[flow] = address
                address = (address + np.uint64(1)) & np.uint64(0xFFFFFFFF)
            continue
        slots = 4
        while slots < 2 * (last - first):
            slots *= 2
        table[:slots] = 0
        mask = np.uint64(slots - 1)
        popular = 0.7 if kind == CLIENT else 0.1 if kind == SERVER else 0.0
        for flow in range(first, last):
            tries = 0
            while True:
                tries += 1
                state += _GOLDEN
                random = mix(state)
                choice = float(random >> _S11) * _UNIT
                state += _GOLDEN
                random = mix(state)
                if kind >= PROBE or tries > 64:  # any address at all
                    address = random >> _S32
                elif choice < popular and tries <= 4:
                    # Rank uniform on a logarithmic scale: Zipf with exponent 1. Odd multiples scatter the ranks over
                    # 256 networks of sixteen /24 each.
                    rank = np.uint64(np.exp(choice / popular * log_servers))
                    place = (rank * np.uint64(0x5BD1E995)) & np.uint64(0xFFFFF)
                    address = (np.uint64(blocks[place & np.uint64(255)]) << _S16) | (place >> np.uint64(8))
                else:  # some networks hold more users than others
                    spread = float(random >> _S11) * _UNIT
                    block = blocks[int(spread * spread * CLIENT_BLOCKS)]
                    address = (np.uint64(block) << _S16) | (mix(random) & _LOW16)
                if not allowed(address, outside):
                    continue
                slot = (address * _MIX_1 >> _S32) & mask
                while table[slot] != 0 and table[slot] != address:
                    slot = (slot + np.uint64(1)) & mask
                if table[slot] == 0:
                    table[slot] = address
                    peers[flow] = address
                    break


@compiled
def packet_counts(
    offsets: NDArray[np.int64], kinds: NDArray[np.uint8], packets: int, key: np.uint64
) -> NDArray[np.int32]:
    """Packets of each flow: at least one, `packets` in all, heavy-tailed; flows of scanners and victims have one."""
    flows = offsets[-1]
    counts = np.ones(flows, np.int32)
    extra = packets - flows
    total = 0.0
    for turn in range(2):  # once for the sum of the weights, once to share the packets out in proportion
        given, reached = 0, 0.0
        for host in range(len(kinds)):
            if kinds[host] >= SWEEP:
                continue
            for flow in range(offsets[host], offsets[host + 1]):
                uniform = float(mix(key + np.uint64(flow) * _GOLDEN) >> _S11) * _UNIT
                reached += 1.0 / (uniform + 1e-5) - 0.99999
                if turn == 1:  # rounding the running sum keeps the whole exact
                    share = min(int(reached / total * extra), extra)
                    counts[flow] += share - given
                    given = share
        if turn == 0:
            total = reached
    if total == 0.0:  # only scanners and victims: share evenly
        for flow in range(flows):
            counts[flow] += extra // flows + (1 if flow < extra % flows else 0)
    return counts


@compiled
def interleave(pieces: NDArray[np.uint32], left: NDArray[np.int32], active: int, key: np.uint64) -> NDArray[np.uint32]:
    """Put packets in the order of a link: bursts of `active` flows at a time; a flow that ends makes room for the next.

    `pieces` says which flow starts next, `left` how many packets each flow still has (used up here).
    """
    order = np.empty(left.sum(), np.uint32)
    active = min(active, len(pieces))
    flows = np.empty(active, np.uint32)
    waiting = np.empty(active, np.int64)
    for slot in range(active):
        flow = pieces[slot]
        flows[slot], waiting[slot] = flow, min(PIECE, left[flow])
        left[flow] -= waiting[slot]
    following, written, state = active, 0, key
    while active > 0:
        state += _GOLDEN
        random = mix(state)
        slot = int(((random >> _S32) * np.uint64(active)) >> _S32)
        burst = 1
        while burst < waiting[slot] and random & np.uint64(1):
            burst += 1
            random >>= np.uint64(1)
        order[written : written + burst] = flows[slot]
        written += burst
        waiting[slot] -= burst
        if waiting[slot] == 0:
            if following < len(pieces):
                flow = pieces[following]
                following += 1
                flows[slot], waiting[slot] = flow, min(PIECE, left[flow])
                left[flow] -= waiting[slot]
            else:
                active -= 1
                flows[slot], waiting[slot] = flows[active], waiting[active]
    return order


@compiled
def insert_rows(
    rows: NDArray[np.uint64], table: NDArray[np.int32], kept: NDArray[np.uint64], count: int, ids: NDArray[np.int32]
) -> int:
    """Add rows to a hash set of `count` rows in `kept`; ids[i] is where row i stands there. Returns the new count."""
    mask = np.uint64(len(table) - 1)
    width = rows.shape[1]
    for i in range(len(rows)):
        slot = np.uint64(width)
        for column in range(width):
            slot = mix(slot ^ rows[i, column])
        slot &= mask
        while True:
            entry = table[slot]
            if entry < 0:
                table[slot] = count
                for column in range(width):
                    kept[count, column] = rows[i, column]
                ids[i] = count
                count += 1
                break
            same = True
            for column in range(width):
                same &= kept[entry, column] == rows[i, column]
            if same:
                ids[i] = entry
                break
            slot = (slot + np.uint64(1)) & mask
    return count
