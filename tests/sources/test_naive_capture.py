"""The oracle for captures against frames whose answer was written by hand, and against real captures."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from test_capture_data import CAPTURES, DATA, EXPECTED, REASON

import naive_capture
import packets as p
from frames import FRAMES, T, mixed, mixed_pcapng

ENDS = {4: tuple(int(ip_address(end)) for end in (p.A4, p.B4)), 6: tuple(int(ip_address(end)) for end in (p.A6, p.B6))}


def test_every_frame_and_every_part_of_it() -> None:
    for case in FRAMES:
        link, frame, family, needed = FRAMES[case]
        for length in range(len(frame) + 1):
            found = naive_capture.read(p.pcap([(T, frame[:length])], link))
            whole = length >= needed
            assert found.packets == 1
            assert found.truncated == (not whole)
            assert found.not_ip == (whole and not family)
            assert found.ipv4 == ([(*ENDS[4], T)] if whole and family == 4 else [])
            assert found.ipv6 == ([(*ENDS[6], T)] if whole and family == 6 else [])


def test_both_formats_hold_the_same() -> None:
    classic = naive_capture.read(p.pcap(mixed(), 1, p.NANO, ">"))
    blocks = b"".join(p.enhanced(time, frame, 0, ">") for time, frame in mixed())
    assert classic == naive_capture.read(p.section(">") + p.interface(1, ">", 9) + blocks)
    assert classic.packets == 40
    assert naive_capture.read(mixed_pcapng()).packets == 3 * (40 + 4)


@pytest.mark.parametrize("resolution", [(6, 10**6), (9, 10**9), (12, 10**12), (0x94, 2**20)])
def test_ticks_become_nanoseconds(resolution: tuple[int, int]) -> None:
    data = p.section() + p.interface(101, "<", resolution[0], 5) + p.enhanced(7 * resolution[1], p.ipv4())
    assert naive_capture.read(data).ipv4 == [(*ENDS[4], 12 * p.SECOND)]


def test_damage_and_early_ends_are_told_apart() -> None:
    start = p.pcap([(T, p.ethernet(0x0800, p.ipv4()))])
    damaged = naive_capture.read(start + p.record(T, b"", captured=1 << 30))
    assert (damaged.damage, damaged.ends_inside, damaged.packets) == (len(start), None, 1)
    early = naive_capture.read(start + p.record(T, b"", captured=5))
    assert (early.damage, early.ends_inside, early.packets) == (None, len(start), 1)
    assert not naive_capture.read(b"no capture").is_capture


@pytest.mark.skipif(not CAPTURES, reason=REASON)
@pytest.mark.parametrize("name", [name for name in CAPTURES if not name.endswith((".gz", ".xz"))])
def test_a_real_capture(name: str) -> None:
    entry, found = EXPECTED[name], naive_capture.read((DATA / name).read_bytes())
    if found.damage is not None:  # classic, of a link type that is not read
        assert found.packets == 0
        return
    assert found.packets == entry["packets"]
    if found.unsupported:
        return
    assert (len(found.ipv4), len(found.ipv6)) == (entry["ipv4"], entry["ipv6"])
    assert (found.ends_inside is not None) == entry["truncated"]
    for family, rows in ((4, found.ipv4), (6, found.ipv6)):
        assert len({(src, dst) for src, dst, _ in rows if src != dst}) == entry[f"pairs{family}"]
