from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import packets as p
from superhosts.errors import InputError
from superhosts.sources.base import SourceCounters
from superhosts.sources.capture import open_capture

Row = tuple[int, str, str, int]
T = 1_700_000_000 * p.SECOND + 123_456_000


def rows(path: Path | str, **options: int) -> tuple[list[Row], SourceCounters]:
    """The packets of a capture, family by family, and the counters."""
    source = open_capture(path, **options)
    found: list[Row] = []
    for batches in source.blocks():
        assert batches
        for batch in batches:
            assert len(batch) > 0
            assert batch.src.base is None
            for src, dst, time in zip(batch.src.tolist(), batch.dst.tolist(), batch.time.tolist(), strict=True):
                if batch.family == 6:
                    src, dst = src[0] << 64 | src[1], dst[0] << 64 | dst[1]
                ends = [str(ip_address(end.to_bytes(4 if batch.family == 4 else 16, "big"))) for end in (src, dst)]
                found.append((batch.family, ends[0], ends[1], time))
    counters = source.counters
    without_addresses = counters.not_ip + counters.cut + counters.unsupported_link
    assert counters.packets == counters.ipv4 + counters.ipv6 + without_addresses
    assert counters.ipv4 == sum(row[0] == 4 for row in found)
    assert counters.ipv6 == sum(row[0] == 6 for row in found)
    return sorted(found, key=lambda row: row[0]), counters


def write(folder: Path, data: bytes, name: str = "capture") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


V4, V6 = p.ipv4(), p.ipv6()

# name: link type, frame, family (0: not IP), bytes up to the end of the addresses
FRAMES: dict[str, tuple[int, bytes, int, int]] = {
    "ethernet4": (1, p.ethernet(0x0800, V4), 4, 34),
    "ethernet6": (1, p.ethernet(0x86DD, V6), 6, 54),
    "options": (1, p.ethernet(0x0800, p.ipv4(first=0x4F, payload=bytes(40))), 4, 34),
    "claims4-is6": (1, p.ethernet(0x0800, V6), 6, 54),
    "claims6-is4": (1, p.ethernet(0x86DD, V4), 4, 34),
    "vlan": (1, p.ethernet(0x8100, p.vlan(0x0800, V4)), 4, 38),
    "qinq-88a8": (1, p.ethernet(0x88A8, p.vlan(0x8100, p.vlan(0x86DD, V6))), 6, 62),
    "qinq-9100": (1, p.ethernet(0x9100, p.vlan(0x9100, p.vlan(0x8100, p.vlan(0x0800, V4)))), 4, 46),
    "mpls-1": (1, p.ethernet(0x8847, p.mpls(1, V4)), 4, 38),
    "mpls-3": (1, p.ethernet(0x8848, p.mpls(3, V6)), 6, 66),
    "vlan-mpls": (1, p.ethernet(0x8100, p.vlan(0x8847, p.mpls(2, V4))), 4, 46),
    "pppoe4": (1, p.ethernet(0x8864, p.pppoe(b"\0\x21", V4)), 4, 42),
    "pppoe6": (1, p.ethernet(0x8100, p.vlan(0x8864, p.pppoe(b"\0\x57", V6))), 6, 66),
    "pppoe-short": (1, p.ethernet(0x8864, p.pppoe(b"\x21", V4)), 4, 41),
    "pppoe-mpls": (1, p.ethernet(0x8864, p.pppoe(b"\x02\x81", p.mpls(1, V4))), 4, 46),
    "snap": (1, p.ethernet(60, p.snap(0x0800, V4)), 4, 42),
    "snap-bridged": (1, p.ethernet(60, p.snap(0x86DD, V6, b"\0\0\xf8")), 6, 62),
    "vlan-snap-vlan": (1, p.ethernet(0x8100, p.vlan(60, p.snap(0x8100, p.vlan(0x0800, V4)))), 4, 50),
    "llc-ip": (1, p.ethernet(60, b"\x06\x06\x03" + V4), 4, 37),
    "tunnel": (1, p.ethernet(0x0800, p.ipv4(payload=p.ipv4("1.1.1.1", "2.2.2.2"))), 4, 34),
    "raw-101": (101, V4, 4, 20),
    "raw-101-6": (101, V6, 6, 40),
    "raw-12": (12, V6, 6, 40),
    "raw-14": (14, V4, 4, 20),
    "ipv4": (228, V4, 4, 20),
    "ipv6": (229, V6, 6, 40),
    "ipv6-is4": (229, V4, 4, 20),
    "sll4": (113, p.sll(0x0800, V4), 4, 36),
    "sll6-vlan": (113, p.sll(0x8100, p.vlan(0x86DD, V6)), 6, 60),
    "sll-llc": (113, p.sll(4, p.snap(0x0800, V4)), 4, 44),
    "sll2-4": (276, p.sll2(0x0800, V4), 4, 40),
    "sll2-6": (276, p.sll2(0x86DD, V6), 6, 60),
    "null-little": (0, p.null(2, V4), 4, 24),
    "null-big": (0, p.null(2, V4, ">"), 4, 24),
    "null-linux6": (0, p.null(10, V6), 6, 44),
    "null-windows6": (0, p.null(23, V6), 6, 44),
    "null-openbsd6": (0, p.null(24, V6, ">"), 6, 44),
    "null-freebsd6": (0, p.null(28, V6), 6, 44),
    "null-darwin6": (0, p.null(30, V6, ">"), 6, 44),
    "loop": (108, p.null(2, V4, ">"), 4, 24),
    "loop6": (108, p.null(24, V6, ">"), 6, 44),
    "arp": (1, p.ethernet(0x0806, p.arp()), 0, 14),
    "vlan-arp": (1, p.ethernet(0x8100, p.vlan(0x0806, p.arp())), 0, 18),
    "stp": (1, p.ethernet(38, b"\x42\x42\x03" + bytes(35)), 0, 17),
    "novell": (1, p.ethernet(38, b"\xff\xff" + bytes(36)), 0, 17),
    "cdp": (1, p.ethernet(60, p.snap(0x2000, bytes(40), b"\0\0\x0c")), 0, 22),
    "snap-length": (1, p.ethernet(60, p.snap(0x0100, V4)), 0, 22),
    "pseudowire": (1, p.ethernet(0x8847, p.mpls(2, bytes(4) + V4)), 0, 23),
    "lcp": (1, p.ethernet(0x8864, p.pppoe(b"\xc0\x21", bytes(20))), 0, 22),
    "discovery": (1, p.ethernet(0x8863, bytes(30)), 0, 14),
    "version-5": (1, p.ethernet(0x0800, b"\x55" + V4[1:]), 0, 15),
    "version-5-as-6": (1, p.ethernet(0x86DD, b"\x55" + V6[1:]), 0, 15),
    "sll-other": (113, p.sll(0x0001, V4), 0, 16),
    "null-other": (0, p.null(7, V4), 0, 4),
    "raw-other": (101, b"\0" + V4[1:], 0, 1),
}


