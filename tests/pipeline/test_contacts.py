"""Who opened, who answered, ports and filters: against plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import superhosts as sh
from naive_contacts import Packet, contacts
from superhosts.core.pairs import (
    ANSWERED,
    ANSWERS,
    IS_ANSWERED,
    IS_CONVERSATION,
    IS_RECORD,
    OPENED,
    HostFormat,
    PacketBatch,
    PacketBlock,
    Part,
    pack,
)
from superhosts.errors import UsageError
from superhosts.output.report import make_rows
from superhosts.pipeline.contacts import Conversations
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.windows import Limits
from superhosts.sketch.sketch import Sketch, load
from superhosts.sketch.unanswered import Unanswered
from superhosts.sources.base import Source

WIDE = 0x20010DB8 << 96  # of IPv6 addresses


def details_of(packet: Packet) -> int:
    marks = IS_RECORD * packet.record | IS_CONVERSATION * packet.conversation | IS_ANSWERED * packet.answered
    return pack(packet.protocol, packet.ports, packet.flags, marks=marks)


def batch_of(packets: list[Packet], family: int = 4, start: int = 0) -> PacketBatch:
    details = np.array([details_of(packet) for packet in packets], np.uint64)
    times = np.arange(start, start + len(packets), dtype=np.int64)
    if family == 4:
        src, dst = (np.array([getattr(each, end) for each in packets], np.uint32) for end in ("src", "dst"))
        return PacketBatch(4, src, dst, times, details=details)
    ends = [np.array([(WIDE >> 64, getattr(each, end)) for each in packets], np.uint64) for end in ("src", "dst")]
    return PacketBatch(6, ends[0].reshape(-1, 2), ends[1].reshape(-1, 2), times, details=details)


class Given(Source):
    """Packets that a test has made."""

    def __init__(self, blocks: list[PacketBlock]) -> None:
        super().__init__("given")
        self._blocks = blocks

    def first_time(self) -> int | None:
        return int(self._blocks[0][0].time[0])

    def again(self) -> Source:
        for batch in (batch for block in self._blocks for batch in block):
            batch.details[:] &= np.uint64((1 << 56) - 1)  # without what the first reading has found out
        return Given(self._blocks)

    def _read(self) -> Iterator[PacketBlock]:
        yield from self._blocks


def some_packets(count: int, seed: int = 1) -> list[Packet]:
    chosen = random.Random(seed)
    made = []
    for _ in range(count):
        protocol = chosen.choice([6, 6, 6, 17, 17, 1, 58, 47, 132, None])
        ports = (chosen.choice([80, 443, 5000]), chosen.choice([80, 443, 5001]))
        flags = chosen.choice([None, 0, 2, 4, 6, 16, 18, 20, 24] if protocol == 6 else [None, 0, 3, 8, 128])
        packet = Packet(
            chosen.randrange(1, 30),
            chosen.randrange(1, 30),
            protocol,
            ports if protocol in (6, 17, 132) and chosen.random() < 0.9 else None,
            flags if protocol in (6, 1, 58) else None,
            record=chosen.random() < 0.2,
        )
        if chosen.random() < 0.1:
            packet = replace(packet, conversation=True, record=False, answered=chosen.random() < 0.5)
        made.append(packet)
    return made


def scan(blocks: list[PacketBlock], **settings: object) -> list[sh.SuperHost]:
    run = Scan([Given(blocks)], Settings(window="all", top=1000, **settings))
    return [row for window in run for row in window]


def counted(pairs: list[tuple[int, int, int | None]], what: str = "hosts") -> dict[int, int]:
    """Return the distinct peers, ports or both of each host."""
    sets: dict[int, set[object]] = defaultdict(set)
    for host, peer, port in pairs:
        if host != peer and (what == "hosts" or port is not None):
            sets[host].add({"hosts": peer, "ports": port, "host-ports": (peer, port)}[what])
    return {host: len(peers) for host, peers in sets.items()}


def turned(pairs: list[tuple[int, int, int | None]]) -> list[tuple[int, int, int | None]]:
    return [(peer, host, port) for host, peer, port in pairs]


def as_counts(rows: list[sh.SuperHost], direction: str) -> dict[int, int]:
    found = {int(row.host): row.peers for row in rows if row.direction == direction}
    assert all(row.exact for row in rows)
    return found


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_contacts_agree_with_plain_python(family: int, seed: int) -> None:
    packets = some_packets(3000, seed)
    opened, answered = contacts(packets)
    pieces = [packets[start : start + 700] for start in range(0, len(packets), 700)]
    blocks: list[PacketBlock] = [(batch_of(piece, family, 700 * i),) for i, piece in enumerate(pieces)]
    kinds = ("opened", "answered", "unanswered")
    rows = scan(blocks, peers=kinds, direction=("out", "in"), special="keep", ipv6_prefix=128)
    less = 0 if family == 4 else WIDE
    for ending, one, other in (("", opened, answered), ("-in", turned(opened), turned(answered))):
        expected = {"opened": counted(one), "answered": counted(other)}
        assert expected["answered"]
        both = {host: count - expected["answered"].get(host, 0) for host, count in expected["opened"].items()}
        expected["unanswered"] = {host: count for host, count in both.items() if count}
        for kind in kinds:
            found = {host - less: peers for host, peers in as_counts(rows, kind + ending).items()}
            assert found == expected[kind], kind + ending


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("what", ["ports", "host-ports"])
def test_ports_agree_with_plain_python(family: int, what: str) -> None:
    packets = some_packets(2000)
    opened, _ = contacts(packets)
    rows = scan([(batch_of(packets, family),)], count=what, ipv6_prefix=128)
    less = 0 if family == 4 else WIDE
    assert {host - less: peers for host, peers in as_counts(rows, "opened").items()} == counted(opened, what)
    assert {row.part.counts for row in rows} == {what}


@pytest.mark.parametrize("what", ["ports", "host-ports"])
def test_ports_of_all_packets_are_those_that_packets_go_to(what: str) -> None:
    packets = some_packets(2000)
    sent = [(each.src, each.dst, each.ports[1] if each.ports else None) for each in packets]
    rows = scan([(batch_of(packets),)], count=what, peers=("any", "opened"), direction=("any", "out", "in"))
    assert as_counts(rows, "out") == counted(sent, what)
    assert as_counts(rows, "in") == counted(turned(sent), what)
    assert as_counts(rows, "any") == counted(sent + turned(sent), what)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"peers": ("opened",)}, {"no_contact": 2}),
        ({"peers": ("opened",), "port": ("80",)}, {"no_contact": 1, "filtered": 2}),
        ({"peers": ("opened",), "proto": ("udp",)}, {"filtered": 4}),
        ({"peers": ("any", "opened")}, {}),
        ({"peers": ("opened",), "inner": ("9.9.9.0/24",)}, {"no_contact": 2, "no_inner_end": 2}),
    ],
)
def test_every_packet_has_one_reason(options: dict[str, Any], expected: dict[str, int]) -> None:
    opens = [Packet(1, 2, 6, (5, 80), 2), Packet(1, 3, 6, (5, 81), 2)]
    between = [Packet(1, 2, 6, (5, 80), 16), Packet(1, 3, 6, (5, 81), 16)]
    run = Scan([Given([(batch_of(opens + between),)])], Settings(window="all", device="cpu", **options))
    list(run)
    names = ("no_contact", "filtered", "no_inner_end", "unknown_details")
    assert {name: value for name in names if (value := getattr(run.counters, name))} == expected


def test_hosts_with_ports() -> None:
    packets = some_packets(2000)
    expected: dict[str, set[int]] = defaultdict(set)
    for each in packets:
        if each.ports and each.src != each.dst:
            expected[f"0.0.0.{each.dst}:{each.ports[1]}"].add(each.src)
    rows = scan([(batch_of(packets),)], by="address-port", direction=("in",))
    assert {str(row.host): row.peers for row in rows} == {host: len(peers) for host, peers in expected.items()}
    wide = scan([(batch_of(packets, 6),)], by="address-port", direction=("in",))
    ports = {port for host in expected for port in [host.rpartition(":")[2]]}
    assert {str(row.host) for row in wide} == {f"[2001:db8::/64]:{port}" for port in ports}
    full = scan([(batch_of(packets, 6),)], by="address-port", direction=("in",), ipv6_prefix=112)
    assert {str(row.host) for row in full} == {f"[2001:db8::/112]:{port}" for port in ports}
    some = [Packet(1, 200, 6, (9, 80)), Packet(200, 1, 6, (80, 9)), Packet(1, 201, 6, (9, 80))]
    inner = scan([(batch_of(some),)], by="address-port", inner=["0.0.0.0/25"])
    assert {str(row.host): row.peers for row in inner} == {"0.0.0.1:80": 2, "0.0.0.1:9": 1}
    both = batch_of(packets), batch_of(packets, 6)
    narrow = scan([both], by="address-port", direction=("in",), ipv6_prefix=128, families=(4,))
    assert {str(row.host): row.peers for row in narrow} == {str(row.host): row.peers for row in rows}


def test_filters() -> None:
    packets = some_packets(2000)
    run = Scan(
        [Given([(batch_of(packets),)])],
        Settings(window="all", top=1000, proto=["tcp", "17"], port=["443", "5000-5001"], direction=("out",)),
    )
    rows = [row for window in run for row in window]
    wanted = [
        (each.src, each.dst, None)
        for each in packets
        if each.protocol in (6, 17) and each.ports and {*each.ports} & {443, 5000, 5001}
    ]
    assert {int(row.host): row.peers for row in rows} == counted(wanted)
    unknown = sum(each.protocol is None or (each.protocol in (6, 17) and each.ports is None) for each in packets)
    assert run.counters.unknown_details == unknown
    same = sum(
        each.src == each.dst
        for each in packets
        if each.protocol in (6, 17) and each.ports and {*each.ports} & {443, 5000, 5001}
    )
    assert run.counters.filtered == len(packets) - unknown - len(wanted)
    assert run.counters.same_ends == same


def test_packets_that_do_nothing_are_counted() -> None:
    packets = [Packet(1, 2, 6, (5, 80), 2), Packet(1, 2, 6, (5, 80), 16), Packet(2, 1, 6, (80, 5), 18)]
    packets.append(Packet(1, 2, 17))  # a fragment
    run = Scan([Given([(batch_of(packets),)])], Settings(window="all", peers=("answered",)))
    assert [(str(row.host), row.peers) for window in run for row in window] == [("0.0.0.1", 1)]
    assert (run.counters.no_contact, run.counters.unknown_details) == (1, 1)


def test_sources_without_details_go_by_the_order_of_packets() -> None:
    batch = batch_of([Packet(1, 2), Packet(2, 1), Packet(3, 1)])
    rows = scan([(PacketBatch(4, batch.src, batch.dst, batch.time),)], peers=("opened", "answered"))
    assert as_counts(rows, "opened") == {1: 1, 3: 1}
    assert as_counts(rows, "answered") == {1: 1}


def test_a_window_has_its_own_conversations() -> None:
    packets = [Packet(1, 2, 17, (5, 53)), Packet(2, 1, 17, (53, 5))]
    batch = batch_of(packets)
    later = PacketBatch(4, batch.src, batch.dst, np.array([0, 600 * 10**9]), details=batch.details)
    run = Scan([Given([(later,)])], Settings(window="5m", top=10, peers=("opened", "answered")))
    found = [[(str(row.host), row.direction) for row in window] for window in run]
    assert found == [[("0.0.0.1", "opened")], [("0.0.0.2", "opened")]]


def handshakes(count: int) -> tuple[list[Packet], list[Packet]]:
    """Return who opens, and who answers each of them in the next moment."""
    opens = [Packet(7, 1000 + i, 17, (5, 53)) for i in range(count)]
    return opens, [Packet(1000 + i, 7, 17, (53, 5)) for i in range(count)]


def at_times(packets: list[Packet], times: list[int]) -> PacketBatch:
    batch = batch_of(packets)
    return PacketBatch(4, batch.src, batch.dst, np.array(times, np.int64), details=batch.details)


def blocks_of(packets: list[Packet], times: list[int], size: int) -> list[PacketBlock]:
    return [(at_times(packets[i : i + size], times[i : i + size]),) for i in range(0, len(packets), size)]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("size", [1001, 70])
def test_the_order_of_time_counts_over_several_inputs(order: int, size: int) -> None:
    opens, answers = handshakes(1000)
    other = Packet(8, 9, 17, (1, 2))
    left = Given(blocks_of([*opens, other], [4 * i + 1 for i in range(1001)], size))
    right = Given(
        blocks_of([other, *answers], [0, *(4 * i + 2 for i in range(1000))], size)
    )  # read first: it is earlier
    settings = Settings(window="all", top=2000, peers=("opened", "answered"), threads=1)
    run = Scan([left, right][::order], settings)
    rows = [row for window in run for row in window]
    assert as_counts(rows, "opened") == {7: 1000, 8: 1}
    assert as_counts(rows, "answered") == {7: 1000}


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_time_counts_in_a_second_reading(order: int) -> None:
    opens, answers = handshakes(2000)
    hour = 3600 * 10**9
    late = [Packet(8, 9, 17, (5, 53))] * 500
    times = [10 * i for i in range(2000)]
    left = Given(blocks_of([*opens[:1500], *late, *opens[1500:]], [*times[:1500], *[hour] * 500, *times[1500:]], 5000))
    right = Given(blocks_of(answers, [each + 5 for each in times], 5000))
    settings = Settings(window="5m", top=2000, peers=("answered",), threads=1)
    options = RunOptions(revises=True, limits=Limits(packets=200))
    windows = list(Scan([left, right][::order], settings, options))
    assert [window.revision for window in windows] == [1, 1, 2]
    assert [(int(row.host), row.peers) for row in windows[-1]] == [(7, 2000)]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50), st.booleans())
def test_any_details_are_judged(values: list[int], wide: bool) -> None:
    packets = [Packet(i % 3, i % 5) for i in range(len(values))]
    batch = batch_of(packets, 6 if wide else 4)
    batch.details[:] = np.array(values, np.uint64) & np.uint64((1 << 56) - 1)
    unknown = Conversations(size=1 << 12).judge([batch])
    marked = batch.details & np.uint64(OPENED | ANSWERS | ANSWERED) != 0
    assert unknown <= len(values) - np.count_nonzero(marked)


def test_a_crowded_filter_says_so() -> None:
    conversations = Conversations(size=1 << 12)
    chosen = random.Random(4)
    packets = [Packet(chosen.randrange(1 << 30), chosen.randrange(1 << 30), 17, (1, 2)) for _ in range(20_000)]
    assert not conversations.is_crowded
    conversations.judge([batch_of(packets)])
    assert conversations.is_crowded


def test_few_openings_are_taken_for_answers() -> None:
    conversations = Conversations(size=1 << 20)  # 8 million bits; 500,000 conversations: 24 % are set
    chosen = np.random.default_rng(5)
    src, dst = (chosen.integers(0, 1 << 32, 500_000, np.uint32) for _ in range(2))
    details = np.full(500_000, pack(17, (1, 2)), np.uint64)
    batch = PacketBatch(4, src, dst, np.zeros(500_000, np.int64), details=details)
    conversations.judge([batch])
    wrong = np.count_nonzero(details & np.uint64(ANSWERS))
    assert wrong < 5000
    assert conversations.fill == pytest.approx(1 - np.exp(-4 * 500_000 / (1 << 23)), rel=0.01)


def sketch_of(packets: list[Packet], **settings: object) -> Sketch:
    chosen = Settings(window="all", peers=("unanswered",), **settings)
    return next(iter(Scan([Given([(batch_of(packets),)])], chosen))).sketch


def many(count: int, answered: int, host: int = 7) -> list[Packet]:
    """One host that opens to many, of which some answer."""
    opens = [Packet(host, 1000 + i, 6, (5, 80), 2) for i in range(count)]
    return opens + [Packet(1000 + i, host, 6, (80, 5), 18) for i in range(answered)]


def test_unanswered_contacts_of_estimates() -> None:
    sketch = sketch_of(many(20_000, 8_000), exact=False, device="cpu")
    part = Part(4, "inner", "unanswered")
    (row,) = sketch.collect(lambda _, detector: detector.super_hosts(5000), [part])
    assert not row.exact
    assert abs(row.peers - 12_000) < 600
    assert row.peers_low < 12_000 < row.peers_high
    assert row.peers_high - row.peers_low < 2_000
    assert not len(sketch.collect(lambda _, detector: detector.super_hosts(15_000), [part]))


def test_sketches_of_contacts_are_saved_and_merged(tmp_path: Path) -> None:
    left, right = sketch_of(many(3000, 1000)), sketch_of(many(3000, 2000))
    left.save(tmp_path / "a.cube")
    united = load(tmp_path / "a.cube").merge(right)
    parts = [Part(4, "inner", "opened"), Part(4, "inner", "answered")]
    assert sorted(united.parts) == sorted(parts)
    detector = Unanswered(united.parts[parts[0]], united.parts[parts[1]])
    (row,) = detector.super_hosts(500)
    assert abs(row.peers - 1000) < 150
    assert detector.top(3)[0].host == row.host


def test_what_is_counted_or_filtered_keeps_sketches_apart(tmp_path: Path) -> None:
    packets = many(100, 0) + [Packet(7, 1000 + i, 6, (5, 81), 2) for i in range(20)]
    for name, options in (("80", {"port": ("80",)}), ("81", {"port": ("81",)}), ("ports", {"count": "ports"})):
        settings = Settings(window="all", **options)
        window = next(iter(Scan([Given([(batch_of(packets),)])], settings)))
        window.sketch.save(tmp_path / f"{name}.cube")
    ports = load(tmp_path / "ports.cube")
    assert [(part, "ports" in part.words) for part in ports.parts] == [(Part(4, "inner", "opened", "ports"), True)]
    assert len(load(tmp_path / "80.cube").merge(ports).parts) == 2
    both = load(tmp_path / "80.cube").merge(load(tmp_path / "81.cube"))
    both.save(tmp_path / "both.cube")
    rows = load(tmp_path / "both.cube").estimate("0.0.0.7")
    assert {row.part.filter: row.peers for row in rows} == {"port 80": 100, "port 81": 20}
    assert {row["filter"] for row in make_rows(None, rows)} == {"port 80", "port 81"}
    assert both.entries[0]["filter"] == "port 80"


def test_hosts_with_ports_are_saved(tmp_path: Path) -> None:
    settings = Settings(window="all", by="address-port", direction=("in",))
    window = next(iter(Scan([Given([(batch_of(many(1, 0, host=9)),)])], settings)))
    window.sketch.save(tmp_path / "a.cube")
    again = load(tmp_path / "a.cube")
    (part,) = again.parts
    assert again.parts[part].format == HostFormat(4, 32, True)
    assert again.estimate("0.0.3.232:80")[0].peers == 1
    plain = next(iter(Scan([Given([(batch_of(many(1, 0)),)])], Settings(window="all", direction=("in",))))).sketch
    with pytest.raises(sh.MergeError, match="with ports"):
        again.merge(plain)


def test_hosts_with_ports_as_integers() -> None:
    for prefix, host, number in (
        (32, "10.1.2.3:443", 0x0A010203 << 16 | 443),
        (32, "0.0.0.0:0", 0),
        (32, "255.255.255.255:65535", (1 << 48) - 1),
        *((prefix, f"[2001:db8:1::/{prefix}]:8080", None) for prefix in (48, 64, 80, 112)),
    ):
        format = HostFormat(4 if prefix == 32 else 6, prefix, True)
        assert number in (None, format.to_number(host))
        assert format.to_host(format.to_number(host)) == host
        assert format.key_bits == (64 if prefix == 32 else 128)
    for wrong in ("10.1.2.3", "10.1.2.3:", "10.1.2.3:65536", ":80", "10.1.2.3:x", "2001:db8::1"):
        with pytest.raises(UsageError):
            HostFormat(4, 32, True).to_number(wrong)
