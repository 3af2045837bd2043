"""Synthetic backbone traffic, the same for the same seed, with an exact answer.

A flow is one distinct (inner host, outer peer) pair of a window. A window has exactly `flows` of them and exactly
`packets` packets, at least one per flow. What the flows look like:

* Inner hosts have a heavy tail of peers (`model.py`), and exactly `super_hosts` of them have 1024 or more.
* Ordinary hosts choose most of their peers among popular servers (Zipf), so that some outer hosts have very many inner
  peers too; busy inner servers are called by users from some thousand networks, some of them larger than others.
* Among the super hosts are scanners that sweep address ranges, scanners that probe at random, and victims of floods
  with spoofed sources. Their flows have one packet each, sent mostly by the scanner, mostly to the victim; the other
  flows have a heavy tail of packets, and each packet goes out or in with equal chance.
* Packets come in bursts of a thousand flows that are under way at a time ("trains"), or in random order ("shuffled").

Counts are per window. With both families one third of everything is IPv6. Windows are aligned to the epoch, as the
rest of the package cuts them. Hosts keep their addresses from window to window, scanners and victims do not.

Benchmarks take the arrays (`window_hosts`, `window_flows`, `window_packets`), pipelines take `packet_blocks`.
Memory follows the flows and packets of one window: 8 bytes a flow and 4 a packet while streaming.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import thread_count
from superhosts.core.pairs import Addresses, PacketBatch, PacketBlock
from superhosts.core.text import counted
from superhosts.core.units import SECOND
from superhosts.errors import UsageError
from superhosts.sources.synthetic import loops, model

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
    inner: str = "10.0.0.0/8"
    inner6: str = "2001:db8::/32"
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
            _bits(self, family)  # raises early if the network is too small

    @property
    def families(self) -> tuple[int, ...]:
        """The address families of this traffic."""
        return (4, 6) if self.family == "both" else (self.family,)

    @property
    def all_packets(self) -> int:
        """Packets of all windows."""
        return self.packets * self.windows

    @property
    def first_window(self) -> int:
        """Start of the first window in nanoseconds."""
        return (self.start - self.start % self.window_seconds) * SECOND

    def network(self, family: int) -> tuple[int, int]:
        """Address and prefix length of the monitored network."""
        return model.parse_inner(self.inner if family == 4 else self.inner6, family)

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
    family = _one_family(traffic, family)
    plan = _plan(traffic, window, family)
    return _host_addresses(traffic, family, plan.slots), plan.sizes


def window_flows(traffic: Traffic, window: int, family: int | None = None) -> tuple[Addresses, Addresses]:
    """Hosts and peers of a window's distinct pairs, host by host: uint32 (n,), for IPv6 uint64 (n, 2)."""
    family = _one_family(traffic, family)
    plan = _plan(traffic, window, family)
    peers = _draw_peers(traffic, window, family, plan)
    hosts: Addresses = np.repeat(_host_addresses(traffic, family, plan.slots), plan.sizes, axis=0)  # type: ignore[assignment]
    return hosts, _peer_addresses(traffic, family, peers)


def window_packets(
    traffic: Traffic, window: int, order: Order = "trains", family: int | None = None
) -> NDArray[np.uint32]:
    """Flow of each packet of a window, in the order of the link: an index into the arrays of `window_flows`."""
    family = _one_family(traffic, family)
    return _order_packets(traffic, window, family, _plan(traffic, window, family), order)