def expected(family: int, time: int = T) -> list[Row]:
    if family == 4:
        return [(4, p.A4, p.B4, time)]
    return [(6, p.A6, p.B6, time)] if family == 6 else []


@pytest.mark.parametrize("case", FRAMES)
def test_every_way_to_an_ip_header(case: str, tmp_path: Path) -> None:
    link, frame, family, _ = FRAMES[case]
    found, counters = rows(write(tmp_path, p.pcap([(T, frame)], link)))
    assert found == expected(family)
    assert (counters.packets, counters.not_ip, counters.cut) == (1, int(family == 0), 0)
    ticks = T // 1000
    found, counters = rows(write(tmp_path, p.section() + p.interface(link) + p.enhanced(ticks, frame)))
    assert found == expected(family)
    assert (counters.packets, counters.not_ip, counters.cut) == (1, int(family == 0), 0)


@pytest.mark.parametrize("case", FRAMES)
def test_a_frame_that_is_cut_before_its_addresses_is_counted_as_cut(case: str, tmp_path: Path) -> None:
    link, frame, family, needed = FRAMES[case]
    # the next record starts right behind the cut, so that reading too far would find bytes there
    for length in range(len(frame) + 1):
        found, counters = rows(write(tmp_path, p.pcap([(T, frame[:length]), (T, frame)], link)))
        assert len(found) == (0 if family == 0 else 1 + (length >= needed)), length
        assert counters.cut == (length < needed), length
        assert counters.not_ip == (0 if family else 1 + (length >= needed)), length


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("magic", [p.MICRO, p.NANO, p.MODIFIED])
def test_byte_orders_and_units(magic: int, order: str, tmp_path: Path) -> None:
    unit = 1 if magic == p.NANO else 1000
    times = [0, 999_999 * unit, T, T + 7 * unit, 4_294_967_295 * p.SECOND + 1000]
    frames = [(time, p.ethernet(0x0800, p.ipv4(f"10.0.0.{i}"))) for i, time in enumerate(times)]
    found, counters = rows(write(tmp_path, p.pcap(frames, 1, magic, order)))
    assert found == [(4, f"10.0.0.{i}", p.B4, time) for i, time in enumerate(times)]
    assert counters.warnings == []


