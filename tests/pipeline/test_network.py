"""Which end of a packet is a host: every case in both address families; prefix tables compared with plain Python."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superhosts.core.pairs import HostFormat, PacketBatch, Part, array_to_numbers, numbers_to_array
from superhosts.core.prefixes import inside, make_table, parse_networks
from superhosts.errors import UsageError
from superhosts.pipeline.network import LEAST_SHARE, Network

INNER = {4: ["10.0.0.0/8"], 6: ["2001:db8::/32"]}
# Two inner and two outer addresses of each family.
HOME = {4: ("10.1.2.3", "10.9.9.9"), 6: ("2001:db8::1", "2001:db8:0:5::2")}
AWAY = {4: ("192.0.2.1", "198.51.100.7"), 6: ("2a00::1", "2a01::2")}
families = pytest.mark.parametrize("family", [4, 6])


def number(text: str) -> int:
    return int(IPv6Address(text)) if ":" in text else int(IPv4Address(text))


def packets(*ends: tuple[str, str]) -> PacketBatch:
    family = 6 if ":" in ends[0][0] else 4
    src, dst = (numbers_to_array([number(pair[i]) for pair in ends], 128 if family == 6 else 32) for i in (0, 1))
    return PacketBatch(family, src, dst, np.zeros(len(ends), np.int64))


def pairs_of(network: Network, batch: PacketBatch, *parts: Part) -> list[set[tuple[int, int]]]:
    found = network.pairs([batch], parts)
    assert [part for part, _ in found] == list(parts)
    assert all(len(pairs.hosts) == len(pairs.peers) for _, pairs in found)
    return [set(zip(array_to_numbers(p.hosts), array_to_numbers(p.peers), strict=True)) for _, p in found]


def whole(family: int, **options: object) -> Network:
    """Return a network whose IPv6 hosts are full addresses, so that both families behave alike."""
    return Network(INNER[family], ipv6_prefix=128, **options)  # type: ignore[arg-type]


def told(*pairs: tuple[str, str]) -> set[tuple[int, int]]:
    return {(number(host), number(peer)) for host, peer in pairs}


@families
def test_an_inner_sender_is_a_host_and_the_receiver_its_peer(family: int) -> None:
    home, away = HOME[family][0], AWAY[family][0]
    assert pairs_of(whole(family), packets((home, away)), Part(family)) == [told((home, away))]


@families
def test_an_inner_receiver_is_a_host_and_the_sender_its_peer(family: int) -> None:
    home, away = HOME[family][0], AWAY[family][0]
    assert pairs_of(whole(family), packets((away, home)), Part(family)) == [told((home, away))]


@families
def test_both_ends_inner_both_are_hosts(family: int) -> None:
    a, b = HOME[family]
    assert pairs_of(whole(family), packets((a, b)), Part(family)) == [told((a, b), (b, a))]


@families
def test_no_inner_end_gives_nothing_and_is_counted(family: int) -> None:
    network = whole(family)
    assert pairs_of(network, packets(AWAY[family]), Part(family)) == [set()]
    assert (network.counters.no_inner_end, network.counters.same_ends) == (1, 0)


@families
@pytest.mark.parametrize("where", [HOME, AWAY])
def test_an_address_that_sends_to_itself_is_dropped_and_counted(family: int, where: dict) -> None:
    network = whole(family)
    assert pairs_of(network, packets((where[family][0], where[family][0])), Part(family)) == [set()]
    assert (network.counters.no_inner_end, network.counters.same_ends) == (0, 1)


def test_ipv6_ends_that_differ_in_one_word_only_are_two_ends() -> None:
    for src, dst in (("2001:db8::1", "2001:db8::2"), ("2001:db8:1::1", "2001:db8:2::1")):
        network = whole(6)
        assert pairs_of(network, packets((src, dst)), Part(6)) == [told((src, dst), (dst, src))]
        assert network.counters.same_ends == 0


@families
def test_watching_outer_makes_the_outer_end_the_host(family: int) -> None:
    home, away = HOME[family][0], AWAY[family][0]
    for ends in ((home, away), (away, home)):
        assert pairs_of(whole(family), packets(ends), Part(family, "outer")) == [told((away, home))]


@families
def test_watching_outer_needs_an_inner_and_an_outer_end(family: int) -> None:
    network = whole(family)
    assert pairs_of(network, packets(HOME[family], AWAY[family]), Part(family, "outer")) == [set()]
    assert network.counters.no_inner_end == 1  # Two inner ends: no outer host, but an inner end.


@families
@pytest.mark.parametrize("side", ["inner", "outer"])
def test_directions(family: int, side: str) -> None:
    home, away = HOME[family][0], AWAY[family][0]
    host, peer = (home, away) if side == "inner" else (away, home)
    out, into, both = Part(family, side, "out"), Part(family, side, "in"), Part(family, side, "any")
    assert pairs_of(whole(family), packets((host, peer)), out, into, both) == [
        told((host, peer)),
        set(),
        told((host, peer)),
    ]
    assert pairs_of(whole(family), packets((peer, host)), out, into, both) == [
        set(),
        told((host, peer)),
        told((host, peer)),
    ]


@families
def test_between_inner_ends_the_sender_is_out_and_the_receiver_in(family: int) -> None:
    a, b = HOME[family]
    found = pairs_of(whole(family), packets((a, b)), Part(family, "inner", "out"), Part(family, "inner", "in"))
    assert found == [told((a, b)), told((b, a))]


@families
def test_a_packet_is_counted_once_however_many_parts_look(family: int) -> None:
    network = whole(family)
    ways = [Part(family, side, way) for side in ("inner", "outer") for way in ("any", "out", "in")]
    pairs_of(network, packets(AWAY[family], (HOME[family][0],) * 2, HOME[family]), *ways)
    assert (network.counters.no_inner_end, network.counters.same_ends) == (1, 1)


def test_parts_of_the_other_family_are_left_alone() -> None:
    assert [part for part, _ in Network().pairs([packets(HOME[4])], [Part(6), Part(4)])] == [Part(4)]


@families
def test_without_inner_prefixes_every_address_is_a_host(family: int) -> None:
    a, b = AWAY[family]
    network = Network(ipv6_prefix=128)
    assert pairs_of(network, packets((a, b)), Part(family)) == [told((a, b), (b, a))]
    assert network.counters.no_inner_end == 0


def test_inner_prefixes_of_one_family_leave_the_other_without_hosts() -> None:
    network = Network(["10.0.0.0/8"])
    assert pairs_of(network, packets(HOME[6]), Part(6)) == [set()]
    assert network.counters.no_inner_end == 1


@families
def test_excluded_addresses_are_no_hosts_but_remain_peers(family: int) -> None:
    a, b = HOME[family]
    network = whole(family, exclude=[a])
    assert pairs_of(network, packets((a, b)), Part(family)) == [told((b, a))]
    assert pairs_of(network, packets((b, a)), Part(family)) == [told((b, a))]
    assert (network.counters.no_inner_end, network.counters.same_ends) == (0, 0)


@families
def test_excluded_outer_hosts(family: int) -> None:
    home, (a, b) = HOME[family][0], AWAY[family]
    network = whole(family, exclude=[a])
    assert pairs_of(network, packets((a, home), (home, b)), Part(family, "outer")) == [told((b, home))]


@pytest.mark.parametrize(("prefix", "bits"), [(48, 64), (64, 64), (96, 128), (128, 128)])
def test_ipv6_hosts_are_prefixes_and_peers_stay_whole(prefix: int, bits: int) -> None:
    home, away = "2001:db8:1:2:3:4:5:6", "2a00:1:2:3:4:5:6:7"
    ((_, pairs),) = Network(INNER[6], ipv6_prefix=prefix).pairs([packets((home, away))], [Part(6)])
    assert array_to_numbers(pairs.peers) == [number(away)]
    reading = HostFormat(6, prefix)
    assert reading.key_bits == bits
    assert pairs.hosts.dtype == np.uint64
    assert pairs.hosts.shape == ((1,) if bits == 64 else (1, 2))
    cut = number(home) >> (128 - prefix) << (128 - prefix)
    host = reading.to_host(array_to_numbers(pairs.hosts)[0])
    assert str(host) == (home if prefix == 128 else str(ip_network((cut, prefix))))
    assert reading.to_number(home) == array_to_numbers(pairs.hosts)[0] == reading.to_number(host)


def test_a_host_prefix_counts_the_peers_of_all_its_addresses() -> None:
    batch = packets(("2001:db8:0:1::1", "2a00::1"), ("2001:db8:0:1::2", "2a00::2"), ("2001:db8:0:2::1", "2a00::1"))
    (found,) = pairs_of(Network(INNER[6]), batch, Part(6))
    one, two = (number(text) >> 64 for text in ("2001:db8:0:1::", "2001:db8:0:2::"))
    assert found == {(one, number("2a00::1")), (one, number("2a00::2")), (two, number("2a00::1"))}


def test_ends_within_one_host_prefix_are_peers_of_that_host() -> None:
    a, b = "2001:db8::1", "2001:db8::2"
    (found,) = pairs_of(Network(INNER[6]), packets((a, b)), Part(6))
    assert found == {(number(a) >> 64, number(b)), (number(a) >> 64, number(a))}


# Special addresses: peers, but no hosts

SPECIAL = {
    4: ("224.0.0.0", "224.0.0.251", "239.255.255.255", "255.255.255.255", "0.0.0.0"),
    6: ("ff00::", "ff02::fb", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::"),
}
ORDINARY = {
    4: ("223.255.255.255", "240.0.0.0", "255.255.255.254", "0.0.0.1", "10.255.255.255"),
    6: ("feff:ffff::", "::1", "0:0:0:1::", "1::", "fe80::1"),
}


@families
def test_special_addresses_are_peers_but_no_hosts_and_are_counted(family: int) -> None:
    for special in SPECIAL[family]:
        home, away = HOME[family][0], AWAY[family][0]
        for network, side, host in (
            (Network(ipv6_prefix=128), "inner", home),
            (whole(family), "inner", home),
            (
                Network([f"{special}/{32 if family == 4 else 128}"], ipv6_prefix=128),
                "outer",
                away,
            ),  # inner, and no host
        ):
            assert pairs_of(network, packets((host, special)), Part(family, side)) == [told((host, special))]
            assert pairs_of(network, packets((special, host)), Part(family, side)) == [told((host, special))]
        everything, inside_it = Network(ipv6_prefix=128), Network([f"{special}"], ipv6_prefix=128)
        for network in (everything, inside_it):
            pairs_of(network, packets((home, special), (home, away), (special, home)), Part(family))
            assert network.counters.special_ends == 2, special
        assert (inside_it.counters.no_inner_end, everything.counters.no_inner_end) == (1, 0)


@families
def test_neighbours_of_special_addresses_are_hosts(family: int) -> None:
    network, home = Network(ipv6_prefix=128), HOME[family][0]
    for other in ORDINARY[family]:
        ends = ((home, other), (home, SPECIAL[family][-1]))  # a block with special addresses, too
        expected = told((home, other), (other, home), (home, SPECIAL[family][-1]))
        assert pairs_of(network, packets(*ends), Part(family)) == [expected], other
        assert pairs_of(network, packets((home, other)), Part(family)) == [told((home, other), (other, home))], other


@families
def test_special_addresses_that_are_kept_are_hosts(family: int) -> None:
    network, home = Network(special="keep", ipv6_prefix=128), HOME[family][0]
    for special in SPECIAL[family]:
        pair = (home, special)
        assert pairs_of(network, packets(pair), Part(family)) == [told(pair, pair[::-1])]
    assert network.counters.special_ends == 0
    assert network.monitors(numbers_to_array([number(special)], 128 if family == 6 else 32), Part(family)).all()


def test_special_addresses_that_are_excluded_stay_peers() -> None:
    kept = Network(exclude=["224.0.0.0/3"], special="keep")
    assert pairs_of(kept, packets(("10.1.2.3", "224.0.0.251")), Part()) == [told(("10.1.2.3", "224.0.0.251"))]


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


@given(st.lists(st.tuples(*[st.integers(0, 2**32 - 1).map(lambda n: n | (n & 1) * 0xE0000000)] * 2), min_size=1))
def test_special_ipv4_addresses_agree_with_plain_python(ends: list[tuple[int, int]]) -> None:
    batch = packets(*((str(IPv4Address(src)), str(IPv4Address(dst))) for src, dst in ends))
    expected = set()
    for src, dst in ends:
        for host, peer in ((src, dst), (dst, src)):
            address = IPv4Address(host)
            if src != dst and not (address.is_multicast or address.is_unspecified or host == 2**32 - 1):
                expected.add((host, peer))
    assert pairs_of(Network(), batch, Part()) == [expected]


def test_special_addresses_of_long_batches_are_found_in_every_block() -> None:
    ends = [("10.1.2.3", "192.0.2.1")] * 5000
    for place in (0, 1023, 1024, 3500, 4999):
        ends[place] = ("10.1.2.3", "224.0.0.1")
    network = Network()
    assert pairs_of(network, packets(*ends), Part()) == [
        told(("10.1.2.3", "192.0.2.1"), ("192.0.2.1", "10.1.2.3"), ("10.1.2.3", "224.0.0.1"))
    ]
    assert network.counters.special_ends == 5


@families
def test_a_result_host_that_is_special_is_a_phantom(family: int) -> None:
    hosts = numbers_to_array([number(text) for text in SPECIAL[family] + ORDINARY[family]], 128 if family == 6 else 32)
    expected = [False] * len(SPECIAL[family]) + [True] * len(ORDINARY[family])
    assert Network(ipv6_prefix=128).monitors(hosts, Part(family)).tolist() == expected


# IPv4 hosts that are prefixes


def test_ipv4_hosts_are_prefixes_and_peers_are_addresses() -> None:
    network = Network(["10.0.0.0/8"], ipv4_prefix=24)
    ends = ("10.1.2.3", "192.0.2.1"), ("192.0.2.2", "10.1.2.200"), ("10.1.3.4", "192.0.2.1")
    one, two = number("10.1.2.0"), number("10.1.3.0")
    assert pairs_of(network, packets(*ends), Part(), Part(4, "outer")) == [
        {(one, number("192.0.2.1")), (one, number("192.0.2.2")), (two, number("192.0.2.1"))},
        {(number("192.0.2.0"), number(address)) for address in ("10.1.2.3", "10.1.2.200", "10.1.3.4")},
    ]


def test_a_special_address_is_no_host_even_where_hosts_are_prefixes() -> None:
    network = Network(ipv4_prefix=24)
    ends = ("10.1.2.3", "224.0.0.1"), ("10.1.2.3", "0.0.0.0"), ("10.1.2.3", "0.0.0.1")
    found = {(number("10.1.2.0"), number(end)) for _, end in ends} | {(number("0.0.0.0"), number("10.1.2.3"))}
    assert pairs_of(network, packets(*ends), Part()) == [found]
    hosts = numbers_to_array([number(text) for text in ("10.1.2.0", "0.0.0.0", "224.0.0.0", "255.255.255.0")], 32)
    assert network.monitors(hosts, Part()).tolist() == [True, True, False, True]  # 255.255.255.1 may be a host


@pytest.mark.parametrize("prefix", [1, 8, 16, 24, 31])
def test_every_ipv4_prefix_that_was_seen_is_monitored(prefix: int) -> None:
    network = Network(["10.0.0.7/32", "10.9.0.0/25", "11.0.0.0/8"], ipv4_prefix=prefix)
    ends = ("10.0.0.7", "10.0.0.8"), ("10.9.0.1", "10.9.0.200"), ("11.0.0.1", "192.0.2.1")
    for part, pairs in network.pairs([packets(*ends)], [Part(), Part(4, "outer")]):
        assert len(pairs) == 3
        assert network.monitors(pairs.hosts, part).all(), part


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ipv4_prefix": 0}, "^ipv4_prefix=0: must be from 1 to 32"),
        ({"ipv4_prefix": 33}, "^ipv4_prefix=33: must be from 1 to 32"),
        ({"special": "maybe"}, 'special="maybe": one of drop, keep'),
    ],
)
def test_invalid_options_are_refused(options: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Network(**options)


# The word "private"


def test_private_stands_for_the_private_prefixes_and_mixes_with_others() -> None:
    network = Network(["private,203.0.113.0/24", "2001:db8::/32"], ipv6_prefix=128)
    inner = "10.0.0.1 172.31.255.255 192.168.0.1 169.254.3.4 203.0.113.9 fd00::1 fe80::1 2001:db8::1"
    outer = "9.255.255.255 172.32.0.0 192.169.0.0 169.255.0.0 203.0.114.0 fe00::1 fec0::1 2001:db9::1"
    for text, is_inner in [(text, True) for text in inner.split()] + [(text, False) for text in outer.split()]:
        family = 6 if ":" in text else 4
        address = numbers_to_array([number(text)], 128 if family == 6 else 32)
        assert network.monitors(address, Part(family)).tolist() == [is_inner], text


def test_private_may_be_a_line_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "inner").write_text("private # all of ours\n198.51.100.0/24\n")
    assert len(parse_networks([f"@{tmp_path / 'inner'}"], "inner")) == 7


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


def test_packets_of_a_network_that_is_right_are_not_sampled() -> None:
    network = Network(INNER[4])
    network.pairs([packets(("10.1.1.1", "192.0.2.1"), ("192.0.2.1", "198.51.100.1"))], [Part()])
    assert network.outside.most_seen() == []


@pytest.mark.slow
def test_the_sample_is_bounded() -> None:
    network = Network(INNER[4])
    for block in range(70):
        network.pairs([packets(*[(f"192.{block}.0.1", "198.51.100.1")] * 2000)], [Part()])
    assert network.outside.most_seen() == ["198.51.0.0/16", "192.0.0.0/16", "192.1.0.0/16"]
    assert sum(network.outside._packets.values()) == 2 * 64 * 1000  # both ends, of 64 blocks


# Phantoms: hosts of a result that are on the wrong side


@families
def test_a_result_host_on_the_wrong_side_is_a_phantom(family: int) -> None:
    hosts = numbers_to_array([number(HOME[family][0]), number(AWAY[family][0])], 128 if family == 6 else 32)
    assert whole(family).monitors(hosts, Part(family)).tolist() == [True, False]
    assert whole(family).monitors(hosts, Part(family, "outer")).tolist() == [False, True]
    assert Network(ipv6_prefix=128).monitors(hosts, Part(family)).tolist() == [True, True]


@pytest.mark.parametrize("prefix", [16, 48, 64, 96, 112])
def test_every_host_that_was_seen_is_monitored_also_where_inner_prefixes_are_longer_than_hosts(prefix: int) -> None:
    network = Network(["2001:db8::1:0/112", "2001:db8:0:7::/112", "2001:db9::/32"], ipv6_prefix=prefix)
    ends = ("2001:db8::1:5", "2001:db8::2:5"), ("2001:db8:0:7::5", "2001:db8:0:7::2:5"), ("2001:db9::1", "2a00::1")
    for part, pairs in network.pairs([packets(*ends)], [Part(6), Part(6, "outer")]):
        assert len(pairs) == 3
        assert network.monitors(pairs.hosts, part).all(), part


def test_a_host_prefix_without_inner_addresses_is_not_monitored_as_inner() -> None:
    network = Network(["2001:db8::1:0/112"])
    hosts = np.array([number("2001:db8::") >> 64, number("2001:db8:0:1::") >> 64], np.uint64)
    assert network.monitors(hosts, Part(6)).tolist() == [True, False]
    assert network.monitors(hosts, Part(6, "outer")).tolist() == [True, True]


# Prefix tables


def oracle(networks: list, address: int) -> bool:
    return any(int(n.network_address) <= address <= int(n.broadcast_address) for n in networks)


def check(prefixes: list[tuple[int, int]], probes: list[int], family: int) -> None:
    """Compare a table of (address, length) prefixes with a plain search, at the probes and at every boundary."""
    bits = 32 if family == 4 else 128
    networks = [ip_network((a >> (bits - n) << (bits - n) if n else 0, n)) for a, n in prefixes]
    networks = [n for n in networks if n.version == family]
    edges = [int(n[i]) + d for n in networks for i in (0, -1) for d in (-1, 0, 1)]
    asked = [address for address in probes + edges if 0 <= address < 1 << bits]
    got = inside(numbers_to_array(asked, 32 if family == 4 else 128), make_table(networks, family))
    assert got.tolist() == [int(oracle(networks, address)) for address in asked]


def addresses(bits: int) -> st.SearchStrategy[int]:
    """Return any addresses, many of which share their first bits."""
    near = st.builds(lambda top, low: (10 << (bits - 8)) | top << (bits - 24) | low, *[st.integers(0, 255)] * 2)
    return st.integers(0, (1 << bits) - 1) | near


@given(
    st.lists(st.tuples(addresses(32), st.integers(0, 32) | st.integers(14, 18)), max_size=12), st.lists(addresses(32))
)
def test_ipv4_tables_agree_with_plain_python(prefixes: list[tuple[int, int]], probes: list[int]) -> None:
    check(prefixes, [*probes, 0, (1 << 32) - 1], 4)


@given(
    st.lists(st.tuples(addresses(128), st.integers(0, 128) | st.integers(14, 18)), max_size=12),
    st.lists(addresses(128)),
)
def test_ipv6_tables_agree_with_plain_python(prefixes: list[tuple[int, int]], probes: list[int]) -> None:
    # ip_network interprets small integers as IPv4.
    check([p for p in prefixes if p[0] >> 32], [*probes, 0, (1 << 128) - 1], 6)


@families
def test_thousands_of_prefixes(family: int) -> None:
    rng = np.random.default_rng(5)
    if family == 4:
        tops = rng.integers(1 << 32, size=3000)
        prefixes = [(int(a), int(n)) for a, n in zip(tops, rng.integers(18, 33, size=3000), strict=True)]
    else:
        tops, lengths = rng.integers(1 << 40, size=3000), rng.integers(40, 129, size=3000)
        prefixes = [(0x2001 << 112 | int(a) << 64, int(n)) for a, n in zip(tops, lengths, strict=True)]
    bits = 32 if family == 4 else 128
    networks = [ip_network((a >> (bits - n) << (bits - n), n)) for a, n in prefixes]
    asked = [int(n[i]) + d for n in networks for i in (0, -1) for d in (-1, 0, 1)]
    asked = [address for address in asked if 0 <= address < 1 << bits]
    got = inside(numbers_to_array(asked, bits), make_table(networks, family))
    starts = {(n.prefixlen, int(n.network_address)) for n in networks}
    lengths = sorted({n.prefixlen for n in networks})
    wanted = [any((n, a >> (bits - n) << (bits - n)) in starts for n in lengths) for a in asked]
    assert got.tolist() == wanted


@pytest.mark.parametrize(("text", "family"), [("0.0.0.0/0", 4), ("::/0", 6)])
def test_the_whole_address_space(text: str, family: int) -> None:
    table = make_table([ip_network(text)], family)
    ends = numbers_to_array([0, (1 << (32 if family == 4 else 128)) - 1], 32 if family == 4 else 128)
    assert inside(ends, table).tolist() == [1, 1]


@pytest.mark.parametrize("text", ["10.1.2.3/32", "2001:db8::5/128", "255.255.255.255/32", "0.0.0.0/32", "::/128"])
def test_single_addresses(text: str) -> None:
    network = ip_network(text)
    bits = network.max_prefixlen
    asked = [int(network[0]) + d for d in (-1, 0, 1)]
    asked = [a for a in asked if 0 <= a < 1 << bits]
    got = inside(numbers_to_array(asked, bits), make_table([network], network.version))
    assert got.tolist() == [int(a == int(network[0])) for a in asked]


def test_an_empty_table_holds_nothing() -> None:
    assert inside(np.array([0, 1 << 31], np.uint32), make_table([], 4)).tolist() == [0, 0]


def test_compiled_and_plain_python_agree() -> None:
    table = make_table([ip_network("10.0.0.0/9"), ip_network("10.200.0.0/15")], 4)
    asked = np.array([number(a) for a in ("9.255.255.255", "10.0.0.0", "10.128.0.0", "10.201.0.1")], np.uint32)
    assert inside(asked, table).tolist() == inside.py_func(asked, table).tolist() == [0, 1, 0, 1]  # type: ignore[attr-defined]


# Parsing prefixes


def test_values_files_commas_and_comments(tmp_path) -> None:
    file = tmp_path / "inner.txt"
    file.write_text("# ours\n10.0.0.0/8   # the old part\n\n  2001:db8::/32\n192.0.2.1\n")
    got = parse_networks([f"@{file}", "172.16.0.0/12, 198.51.100.0/24"], "inner")
    wanted = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32", "172.16.0.0/12", "198.51.100.0/24"]
    assert [str(n) for n in got] == wanted


def test_a_bad_prefix_names_the_option() -> None:
    with pytest.raises(UsageError, match=r"^exclude: '10\.0\.0\.0/33' is not a prefix"):
        Network(exclude=["10.0.0.0/33"])


def test_a_bad_prefix_in_a_file_names_file_and_line(tmp_path) -> None:
    file = tmp_path / "inner.txt"
    file.write_text("10.0.0.0/8\n# fine\nhello\n")
    with pytest.raises(UsageError, match=rf"{file}, line 3: 'hello' is not a prefix"):
        Network([f"@{file}"])


def test_host_bits_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"^inner: '10\.1\.2\.3/8' is not a prefix: .*host bits set"):
        Network(["10.1.2.3/8"])


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(UsageError, match=rf'^inner="@{tmp_path}/none": cannot be read'):
        Network([f"@{tmp_path}/none"])
    with pytest.raises(UsageError, match="cannot be read: invalid file name"):
        Network(["@a\0b"])
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r'binary": cannot be read: not a text file \(UTF-8\)'):
        Network([f"@{tmp_path}/binary"])


def test_an_empty_list_of_inner_prefixes_does_not_make_everybody_a_host(tmp_path) -> None:
    file = tmp_path / "empty"
    file.write_text("# nothing yet\n")
    with pytest.raises(UsageError, match="contains no prefix"):
        Network([f"@{file}"])
    Network(exclude=[f"@{file}"])  # A list of exclusions may be empty.


@pytest.mark.parametrize("prefix", [0, 129, -1])
def test_prefix_lengths_out_of_range(prefix: int) -> None:
    with pytest.raises(UsageError, match=r"^ipv6_prefix="):
        Network(ipv6_prefix=prefix)


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
    ((_, first),) = network.pairs([many], [Part(family)])
    before = first.hosts.copy(), first.peers.copy()
    network.pairs([packets(*[(away, home), (home, away)] * LEAST_SHARE)], [Part(family, "outer")])
    assert (first.hosts == before[0]).all()
    assert (first.peers == before[1]).all()
    place = first.peers.ctypes.data
    del first
    ((_, again),) = network.pairs([many], [Part(family)])
    assert again.peers.ctypes.data == place


@pytest.mark.parametrize("family", [4, 6])
def test_pairs_of_few_packets_hold_little_memory(family: int) -> None:
    """Thousands of small batches are gathered: memory for a large share in each of them would take gigabytes."""
    network, (home, away) = whole(family), HOME[family]
    ((_, few),) = network.pairs([packets((home, away), (away, home))], [Part(family)])
    columns = [few.hosts, few.peers]
    held = sum(len((column if column.base is None else column.base).tobytes()) for column in columns)
    assert held <= 1000
