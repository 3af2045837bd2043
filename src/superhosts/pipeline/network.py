"""The monitored network: it decides which end of a packet is a host and which is its peer.

On side "inner", every inner end of a packet is a host; if both ends are inner, both are hosts. On side "outer", the
outer end of a packet with an inner end is a host. Packets without an inner end are ignored and counted. Packets whose
source equals their destination are dropped and counted. Without inner prefixes every address is inner. Excluded
addresses are never hosts, but they remain peers of other hosts. So are multicast, broadcast and unspecified addresses,
inner or not, unless they are kept; ends that are left out for this reason are counted. Peers are always full addresses,
even when hosts are prefixes.

Compiled loops do it. Nearly every run counts addresses of all packets (`make_pairs`). Where protocols, ports or
contacts matter, packets are chosen first (`choose`), and `make_port_pairs` puts ports into peers or hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core import pairs as traffic
from superhosts.core import prefixes
from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.lens import PLAIN_LENS, Allowed, Lens
from superhosts.core.pairs import Addresses, Details, PacketBatch, PairBatch, Part
from superhosts.core.prefixes import SPECIAL, Flags, PrefixTable, inside, look_up, search_ranges
from superhosts.core.profile import timed
from superhosts.core.text import setting
from superhosts.errors import UsageError
from superhosts.jit.cache import compiled
from superhosts.jit.memory import Lender
from superhosts.sources.base import SourceCounters

SPECIAL_CHOICES = ("drop", "keep")  # what to do with multicast, broadcast and unspecified addresses as hosts
# Packets that a thread turns into pairs at a time. With more they leave its cache, with fewer threads wait for Python.
LEAST_SHARE, MOST_SHARE = 1 << 14, 1 << 17
ROOM = 2 * (MOST_SHARE + 1)  # pairs: two of each packet, and what is overwritten
# The marks of packets that count for a contact (core/pairs.py)
MARKS = {"": 0, "opened": traffic.OPENED, "answered": traffic.ANSWERS | traffic.ANSWERED}
Ports = NDArray[np.uint16]

_ZERO = np.uint64(0)
_PORT = np.uint64(0xFFFF)
_SRC_PORT = np.uint64(traffic.SRC_PORT_SHIFT)
_PROTOCOL = np.uint64(traffic.PROTOCOL_SHIFT)
_HAS_PROTOCOL, _HAS_PORTS = np.uint64(traffic.HAS_PROTOCOL), np.uint64(traffic.HAS_PORTS)
_ANSWERS = np.uint64(traffic.ANSWERS)
_CONTACTS = np.uint64(traffic.OPENED | traffic.ANSWERS | traffic.ANSWERED)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: ports end up in all bits


class Rule(NamedTuple):
    """Which end of a packet becomes a host. Flags are as narrow as those of packets, so that vectors have many."""

    outer: np.uint8  # 1: the outer end is the host
    sent: np.uint8  # 1: include hosts that sent the packet
    received: np.uint8  # 1: include hosts that received the packet
    mask_high: int  # mask of an IPv6 host, high word; or of an IPv4 host
    mask_low: int  # mask of an IPv6 host, low word


INNER, EXCLUDED = 0, 4  # bits of flags, besides SPECIAL


class Ends(NamedTuple):
    """Flags of packets."""

    src: Flags  # what is known of the source: flags of prefix tables at the bits INNER, EXCLUDED and SPECIAL
    dst: Flags
    differ: Flags  # 1 where source and destination differ
    sources: Flags  # 1 where the source is a host: results of `find_hosts`
    targets: Flags
    counts: Flags  # for `find_hosts`


@partial(compiled, counts=False)
def find_hosts(ends: Ends, rule: Rule) -> tuple[int, int]:
    """Write which ends of packets are hosts, in loops so simple that they run in vector registers.

    Return the number of packets with an inner end, and that of special ends that would be hosts otherwise. An excluded
    end is none, special or not.
    """
    a, b, differ, sources, targets, counts = ends
    counted = left_out = np.uint32(0)
    for i in range(len(a)):
        counts[i] = (a[i] | b[i]) & differ[i]
    for i in range(len(a)):
        counted = np.uint32(counted + np.uint32(counts[i]))
    for i in range(len(a)):
        sources[i] = counts[i] & (a[i] ^ rule.outer) & rule.sent & ~(a[i] >> EXCLUDED)
        targets[i] = counts[i] & (b[i] ^ rule.outer) & rule.received & ~(b[i] >> EXCLUDED)
        counts[i] = (sources[i] & a[i] >> SPECIAL) + (targets[i] & b[i] >> SPECIAL)
    for i in range(len(a)):
        left_out = np.uint32(left_out + np.uint32(counts[i]))
    for i in range(len(a)):
        sources[i] &= ~(a[i] >> SPECIAL)
        targets[i] &= ~(b[i] >> SPECIAL)
    return int(counted), int(left_out)


@partial(compiled, counts=False)
def make_pairs(
    src: Addresses, dst: Addresses, sources: Flags, targets: Flags, rule: Rule, pairs: tuple[Any, Any]
) -> int:
    """Write hosts and peers into the columns of `pairs`, given which ends of packets are hosts; return their number.

    The columns have room for two pairs of each packet, and one more. Which end of a packet is a host is as good as
    random, so a branch would be mispredicted. Every packet is written twice instead, and the next one overwrites what
    does not count.
    """
    hosts, peers = pairs
    count = np.uint64(0)  # Unsigned: a signed index is tested for negative values.
    if src.ndim == 1:
        mask = np.uint32(rule.mask_high)
        for i in range(len(src)):
            hosts[count], peers[count] = src[i] & mask, dst[i]
            count += np.uint64(sources[i])
            hosts[count], peers[count] = dst[i] & mask, src[i]
            count += np.uint64(targets[i])
    else:
        for i in range(len(src)):
            hosts[count, 0], hosts[count, 1] = src[i, 0] & rule.mask_high, src[i, 1] & rule.mask_low
            peers[count, 0], peers[count, 1] = dst[i, 0], dst[i, 1]
            count += np.uint64(sources[i])
            hosts[count, 0], hosts[count, 1] = dst[i, 0] & rule.mask_high, dst[i, 1] & rule.mask_low
            peers[count, 0], peers[count, 1] = src[i, 0], src[i, 1]
            count += np.uint64(targets[i])
    return int(count)


@partial(compiled, counts=False)
def split_pairs(
    src: Addresses, dst: Addresses, sources: Flags, targets: Flags, pairs: tuple[Any, Any]
) -> tuple[int, int]:
    """Write the ends of packets with two hosts, and behind the room for these the pairs of packets with one.

    Return how many of each there are. Hosts are IPv4 addresses. A detector takes both directions of a pair at once.
    """
    hosts, peers = pairs
    mutual, single = np.uint64(0), np.uint64(len(src) + 1)
    for i in range(len(src)):
        hosts[mutual], peers[mutual] = src[i], dst[i]
        mutual += np.uint64(sources[i] & targets[i])
        hosts[single] = src[i] if sources[i] else dst[i]
        peers[single] = dst[i] if sources[i] else src[i]
        single += np.uint64(sources[i] ^ targets[i])
    return int(mutual), int(single) - len(src) - 1


class Choice(NamedTuple):
    marks: np.uint64  # one of these bits of the details must be set; 0: all packets count
    needs_ports: int  # 1: packets without ports do not count
    by_protocol: int  # 1: only the protocols of the filter count
    by_port: int  # 1: only packets with one of its ports count


@partial(compiled, counts=False)
def choose(
    src: Addresses,
    dst: Addresses,
    details: Details,
    choice: Choice,
    allowed: Allowed,
    out: tuple[Addresses, Addresses, Ports],
) -> tuple[int, int, int, int]:
    """Write the ends and the port of the packets that count; return their number, and of three kinds that do not.

    These are packets that lack what is needed to know, packets that the filter stops, and, where contacts matter,
    packets that neither open nor answer. An answer is written with its ends turned round, so that its source is who
    opened, and its port the one that was asked.
    """
    new_src, new_dst, ports = out
    marks, protocols, open_ports = choice.marks, allowed.protocols, allowed.ports
    count, unknown, stopped, idle = np.uint64(0), 0, 0, 0
    for i in range(len(details)):
        detail = details[i]
        if choice.by_protocol == 1:
            if detail & _HAS_PROTOCOL == _ZERO:
                unknown += 1
                continue
            if protocols[(detail >> _PROTOCOL) & np.uint64(0xFF)] == 0:
                stopped += 1
                continue
        to, from_ = detail & _PORT, (detail >> _SRC_PORT) & _PORT
        if detail & _HAS_PORTS == _ZERO:
            if choice.by_port == 1 or choice.needs_ports == 1:
                unknown += 1
                continue
        elif choice.by_port == 1 and open_ports[to] == 0 and open_ports[from_] == 0:
            stopped += 1
            continue
        chosen = marks == _ZERO or detail & marks != _ZERO
        turned = detail & marks & _ANSWERS != _ZERO
        if src.ndim == 1:
            new_src[count], new_dst[count] = (dst[i], src[i]) if turned else (src[i], dst[i])
        else:
            for word in range(2):
                new_src[count, word] = dst[i, word] if turned else src[i, word]
                new_dst[count, word] = src[i, word] if turned else dst[i, word]
        ports[count] = from_ if turned else to
        count += np.uint64(chosen)
        idle += detail & _CONTACTS == _ZERO
    return int(count), unknown, stopped, idle if marks != _ZERO else 0


class PortUse(NamedTuple):
    of_hosts: int  # 1: a host is an address with a port
    of_peers: int  # 1: a peer is an address with a port
    alone: int  # 1: a peer is a port


@partial(compiled, counts=False)
def make_port_pairs(
    src: Addresses,
    dst: Addresses,
    ports: Ports,
    sources: Flags,
    targets: Flags,
    rule: Rule,
    use: PortUse,
    pairs: tuple[Any, Any],
) -> int:
    """Do what `make_pairs` does, with ports in the peers or the hosts.

    A peer of IPv6 with a port would have 144 bits: the port is spread over the low word, where nobody meets another
    peer by chance.
    """
    hosts, peers = pairs
    count = np.uint64(0)
    for i in range(len(src)):
        port = np.uint64(ports[i])
        for end in range(2):
            if src.ndim == 1:
                host = np.uint64((dst[i] if end else src[i]) & np.uint32(rule.mask_high))
                peer = np.uint64(src[i] if end else dst[i])
                if use.of_hosts == 1:
                    host = host << np.uint64(16) | port
                if use.of_peers == 1:
                    peer = peer << np.uint64(16) | port
                hosts[count], peers[count] = host, port if use.alone == 1 else peer
            else:
                high, low = (dst[i, 0], dst[i, 1]) if end else (src[i, 0], src[i, 1])
                hosts[count, 0], hosts[count, 1] = high & rule.mask_high, low & rule.mask_low
                if use.of_hosts == 1:
                    hosts[count, 1] |= port
                high, low = (src[i, 0], src[i, 1]) if end else (dst[i, 0], dst[i, 1])
                if use.of_peers == 1:
                    low += (port + np.uint64(1)) * _SPREAD
                if use.alone == 1:
                    high, low = _ZERO, port
                peers[count, 0], peers[count, 1] = high, low
            count += np.uint64(targets[i] if end else sources[i])
    return int(count)


@dataclass
class Counters(SourceCounters):
    """Packets of a run, and those that did not become pairs, by reason."""

    no_inner_end: int = 0
    same_ends: int = 0
    special_ends: int = 0  # ends of packets that are not hosts, being multicast, broadcast or unspecified addresses
    filtered: int = 0  # of other protocols or ports than those asked for
    unknown_details: int = 0  # packets of whose protocol or ports, which are asked for, nothing is known
    no_contact: int = 0  # packets that neither open a conversation nor answer, where only those count
    ungrouped: int = 0  # packets of groups for which a window had no room
    skipped_family: int = 0  # IPv6 packets for a detector that takes IPv4 only
    outside: list[str] = field(default_factory=list)  # prefixes seen most in packets without an inner end, if most are
    late: int = 0
    stray: int = 0
    repeated: int = 0  # packets of windows that were done before this run
    unused: int = 0  # packets that were read ahead when the scan was stopped: in no window
    pairs: int = 0  # (host, peer) pairs, repeats included
    revised: int = 0  # windows that were read a second time: some of their packets lay far out of order
    unrevised: int = 0  # windows still to be read a second time; after the run: windows that lack packets
    skipped_windows: int = 0  # windows that overlap, and have exactly the packets of the window before

    def add(self, other: SourceCounters) -> None:
        for each in fields(other):
            if value := getattr(other, each.name):
                setattr(self, each.name, getattr(self, each.name) + value)


# Why packets did not become pairs, by the name of the counter.
REASONS = {
    "not_ip": "not IP",
    "truncated": "truncated before their addresses",
    "unsupported_link": "of an unsupported link type",
    "bad_rows": "without two addresses or a time",
    "no_inner_end": "with neither address inside --inner",
    "same_ends": "from an address to itself",
    "filtered": "of other protocols or ports",
    "unknown_details": "of unknown protocol or ports",
    "no_contact": "that neither open a conversation nor answer",
    "late": "too late for their window",
    "stray": "with a stray time",
    "repeated": "of windows that were finished before",
    "ungrouped": f"of more groups than {traffic.MOST_GROUPS} in a window",
    "skipped_family": "IPv6, which this detector does not take",
    "unused": "read when the scan was stopped, and in no window",
}


def shares_of(batch: PacketBatch, size: int) -> list[PacketBatch]:
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
        if special not in SPECIAL_CHOICES:
            raise UsageError(f"{setting('special', special)}: one of {', '.join(SPECIAL_CHOICES)}")
        self._inner = prefixes.parse_networks(inner, "inner")
        self._excluded = prefixes.parse_networks(exclude, "exclude")
        if inner and not self._inner:  # An empty file must not make every address inner.
            raise UsageError(f"{setting('inner', ' '.join(inner))}: contains no prefix")
        self.all_inner = not self._inner
        self.drops_special = special == "drop"
        self.host_bits = {4: ipv4_prefix, 6: ipv6_prefix}
        self.lens = lens
        self._port_use = PortUse(
            int(lens.hosts_have_ports), int(lens.counts == "host-ports"), int(lens.counts == "ports")
        )
        self.counters = Counters()
        self.outside = prefixes.OutsideSample()
        self._rules: dict[Part, Rule] = {}
        self._known: dict[int, Flags] = {}  # by family: what the first 16 bits of an address say of it
        self._flags = Lender(6 * MOST_SHARE)
        self._lenders = {4: Lender(2 * ROOM * 4), 6: Lender(2 * ROOM * 16)}

    @cached_property
    def inner(self) -> dict[int, PrefixTable]:
        return {family: prefixes.make_table(self._inner, family) for family in (4, 6)}

    @cached_property
    def excluded(self) -> dict[int, PrefixTable]:
        return {family: prefixes.make_table(self._excluded, family) for family in (4, 6)}

    @cached_property
    def _hosts_with_inner(self) -> dict[int, PrefixTable]:
        return prefixes.host_tables(self._inner, self.host_bits, whole=False)

    @cached_property
    def _hosts_all_inner(self) -> dict[int, PrefixTable]:
        return prefixes.host_tables(self._inner, self.host_bits, whole=True)

    def pairs(
        self, batches: Sequence[PacketBatch], parts: Sequence[Part], threads: int = 1
    ) -> list[tuple[Part, PairBatch]]:
        size = min(max(-(-sum(map(len, batches)) // threads), LEAST_SHARE), MOST_SHARE)
        found: list[tuple[Part, PairBatch]] = []
        calls = [(share, parts) for batch in batches for share in shares_of(batch, size)]
        for (share, _), (pairs, counts) in zip(calls, run_parallel(self._find_pairs, calls, threads), strict=True):
            self.counters.add(counts)
            self.outside.add(share, self.inner[share.family], counts.no_inner_end)
            found += pairs
        return found

    @timed("pairs", amount=lambda _, network, batch, parts: len(batch))
    def _find_pairs(self, batch: PacketBatch, parts: Sequence[Part]) -> tuple[list[tuple[Part, PairBatch]], Counters]:
        chosen = [part for part in parts if part.family == batch.family]
        result, counts = [], Counters()
        is_detailed = self.lens.needs_details or any(part.contact for part in chosen)
        both = any(part.direction == "any" for part in chosen)  # such parts have the hosts of the other directions, too
        ends = None if is_detailed or not chosen else self._look_at_ends(batch.src, batch.dst)
        for number, part in enumerate(chosen):
            rule = self._rule(part)
            if ends is None:
                (src, dst, ports), others = self._choose(batch, part)
                found = self._look_at_ends(src, dst)
                ignored, same, left_out = self._count_hosts(found, rule)
                pairs, first = self._port_room(batch.family, len(src)), 0
                count = make_port_pairs(src, dst, ports, found.sources, found.targets, rule, self._port_use, pairs)
                if number == 0:
                    counts.unknown_details, counts.filtered, counts.no_contact = others
            else:
                ignored, same, left_out = self._count_hosts(ends, rule)
                pairs, first = self._room(batch), 0
                if batch.family == 4 and self.host_bits[4] == 32:
                    mutual, count = split_pairs(batch.src, batch.dst, ends.sources, ends.targets, pairs)
                    some, others = pairs[0][:mutual], pairs[1][:mutual]
                    if mutual:
                        result += [(part, PairBatch(some, others)), (part, PairBatch(others, some))]
                    first = len(batch) + 1
                else:
                    count = make_pairs(batch.src, batch.dst, ends.sources, ends.targets, rule, pairs)
            if number == 0:  # Count a packet once, however many parts it belongs to.
                counts.no_inner_end, counts.same_ends = ignored, same
            if number == 0 if is_detailed else part.direction == "any" or not both:  # Count an end once.
                counts.special_ends += left_out
            hosts, peers = pairs[0][first : first + count], pairs[1][first : first + count]
            if part.family == 6 and self.host_bits[6] <= 64 and not self.lens.hosts_have_ports:
                hosts = hosts[:, 0].copy()  # The low word of such a host is always zero.
            result.append((part, PairBatch(hosts, peers)))
        return result, counts

    def _look_at_ends(self, src: Addresses, dst: Addresses) -> Ends:
        count = len(src)
        memory = self._flags.borrow() if LEAST_SHARE <= count <= MOST_SHARE else np.empty(6 * count, np.uint8)
        ends = Ends(*memory[: 6 * count].reshape(6, count))
        if src.ndim == 1:
            np.not_equal(src, dst, out=ends.differ.view(bool))
        else:  # in either word
            unlike = np.not_equal(src, dst, out=memory[4 * count : 6 * count].view(bool).reshape(count, 2))
            np.not_equal(unlike.view(np.uint16)[:, 0], 0, out=ends.differ.view(bool))
        self._look_up(src, ends.src)
        self._look_up(dst, ends.dst)
        return ends

    def _look_up(self, addresses: Addresses, flags: Flags) -> None:
        family = 4 if addresses.ndim == 1 else 6
        tables = (self.inner[family], INNER), (self.excluded[family], EXCLUDED)
        if family not in self._known:
            known = tables[1][0].known << EXCLUDED | (self.all_inner or tables[0][0].known)
            for table, _ in tables:
                if 2 in table.known:  # Compile the search now: the packet that needs it may come when nothing may wait.
                    search_ranges(addresses[:0], table, 0, flags[:0])
            self._known[family] = known | prefixes.known_special(family) if self.drops_special else known
        found = look_up(addresses, self._known[family], flags)
        for table, shift in tables:
            if found & 2 << shift:
                search_ranges(addresses, table, shift, flags)

    @staticmethod
    def _count_hosts(ends: Ends, rule: Rule) -> tuple[int, int, int]:
        """Find hosts; return the number of packets without an inner end, that with equal ends, and of special ends."""
        counted, left_out = find_hosts(ends, rule)
        differing = int(np.count_nonzero(ends.differ.view(bool)))
        return differing - counted, len(ends.src) - differing, left_out

    def _choose(
        self, batch: PacketBatch, part: Part
    ) -> tuple[tuple[Addresses, Addresses, Ports], tuple[int, int, int]]:
        """Return the packets that count where protocols, ports or contacts matter, and the numbers of the others."""
        lens, details = self.lens, np.zeros(len(batch), np.uint64) if batch.details is None else batch.details
        by_protocol, by_port = int(lens.protocols is not None), int(lens.ports is not None)
        choice = Choice(np.uint64(MARKS[part.contact]), int(lens.needs_ports), by_protocol, by_port)
        out = np.empty_like(batch.src), np.empty_like(batch.dst), np.empty(len(batch), np.uint16)
        count, *others = choose(batch.src, batch.dst, details, choice, lens.allowed, out)
        return (out[0][:count], out[1][:count], out[2][:count]), (others[0], others[1], others[2])

    def counting(self, batch: PacketBatch, *, sides: Sequence[str]) -> NDArray[np.uint8]:
        """Return for each packet 1 if it has a host on one of these sides and passes the filters, else 0."""
        ends, counts = self._look_at_ends(batch.src, batch.dst), np.zeros(len(batch), np.uint8)
        for side in sides:
            self._count_hosts(ends, self._rule(Part(batch.family, side)))
            counts |= ends.sources | ends.targets
        if self.lens.needs_details and batch.details is not None:
            counts &= self._passing(batch.details)
        return counts

    def _passing(self, details: Details) -> NDArray[np.uint8]:
        lens, passes = self.lens, np.ones(len(details), bool)
        if lens.protocols is not None:
            known = details & _HAS_PROTOCOL != 0
            passes &= known & (lens.allowed.protocols[details >> _PROTOCOL & np.uint64(0xFF)] == 1)
        if lens.needs_ports or lens.ports is not None:
            passes &= details & _HAS_PORTS != 0
        if lens.ports is not None:
            ports = lens.allowed.ports
            sent, asked = details >> _SRC_PORT & _PORT, details & _PORT
            passes &= (ports[sent] | ports[asked]) == 1
        return passes.astype(np.uint8)

    def _port_room(self, family: int, packets: int) -> tuple[Addresses, Addresses]:
        shape = (2 * packets + 1, 2) if family == 6 else 2 * packets + 1
        is_wide = family == 6 or self.lens.hosts_have_ports
        host, peer = is_wide, is_wide or self.lens.counts == "host-ports"
        return np.empty(shape, np.uint64 if host else np.uint32), np.empty(shape, np.uint64 if peer else np.uint32)

    def _room(self, batch: PacketBatch) -> tuple[Addresses, Addresses]:
        """Return columns in memory that is used again; few packets, of which thousands may wait, get their own."""
        if len(batch) < LEAST_SHARE:
            shape = (2 * (len(batch) + 1), *batch.src.shape[1:])
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
                outer=np.uint8(part.side == "outer"),
                sent=np.uint8(part.way != "in"),
                received=np.uint8(part.way != "out"),
                mask_high=np.uint64(mask >> 64),
                mask_low=np.uint64(mask & (1 << 64) - 1),
            )
        return self._rules[part]

    @cached_property
    def _hosts_all_special(self) -> dict[int, PrefixTable]:
        return prefixes.host_tables(prefixes.SPECIAL_NETWORKS, self.host_bits, whole=True)

    def _are_special(self, hosts: Addresses, family: int) -> NDArray[np.bool_]:
        if self.host_bits[family] < (32 if family == 4 else 128):
            return np.asarray(inside(hosts, self._hosts_all_special[family]) == 1)
        flags = np.empty(len(hosts), np.uint8)
        look_up(hosts, prefixes.known_special(family), flags)
        return np.asarray(flags == 1 << SPECIAL)

    def monitors(self, hosts: Addresses, part: Part) -> NDArray[np.bool_]:
        """Return True for each host on the part's side. A reported host that is not was never seen (a phantom)."""
        if self.lens.hosts_have_ports and hosts.ndim == 1:
            hosts = np.asarray(hosts >> np.uint64(traffic.PORT_BITS), np.uint32)
        elif self.lens.hosts_have_ports:
            hosts = np.asarray(hosts & np.array([traffic.MASK64, traffic.MASK64 - traffic.MOST_PORTS], np.uint64))
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
