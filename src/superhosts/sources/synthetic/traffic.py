"""Synthetic backbone traffic, the same for the same seed, with an exact answer.

A flow is one distinct (inner host, outer peer) pair of a window. A window has exactly `flows` of them and exactly
`packets` packets, at least one per flow. With both families one third of everything is IPv6.

* Inner hosts have a heavy tail of peers (below), and exactly `super_hosts` of them have 1024 or more.
* Ordinary hosts choose most of their peers among popular servers (Zipf), so that some outer hosts have very many inner
  peers too; busy inner servers are called by users from some thousand networks, some of them larger than others.
* Among the super hosts are scanners that sweep address ranges, scanners that probe at random, and victims of floods
  with spoofed sources. Their flows have one packet each, sent mostly by the scanner, mostly to the victim; the other
  flows have a heavy tail of packets, and each packet goes out or in with equal chance.
* Packets come in bursts of a thousand flows that are under way at a time ("trains"), or in random order ("shuffled").

Sizes. The number of hosts with at least x peers follows a bounded Pareto law, S·((x/θ)^−a − q)/(1 − q) with a = 1.05,
θ = 1024, q = (cap/θ)^−a and cap = 200 000, S being the number of super hosts asked for. Sizes are drawn one per stratum
of that law (the i-th largest host from the i-th S-th part), so that exactly S hosts reach θ, whatever the seed. The law
goes on below θ as far as the flows last, and the remaining flows belong to small hosts of 1 to 256 peers with the same
exponent. Where the flows are too few for the whole tail, its cap comes down; where they are too few for S hosts of θ
peers, the request is refused.

Addresses. A host's rank is scattered over 2^m slots, one to one; a slot is a place in a used /24 of a used /16 (IPv6: a
/64 of a /48, where one slot in four shares the /64 of its neighbour). The same rank keeps its address in every window,
so that longer windows mean something; scanners and victims wear another one in each window.

Random numbers of the compiled loops are hashes of a key and a counter, one sequence per host or per flow: what is drawn
does not depend on how many threads draw it. Memory is 8 bytes a flow and 4 a packet of one window while streaming.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import THRESHOLD
from superhosts.core.device import thread_count
from superhosts.core.pairs import Addresses, PacketBatch, PacketBlock
from superhosts.core.text import counted
from superhosts.core.units import SECOND
from superhosts.errors import UsageError
from superhosts.jit.cache import compiled

CLIENT, SERVER, SWEEP, PROBE, VICTIM = range(5)  # what an inner host does; see above
CLIENT_BLOCKS = 4096  # /16 networks in which ordinary outer hosts live
INNER = {4: ipaddress.ip_network("10.0.0.0/8"), 6: ipaddress.ip_network("2001:db8::/32")}  # the monitored networks
_INNER_OCTET = np.uint64(10)
PIECE = 64  # packets of a flow that travel as one train; longer flows come back several times in the window

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32, _S16, _S24 = (np.uint64(shift) for shift in (27, 30, 31, 32, 16, 24))
_LOW16 = np.uint64(0xFFFF)
_UNIT = 2.0**-53
_S11 = np.uint64(11)


def mix_all(x: Any) -> Any:
    """Scramble 64-bit numbers, one to one."""
    x = (x ^ (x >> _S30)) * _MIX_1
    x = (x ^ (x >> _S27)) * _MIX_2
    return x ^ (x >> _S31)


mix = compiled(mix_all)  # of one number, for compiled loops


@compiled
def allowed(address: np.uint64) -> bool:
    """Return True if an IPv4 address may be an outer host: unicast, not loopback, not of the monitored network."""
    octet = address >> _S24
    return bool(np.uint64(1) <= octet <= np.uint64(223) and octet != np.uint64(127) and octet != _INNER_OCTET)


@compiled
def draw_peers(
    hosts: tuple[int, int],
    offsets: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    blocks: NDArray[np.uint32],
    servers: int,
    key: np.uint64,
    peers: NDArray[np.uint32],
) -> None:
    """Draw distinct outer peers for the hosts of a range; host h owns peers[offsets[h]:offsets[h + 1]].

    `servers`: how many popular servers there are.
    """
    log_servers = np.log(float(servers))
    largest = 1
    for host in range(hosts[0], hosts[1]):
        largest = max(largest, offsets[host + 1] - offsets[host])
    slots = 4
    while slots < 2 * largest:
        slots *= 2
    table = np.empty(slots, np.uint32)  # the peers of the present host, to keep them distinct; 0 is a free slot
    for host in range(hosts[0], hosts[1]):
        first, last, kind = offsets[host], offsets[host + 1], kinds[host]
        state = mix(key + np.uint64(host) * _GOLDEN)
        if kind == SWEEP:  # addresses one after the other: distinct by construction
            address = (np.uint64(blocks[state % np.uint64(CLIENT_BLOCKS)]) << _S16) | (mix(state) & _LOW16)
            for flow in range(first, last):
                while not allowed(address):
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
                if not allowed(address):
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


EXPONENT = 1.05  # of the Pareto tail
CAP = 200_000  # peers of the largest host
SHOULDER = 256  # the tail goes down to here, flows permitting
SMALL_CAP = 256  # largest of the small hosts
SMALL_MEAN = float((np.arange(1, SMALL_CAP + 1) ** -EXPONENT).sum())

Sizes = NDArray[np.int64]
Words = NDArray[np.uint64]


def generator(*words: int) -> np.random.Generator:
    """Return the random generator (PCG64) of one purpose: seed, then whatever tells the purpose from others."""
    return np.random.Generator(np.random.PCG64(list(words)))


def _tail_flows(supers: int, cap: float, low: float) -> float:
    """Flows to be expected of all hosts with `low` to `cap` peers."""
    scale = supers * THRESHOLD * EXPONENT / (EXPONENT - 1) / (1 - (cap / THRESHOLD) ** -EXPONENT)
    return float(scale * ((THRESHOLD / low) ** (EXPONENT - 1) - (cap / THRESHOLD) ** (1 - EXPONENT)))


class TooFewFlowsError(UsageError):
    """Super hosts need more flows; whoever catches it names the option that asked for so few."""


def tail_bounds(supers: int, flows: int) -> tuple[float, float]:
    """Smallest and largest host of the tail, so that it takes nine tenths of the flows or reaches both its limits."""
    budget = 0.9 * flows
    if supers * THRESHOLD > budget:
        need = int(np.ceil(supers * THRESHOLD / 0.9))
        need_least = f"{counted(supers, 'super host')} need{'s' if supers == 1 else ''} at least {need:,} flows"
        raise TooFewFlowsError(f"{need_least}; raise it, or ask for fewer super hosts")
    low = float(SHOULDER) if _tail_flows(supers, 4 * THRESHOLD, SHOULDER) <= budget else float(THRESHOLD)
    if _tail_flows(supers, CAP, low) > budget:
        return low, _bisect(1.05 * THRESHOLD, float(CAP), lambda cap: _tail_flows(supers, cap, low) <= budget)[0]
    return _bisect(1.0, low, lambda least: _tail_flows(supers, CAP, least) > budget)[1], float(CAP)


def _bisect(low: float, high: float, holds: Callable[[float], bool]) -> tuple[float, float]:
    """Return two near numbers: up to the first one the condition holds, from the second one on it does not."""
    for _ in range(50):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def _tail_length(supers: int, low: float, cap: float) -> int:
    q = (cap / THRESHOLD) ** -EXPONENT
    return int(np.ceil(supers * ((low / THRESHOLD) ** -EXPONENT - q) / (1 - q)))


def tail_sizes(random: np.random.Generator, supers: int, flows: int) -> Sizes:
    """Sizes of the tail, largest strata first: exactly `supers` of them are at least THRESHOLD."""
    if supers == 0:
        return np.zeros(0, np.int64)
    low, cap = tail_bounds(supers, flows)
    q = (cap / THRESHOLD) ** -EXPONENT
    hosts = max(supers, _tail_length(supers, low, cap))
    part = (np.arange(hosts) + random.random(hosts)) / supers
    sizes: Sizes = (THRESHOLD * (part * (1 - q) + q) ** (-1 / EXPONENT)).astype(np.int64)
    sizes[:supers] = np.maximum(sizes[:supers], THRESHOLD)
    sizes[supers:] = np.clip(sizes[supers:], 1, THRESHOLD - 1)
    # One draw of the largest host can outweigh the plan: keep a twentieth of the flows for small hosts all the same.
    room = flows - flows // 20
    sizes = sizes[: max(supers, int(np.searchsorted(np.cumsum(sizes), room, side="right")))]
    if sizes.sum() > room:
        above = sizes - THRESHOLD
        sizes = THRESHOLD + (above * ((room - supers * THRESHOLD) / above.sum())).astype(np.int64)
    return sizes


def small_sizes(random: np.random.Generator, flows: int, most: int) -> Sizes:
    """Sizes of at most `most` small hosts that have `flows` flows together."""
    drawn: list[Sizes] = []
    left = flows
    while left > 0:
        uniform = 1.0 - random.random(int(left / SMALL_MEAN * 1.05) + 64)
        sizes = np.minimum(uniform ** (-1 / EXPONENT), SMALL_CAP).astype(np.int64)
        reached = np.cumsum(sizes)
        end = int(np.searchsorted(reached, left))
        if end < len(sizes):
            sizes = sizes[: end + 1]
            sizes[end] -= reached[end] - left
        drawn.append(sizes)
        left -= int(sizes.sum())
    small = np.concatenate([np.zeros(0, np.int64), *drawn])
    if len(small) > most:  # more than the inner network has addresses for: fewer hosts, with more peers each
        small = np.full(most, flows // most)
        small[: flows % most] += 1
    return small


def kinds_of(sizes: Sizes, supers: int) -> NDArray[np.uint8]:
    """What hosts do: among super hosts 1 in 16 sweeps, 1 in 16 probes at random, 1 in 16 is a victim of floods."""
    rank = np.arange(len(sizes))
    kinds = np.where((sizes >= SHOULDER) & (rank % 3 != 0), SERVER, CLIENT).astype(np.uint8)
    for kind, place in ((SWEEP, 2), (VICTIM, 6), (PROBE, 10)):
        kinds[place:supers:16] = kind
    return kinds


def scatter(numbers: Words, bits: int, key: int) -> Words:
    """Permute the numbers below 2^bits."""
    mask, shift = np.uint64((1 << bits) - 1), np.uint64(max(1, bits // 2))
    for turn in range(3):
        word = (key * (2 * turn + 3) * 0x9E3779B97F4A7C15) % (1 << 64)
        numbers = (numbers * np.uint64(word | 1) + np.uint64(word >> 7)) & mask
        numbers = numbers ^ (numbers >> shift)
    return numbers


def inner_addresses_4(slots: Words, bits: int, key: int) -> NDArray[np.uint32]:
    """IPv4 addresses of slots: at first 128 hosts in each of sixteen /24 of some /16, denser where that is too few."""
    low = min(7, bits)
    middle = min(4, bits - low)
    sites = min(bits - low - middle, 8)
    middle = min(8, bits - low - sites)
    low = bits - sites - middle
    last = (slots & np.uint64((1 << low) - 1)) + np.uint64(low < 8)
    site = scatter(slots >> np.uint64(low + middle), 8, key)
    subnet = (slots >> np.uint64(low)) & np.uint64((1 << middle) - 1)
    subnet = (subnet + site * np.uint64(37)) & np.uint64(255)
    address: Words = _INNER_OCTET << _S24 | (site << np.uint64(16)) | (subnet << np.uint64(8)) | last
    return address.astype(np.uint32)


def inner_addresses_6(slots: Words, bits: int, key: int) -> Words:
    """IPv6 addresses of slots: 64 subnets in each used /48, random interface identifiers."""
    shares = (slots & np.uint64(3)) == np.uint64(3)
    place = slots - shares.astype(np.uint64)
    if 6 < bits <= 22:
        place = (scatter(place >> np.uint64(6), 16, key) << np.uint64(16)) | (place & np.uint64(63))
    low = (mix_all(slots + np.uint64(key)) & np.uint64(2**64 - 4)) | (slots & np.uint64(3))
    return np.stack([np.uint64(int(INNER[6].network_address) >> 64) | place, low], axis=1)


def outer_addresses_6(peers: NDArray[np.uint32]) -> Words:
    """IPv6 addresses of outer hosts that were drawn as 32-bit numbers, one to one: of 2a00::/8."""
    number = peers.astype(np.uint64)
    site, subnet = number >> np.uint64(16), number >> np.uint64(8) & np.uint64(255)
    high = np.uint64(0x2A << 56) | site << np.uint64(40) | subnet
    return np.stack([high, mix_all(number)], axis=1)


def outer_blocks(random: np.random.Generator) -> NDArray[np.uint32]:
    """Choose /16 networks in which outer hosts live, most popular first; none of them touches the inner network."""
    blocks = np.arange(1 << 8, 224 << 8, dtype=np.uint32)
    return random.permutation(blocks[((blocks >> 8) != 127) & ((blocks >> 8) != 10)])[:CLIENT_BLOCKS]


BLOCK = 1 << 17  # packets yielded together
ACTIVE = 1024  # flows under way at a time
_POPULATION, _SIZES, _PEERS, _COUNTS, _ORDER, _PACKETS = range(6)  # purposes of random generators

Order = Literal["trains", "shuffled"]
Family = Literal[4, 6, "both"]


@dataclass(frozen=True)
class Traffic:
    """Parameters of synthetic traffic. Flows, packets and super hosts are counts per window, over all families."""

    flows: int = 100_000
    packets: int = 1_000_000
    windows: int = 1
    super_hosts: int = 20
    seed: int = 1
    family: Family = 4
    window_seconds: int = 300
    start: int = 1_767_225_600  # seconds since the epoch: 2026-01-01; moved back to the start of its window

    def __post_init__(self) -> None:
        if self.family not in (4, 6, "both"):
            raise UsageError(f"family {self.family!r}: choose 4, 6 or both")
        least = {
            "flows": len(self.families),
            "windows": 1,
            "super_hosts": 0,
            "seed": 0,
            "window_seconds": 1,
            "start": 0,
        }
        for name, value in least.items():
            if getattr(self, name) < value:
                raise UsageError(f"{name} {getattr(self, name):,}: at least {value} is needed")
        if self.packets < self.flows:
            flows = counted(self.flows, "flow")
            raise UsageError(f"{counted(self.packets, 'packet')}: too few for {flows}, each of which has at least one")
        if max(self.flows, self.packets) >= 1 << 31:
            raise UsageError("a window holds at most 2,147,483,647 packets; ask for more windows instead")
        for family in self.families:
            _bits(self, family)  # raises early if flows are too few

    @property
    def families(self) -> tuple[int, ...]:
        return (4, 6) if self.family == "both" else (self.family,)

    @property
    def all_packets(self) -> int:
        return self.packets * self.windows

    @property
    def first_window(self) -> int:
        """Start of the first window in nanoseconds."""
        return (self.start - self.start % self.window_seconds) * SECOND

    def share(self, family: int) -> Share:
        """What a family gets of each window: all, or with both families one third for IPv6 and the rest for IPv4."""
        if self.family != "both":
            return Share(self.flows, self.packets, self.super_hosts)
        flows = max(1, self.flows // 3)
        six = Share(flows, min(max(flows, self.packets // 3), self.packets - self.flows + flows), self.super_hosts // 3)
        if family == 6:
            return six
        return Share(self.flows - six.flows, self.packets - six.packets, self.super_hosts - six.super_hosts)


class Share(NamedTuple):
    """Flows, packets and super hosts of one family in each window."""

    flows: int
    packets: int
    super_hosts: int


def window_hosts(traffic: Traffic, window: int, family: int | None = None) -> tuple[Addresses, NDArray[np.int64]]:
    """Inner hosts of a window and their exact numbers of peers."""
    made = _Window(traffic, window, family)
    return made.hosts, made.sizes


def window_flows(traffic: Traffic, window: int, family: int | None = None) -> tuple[Addresses, Addresses]:
    """Hosts and peers of a window's distinct pairs, host by host: uint32 (n,), for IPv6 uint64 (n, 2)."""
    made = _Window(traffic, window, family)
    hosts: Addresses = np.repeat(made.hosts, made.sizes, axis=0)  # type: ignore[assignment]
    return hosts, made.outer_addresses(made.draw_peers())


