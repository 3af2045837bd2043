"""The monitored network: it decides which end of a packet is a host and which is its peer.

On side "inner", every inner end of a packet is a host; if both ends are inner, both are hosts. On side "outer", the
outer end of a packet with an inner end is a host. Packets without an inner end are ignored and counted. Packets whose
source equals their destination are dropped and counted. Without inner prefixes every address is inner. Excluded
addresses are never hosts, but they remain peers of other hosts. Peers are always full addresses, even when hosts are
prefixes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.device import run_parallel, split_evenly
from superhosts.errors import UsageError
from superhosts.pairs import Addresses, PacketBatch, PairBatch, Part
from superhosts.stopwatch import timed
from superhosts.text import printable

Words = NDArray[np.uint64]
Flags = NDArray[np.uint8]
Networks = list[ipaddress.IPv4Network | ipaddress.IPv6Network]
# Packets that a thread turns into pairs at a time. With more they leave its cache, with fewer threads wait for Python.
LEAST_SHARE, MOST_SHARE = 1 << 14, 1 << 17
BLOCK = 1024  # packets whose flags are in a core's cache together


class PrefixTable(NamedTuple):
    """Sorted, disjoint address ranges, indexed by the first 16 bits of an address."""

    known: Flags  # for each value of the first 16 bits: 0 all outside, 1 all inside, 2 search the ranges
    first: NDArray[np.int32]  # for each such value: index of the first range that may contain the address
    last: NDArray[np.int32]  # for each such value: one past the index of the last such range
    low: Words  # (ranges, 2): first address of each range; IPv4 addresses occupy the highest 32 bits
    high: Words  # (ranges, 2): last address of each range


class Rule(NamedTuple):
    """Which end of a packet becomes a host. Flags are integers for the compiler."""

    outer: int  # 1: the outer end is the host
    sent: int  # 1: include hosts that sent the packet
    received: int  # 1: include hosts that received the packet
    all_inner: int  # 1: there are no inner prefixes
    exclusions: int  # 1: some hosts are excluded
    mask_high: int  # mask of an IPv6 host, high word
    mask_low: int  # mask of an IPv6 host, low word


@dataclass
class NetworkCounters:
    """Packets that yielded no pair, by reason."""

    no_inner_end: int = 0
    same_ends: int = 0

    def add(self, other: NetworkCounters) -> None:
        """Add the counts of another one."""
        self.no_inner_end += other.no_inner_end
        self.same_ends += other.same_ends


def make_table(networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network], family: int) -> PrefixTable:
    """Build the prefix table of one address family."""
    ranges: list[tuple[int, int]] = []
    for network in ipaddress.collapse_addresses(n for n in networks if n.version == family):  # type: ignore[type-var]
        shift = 96 if family == 4 else 0
        first, last = int(network.network_address) << shift, int(network.broadcast_address) << shift
        if ranges and ranges[-1][1] + (1 << shift) == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
    tops = [(first >> 112, last >> 112) for first, last in ranges]
    sixteen = np.arange(1 << 16)
    begins = np.searchsorted(np.array([top for _, top in tops], np.int64), sixteen, "left").astype(np.int32)
    ends = np.searchsorted(np.array([top for top, _ in tops], np.int64), sixteen, "right").astype(np.int32)
    known = np.where(begins == ends, 0, 2).astype(np.uint8)
    for first, last in ranges:
        whole = -(-first >> 112), (last + (1 << (96 if family == 4 else 0))) >> 112
        known[whole[0] : whole[1]] = 1
    return PrefixTable(
        known,
        begins,
        ends,
        _halves([first for first, _ in ranges]),
        _halves([last for _, last in ranges]),
    )


def _host_tables(networks: Networks, ipv6_prefix: int) -> tuple[dict[int, PrefixTable], dict[int, PrefixTable]]:
    """Return tables of hosts that contain some inner address, and of hosts that contain only inner addresses.

    They differ if hosts are prefixes and an inner prefix is longer than a host's.
    """
    wide: Networks = [
        n.supernet(new_prefix=ipv6_prefix) if n.version == 6 and n.prefixlen > ipv6_prefix else n for n in networks
    ]
    whole: Networks = list(ipaddress.collapse_addresses(n for n in networks if n.version == 4))
    sixes = ipaddress.collapse_addresses(n for n in networks if n.version == 6)
    whole += [n for n in sixes if n.prefixlen <= ipv6_prefix]
    return (
        {family: make_table(wide, family) for family in (4, 6)},
        {family: make_table(whole, family) for family in (4, 6)},
    )


def _halves(numbers: list[int]) -> Words:
    return np.array([(n >> 64, n & (1 << 64) - 1) for n in numbers], np.uint64).reshape(len(numbers), 2)


@compiled
def inside(addresses: Addresses, table: PrefixTable) -> Flags:
    """Return for every address 1 if the table contains it, else 0."""
    out = np.empty(len(addresses), np.uint8)
    _mark_inside(addresses, table, out)
    return out


@compiled
def _mark_inside(addresses: Addresses, table: PrefixTable, out: Flags) -> None:
    """Write 1 for every address that the table contains, else 0."""
    known, first, last, lows, highs = table
    searched = np.uint8(0)
    for i in range(len(addresses)):
        if addresses.ndim == 1:
            out[i] = known[addresses[i] >> np.uint32(16)]
        else:
            out[i] = known[addresses[i, 0] >> np.uint64(48)]
        searched |= out[i]
    if searched < 2:  # With most prefixes, the small table decides.
        return
    for i in range(len(addresses)):
        if out[i] < 2:
            continue
        if addresses.ndim == 1:
            high, low = np.uint64(addresses[i]) << np.uint64(32), np.uint64(0)
        else:
            high, low = addresses[i, 0], addresses[i, 1]
        top = high >> np.uint64(48)
        a, b = first[top], last[top]
        while a < b:  # Binary search for the first range that does not end before the address.
            middle = (a + b) >> 1
            if highs[middle, 0] < high or (highs[middle, 0] == high and highs[middle, 1] < low):
                a = middle + 1
            else:
                b = middle
        out[i] = a < last[top] and (lows[a, 0] < high or (lows[a, 0] == high and lows[a, 1] <= low))


@compiled
def _find_hosts(
    src: Addresses, dst: Addresses, inner: PrefixTable, excluded: PrefixTable, rule: Rule
) -> tuple[Flags, Flags, int, int]:
    """Return for every packet 1 if its source is a host, and 1 if its destination is.

    Return also the number of packets without an inner end, and the number with equal ends.
    """
    n = len(src)
    sources, targets = np.empty(n, np.uint8), np.empty(n, np.uint8)
    inner_src, inner_dst = np.ones(BLOCK, np.uint8), np.ones(BLOCK, np.uint8)
    counts = np.empty(BLOCK, np.uint8)
    outer, sent, received = np.uint8(rule.outer), np.uint8(rule.sent), np.uint8(rule.received)
    differing, counted = np.uint32(0), np.uint32(0)
    for start in range(0, n, BLOCK):  # in loops so simple that they run in vector registers
        left, right = src[start : start + BLOCK], dst[start : start + BLOCK]
        size = len(left)
        if rule.all_inner == 0:
            _mark_inside(left, inner, inner_src)
            _mark_inside(right, inner, inner_dst)
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
    if rule.exclusions == 1:
        not_src, not_dst = inside(src, excluded), inside(dst, excluded)
        for i in range(n):
            sources[i] &= not_src[i] ^ np.uint8(1)
            targets[i] &= not_dst[i] ^ np.uint8(1)
    return sources, targets, int(differing) - int(counted), n - int(differing)


@compiled
def make_pairs(
    src: Addresses, dst: Addresses, inner: PrefixTable, excluded: PrefixTable, rule: Rule
) -> tuple[Addresses, Addresses, int, int]:
    """Return hosts, peers, the number of packets without an inner end, and the number with equal ends.

    Which end of a packet is a host is as good as random, so a branch would be mispredicted. Every packet is written
    twice instead, and the next one overwrites what does not count.
    """
    sources, targets, ignored, same = _find_hosts(src, dst, inner, excluded, rule)
    room = np.sum(sources) + np.sum(targets) + np.uint64(1)  # one for a last packet that does not count
    count = np.uint64(0)  # Unsigned: a signed index is tested for negative values.
    if src.ndim == 1:
        hosts, peers = np.empty(room, src.dtype), np.empty(room, src.dtype)
        for i in range(len(src)):
            hosts[count], peers[count] = src[i], dst[i]
            count += np.uint64(sources[i])
            hosts[count], peers[count] = dst[i], src[i]
            count += np.uint64(targets[i])
    else:
        hosts, peers = np.empty((room, 2), src.dtype), np.empty((room, 2), src.dtype)
        for i in range(len(src)):
            hosts[count, 0], hosts[count, 1] = src[i, 0] & rule.mask_high, src[i, 1] & rule.mask_low
            peers[count, 0], peers[count, 1] = dst[i, 0], dst[i, 1]
            count += np.uint64(sources[i])
            hosts[count, 0], hosts[count, 1] = dst[i, 0] & rule.mask_high, dst[i, 1] & rule.mask_low
            peers[count, 0], peers[count, 1] = src[i, 0], src[i, 1]
            count += np.uint64(targets[i])
    return hosts[:count], peers[:count], ignored, same


def parse_networks(values: Sequence[str], option: str) -> Networks:
    """Parse prefixes. Each value is a comma-separated list, or @FILE with one prefix per line and # comments."""
    networks: Networks = []
    for value in values:
        if value.startswith("@"):
            try:
                lines = Path(value[1:]).read_text("utf-8").splitlines()
            except OSError as error:
                raise UsageError(f"{option} {value}: cannot be read: {error.strerror or error}") from None
            except UnicodeDecodeError:
                raise UsageError(f"{option} {value}: cannot be read: not a text file (UTF-8)") from None
            except ValueError:
                raise UsageError(f"{option} {printable(value)}: cannot be read: invalid file name") from None
            places = [(f"{value[1:]}, line {i}", line.split("#")[0].strip()) for i, line in enumerate(lines, 1)]
        else:
            places = [(option, text.strip()) for text in value.split(",")]
        for place, text in places:
            if not text:
                continue
            try:
                networks.append(ipaddress.ip_network(text))
            except ValueError as error:
                raise UsageError(f"{place}: {text!r} is not a prefix: {error}") from None
    return networks


