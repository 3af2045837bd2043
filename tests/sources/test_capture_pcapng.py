from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import packets as p
from frames import V4, V6, rows, write
from fuzz.captures import agreed
from superhosts.errors import InputError
from superhosts.sources.base import SourceCounters, Wants
from superhosts.sources.capture import CAPTURES, open_capture
from superhosts.sources.input import Input

PLAIN = p.ethernet(0x0800, V4)
TICKS = [0, 1, 999, 2**31, 2**32 - 1, 2**32, 10**15 + 7, 1_700_000_000_123_456_789, 2**63 - 1, 2**63, 2**64 - 1]
OFFSETS = [0, 1, -1, 1_700_000_000, -(10**10), 10**10, -(2**63), 2**63 - 1, -18_446_744_073, 2**34]


@pytest.mark.parametrize("order", ["<", ">"])
def test_every_resolution_and_offset_is_exact_or_clamped(order: str, tmp_path: Path) -> None:
    for offset in OFFSETS:
        cases = [(resolution, ticks) for resolution in range(256) for ticks in TICKS]
        interfaces = b"".join(p.interface(1, order, resolution, offset) for resolution in range(256))
        data = p.section(order) + interfaces + b"".join(p.enhanced(t, PLAIN, r, order) for r, t in cases)
        assert len(agreed(write(tmp_path, data)).ipv4) == len(cases)


def test_the_first_and_last_ticks_that_fit_are_exact(tmp_path: Path) -> None:
    for offset in (0, -(10**10), -18_446_744_073, 9_223_372_036, -9_223_372_037, -(10**12)):
        for resolution in (0, 3, 6, 9, 12, 0x80, 0x8A, 0xA0, 0xA1, 0xBF):
            power = resolution & 0x7F
            per_second = 2**power if resolution & 0x80 else 10**power
            cases = []
            for bound in (-(2**63), 2**63 - 1):
                middle = (bound - offset * 10**9) * per_second // 10**9
                cases += [ticks for ticks in range(middle - 3, middle + 4) if 0 <= ticks < 2**64]
            data = p.section() + p.interface(1, "<", resolution, offset)
            data += b"".join(p.enhanced(ticks, PLAIN) for ticks in cases)
            assert len(agreed(write(tmp_path, data)).ipv4) == len(cases)


def test_a_section_has_its_own_interfaces_and_byte_order(tmp_path: Path) -> None:
    data = p.section("<") + p.interface(1) + p.interface(101, "<", 9) + p.enhanced(5, PLAIN) + p.enhanced(6, V4, 1)
    data += p.section(">") + p.interface(113, ">", 3) + p.enhanced(7, p.sll(0x0800, V4), 0, ">")
    data += p.section(">") + p.interface(0, ">", 0) + p.enhanced(8, p.null(2, V4), 0, ">")
    data += p.section("<") + p.interface(276, "<", 0x80 | 1) + p.enhanced(9, p.sll2(0x0800, V4), 0)
    found, counters = rows(write(tmp_path, data))
    assert [row[3] for row in found] == [5000, 6, 7_000_000, 8 * p.SECOND, 4_500_000_000]
    assert counters.packets == 5
    with pytest.raises(InputError, match=r"byte \d+: damaged: a packet of an interface that was not declared"):
        rows(write(tmp_path, data + p.section() + p.enhanced(5, PLAIN)))


