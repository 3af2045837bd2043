"""Prefixes: lists of them as options give them, and tables that say which addresses they contain."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import Addresses, Network, PacketBatch
from superhosts.core.text import named, printable, setting
from superhosts.errors import UsageError
from superhosts.jit.cache import compiled

Words = NDArray[np.uint64]
Flags = NDArray[np.uint8]
Networks = list[Network]

SAMPLED_BLOCKS, SAMPLED_PACKETS = 64, 1024  # most blocks of a sample, and packets of each
SHOWN_PREFIXES = 3
BLOCK = 4096  # addresses whose flags are in a core's cache together
SPECIAL = 2  # the bit from which on flags say whether an address is special

# The word for prefixes that nobody else can have on the Internet: RFC 1918, unique local (RFC 4193) and link-local.
PRIVATE = "private"
PRIVATE_NETWORKS: Networks = [
    *(ipaddress.IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16")),
    *(ipaddress.IPv6Network(text) for text in ("fc00::/7", "fe80::/10")),
]
# Multicast (link-local multicast included), broadcast and unspecified addresses. The broadcast address of a subnet
# cannot be told from a host without the subnet's mask.
SPECIAL_NETWORKS: Networks = [
    *(ipaddress.IPv4Network(text) for text in ("224.0.0.0/4", "255.255.255.255/32", "0.0.0.0/32")),
    *(ipaddress.IPv6Network(text) for text in ("ff00::/8", "::/128")),
]


class PrefixTable(NamedTuple):
    """Sorted, disjoint address ranges, indexed by the first 16 bits of an address."""

    known: Flags  # for each value of the first 16 bits: 0 all outside, 1 all inside, 2 search the ranges
    first: NDArray[np.int32]  # for each such value: index of the first range that may contain the address
    last: NDArray[np.int32]  # for each such value: one past the index of the last such range
    low: Words  # (ranges, 2): first address of each range; IPv4 addresses occupy the highest 32 bits
    high: Words  # (ranges, 2): last address of each range


def make_table(networks: Iterable[Network], family: int) -> PrefixTable:
    ranges: list[tuple[int, int]] = []
    for network in ipaddress.collapse_addresses(n for n in networks if n.version == family):  # type: ignore[type-var]
        shift = 96 if family == 4 else 0
        first, last = int(network.network_address) << shift, int(network.broadcast_address) << shift
        if ranges and ranges[-1][1] + (1 << shift) == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
    # Both are steps: they grow where a range has ended, and where one begins.
    ended, begun = [(last >> 112) + 1 for _, last in ranges], [first >> 112 for first, _ in ranges]
    numbers = np.arange(len(ranges) + 1, dtype=np.int32)
    begins, ends = (np.repeat(numbers, np.diff([0, *steps, 1 << 16])) for steps in (ended, begun))
    known = (begins != ends).view(np.uint8) * np.uint8(2)
    for first, last in ranges:
        whole = -(-first >> 112), (last + (1 << (96 if family == 4 else 0))) >> 112
        known[whole[0] : whole[1]] = 1
    return PrefixTable(
        known, begins, ends, _halves([first for first, _ in ranges]), _halves([last for _, last in ranges])
    )


def host_tables(networks: Networks, host_bits: Mapping[int, int], *, whole: bool) -> dict[int, PrefixTable]:
    """Return tables of the hosts with addresses of the networks; `whole`: of those that have no others."""
    found = {}
    for family, bits in host_bits.items():
        own: Iterable[Network] = ipaddress.collapse_addresses(n for n in networks if n.version == family)  # type: ignore[type-var]
        if not whole:
            own = (n.supernet(new_prefix=bits) if n.prefixlen > bits else n for n in own)
        found[family] = make_table((n for n in own if n.prefixlen <= bits), family)
    return found


def _halves(numbers: list[int]) -> Words:
    return np.array([(n >> 64, n & (1 << 64) - 1) for n in numbers], np.uint64).reshape(len(numbers), 2)


def inside(addresses: Addresses, table: PrefixTable) -> Flags:
    """Return 1 for every address that the table contains, else 0."""
    flags = np.empty(len(addresses), np.uint8)
    if look_up(addresses, table.known, flags) & 2:
        search_ranges(addresses, table, 0, flags)
    return flags


def look_up(addresses: Addresses, known: Flags, out: Flags) -> int:
    """Write what is known of the first 16 bits of every address; return the OR of all that. Most prefixes need no more.

    Where `known_special` is unsure, the rest of the address decides. The loop takes the 16-bit words of both address
    families alike, so that it is compiled once.
    """
    words = np.ascontiguousarray(addresses).reshape(-1).view(np.uint16)
    return _look_up(words, *((1, 2) if addresses.ndim == 1 else (3, 8)), known, out)


@partial(compiled, counts=False)
def _look_up(words: NDArray[np.uint16], first: int, size: int, known: Flags, out: Flags) -> int:
    """The first 16 bits of an address are word `first` of `size`."""
    at, all_found = np.uint64(first), np.uint8(0)
    for start in range(0, len(out), BLOCK):
        flags, found = out[start : start + BLOCK], np.uint8(0)
        for i in range(len(flags)):
            flags[i] = known[words[at]]
            found |= flags[i]
            at += np.uint64(size)
        all_found |= found
        if found & 2 << SPECIAL:
            for i in range(len(flags)):
                if flags[i] & 2 << SPECIAL:
                    address = words[(start + i) * size : (start + i + 1) * size]
                    alike = True
                    for word in address:
                        alike &= word == address[first]
                    flags[i] ^= np.uint8((3 if alike else 2) << SPECIAL)
    return int(all_found)


@partial(compiled, counts=False)
def search_ranges(addresses: Addresses, table: PrefixTable, shift: int, flags: Flags) -> None:
    """Where the two bits of a flag from bit `shift` on are 2, make them 1 if the table contains the address, else 0."""
    for i in range(len(addresses)):
        if not flags[i] >> shift & 2:
            continue
        if addresses.ndim == 1:
            high, low = np.uint64(addresses[i]) << np.uint64(32), np.uint64(0)
        else:
            high, low = addresses[i, 0], addresses[i, 1]
        top = high >> np.uint64(48)
        a, b = table.first[top], table.last[top]
        while a < b:  # Binary search for the first range that does not end before the address.
            middle = (a + b) >> 1
            if table.high[middle, 0] < high or (table.high[middle, 0] == high and table.high[middle, 1] < low):
                a = middle + 1
            else:
                b = middle
        is_inside = a < table.last[top] and (
            table.low[a, 0] < high or (table.low[a, 0] == high and table.low[a, 1] <= low)
        )
        flags[i] ^= (3 if is_inside else 2) << shift


@cache
def known_special(family: int) -> Flags:
    """Return what the first 16 bits of an address say of it, from bit SPECIAL on: 1 if it is special, 2 if unsure.

    In each special network with a longer prefix, all 16-bit words of an address are the same.
    """
    return make_table(SPECIAL_NETWORKS, family).known << np.uint8(SPECIAL)


def parse_networks(values: Sequence[str], name: str) -> Networks:
    """Parse prefixes. Each value is a comma-separated list, or @FILE with one prefix per line and # comments.

    The word `private` stands for all private prefixes. Errors spell the setting `name` as the caller writes it.
    """
    networks: Networks = []
    for value in values:
        if value.startswith("@"):
            try:
                lines = Path(value[1:]).read_text("utf-8").splitlines()
            except OSError as error:
                raise UsageError(f"{setting(name, value)}: cannot be read: {error.strerror or error}") from None
            except UnicodeDecodeError:
                raise UsageError(f"{setting(name, value)}: cannot be read: not a text file (UTF-8)") from None
            except ValueError:
                raise UsageError(f"{setting(name, printable(value))}: cannot be read: invalid file name") from None
            places = [(f"{value[1:]}, line {i}", line.split("#")[0].strip()) for i, line in enumerate(lines, 1)]
        else:
            places = [(named(name), text.strip()) for text in value.split(",")]
        for place, text in places:
            if not text:
                continue
            if text == PRIVATE:
                networks += PRIVATE_NETWORKS
                continue
            try:
                networks.append(ipaddress.ip_network(text))
            except ValueError as error:
                hint = f"write it like 10.0.0.0/8, 2001:db8::/32 or {PRIVATE}"
                why = str(error) if "host bits" in str(error) else hint
                raise UsageError(f"{place}: {text!r} is not a prefix: {why}") from None
    return networks


class OutsideSample:
    """A bounded sample of packets without an inner end: their most frequent prefixes, for whoever mistyped one."""

    def __init__(self) -> None:
        self._blocks = 0
        self._packets: Counter[tuple[int, int]] = Counter()  # by family and leading bits of an end

    def add(self, packets: PacketBatch, inner: PrefixTable, no_inner_end: int) -> None:
        """Take packets of one block into the sample, if most have no inner end: `no_inner_end` of them."""
        if 2 * no_inner_end <= len(packets) or self._blocks == SAMPLED_BLOCKS:
            return
        self._blocks += 1
        step = -(-len(packets) // SAMPLED_PACKETS)
        src, dst = packets.src[::step].copy(), packets.dst[::step].copy()
        outside = (inside(src, inner) | inside(dst, inner)) == 0
        ends = zip(_leading(src[outside]), _leading(dst[outside]), strict=True)
        self._packets.update((packets.family, each) for pair in ends for each in set(pair))

    def most_seen(self) -> list[str]:
        ordered = sorted(self._packets.items(), key=lambda item: (-item[1], item[0]))
        found = (_prefix(family, number) for (family, number), _ in ordered)
        return [str(prefix) for prefix in islice((each for each in found if not _is_special(each)), SHOWN_PREFIXES)]


def _prefix(family: int, leading: int) -> Network:
    if family == 4:
        return ipaddress.IPv4Network((leading << 16, 16))
    return ipaddress.IPv6Network((leading << 80, 48))


def _is_special(prefix: Network) -> bool:
    return any(prefix.version == each.version and prefix.overlaps(each) for each in SPECIAL_NETWORKS)


def _leading(addresses: Addresses) -> list[int]:
    leading: list[int] = (
        addresses >> np.uint32(16) if addresses.ndim == 1 else addresses[:, 0] >> np.uint64(16)
    ).tolist()
    return leading


def is_private(prefix: str) -> bool:
    network = ipaddress.ip_network(prefix)
    return any(network.version == each.version and network.subnet_of(each) for each in PRIVATE_NETWORKS)  # type: ignore[arg-type]