def _shares(batch: PacketBatch, size: int) -> list[PacketBatch]:
    """Split a batch into shares of up to `size` packets."""
    return [
        PacketBatch(batch.family, batch.src[start:stop], batch.dst[start:stop], batch.time[start:stop], batch.span)
        for start, stop in split_evenly(len(batch), -(-len(batch) // size) or 1)
    ]


class Network:
    """The monitored network. Converts packets to pairs and counts the packets that yield none."""

    def __init__(self, inner: Sequence[str] = (), exclude: Sequence[str] = (), *, ipv6_prefix: int = 64) -> None:
        if not 1 <= ipv6_prefix <= 128:
            raise UsageError(f"--ipv6-prefix {ipv6_prefix}: must be from 1 to 128")
        inner_networks, excluded = parse_networks(inner, "--inner"), parse_networks(exclude, "--exclude")
        if inner and not inner_networks:  # An empty file must not make every address inner.
            raise UsageError(f"--inner {' '.join(inner)}: contains no prefix")
        self.all_inner = not inner_networks
        self.inner = {family: make_table(inner_networks, family) for family in (4, 6)}
        self._hosts_with_inner, self._hosts_all_inner = _host_tables(inner_networks, ipv6_prefix)
        self.excluded = {family: make_table(excluded, family) for family in (4, 6)}
        self.ipv6_prefix = ipv6_prefix
        self.counters = NetworkCounters()
        self._rules: dict[Part, Rule] = {}

    def pairs(
        self, batches: Sequence[PacketBatch], parts: Sequence[Part], threads: int = 1
    ) -> list[tuple[Part, PairBatch]]:
        """Return the pairs of each part of the batches' families, and count the packets that yield none."""
        size = min(max(-(-sum(map(len, batches)) // threads), LEAST_SHARE), MOST_SHARE)
        found: list[tuple[Part, PairBatch]] = []
        calls = [(share, parts) for batch in batches for share in _shares(batch, size)]
        for pairs, counts in run_parallel(self._find_pairs, calls, threads):
            self.counters.add(counts)
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
        for number, part in enumerate(chosen):
            rule = self._rule(part)
            hosts, peers, ignored, same = make_pairs(batch.src, batch.dst, inner, excluded, rule)
            if number == 0:  # Count a packet once, however many parts it belongs to.
                counts = NetworkCounters(ignored, same)
            one_word = batch.family == 6 and self.ipv6_prefix <= 64  # The low word of such hosts is zero.
            result.append((part, PairBatch(hosts[:, 0].copy() if one_word else hosts, peers)))
        return result, counts

    def _rule(self, part: Part) -> Rule:
        """Return which ends are hosts of a part; made once, because threads wait for whoever makes it."""
        if part not in self._rules:
            mask = -(1 << (128 - self.ipv6_prefix))
            self._rules[part] = Rule(
                outer=int(part.side == "outer"),
                sent=int(part.direction != "in"),
                received=int(part.direction != "out"),
                all_inner=int(self.all_inner),
                exclusions=int(len(self.excluded[part.family].low) > 0),
                mask_high=np.uint64(mask >> 64 & (1 << 64) - 1),  # type: ignore[arg-type]
                mask_low=np.uint64(mask & (1 << 64) - 1),  # type: ignore[arg-type]
            )
        return self._rules[part]

    def monitors(self, hosts: Addresses, part: Part) -> NDArray[np.bool_]:
        """Return True for each host on the part's side. A reported host that is not was never seen (a phantom)."""
        if self.all_inner:
            return np.ones(len(hosts), bool)
        if part.family == 6 and hosts.ndim == 1:
            prefixes = hosts
            hosts = np.zeros((len(prefixes), 2), np.uint64)
            hosts[:, 0] = prefixes
        if part.side == "inner":
            return np.asarray(inside(hosts, self._hosts_with_inner[part.family]).astype(bool))
        return np.asarray(inside(hosts, self._hosts_all_inner[part.family]) == 0)
