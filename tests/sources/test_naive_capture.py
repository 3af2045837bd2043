"""The oracle for captures against frames whose answer was written by hand, and against real captures."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from test_capture_data import CAPTURES, DATA, EXPECTED, REASON

import naive_capture
import packets as p
from frames import FRAMES, T

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