def window_packets(
    traffic: Traffic, window: int, order: Order = "trains", family: int | None = None
) -> NDArray[np.uint32]:
    """Flow of each packet of a window, in the order of the link: an index into the arrays of `window_flows`."""
    return _Window(traffic, window, family).order_packets(order)


def packet_blocks(traffic: Traffic, order: Order = "trains") -> Iterator[PacketBlock]:
    """Yield the packets of all windows in time order. No block spans two windows."""
    count = -(-traffic.packets // BLOCK)
    for window in range(traffic.windows):
        streams = [_Window(traffic, window, family).batches(order, count) for family in traffic.families]
        for batches in zip(*streams, strict=True):
            yield tuple(batch for batch in batches if len(batch))


def _bits(traffic: Traffic, family: int) -> int:
    """Bits of the slots that inner hosts take their addresses from, the same for all windows; many stay free."""
    flows, _, supers = traffic.share(family)
    hosts, rest = 0, float(flows)
    if supers:
        low, cap = tail_bounds(supers, flows)
        hosts = _tail_length(supers, low, cap)
        # What the tail really takes varies with its few largest hosts: leave room for more small ones.
        rest = max(0.25 * flows, flows - 0.7 * _tail_flows(supers, cap, low))
    hosts += int(rest / SMALL_MEAN)
    most = (32 if family == 4 else 64) - INNER[family].prefixlen
    return min(most, (hosts + hosts // 2 + 2 * supers + 64).bit_length())


class _Window:
    """One family in one window: the inner hosts, largest tail hosts first, their peers and their packets."""

    def __init__(self, traffic: Traffic, window: int, family: int | None) -> None:
        if family is None and len(traffic.families) > 1:
            raise UsageError("this traffic has both families: say family=4 or family=6")
        self.family = family = traffic.families[0] if family is None else family
        if family not in traffic.families:
            raise UsageError(f"this traffic has no IPv{family}")
        if not 0 <= window < traffic.windows:
            raise UsageError(f"window {window}: this traffic has windows 0 to {traffic.windows - 1}")
        self.traffic, self.number = traffic, window
        flows, self.packets, supers = traffic.share(family)
        random, bits = self._random(_SIZES), _bits(traffic, family)
        tail = tail_sizes(random, supers, flows)
        small = small_sizes(random, flows - int(tail.sum()), (3 << bits) // 4 - len(tail))
        self.sizes = np.concatenate([tail, small])
        self.offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.sizes)])  # of each host's flows
        self.kinds = kinds_of(self.sizes, supers)
        ranks = np.arange(len(self.sizes), dtype=np.uint64)
        # Scanners and victims come from the far end of the ranks, away from other hosts, and change with the window.
        planted = np.flatnonzero(self.kinds >= SWEEP)
        spare = (1 << bits) - len(self.sizes)
        ranks[planted] = (1 << bits) - 1 - (window * len(planted) + np.arange(len(planted))) % spare
        key = _key(generator(traffic.seed, _POPULATION, family, 0))
        inner_addresses = inner_addresses_4 if family == 4 else inner_addresses_6
        self.hosts: Addresses = inner_addresses(scatter(ranks, bits, key), bits, key)

    def _random(self, purpose: int) -> np.random.Generator:
        return generator(self.traffic.seed, purpose, self.family, self.number)

    def outer_addresses(self, peers: NDArray[np.uint32]) -> Addresses:
        return peers if self.family == 4 else outer_addresses_6(peers)

    def draw_peers(self) -> NDArray[np.uint32]:
        """Distinct peers of every host, drawn by all cores; each host has its own random sequence."""
        blocks = outer_blocks(generator(self.traffic.seed, _POPULATION, self.family, 0))
        servers, key = min(max(self.traffic.flows // 50, 256), (1 << 20) - 1), np.uint64(_key(self._random(_PEERS)))
        offsets, kinds = self.offsets, self.kinds
        peers = np.empty(offsets[-1], np.uint32)
        workers = min(8, thread_count())
        edges = np.searchsorted(offsets, np.linspace(0, offsets[-1], 4 * workers + 1)).tolist()
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda edge: draw_peers(edge, offsets, kinds, blocks, servers, key, peers), pairwise(edges)))
        return peers

    def order_packets(self, order: Order) -> NDArray[np.uint32]:
        if order not in ("trains", "shuffled"):
            raise UsageError(f"order {order!r}: choose trains or shuffled")
        key = np.uint64(_key(self._random(_COUNTS)))
        counts = packet_counts(self.offsets, self.kinds, self.packets, key)
        random = self._random(_ORDER)
        flows = np.arange(len(counts), dtype=np.uint32)
        if order == "shuffled":
            packets = np.repeat(flows, counts)
            random.shuffle(packets)
            return packets
        pieces = np.repeat(flows, (counts + (PIECE - 1)) // PIECE)
        random.shuffle(pieces)
        return interleave(pieces, counts, ACTIVE, key)

    def batches(self, order: Order, count: int) -> Iterator[PacketBatch]:
        """Yield the packets in `count` batches of equal time."""
        length = self.traffic.window_seconds * SECOND
        start = self.traffic.first_window + self.number * length
        random, flow_of, drawn = self._random(_PACKETS), self.order_packets(order), self.draw_peers()
        host_of = np.repeat(np.arange(len(self.sizes), dtype=np.uint32), self.sizes)
        # Of 256 packets, this many are sent by the inner host. Scanners get few answers, victims send few.
        outward = np.array([128, 128, 240, 240, 12], np.uint16)[self.kinds]
        packets = len(flow_of)
        for number in range(count):
            first, last = packets * number // count, packets * (number + 1) // count
            place = np.arange(first, last) + random.random(last - first)
            if first == 0:
                place[:1] = 0.0  # a window's first packet comes at its very start
            time = (place * (length / packets)).astype(np.int64)
            # Packets keep to the part's time, so that batches of two families never overlap the next block.
            np.clip(time, length * number // count, length * (number + 1) // count - 1, out=time)
            time += start
            flows = flow_of[first:last]
            ranks = host_of[flows]
            hosts, peers = self.hosts[ranks], self.outer_addresses(drawn[flows])
            out = random.integers(0, 256, last - first, dtype=np.uint8) < outward[ranks]
            if self.family == 6:
                out = out[:, np.newaxis]
            yield PacketBatch(self.family, np.where(out, hosts, peers), np.where(out, peers, hosts), time)


def _key(random: np.random.Generator) -> int:
    return int(random.integers(1 << 62))
