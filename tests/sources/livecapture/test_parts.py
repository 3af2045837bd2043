"""The parts of live captures that need no interface: names, filters, losses, and one walk over a ring."""

from __future__ import annotations

import socket

import pytest

import packets as p
import rings as r
from fuzz.rings import SIZE, walked
from superhosts.errors import InputError, UsageError
from superhosts.sources import livecapture
from superhosts.sources.base import Notes
from superhosts.sources.livecapture import Capturing, open_socket, parse_name


def test_names() -> None:
    assert parse_name("live:eth0") == Capturing(("eth0",), 64 << 20)
    assert parse_name("live:eth0,eth1?ring=1GiB&snap=256&readers=4&promisc=no") == Capturing(
        ("eth0", "eth1"), 1 << 30, 256, 4, promisc=False
    )
    assert parse_name("live:eth0, eth0").interfaces == ("eth0",)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("live:", "write it like live:eth0"),
        ("live:eth0,", "write it like live:eth0"),
        ("live:any,eth0", "any is all interfaces"),
        ("live:eth0?rings=1", "unknown word 'rings'; use ring, snap"),
        ("live:eth0?ring=much", "ring=much"),
        ("live:eth0?ring=1KiB", "from 256KiB to 4GiB"),
        ("live:eth0?snap=20", "snap=20: a whole number from 64"),
        ("live:eth0?readers=0", "readers=0: a whole number from 1 to 64"),
        ("live:eth0?promisc=maybe", "yes or no"),
    ],
)
def test_names_that_make_no_sense(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        parse_name(name)


def test_notes_of_losses_are_bounded_and_none_is_lost() -> None:
    losses = Notes(int.__add__, 8)
    for time in range(100):
        losses.add(time, 1)
    assert losses.between(0, 100) == 100
    losses.take(50)
    assert losses.between(0, 50) == 0
    assert 50 <= losses.between(50, 100) <= 100  # those that became one have the later time


def test_a_walk_goes_on_inside_a_block() -> None:
    """And one packet of each kind ends in its own counter."""
    v4, v6 = p.ipv4("10.0.0.1", "10.0.0.2"), p.ipv6("2001:db8::1", "2001:db8::2")
    packets = [
        r.Packet(p.ethernet(0x0800, v4), 5),
        r.Packet(p.ethernet(0x86DD, v6), 6),
        r.Packet(p.ethernet(0x0800, v4), 7, r.LOOPBACK, r.OUTGOING),
        r.Packet(p.ethernet(0x0800, v4), 8, r.LOOPBACK),
        r.Packet(v4, 9, r.NONE, net=0),
        r.Packet(v4, 9, r.RADIOTAP, net=0),
        r.Packet(p.ethernet(0x0806, p.arp()), 10),
        r.Packet(p.ethernet(0x0800, v4)[:30], 11),
    ]
    data = r.block(packets[:4], SIZE) + r.block(packets[4:], SIZE) + r.block(packets[:2], SIZE)
    data += r.block(packets[:1], SIZE, status=0)
    oracle = r.read(data, SIZE)
    assert (len(oracle.ipv4), len(oracle.ipv6), oracle.twice, oracle.damaged) == (4, 2, 1, 0)
    assert (oracle.not_ip, oracle.truncated, oracle.unsupported, oracle.blocks) == (1, 1, 1, 3)
    for limit in (1, 2, 3, 64):
        assert walked(data, False, limit) == oracle


def test_no_offset_leads_outside_of_the_ring() -> None:
    """The last byte of the block is the last one before a page that nobody may read."""
    for first in [*range(SIZE - 70, SIZE + 4), 1 << 31, (1 << 32) - 1]:
        data = bytearray(r.block([], SIZE))
        data[12:20] = (1).to_bytes(4, "little") + first.to_bytes(4, "little")
        oracle = r.read(bytes(data), SIZE)
        assert oracle.damaged == (first > SIZE - r.HEADER)
        assert walked(bytes(data), False, 8) == oracle


def test_without_libpcap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(livecapture, "load_libpcap", lambda: None)
    with pytest.raises(livecapture.MissingLibraryError, match="needs libpcap, which is not here: install it") as caught:
        livecapture.compile_filter("udp", livecapture.DLT_ETHERNET, 128)
    assert caught.value.exit_status == 2


def test_only_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_PACKET", raising=False)
    with pytest.raises(InputError, match="capturing works on Linux only; elsewhere: tcpdump"):
        open_socket("live:eth0")
