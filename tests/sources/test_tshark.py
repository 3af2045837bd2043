"""The addresses of outermost and innermost headers against those that tshark finds, for our frames and real captures.

What an ICMP error quotes is not a tunnel: headers behind ICMP are left out here.
"""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from test_capture_data import CAPTURES, DATA, REASON

import packets as p
from frames import FRAMES, T, write
from fuzz.captures import read
from superhosts.sources.base import Wants
from tunnels import TUNNELS

pytestmark = pytest.mark.slow

Ends = tuple[str, str]

# tshark reads the fragments of a packet as one; each has addresses of its own. It knows 8472 as another tunnel's port.
OPTIONS = ("-n", "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE", "-d", "udp.port==8472,vxlan")
FIELDS = ("frame.protocols", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst")

UNKNOWN_LINK = {166, 205, 206, 219, 281, 282, 284, 285}  # that tshark does not read, or not in every version

# Frames that tshark reads in another way, and why
OTHERWISE = {
    "claims6-is4": "believes the EtherType",
    "ipv6-is4": "believes the link type",
    "null-linux6": "knows the families of BSD alone",
    "null-windows6": "knows the families of BSD alone",
    "nflog-big": "takes the byte order of this machine",
    "docsis": "checks the header's checksum",
    "docsis-extended": "checks the header's checksum",
    "edsa-ethernet": "older versions do not know the tag",
    "edsa-vlan": "older versions do not know the tag",
    "ppi-in-ppi": "reads a header inside itself",
    "erspan-3-ip": "reads Ethernet alone",
    "gre-version-2": "believes the type, whatever the version",
    "vxlan-without-id": "believes the port",
    "vxlan-source": "takes either port",
    "geneve-version": "believes the port",
    "etherip-version": "says that the version is wrong, and goes on",
}
OTHERWISE_REAL = {
    "testing__btest__Traces__trunc__ipv4-internally-truncated-header.pcap": "wants a length that fits the header",
    "tests__LINKTYPE_IPV6_invalid.pcap": "believes the link type",
}


def need_tshark() -> None:
    """Skip a test without tshark, unless SUPERHOSTS_NEED_TSHARK requires it."""
    if shutil.which("tshark") is None:
        assert not os.environ.get("SUPERHOSTS_NEED_TSHARK"), "tshark is not installed"
        pytest.skip("tshark is not installed")


def tshark(path: Path) -> list[list[Ends]]:
    """Return the ends of the IP headers of each frame, from the outermost to the innermost."""
    need_tshark()
    fields = [word for name in FIELDS for word in ("-e", name)]
    command = ["tshark", "-r", str(path), *OPTIONS, "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=|", *fields]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return [_headers(line) for line in ended.stdout.splitlines()]


def _headers(line: str) -> list[Ends]:
    protocols, *columns = line.split("\t")
    left = [column.split("|") if column else [] for column in columns]
    found: list[Ends] = []
    for protocol in protocols.split(":"):
        if protocol in ("icmp", "icmpv6"):
            break
        place = {"ip": 0, "ipv6": 2}.get(protocol)
        if place is not None and left[place] and left[place + 1]:
            found.append((left[place].pop(0), left[place + 1].pop(0)))
    return found


def ours(path: Path, tunnels: str) -> list[Ends]:
    return read(path, 1 << 22, wants=Wants(tunnels=tunnels)).ends


CASES = {name: (link, frame) for name, (link, frame, _, _) in FRAMES.items() if link not in UNKNOWN_LINK}
CASES |= {f"tunnel {name}": (1, frame) for name, (frame, _) in TUNNELS.items()}


def test_our_frames(tmp_path: Path) -> None:
    """One tshark reads all of them: each from an interface of its own, an hour apart, so that none belong together."""
    interfaces = b"".join(p.interface(link) for link, _ in CASES.values())
    hour = 3600 * 10**6
    packets = (p.enhanced(T // 1000 + number * hour, frame, number) for number, (_, frame) in enumerate(CASES.values()))
    theirs = tshark(write(tmp_path, p.section() + interfaces + b"".join(packets)))
    disagree = set()
    for (case, (link, frame)), found in zip(CASES.items(), theirs, strict=True):
        path = write(tmp_path, p.pcap([(T, frame)], link))
        if (ours(path, "outer"), ours(path, "inner")) != (found[:1], found[-1:]):
            disagree.add(case.removeprefix("tunnel "))
    assert disagree == set(OTHERWISE)


@pytest.mark.skipif(not CAPTURES, reason=REASON)
@pytest.mark.parametrize("name", CAPTURES)
def test_a_real_capture(name: str, tmp_path: Path) -> None:
    path = DATA / name
    if name.endswith(".xz"):  # which tshark does not read
        path = write(tmp_path, lzma.decompress(path.read_bytes()))
    found = [headers for headers in tshark(path) if headers]
    outer, inner = Counter(headers[0] for headers in found), Counter(headers[-1] for headers in found)
    agrees = Counter(ours(DATA / name, "outer")) == outer and Counter(ours(DATA / name, "inner")) == inner
    assert agrees == (name not in OTHERWISE_REAL)
