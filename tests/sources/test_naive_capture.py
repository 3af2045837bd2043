"""The oracle for captures against frames whose answer was written by hand."""

from __future__ import annotations

from ipaddress import ip_address

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
