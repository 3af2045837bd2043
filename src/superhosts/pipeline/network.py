"""The monitored network: it decides which end of a packet is a host and which is its peer.

On side "inner", every inner end of a packet is a host; if both ends are inner, both are hosts. On side "outer", the
outer end of a packet with an inner end is a host. Packets without an inner end are ignored and counted. Packets whose
source equals their destination are dropped and counted. Without inner prefixes every address is inner. Excluded
addresses are never hosts, but they remain peers of other hosts. So are multicast, broadcast and unspecified addresses,
inner or not, unless they are kept; ends that are left out for this reason are counted. Peers are always full addresses,
even when hosts are prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.lens import PLAIN_LENS, Lens
from superhosts.core.pairs import (
    ANSWERED,
    ANSWERS,
    HAS_PORTS,
    HAS_PROTOCOL,
    MASK64,
    MOST_PORTS,
    OPENED,
    PORT_BITS,
    PROTOCOL_SHIFT,
    SRC_PORT_SHIFT,
    Addresses,
    Details,
    PacketBatch,
    PairBatch,
    Part,
)
from superhosts.core.prefixes import (
    SPECIAL_NETWORKS,
    OutsideSample,
    PrefixTable,
    inside,
    make_table,
    mark_special,
    parse_networks,
    tables_of_some,
    tables_of_whole,
)
from superhosts.core.profile import timed
from superhosts.core.text import setting
from superhosts.errors import UsageError
from superhosts.jit.pool import Lender
from superhosts.pipeline.pairmaking import Choice, PortUse, Rule, choose, find_hosts, make_pairs, make_port_pairs

SPECIAL = ("drop", "keep")  # what to do with multicast, broadcast and unspecified addresses as hosts
# Packets that a thread turns into pairs at a time. With more they leave its cache, with fewer threads wait for Python.
LEAST_SHARE, MOST_SHARE = 1 << 14, 1 << 17
ROOM = 2 * MOST_SHARE + 1  # pairs: two of each packet, and what is overwritten
# The marks of packets that count for a contact (packetdetails.py)
MARKS = {"": 0, "opened": OPENED, "answered": ANSWERS | ANSWERED}


@dataclass
class NetworkCounters:
    """Packets that yielded no pair, by reason, and ends of packets that would be hosts but for their address."""

    no_inner_end: int = 0
    same_ends: int = 0
    special_ends: int = 0  # of multicast, broadcast or unspecified addresses
    unknown_details: int = 0  # the protocol or the ports that are asked for are not known
    filtered: int = 0  # of other protocols or ports than those asked for
    no_contact: int = 0  # neither open a conversation nor answer, where only those count

    def add(self, other: NetworkCounters) -> None:
        """Add the counts of another one."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