def test_bits_above_the_link_type_are_not_part_of_it(tmp_path: Path) -> None:
    found, _ = rows(write(tmp_path, p.pcap_header(0x2400_0001) + p.record(T, FRAMES["vlan"][1])))
    assert found == expected(4)


def mixed(count: int = 40) -> list[tuple[int, bytes]]:
    """Ethernet frames of every kind, the largest beyond several small blocks."""
    kinds = [frame for link, frame, _, _ in FRAMES.values() if link == 1]
    kinds += [p.ethernet(0x0800, p.ipv4("1.2.3.4", payload=bytes(700))), b"", b"\x02"]
    return [(T + 1_000_000 * i, kinds[i % len(kinds)]) for i in range(count)]


def mixed_pcapng() -> bytes:
    parts = []
    for order, resolution in (("<", 6), (">", 9), ("<", 0x94)):
        parts += [p.section(order), p.interface(1, order, resolution, 5), p.interface(101, order)]
        parts += [p.block(0x0BAD, bytes(64), order), p.enhanced(2**60 + 1, V6, 1, order)]
        parts += [p.enhanced(time // 1000, frame, 0, order) for time, frame in mixed()]
        parts += [p.simple(p.ethernet(0x0800, V4), order), p.obsolete(77, p.ethernet(0x86DD, V6), 0, order)]
        parts += [p.interface(113, order), p.enhanced(5, p.sll(0x0800, V4), 2, order)]
    return b"".join(parts)


@pytest.mark.parametrize("data", [p.pcap(mixed()), p.pcap(mixed(), 1, p.MODIFIED, ">"), mixed_pcapng()])
def test_the_output_does_not_depend_on_where_blocks_are_cut(data: bytes, tmp_path: Path) -> None:
    path = write(tmp_path, data)
    whole = rows(path)
    assert len(whole[0]) > 20
    assert all((whole[1].not_ip, whole[1].cut, whole[1].ipv4, whole[1].ipv6))
    for size in [*range(1, 130), 1000, 1500, len(data) - 1, len(data)]:
        assert rows(path, block_bytes=size) == whole, size


frames_drawn = st.lists(st.tuples(st.integers(0, 2**32 * p.SECOND - 1), st.binary(max_size=90)), max_size=20)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=frames_drawn, size=st.integers(1, 300), link=st.sampled_from([0, 1, 101, 113, 276]))
def test_any_frame_in_any_split(frames: list[tuple[int, bytes]], size: int, link: int, tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap(frames, link, p.NANO))
    whole = rows(path)
    assert whole[1].packets == len(frames)
    assert rows(path, block_bytes=size) == whole
    parts = p.section(">") + p.interface(link, ">", 9) + b"".join(p.enhanced(t, f, 0, ">") for t, f in frames)
    assert rows(write(tmp_path, parts), block_bytes=size) == whole


def test_many_packets_come_in_several_blocks_that_stay_as_they_are(tmp_path: Path) -> None:
    count = 150_000
    frames = b"".join(p.record(i * 1000, p.ethernet(0x0800, V4)) for i in range(1000)) * (count // 1000)
    source = open_capture(write(tmp_path, p.pcap_header() + frames))
    blocks = list(source.blocks())
    assert len(blocks) > 2
    times = [time for (batch,) in blocks for time in batch.time.tolist()]
    assert times == [i * 1000 for i in range(1000)] * (count // 1000)
    assert source.counters.ipv4 == count


@pytest.mark.parametrize(("link", "name"), [(105, "802.11"), (127, "radiotap"), (9, "PPP"), (104, "HDLC"), (250, "")])
def test_a_link_type_that_cannot_be_read_is_named(link: int, name: str, tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap([(T, V4)], link))
    with pytest.raises(InputError, match=rf"capture: byte 24: link type {link}\b.*{name}.* not supported"):
        rows(path)
    with pytest.raises(InputError, match=f"link type {link}"):
        open_capture(path).first_time()
    assert rows(write(tmp_path, p.pcap_header(link)))[1].packets == 0


def test_first_time_is_of_any_packet_and_takes_nothing_away(tmp_path: Path) -> None:
    frames = [(T, p.ethernet(0x0806, p.arp())), (T + 1000, FRAMES["vlan"][1])]
    for data in (p.pcap(frames), p.section() + p.interface() + b"".join(p.enhanced(t // 1000, f) for t, f in frames)):
        source = open_capture(write(tmp_path, data))
        assert source.first_time() == source.first_time() == T
        assert source.counters == SourceCounters()
        assert sum(len(batch) for block in source.blocks() for batch in block) == 1
        assert source.counters.packets == 2
        assert source.first_time() == T
    assert open_capture(write(tmp_path, p.pcap([]))).first_time() is None