@pytest.mark.parametrize("order", ["<", ">"])
def test_blocks_of_every_kind(order: str, tmp_path: Path) -> None:
    """Interfaces between packets, short numbers of interfaces, padding and options, packets cut at the snaplen."""
    start = p.section(order)
    between = [
        p.interface(1, order, 9) + p.enhanced(n, PLAIN, n, order) + p.enhanced(n, PLAIN, n // 2, order)
        for n in range(300)
    ]
    obsolete = p.interface(101, order) + p.interface(1, order, 9) + p.obsolete(2**40, PLAIN, 1, order, drops=3)
    options = p.option(1, b"a comment", order) + p.option(0, b"", order)
    parts = [p.enhanced(1, PLAIN[:length], 0, order, options) for length in range(len(PLAIN) + 1)]
    for blocks, found in (
        (b"".join(between), (600, 0)),
        (obsolete + p.obsolete(4, V6, 0, order, drops=0xFFFF), (1, 1)),
        (p.interface(1, order) + b"".join(parts), (len(PLAIN) + 1 - 34, 0)),
        # The padding behind a packet that was cut must not be taken for packet bytes.
        *(
            (p.interface(1, order, snaplen=snaplen) + p.simple(PLAIN[: snaplen or None], order, len(PLAIN)), (whole, 0))
            for snaplen, whole in ((0, 1), (34, 1), (33, 0))
        ),
    ):
        reading = agreed(write(tmp_path, start + blocks))
        assert (len(reading.ipv4), len(reading.ipv6)) == found


@pytest.mark.parametrize("order", ["<", ">"])
def test_simple_packets_take_the_time_before_them(order: str, tmp_path: Path) -> None:
    data = p.section(order) + p.interface(1, order) + p.simple(PLAIN, order) + p.enhanced(9, PLAIN, 0, order)
    data += p.simple(PLAIN, order) + p.section(order) + p.interface(1, order) + p.simple(PLAIN, order)
    path = write(tmp_path, data)
    for size in (64, 100, 4096):
        found, counters = rows(path, block_bytes=size)
        assert [row[3] for row in found] == [0, 9000, 9000, 9000]
        assert len(counters.warnings) == 1
        assert "without a time" in counters.warnings[0]
    assert open_capture(path).first_time() == 0


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("size", [48, 4096])
def test_packets_of_an_unsupported_interface_are_counted_and_named_once(order: str, size: int, tmp_path: Path) -> None:
    start = p.section(order) + b"".join(p.interface(link, order) for link in (189, 1, 147, 195, 147))
    assert rows(write(tmp_path, start + p.enhanced(1, PLAIN, 1, order)))[1].warnings == []
    some = [p.simple(PLAIN, order), p.enhanced(2, PLAIN, 1, order), p.enhanced(3, PLAIN, 2, order)]
    some += [p.obsolete(4, PLAIN, 3, order), p.enhanced(5, PLAIN, 4, order), p.enhanced(6, PLAIN, 1, order)]
    path = write(tmp_path, start + b"".join(some) * 3 + start + b"".join(some))
    found, counters = rows(path, block_bytes=size)
    assert [row[3] for row in found] == [2000, 6000] * 4
    assert (counters.packets, counters.ipv4, counters.unsupported_link) == (24, 8, 16)
    named = [text for text in counters.warnings if "link type" in text]
    supported = (
        "is not supported; Ethernet, raw IP, Linux cooked, BSD null and loop, IEEE 802.11, PPP, HDLC, Frame Relay and "
        "others are"
    )
    assert named == [
        f"{path}: interface {number}: link type {link} ({name}) {supported}; its packets are only counted"
        for number, link, name in ((0, 189, "USB, Linux"), (2, 147, "user 0"), (3, 195, "IEEE 802.15.4"))
    ]


def test_few_unsupported_link_types_are_named(tmp_path: Path) -> None:
    many = b"".join(p.interface(20_000 + number) + p.enhanced(1, PLAIN, number) for number in range(1, 100))
    _, counters = rows(write(tmp_path, p.section() + p.interface(1) + p.enhanced(1, PLAIN) + many))
    assert (counters.unsupported_link, len(counters.warnings)) == (99, 10)


def test_only_unsupported_packets_are_an_error(tmp_path: Path) -> None:
    data = p.section() + p.interface(1) + p.interface(187) + p.enhanced(1, PLAIN, 1) * 3
    source = open_capture(write(tmp_path, data))
    assert source.first_time() == 1000
    with pytest.raises(InputError, match="capture: none of its 3 packets can be read: their link types are not supp"):
        list(source.blocks())
    assert source.counters.unsupported_link == source.counters.packets == 3
    assert len(source.counters.warnings) == 1
    assert rows(write(tmp_path, data + p.enhanced(2, PLAIN)))[1].ipv4 == 1
    classic = p.pcap([(1, PLAIN)], 187)
    with pytest.raises(InputError, match=r"byte 24: link type 187 \(Bluetooth HCI\) is not supported"):
        rows(write(tmp_path, classic))


@pytest.mark.parametrize("size", [48, 4096])
def test_what_comes_before_the_damage_is_handed_out(size: int, tmp_path: Path) -> None:
    good = p.section() + p.interface() + p.enhanced(1, PLAIN) + p.enhanced(2, PLAIN)
    bad = {
        b"\x99\0\0\0\x08\0\0\0" + bytes(8): "a block of 8 bytes",
        b"\x99\0\0\0\x0e\0\0\0" + bytes(20): "a block of 14 bytes",
        b"\x99\0\0\0\0\0\0\x7f" + bytes(20): "a block of 2,130,706,432 bytes",
        p.block(0x99, bytes(8))[:-4] + b"\x18\0\0\0": "two lengths of a block differ",
        p.block(6, bytes(16)): "longer than its block",
        p.block(6, b"\0" * 12 + b"\x01\0\0\0" + bytes(4)): "longer than its block",
        p.block(3, b""): "longer than its block",
        p.enhanced(1, PLAIN, 7): "not declared",
        p.block(0x0A0D0D0A, bytes(16)): "byte order 00 00 00 00",
        p.section(version=2): "version 2",
        p.block(0x0A0D0D0A, b"\x4d\x3c\x2b\x1a"): "a block of 16 bytes",
        p.section()[:-4] + bytes(4): "two lengths",
        p.block(1, bytes(4)): "a block of 16 bytes",
        p.interface()[:-4] + bytes(4): "two lengths",
        p.block(1, b"\x01\0\0\0\0\0\0\0" + b"\x09\0\x40\0"): "option",
    }
    for damage, text in bad.items():
        source = open_capture(write(tmp_path, good + damage + p.enhanced(3, PLAIN)), block_bytes=size)
        times: list[int] = []
        with pytest.raises(InputError, match=rf"capture: byte {len(good)}: .*{text}") as caught:
            times.extend(time for block in source.blocks() for time in block[0].time.tolist())
        assert caught.value.offset == len(good)
        assert times == [1000, 2000], text
        assert source.counters.packets == 2


def calls_of(path: Path) -> int:
    """Return how many Python functions are called to read a capture, which is read once before: that may compile."""
    found, _ = rows(path)
    assert [row[3] for row in found] == [5000, 5000]
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        reader = CAPTURES.open(Input(path), SourceCounters(), Wants())
        while reader.read() is not None:
            pass
    finally:
        sys.setprofile(before)
    reader.close()
    return count


@pytest.mark.parametrize("order", ["<", ">"])
def test_many_sections_and_interfaces_take_few_calls(order: str, tmp_path: Path) -> None:
    """Empty sections and blocks are read in compiled code, and an interface like an earlier one in few calls."""
    last = p.section(order) + p.interface(1, order) + p.enhanced(5, PLAIN, 0, order)
    empty = p.section(order) + p.block(99, b"", order)
    alone = calls_of(write(tmp_path, last + last))
    assert calls_of(write(tmp_path, last + empty * 100_000 + last)) <= alone + 200
    alike = (p.section(order) + p.interface(1, order)) * 1000
    assert calls_of(write(tmp_path, last + alike + last)) <= alone + 10 * 1000