def shares_of(batch: PacketBatch, size: int) -> list[PacketBatch]:
    """Split a batch into shares of up to `size` packets."""
    return [
        batch.take(slice(start, stop), batch.span)
        for start, stop in split_evenly(len(batch), -(-len(batch) // size) or 1)
    ]


class Network:
    """The monitored network. Converts packets to pairs and counts the packets that yield none."""

    def __init__(
        self,
        inner: Sequence[str] = (),
        exclude: Sequence[str] = (),
        *,
        special: str = "drop",
        ipv4_prefix: int = 32,
        ipv6_prefix: int = 64,
        lens: Lens = PLAIN_LENS,
    ) -> None:
        for name, bits, most in (("ipv4_prefix", ipv4_prefix, 32), ("ipv6_prefix", ipv6_prefix, 128)):
            if not 1 <= bits <= most:
                raise UsageError(f"{setting(name, bits)}: must be from 1 to {most}")
        if special not in SPECIAL:
            raise UsageError(f"{setting('special', special)}: one of {', '.join(SPECIAL)}")
        inner_networks, excluded = parse_networks(inner, "inner"), parse_networks(exclude, "exclude")
        if inner and not inner_networks:  # An empty file must not make every address inner.
            raise UsageError(f"{setting('inner', ' '.join(inner))}: contains no prefix")
        self.all_inner = not inner_networks
        self.inner = {family: make_table(inner_networks, family) for family in (4, 6)}
        self.excluded = {family: make_table(excluded, family) for family in (4, 6)}
        self.drops_special = special == "drop"
        self.host_bits = {4: ipv4_prefix, 6: ipv6_prefix}
        self.lens = lens
        self._hosts_with_inner = tables_of_some(inner_networks, self.host_bits)
        self._hosts_all_inner = tables_of_whole(inner_networks, self.host_bits)
        self.counters = NetworkCounters()
        self.outside = OutsideSample()
        self._rules: dict[Part, Rule] = {}
        self._lenders = {4: Lender(2 * ROOM * 4), 6: Lender(2 * ROOM * 16)}

    def pairs(
        self, batches: Sequence[PacketBatch], parts: Sequence[Part], threads: int = 1
    ) -> list[tuple[Part, PairBatch]]:
        """Return the pairs of each part of the batches' families, and count the packets that yield none."""
        size = min(max(-(-sum(map(len, batches)) // threads), LEAST_SHARE), MOST_SHARE)
        found: list[tuple[Part, PairBatch]] = []
        calls = [(share, parts) for batch in batches for share in shares_of(batch, size)]
        for (share, _), (pairs, counts) in zip(calls, run_parallel(self._find_pairs, calls, threads), strict=True):
            self.counters.add(counts)
            self.outside.add(share, self.inner[share.family], counts.no_inner_end)
            found += pairs
        return found

    @timed("pairs", amount=lambda _, network, batch, parts: len(batch))
    def _find_pairs(
        self, batch: PacketBatch, parts: Sequence[Part]
    ) -> tuple[list[tuple[Part, PairBatch]], NetworkCounters]:
        """Return the pairs of each part of the family, and how many packets yield none."""
        chosen = [part for part in parts if part.family == batch.family]
        if self.lens.needs_details or any(part.contact for part in chosen):
            return self._find_detailed(batch, chosen)
        inner, excluded = self.inner[batch.family], self.excluded[batch.family]
        result, counts = [], NetworkCounters()
        both = any(part.direction == "any" for part in chosen)  # such parts have the hosts of the other directions, too
        for number, part in enumerate(chosen):
            rule = self._rule(part)
            pairs = self._room(batch)
            count, ignored, same, left_out = make_pairs(batch.src, batch.dst, inner, excluded, rule, pairs)
            hosts, peers = pairs[0][:count], pairs[1][:count]
            if number == 0:  # Count a packet once, however many parts it belongs to.
                counts.no_inner_end, counts.same_ends = ignored, same
            if part.direction == "any" or not both:  # Count an end once.
                counts.special_ends += left_out
            result.append((part, PairBatch(hosts[:, 0].copy() if self._takes_one_word(part) else hosts, peers)))
        return result, counts

    def _find_detailed(
        self, batch: PacketBatch, parts: Sequence[Part]
    ) -> tuple[list[tuple[Part, PairBatch]], NetworkCounters]:
        """Do the same where protocols, ports or contacts matter."""
        details = np.zeros(len(batch), np.uint64) if batch.details is None else batch.details
        lens, tables = self.lens, (self.inner[batch.family], self.excluded[batch.family])
        use = PortUse(int(lens.hosts_have_ports), int(lens.counts == "host-ports"), int(lens.counts == "ports"))
        result, counts = [], NetworkCounters()
        for number, part in enumerate(parts):
            choice = Choice(
                np.uint64(MARKS[part.contact]),
                int(lens.needs_ports),
                int(lens.protocols is not None),
                int(lens.ports is not None),
            )
            src, dst = np.empty_like(batch.src), np.empty_like(batch.dst)
            ports = np.empty(len(batch), np.uint16)
            count, unknown, stopped, idle = choose(
                batch.src, batch.dst, details, choice, lens.allowed, (src, dst, ports)
            )
            pairs = self._port_room(batch.family, count)
            count, ignored, same, left_out = make_port_pairs(
                src[:count], dst[:count], ports[:count], tables, self._rule(part), use, pairs
            )
            if number == 0:
                counts.unknown_details, counts.filtered, counts.no_contact = unknown, stopped, idle
                counts.no_inner_end, counts.same_ends = ignored, same
            counts.special_ends += left_out if number == 0 else 0
            hosts, peers = pairs[0][:count], pairs[1][:count]
            result.append((part, PairBatch(hosts[:, 0].copy() if self._takes_one_word(part) else hosts, peers)))
        return result, counts

    def counting(self, batch: PacketBatch, *, sides: Sequence[str]) -> NDArray[np.uint8]:
        """Return for each packet 1 if it has a host on one of these sides and passes the filters, else 0."""
        tables, counts = (self.inner[batch.family], self.excluded[batch.family]), np.zeros(len(batch), np.uint8)
        for side in sides:
            sources, targets, *_ = find_hosts(batch.src, batch.dst, *tables, self._rule(Part(batch.family, side)))
            counts |= sources | targets
        if self.lens.needs_details and batch.details is not None:
            counts &= self._passing(batch.details)
        return counts

    def _passing(self, details: Details) -> NDArray[np.uint8]:
        """Return 1 for each packet that the filters of protocols and ports let through."""
        lens, passes = self.lens, np.ones(len(details), bool)
        if lens.protocols is not None:
            known = details & np.uint64(HAS_PROTOCOL) != 0
            passes &= known & (lens.allowed.protocols[details >> np.uint64(PROTOCOL_SHIFT) & np.uint64(0xFF)] == 1)
        if lens.needs_ports or lens.ports is not None:
            passes &= details & np.uint64(HAS_PORTS) != 0
        if lens.ports is not None:
            ports = lens.allowed.ports
            sent, asked = details >> np.uint64(SRC_PORT_SHIFT) & np.uint64(MOST_PORTS), details & np.uint64(MOST_PORTS)
            passes &= (ports[sent] | ports[asked]) == 1
        return passes.astype(np.uint8)

    def _takes_one_word(self, part: Part) -> bool:
        """Return True if the low word of a part's hosts is always zero."""
        return part.family == 6 and self.host_bits[6] <= 64 and not self.lens.hosts_have_ports

    def _port_room(self, family: int, packets: int) -> tuple[Addresses, Addresses]:
        """Return columns for two pairs of each packet, and what is overwritten."""
        rows = 2 * packets + 1
        if family == 6:
            return np.empty((rows, 2), np.uint64), np.empty((rows, 2), np.uint64)
        hosts, peers = np.empty(rows, np.uint32), np.empty(rows, np.uint32)
        if self.lens.hosts_have_ports:
            return np.empty(rows, np.uint64), np.empty(rows, np.uint64)
        return (hosts, np.empty(rows, np.uint64)) if self.lens.counts == "host-ports" else (hosts, peers)

    def _room(self, batch: PacketBatch) -> tuple[Addresses, Addresses]:
        """Return columns for the pairs of a share, in memory that is used again.

        A few packets would hold all of it, and thousands of small batches may wait together: these get their own.
        """
        if len(batch) < LEAST_SHARE:
            shape = (2 * len(batch) + 1, *batch.src.shape[1:])
            return np.empty(shape, batch.src.dtype), np.empty(shape, batch.src.dtype)
        memory = self._lenders[batch.family].borrow()
        columns = (memory.view(np.uint32) if batch.family == 4 else memory.view(np.uint64)).reshape(2, ROOM, -1)
        return (columns[0, :, 0], columns[1, :, 0]) if batch.family == 4 else (columns[0], columns[1])

    def _rule(self, part: Part) -> Rule:
        """Return which ends are hosts of a part; made once, because threads wait for whoever makes it."""
        if part not in self._rules:
            bits = self.host_bits[part.family]
            mask = (1 << 32) - (1 << (32 - bits)) << 64 if part.family == 4 else (1 << 128) - (1 << (128 - bits))
            self._rules[part] = Rule(
                outer=int(part.side == "outer"),
                sent=int(part.way != "in"),
                received=int(part.way != "out"),
                all_inner=int(self.all_inner),
                exclusions=int(len(self.excluded[part.family].low) > 0),
                drops_special=int(self.drops_special),
                mask_high=np.uint64(mask >> 64),  # type: ignore[arg-type]
                mask_low=np.uint64(mask & (1 << 64) - 1),  # type: ignore[arg-type]
            )
        return self._rules[part]

    @cached_property
    def _hosts_all_special(self) -> dict[int, PrefixTable]:
        return tables_of_whole(SPECIAL_NETWORKS, self.host_bits)

    def _are_special(self, hosts: Addresses, family: int) -> NDArray[np.bool_]:
        """Return True for each host that contains only special addresses."""
        if self.host_bits[family] < (32 if family == 4 else 128):
            return np.asarray(inside(hosts, self._hosts_all_special[family]) == 1)
        flags = np.zeros(len(hosts), np.uint8)
        mark_special(hosts, flags)  # without tables, which take longer than the rest of a short scan's questions
        return np.asarray(flags == 1)

    def monitors(self, hosts: Addresses, part: Part) -> NDArray[np.bool_]:
        """Return True for each host on the part's side. A reported host that is not was never seen (a phantom)."""
        if self.lens.hosts_have_ports:
            hosts = _without_ports(hosts)
        if part.family == 6 and hosts.ndim == 1:
            prefixes = hosts
            hosts = np.zeros((len(prefixes), 2), np.uint64)
            hosts[:, 0] = prefixes
        seen = np.ones(len(hosts), bool)
        if self.drops_special:
            seen &= ~self._are_special(hosts, part.family)
        if self.all_inner:
            return seen
        if part.side == "inner":
            return np.asarray(seen & (inside(hosts, self._hosts_with_inner[part.family]) == 1))
        return np.asarray(seen & (inside(hosts, self._hosts_all_inner[part.family]) == 0))


def _without_ports(hosts: Addresses) -> Addresses:
    """Return the addresses or prefixes of hosts with ports."""
    if hosts.ndim == 1:
        return np.asarray(hosts >> np.uint64(PORT_BITS), np.uint32)
    return np.asarray(hosts & np.array([MASK64, MASK64 - MOST_PORTS], np.uint64))