def packet_blocks(traffic: Traffic, order: Order = "trains") -> Iterator[PacketBlock]:
    """Yield the packets of all windows in time order. No block spans two windows."""
    for window in range(traffic.windows):
        streams = [_Stream(traffic, window, family, order) for family in traffic.families]
        count = -(-traffic.packets // BLOCK)
        for number in range(count):
            batches = [stream.batch(number, count) for stream in streams]
            yield tuple(batch for batch in batches if len(batch))


class _Stream:
    """Packets of one family in one window, split into batches of equal time."""

    def __init__(self, traffic: Traffic, window: int, family: int, order: Order) -> None:
        plan = _plan(traffic, window, family)
        self.traffic, self.family = traffic, family
        self.start = traffic.first_window + window * traffic.window_seconds * SECOND
        self.random = model.generator(traffic.seed, _PACKETS, family, window)
        self.order = _order_packets(traffic, window, family, plan, order)
        self.peers = _draw_peers(traffic, window, family, plan)
        self.host_of = np.repeat(np.arange(len(plan.sizes), dtype=np.uint32), plan.sizes)
        self.hosts = _host_addresses(traffic, family, plan.slots)
        # Of 256 packets, this many are sent by the inner host. Scanners get few answers, victims send few.
        self.outward = np.array([128, 128, 240, 240, 12], np.uint16)[plan.kinds]

    def batch(self, number: int, count: int) -> PacketBatch:
        """Packets of the number-th of `count` equal parts of the window."""
        packets, length = len(self.order), self.traffic.window_seconds * SECOND
        first, last = packets * number // count, packets * (number + 1) // count
        place = np.arange(first, last) + self.random.random(last - first)
        if first == 0:
            place[:1] = 0.0  # a window's first packet comes at its very start
        time = (place * (length / packets)).astype(np.int64)
        # Packets keep to the part's time, so that batches of two families never overlap the next block.
        np.clip(time, length * number // count, length * (number + 1) // count - 1, out=time)
        time += self.start
        flows = self.order[first:last]
        ranks = self.host_of[flows]
        hosts, peers = self.hosts[ranks], _peer_addresses(self.traffic, self.family, self.peers[flows])
        out = self.random.integers(0, 256, last - first, dtype=np.uint8) < self.outward[ranks]
        if self.family == 6:
            out = out[:, np.newaxis]
        return PacketBatch(self.family, np.where(out, hosts, peers), np.where(out, peers, hosts), time)


def _one_family(traffic: Traffic, family: int | None) -> int:
    """Return the family asked for if the traffic has it; by default its only one."""
    if family is None and len(traffic.families) > 1:
        raise UsageError("this traffic has both families: say family=4 or family=6")
    family = traffic.families[0] if family is None else family
    if family not in traffic.families:
        raise UsageError(f"this traffic has no IPv{family}")
    return family


def _bits(traffic: Traffic, family: int) -> int:
    """Bits of the slots from which the inner hosts of a family take their addresses."""
    share, length = traffic.share(family), traffic.network(family)[1]
    return model.slot_bits(share.super_hosts, share.flows, (32 if family == 4 else 64) - length)


def _plan(traffic: Traffic, window: int, family: int) -> model.Plan:
    """Sizes, behaviour and slots of a window's inner hosts."""
    if not 0 <= window < traffic.windows:
        raise UsageError(f"window {window}: this traffic has windows 0 to {traffic.windows - 1}")
    flows, _, supers = traffic.share(family)
    random = model.generator(traffic.seed, _SIZES, family, window)
    bits = _bits(traffic, family)
    tail = model.tail_sizes(random, supers, flows)
    small = model.small_sizes(random, flows - int(tail.sum()), (3 << bits) // 4 - len(tail))
    sizes = np.concatenate([tail, small])
    kinds = model.kinds_of(sizes, supers)
    ranks = np.arange(len(sizes), dtype=np.uint64)
    # Scanners and victims come from the far end of the ranks, away from other hosts, and change with the window.
    planted = np.flatnonzero(kinds >= loops.SWEEP)
    spare = (1 << bits) - len(sizes)
    ranks[planted] = (1 << bits) - 1 - (window * len(planted) + np.arange(len(planted))) % spare
    return model.Plan(sizes, kinds, model.scatter(ranks, bits, _key(traffic, _POPULATION, family)))


def _key(traffic: Traffic, purpose: int, family: int, window: int = 0) -> int:
    return int(model.generator(traffic.seed, purpose, family, window).integers(1 << 62))


def _host_addresses(traffic: Traffic, family: int, slots: model.Words) -> Addresses:
    bits, network, key = _bits(traffic, family), traffic.network(family), _key(traffic, _POPULATION, family)
    return (model.inner_addresses_4 if family == 4 else model.inner_addresses_6)(slots, bits, network, key)


def _peer_addresses(traffic: Traffic, family: int, peers: NDArray[np.uint32]) -> Addresses:
    return peers if family == 4 else model.outer_addresses_6(peers, traffic.network(6))


def _draw_peers(traffic: Traffic, window: int, family: int, plan: model.Plan) -> NDArray[np.uint32]:
    """Distinct peers of every host, drawn by all cores; each host has its own random sequence."""
    network = traffic.network(family) if family == 4 else None
    blocks = model.outer_blocks(model.generator(traffic.seed, _POPULATION, family, 0), network)
    address, length = network or (10 << 24, 8)
    servers = min(max(traffic.flows // 50, 256), (1 << 20) - 1)
    key = _key(traffic, _PEERS, family, window)
    outside = np.array([address >> (32 - length), 32 - length, servers, key], np.uint64)
    offsets = plan.offsets
    peers = np.empty(offsets[-1], np.uint32)
    workers = min(8, thread_count())
    edges = np.searchsorted(offsets, np.linspace(0, offsets[-1], 4 * workers + 1)).tolist()
    with ThreadPoolExecutor(workers) as pool:
        for done in [
            pool.submit(loops.draw_peers, edge, offsets, plan.kinds, blocks, outside, peers) for edge in pairwise(edges)
        ]:
            done.result()
    return peers


def _order_packets(traffic: Traffic, window: int, family: int, plan: model.Plan, order: Order) -> NDArray[np.uint32]:
    """Flow of each packet, in order."""
    if order not in ("trains", "shuffled"):
        raise UsageError(f"order {order!r}: choose trains or shuffled")
    key = np.uint64(_key(traffic, _COUNTS, family, window))
    counts = loops.packet_counts(plan.offsets, plan.kinds, traffic.share(family).packets, key)
    random = model.generator(traffic.seed, _ORDER, family, window)
    flows = np.arange(len(counts), dtype=np.uint32)
    if order == "shuffled":
        packets = np.repeat(flows, counts)
        random.shuffle(packets)
        return packets
    pieces = np.repeat(flows, (counts + (loops.PIECE - 1)) // loops.PIECE)
    random.shuffle(pieces)
    return loops.interleave(pieces, counts, ACTIVE, key)
