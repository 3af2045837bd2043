"""Which end of a packet is a host: every case in both address families; prefix tables compared with plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superhosts.core.pairs import HostFormat, PacketBatch, Part, array_to_numbers, numbers_to_array
from superhosts.core.prefixes import parse_networks
from superhosts.errors import UsageError
from superhosts.pipeline.network import LEAST_SHARE, Network

INNER = {4: ["10.0.0.0/8"], 6: ["2001:db8::/32"]}
# Two inner and two outer addresses of each family.
HOME = {4: ("10.1.2.3", "10.9.9.9"), 6: ("2001:db8::1", "2001:db8:0:5::2")}
AWAY = {4: ("192.0.2.1", "198.51.100.7"), 6: ("2a00::1", "2a01::2")}
SPECIAL = {
    4: ("224.0.0.0", "224.0.0.251", "239.255.255.255", "255.255.255.255", "0.0.0.0"),
    6: ("ff00::", "ff02::fb", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::"),
}
ORDINARY = {  # neighbours of these; of IPv6 also addresses that differ in one word alone
    4: ("223.255.255.255", "240.0.0.0", "255.255.255.254", "0.0.0.1", "10.255.255.255"),
    6: ("feff:ffff::", "::1", "0:0:0:1::", "1::", "fe80::1", "2001:db8::2", "2001:db8:1::1"),
}
families = pytest.mark.parametrize("family", [4, 6])


def number(text: str) -> int:
    return int(IPv6Address(text)) if ":" in text else int(IPv4Address(text))


def packets(*ends: tuple[str, str]) -> PacketBatch:
    family = 6 if ":" in ends[0][0] else 4
    src, dst = (numbers_to_array([number(pair[i]) for pair in ends], 128 if family == 6 else 32) for i in (0, 1))
    return PacketBatch(family, src, dst, np.zeros(len(ends), np.int64))


def pairs_of(network: Network, batch: PacketBatch, *parts: Part) -> list[set[tuple[int, int]]]:
    found: dict[Part, set[tuple[int, int]]] = {part: set() for part in parts}
    for part, pairs in network.pairs([batch], parts):
        found[part] |= set(zip(array_to_numbers(pairs.hosts), array_to_numbers(pairs.peers), strict=True))
    return list(found.values())


def whole(family: int, **options: object) -> Network:
    """Return a network whose IPv6 hosts are full addresses, so that both families behave alike."""
    return Network(INNER[family], ipv6_prefix=128, **options)


def plainly(
    ends: list[tuple[str, str]],
    part: Part,
    inner: Sequence[str],
    exclude: Sequence[str],
    keeps_special: bool,
    prefix: int,
) -> tuple[set[tuple[int, int]], int, int]:
    """Return the pairs of packets, and how many have no inner end, or equal ones. Peers are whole addresses."""
    cut = (32 if part.family == 4 else 128) - prefix

    @cache
    def is_in(address: str, prefixes: Sequence[str]) -> bool:
        return any(ip_address(address) in ip_network(prefix) for prefix in prefixes)

    @cache
    def may_be_host(address: str) -> bool:
        end = ip_address(address)
        is_special = end.is_multicast or end.is_unspecified or address == "255.255.255.255"
        return not is_in(address, exclude) and (keeps_special or not is_special)

    found, no_inner_end, same = set(), 0, 0
    for src, dst in ends:
        is_inner = {end: not inner or is_in(end, inner) for end in (src, dst)}
        same += src == dst
        no_inner_end += src != dst and not any(is_inner.values())
        if src == dst or not any(is_inner.values()):
            continue
        for host, peer, way in ((src, dst, "out"), (dst, src, "in")):
            is_side = is_inner[host] == (part.side == "inner")
            if is_side and part.direction in ("any", way) and may_be_host(host):
                found.add((number(host) >> cut << cut >> (64 if cut >= 64 else 0), number(peer)))
    return found, no_inner_end, same


@families
@pytest.mark.parametrize(
    ("inner", "exclude", "special", "prefixes"),
    [
        ((), (), "drop", (32, 128)),
        ((), (), "keep", (32, 128)),
        ((), (), "drop", (24, 64)),  # a special address is not a host even where hosts are prefixes
        (("10.0.0.0/8", "2001:db8::/32"), (), "drop", (32, 128)),
        (("10.0.0.0/8", "2001:db8::/32"), (), "drop", (16, 48)),
        (("10.0.0.0/8",), (), "drop", (32, 128)),  # no host of the other family
        (("10.0.0.0/8", "2001:db8::/32"), ("10.1.2.3", "192.0.2.1", "2001:db8::1", "2a00::1"), "drop", (32, 128)),
        (("224.0.0.0/3", "0.0.0.0/32", "ff00::/8", "::/128"), (), "drop", (32, 128)),
        ((), ("224.0.0.0/3", "ff00::/8"), "keep", (32, 128)),
        *(  # inner prefixes that are longer than hosts
            (("10.1.2.3/32", "10.9.9.0/25", "10.255.0.0/16", "2001:db8::1/128", "2001:db8:0:5::/112"), (), "drop", each)
            for each in ((1, 16), (8, 48), (24, 64), (31, 96), (28, 112))
        ),
    ],
)
def test_hosts_and_peers_agree_with_plain_python(family, inner, exclude, special, prefixes) -> None:
    addresses = (*HOME[family], *AWAY[family], *SPECIAL[family], *ORDINARY[family])
    ends = list(itertools.product(addresses, repeat=2))
    parts = [Part(family, side, way) for side in ("inner", "outer") for way in ("any", "out", "in")]
    network = Network(inner, exclude, special=special, ipv4_prefix=prefixes[0], ipv6_prefix=prefixes[1])
    host = HostFormat(family, prefixes[family == 6])
    expected = [plainly(ends, part, inner, exclude, special == "keep", host.prefix) for part in parts]
    assert pairs_of(network, packets(*ends * 8), *parts) == [pairs for pairs, *_ in expected]  # more than a block
    for part, (pairs, *_) in zip(parts, expected, strict=True):
        hosts = sorted({each for each, _ in pairs})
        assert [host.to_number(host.to_host(each)) for each in hosts] == hosts
        assert network.monitors(numbers_to_array(hosts, host.key_bits), part).all()  # what was seen is not a phantom
    assert [network.counters.no_inner_end, network.counters.same_ends] == [8 * count for count in expected[0][1:]]
    for end in addresses:  # alone in its block
        few = [(HOME[family][0], end), (end, AWAY[family][0])]
        pairs, *_ = plainly(few, parts[0], inner, exclude, special == "keep", host.prefix)
        assert pairs_of(network, packets(*few), parts[0]) == [pairs], end


def test_parts_of_the_other_family_are_left_alone() -> None:
    assert {part for part, _ in Network().pairs([packets(HOME[4])], [Part(6), Part(4)])} == {Part(4)}


# Special addresses: peers, but no hosts


def test_special_ends_that_are_excluded_are_not_counted() -> None:
    network = Network(exclude=["224.0.0.0/8"])  # --special keep would not make them hosts
    network.pairs([packets(("10.1.2.3", "224.0.0.251"), ("10.1.2.3", "239.0.0.1"))], [Part()])
    assert network.counters.special_ends == 1


@pytest.mark.parametrize(
    ("sides", "ways", "count"),
    [
        (["inner"], ["any"], 1),
        (["inner"], ["any", "out", "in"], 1),  # an end is counted once, however many parts it is left out of
        (["inner"], ["out"], 0),
        (["inner"], ["out", "in"], 1),
        (["outer", "inner"], ["in", "any"], 3),
    ],
)
def test_special_ends_are_counted_once(sides: list[str], ways: list[str], count: int) -> None:
    network = Network(["10.0.0.0/8", "239.0.0.0/8"])
    ends = ("10.1.1.1", "239.1.1.1"), ("10.1.1.1", "224.0.0.1"), ("0.0.0.0", "10.1.1.1"), ("0.0.0.0", "224.0.0.1")
    pairs_of(network, packets(*ends), *(Part(4, side, way) for side in sides for way in ways))
    assert (network.counters.special_ends, network.counters.no_inner_end) == (count, 1)


# The word "private"


def test_private_stands_for_the_private_prefixes_and_mixes_with_others() -> None:
    network = Network(["private,203.0.113.0/24", "2001:db8::/32"], ipv6_prefix=128)
    inner = "10.0.0.1 172.31.255.255 192.168.0.1 169.254.3.4 203.0.113.9 fd00::1 fe80::1 2001:db8::1"
    outer = "9.255.255.255 172.32.0.0 192.169.0.0 169.255.0.0 203.0.114.0 fe00::1 fec0::1 2001:db9::1"
    for text, is_inner in [(text, True) for text in inner.split()] + [(text, False) for text in outer.split()]:
        family = 6 if ":" in text else 4
        address = numbers_to_array([number(text)], 128 if family == 6 else 32)
        assert network.monitors(address, Part(family)).tolist() == [is_inner], text


# A wrong --inner


@families
def test_the_prefixes_seen_most_without_an_inner_end_are_sampled(family: int) -> None:
    network = Network(INNER[family])
    busy, other, rare = ("192.0.2.1", "198.51.0.1", "203.0.1.1") if family == 4 else ("2a00::1", "2a01::1", "2a02::1")
    ends = [(busy, other)] * 50 + [(rare, busy)] * 30 + [(HOME[family][0], busy)] * 30
    assert network.outside.most_seen() == []
    network.pairs([packets(*ends)], [Part(family)])
    expected = (
        ["192.0.0.0/16", "198.51.0.0/16", "203.0.0.0/16"] if family == 4 else ["2a00::/48", "2a01::/48", "2a02::/48"]
    )
    assert network.outside.most_seen() == expected


@pytest.mark.slow
def test_the_sample_is_bounded() -> None:
    network = Network(INNER[4])
    for block in range(70):
        network.pairs([packets(*[(f"192.{block}.0.1", "198.51.100.1")] * 2000)], [Part()])
    assert network.outside.most_seen() == ["198.51.0.0/16", "192.0.0.0/16", "192.1.0.0/16"]
    assert sum(network.outside._packets.values()) == 2 * 64 * 1000  # both ends, of 64 blocks


# Phantoms: hosts of a result that are special, or on the wrong side

SPECIAL_OR_NOT = {
    family: [*((text, False) for text in SPECIAL[family]), *((text, True) for text in ORDINARY[family])]
    for family in (4, 6)
}


@pytest.mark.parametrize(
    ("options", "side", "expected"),
    [
        *(({"ipv6_prefix": 128}, "inner", dict(SPECIAL_OR_NOT[family])) for family in (4, 6)),
        # A prefix is special if all of its addresses are.
        ({"ipv4_prefix": 24}, "inner", {"10.1.2.0": True, "0.0.0.0": True, "224.0.0.0": False, "255.255.255.0": True}),
        *(({"inner": INNER[f], "ipv6_prefix": 128}, "inner", {HOME[f][0]: True, AWAY[f][0]: False}) for f in (4, 6)),
        *(({"inner": INNER[f], "ipv6_prefix": 128}, "outer", {HOME[f][0]: False, AWAY[f][0]: True}) for f in (4, 6)),
        # A prefix without inner addresses is no inner host.
        ({"inner": ["2001:db8::1:0/112"]}, "inner", {"2001:db8::": True, "2001:db8:0:1::": False}),
        ({"inner": ["2001:db8::1:0/112"]}, "outer", {"2001:db8::": True, "2001:db8:0:1::": True}),
    ],
)
def test_phantoms(options: dict[str, Any], side: str, expected: dict[str, bool]) -> None:
    family, network = 6 if ":" in next(iter(expected)) else 4, Network(**options)
    bits = 32 if family == 4 else network.host_bits[6]  # hosts of 64 bits are the high words of addresses
    hosts = numbers_to_array([number(text) >> (128 - bits if family == 6 else 0) for text in expected], bits)
    assert network.monitors(hosts, Part(family, side)).tolist() == list(expected.values())


# Options


def test_values_files_commas_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "inner.txt"
    file.write_text("# ours\n10.0.0.0/8   # the old part\n\n  2001:db8::/32\n192.0.2.1\n")
    got = parse_networks([f"@{file}", "172.16.0.0/12, 198.51.100.0/24"], "inner")
    wanted = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32", "172.16.0.0/12", "198.51.100.0/24"]
    assert [str(n) for n in got] == wanted
    file.write_text("private # all of ours\n198.51.100.0/24\n")
    assert len(parse_networks([f"@{file}"], "inner")) == 7
    file.write_text("# nothing yet\n")
    Network(exclude=[f"@{file}"])  # A list of exclusions may be empty.


def test_invalid_options_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines").write_text("10.0.0.0/8\n# fine\nhello\n")
    Path("empty").write_text("# nothing yet\n")
    Path("binary").write_bytes(b"\xff\xfe")
    for options, words in (
        ({"ipv4_prefix": 0}, "^ipv4_prefix=0: must be from 1 to 32"),
        ({"ipv6_prefix": 129}, "^ipv6_prefix=129: must be from 1 to 128"),
        ({"inner": ["10.1.2.3/8"]}, r"^inner: '10\.1\.2\.3/8' is not a prefix: .*host bits set"),
        ({"inner": ["@lines"]}, "lines, line 3: 'hello' is not a prefix"),
        ({"inner": ["@a\0b"]}, "cannot be read: invalid file name"),
        ({"inner": ["@binary"]}, r'binary": cannot be read: not a text file \(UTF-8\)'),
        ({"inner": ["@empty"]}, "contains no prefix"),  # and does not make everybody a host
    ):
        with pytest.raises(UsageError, match=words):
            Network(**options)


# Formatting of hosts


def test_hosts_are_read_from_text_numbers_and_array_elements() -> None:
    four = HostFormat()
    assert four.to_number("10.1.2.3") == four.to_number(number("10.1.2.3")) == number("10.1.2.3")
    assert four.to_number(np.uint32(7)) == 7
    assert four.to_number(IPv4Address("10.1.2.3")) == number("10.1.2.3")


@pytest.mark.parametrize(
    ("reading", "host", "message"),
    [
        (HostFormat(), "hello", "'hello' is not an address"),
        (HostFormat(), "2001:db8::1", "is IPv6, but hosts here are IPv4"),
        (HostFormat(6, 64), "10.0.0.1", "is IPv4, but hosts here are IPv6"),
        (HostFormat(), "10.0.0.0/8", "contains many hosts"),
        (HostFormat(6, 64), "2001:db8::/48", "contains many hosts"),
        (HostFormat(), 1 << 32, "does not fit in 32 bits"),
        (HostFormat(), -1, "does not fit in 32 bits"),
    ],
)
def test_what_is_no_host_is_refused(reading: HostFormat, host: str | int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        reading.to_number(host)


@pytest.mark.parametrize("family", [4, 6])
def test_pairs_stay_what_they_are_while_others_are_made(family: int) -> None:
    """Their memory is used again, but only when nobody has them any more."""
    network, (home, away) = whole(family), HOME[family]
    many = packets(*[(home, away)] * LEAST_SHARE)
    first = network.pairs([many], [Part(family)])[0][1]
    before = first.hosts.copy(), first.peers.copy()
    network.pairs([packets(*[(away, home), (home, away)] * LEAST_SHARE)], [Part(family, "outer")])
    assert (first.hosts == before[0]).all()
    assert (first.peers == before[1]).all()
    place = first.peers.ctypes.data
    del first
    again = network.pairs([many], [Part(family)])[0][1]
    assert again.peers.ctypes.data == place


@pytest.mark.parametrize("family", [4, 6])
def test_pairs_of_few_packets_hold_little_memory(family: int) -> None:
    """Thousands of small batches are gathered: memory for a large share in each of them would take gigabytes."""
    network, (home, away) = whole(family), HOME[family]
    few = network.pairs([packets((home, away), (away, home))], [Part(family)])[0][1]
    columns = [few.hosts, few.peers]
    held = sum(len((column if column.base is None else column.base).tobytes()) for column in columns)
    assert held <= 1000
