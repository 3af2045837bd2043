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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.device import run_parallel, split_evenly
from superhosts.errors import UsageError
from superhosts.lending import Lender
from superhosts.pairs import Addresses, PacketBatch, PairBatch, Part
from superhosts.prefixes import (
    SPECIAL_NETWORKS,
    Flags,
    OutsideSample,
    PrefixTable,
    inside,
    make_table,
    mark_inside,
    mark_special,
    parse_networks,
    tables_of_some,
    tables_of_whole,
)
from superhosts.stopwatch import timed
from superhosts.text import setting

SPECIAL = ("drop", "keep")  # what to do with multicast, broadcast and unspecified addresses as hosts
# Packets that a thread turns into pairs at a time. With more they leave its cache, with fewer threads wait for Python.
LEAST_SHARE, MOST_SHARE = 1 << 14, 1 << 17
ROOM = 2 * MOST_SHARE + 1  # pairs: two of each packet, and what is overwritten
BLOCK = 1024  # packets whose flags are in a core's cache together


class Rule(NamedTuple):
    """Which end of a packet becomes a host. Flags are integers for the compiler."""

    outer: int  # 1: the outer end is the host
    sent: int  # 1: include hosts that sent the packet
    received: int  # 1: include hosts that received the packet
    all_inner: int  # 1: there are no inner prefixes
    exclusions: int  # 1: some hosts are excluded
    drops_special: int  # 1: multicast, broadcast and unspecified addresses are no hosts
    mask_high: int  # mask of an IPv6 host, high word; or of an IPv4 host
    mask_low: int  # mask of an IPv6 host, low word


@dataclass
class NetworkCounters:
    """Packets that yielded no pair, by reason, and ends of packets that would be hosts but for their address."""

    no_inner_end: int = 0
    same_ends: int = 0
    special_ends: int = 0  # of multicast, broadcast or unspecified addresses

    def add(self, other: NetworkCounters) -> None:
        """Add the counts of another one."""
        self.no_inner_end += other.no_inner_end
        self.same_ends += other.same_ends
        self.special_ends += other.special_ends


@compiled
def _find_hosts(
    src: Addresses, dst: Addresses, inner: PrefixTable, excluded: PrefixTable, rule: Rule
) -> tuple[Flags, Flags, int, int, int]:
    """Return for every packet 1 if its source is a host, and 1 if its destination is.

    Return also the number of packets without an inner end, the number with equal ends, and the number of special ends
    that would be hosts otherwise.
    """
    n = len(src)
    sources, targets = np.empty(n, np.uint8), np.empty(n, np.uint8)
    inner_src, inner_dst = np.ones(BLOCK, np.uint8), np.ones(BLOCK, np.uint8)
    counts, marked = np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.uint8)
    left_out = 0
    outer, sent, received = np.uint8(rule.outer), np.uint8(rule.sent), np.uint8(rule.received)
    differing, counted = np.uint32(0), np.uint32(0)
    for start in range(0, n, BLOCK):  # in loops so simple that they run in vector registers
        left, right = src[start : start + BLOCK], dst[start : start + BLOCK]
        size = len(left)
        if rule.all_inner == 0:
            mark_inside(left, inner, inner_src)
            mark_inside(right, inner, inner_dst)
        for i in range(size):
            if src.ndim == 1:
                counts[i] = left[i] != right[i]
            else:
                counts[i] = (left[i, 0] != right[i, 0]) | (left[i, 1] != right[i, 1])
        for i in range(size):
            differing = np.uint32(differing + np.uint32(counts[i]))
        for i in range(size):
            counts[i] &= inner_src[i] | inner_dst[i]
        for i in range(size):
            counted = np.uint32(counted + np.uint32(counts[i]))
        from_here, to_here = sources[start : start + size], targets[start : start + size]
        for i in range(size):
            from_here[i] = counts[i] & (inner_src[i] ^ outer) & sent
        for i in range(size):
            to_here[i] = counts[i] & (inner_dst[i] ^ outer) & received
        if rule.exclusions == 1:  # first: an excluded end is no host, special or not
            mark_inside(left, excluded, marked)
            _leave_out(from_here, marked)
            mark_inside(right, excluded, marked)
            _leave_out(to_here, marked)
        if rule.drops_special == 1:
            if mark_special(left, marked):
                left_out += _leave_out(from_here, marked)
            if mark_special(right, marked):
                left_out += _leave_out(to_here, marked)
    return sources, targets, int(differing) - int(counted), n - int(differing), left_out


@compiled
def _leave_out(hosts: Flags, marked: Flags) -> int:
    """Clear the flags of hosts whose addresses are marked; return how many these are."""
    count = np.uint32(0)
    for i in range(len(hosts)):
        count = np.uint32(count + np.uint32(hosts[i] & marked[i]))
    for i in range(len(hosts)):
        hosts[i] &= marked[i] ^ np.uint8(1)
    return int(count)


@compiled
def make_pairs(
    src: Addresses, dst: Addresses, inner: PrefixTable, excluded: PrefixTable, rule: Rule, pairs: tuple[Any, Any]
) -> tuple[int, int, int, int]:
    """Write the hosts and peers of packets into the columns of `pairs`; return their number and those of `_find_hosts`.

    The columns have room for two pairs of each packet, and one more. Which end of a packet is a host is as good as
    random, so a branch would be mispredicted. Every packet is written twice instead, and the next one overwrites what
    does not count.
    """
    hosts, peers = pairs
    sources, targets, ignored, same, left_out = _find_hosts(src, dst, inner, excluded, rule)
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
    return int(count), ignored, same, left_out


def _shares(batch: PacketBatch, size: int) -> list[PacketBatch]:
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
        calls = [(share, parts) for batch in batches for share in _shares(batch, size)]
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
            one_word = batch.family == 6 and self.host_bits[6] <= 64  # The low word of such hosts is zero.
            result.append((part, PairBatch(hosts[:, 0].copy() if one_word else hosts, peers)))
        return result, counts

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
                sent=int(part.direction != "in"),
                received=int(part.direction != "out"),
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
