"""Live captures in a namespace of the test's own: the same rows as from a file, and what happens when it fails."""

from __future__ import annotations

import os
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import packets as p
from commands import Run
from needs import need_libpcap
from netns import Capture, Namespace, namespace
from traffic import Frames, talk, three_windows, write
from tunnels import TUNNELS
from waiting import wait_for

ALL = ("--window", "all", "--threshold", "100")


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Namespace]:
    with namespace(tmp_path) as made:
        yield made


def from_file(run: Run, folder: Path, frames: Frames, *options: str) -> dict[str, int]:
    """Return the hosts that a scan of a file finds, and their peers."""
    rows = run("scan", str(write(folder / "file.pcap", frames)), "--json", *(options or ALL)).rows
    return {row["host"]: row["peers"] for row in rows}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_rows_are_those_of_a_file(net: Namespace, run: Run, tmp_path: Path, number: int) -> None:
    capture = net.start("scan", "live:near0", *ALL).ready()
    net.send(three_windows())
    capture.end(number)
    assert capture.process.returncode == 128 + number
    assert capture.found == from_file(run, tmp_path, three_windows())
    assert {host.partition("/")[0] for host in capture.found} == {"10.0.0.7", "10.0.0.8", "2001:db8::"}
    assert all(row["partial"] and row["drops"] == 0 for row in capture.rows)
    assert (capture.counters["packets"], capture.counters["drops"]) == (len(three_windows()), 0)
    assert "interrupted; the last window is partial" in capture.err


@pytest.mark.slow
def test_the_clock_closes_windows(net: Namespace) -> None:
    capture = net.start("scan", "live:near0", "--window", "1s", "--grace", "0s", "--threshold", "1").ready()
    net.send(talk("10.0.0.7", 300))
    wait_for(lambda: capture.rows, lambda: capture.err)  # although no more packets come
    assert sum(row["peers"] for row in capture.rows if row["host"] == "10.0.0.7") == 300
    assert not any("partial" in row for row in capture.rows)
    capture.end()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rings", "lo", "packets"),
    [
        ("live:near0,more0?ring=1MiB&snap=64&promisc=no", 2, {}, 500),
        # Sent and received; of the loopback one of both.
        ("live:any", 1, {"10.0.0.9": 100}, 2 * (300 + 200) + 100),
    ],
)
def test_several_interfaces(net: Namespace, name: str, rings: int, lo: dict[str, int], packets: int) -> None:
    net.pair("more0", "away0")
    capture = net.start("scan", name, *ALL).ready(rings)
    for host, peers, interface in (("10.0.0.7", 300, "far0"), ("10.0.0.8", 200, "away0"), ("10.0.0.9", 100, "lo")):
        net.send(talk(host, peers), interface)
    capture.end()
    assert capture.found == {"10.0.0.7": 300, "10.0.0.8": 200, **lo}
    assert capture.counters["packets"] == packets


INTO_TUN = """
import fcntl, os, struct, sys
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"tun0", 0x1001))  # TUNSETIFF, IFF_TUN | IFF_NO_PI
for line in sys.stdin:
    os.write(tun, bytes.fromhex(line))
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--filter", "dst net 192.0.2.0/24 or ip6")])
def test_an_interface_without_link_layer(net: Namespace, options: tuple[str, ...]) -> None:
    if "--filter" in options:
        need_libpcap()
    if not Path("/dev/net/tun").exists():
        pytest.skip("no /dev/net/tun")
    net.run("ip", "tuntap", "add", "dev", "tun0", "mode", "tun")
    net.run("ip", "link", "set", "tun0", "up")
    capture = net.start("scan", "live:tun0", "--window", "all", "--threshold", "2", *options).ready()
    sent = [p.ipv4("10.0.0.1", f"192.0.2.{i}") for i in range(90)] + [p.ipv6("2001:db8::1", "2001:db8:1::1")]
    net.run(sys.executable, "-c", INTO_TUN, input="\n".join(each.hex() for each in sent))
    capture.end()
    assert capture.found == {"10.0.0.1": 90}
    assert (capture.counters["ipv4"], capture.counters["ipv6"]) == (90, 1)


@pytest.mark.slow
def test_several_readers_share_the_flows(net: Namespace, run: Run, tmp_path: Path) -> None:
    capture = net.start("scan", "live:near0?readers=3&ring=2MiB", *ALL).ready(3)
    net.send(three_windows())
    capture.end()
    assert capture.found == from_file(run, tmp_path, three_windows())
    assert capture.counters["packets"] == len(three_windows())  # each packet once


# The filter


def mixed_ports() -> Frames:
    def to(host: str, peer: str, port: int) -> tuple[int, bytes]:
        head = p.ipv4(host, peer, port.to_bytes(2, "big") * 2 + bytes(16))
        return 0, p.ethernet(0x0800, head)

    return [to("10.0.0.7", f"192.0.2.{i}", 53 if i % 2 else 22) for i in range(200)]


@pytest.mark.parametrize("name", ["live:near0", "live:any"])
def test_a_filter(net: Namespace, name: str) -> None:
    need_libpcap()
    capture = net.start("scan", name, "--window", "all", "--threshold", "50", "--filter", "udp port 53").ready()
    net.send(mixed_ports(), "near0" if name == "live:any" else "far0")
    capture.end()
    assert capture.found == {"10.0.0.7": 100}


@pytest.mark.slow
def test_a_filter_that_makes_no_sense(net: Namespace) -> None:
    need_libpcap()
    for text, said in (("tcp prt 22", "syntax error"), ("vlan 7", "vlan matches nothing")):
        ended = net.command("scan", "live:near0", "--filter", text)
        assert ended.returncode == 2
        assert said in ended.stderr
        assert ended.stderr.count("\n") == 1


def test_a_filter_is_for_live_captures(run: Run, tmp_path: Path) -> None:
    ended = run("scan", str(write(tmp_path / "a.pcap", talk("10.0.0.1", 5))), "--filter", "udp")
    assert ended.status == 2
    assert "--filter: only for live captures" in ended.err


# What goes wrong


def hold(capture: Capture) -> None:
    """Let a process stand still."""
    os.kill(capture.process.pid, signal.SIGSTOP)
    stat = Path(f"/proc/{capture.process.pid}/stat")
    wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it stands still")


STOPPED = """
import socket, sys
from superhosts.sources.livecapture import open_live

(source,) = open_live("live:near0")
opened = source.open

def open_and_send():
    opened()
    own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    own.bind(("far0", 0))
    for _ in range(300):
        own.send(bytes.fromhex(sys.argv[1]))

source.open = open_and_send
source.stop()
print(sum(len(batch) for block in source.blocks() for batch in block), source.counters.packets)
"""


@pytest.mark.slow
def test_what_is_in_the_ring_when_it_is_stopped_counts(net: Namespace) -> None:
    frame = p.ethernet(0x0800, p.ipv4())
    assert net.run(sys.executable, "-c", STOPPED, frame.hex()) == "300 300\n"


@pytest.mark.slow
def test_drops_are_counted_and_said(net: Namespace) -> None:
    """The ring is tiny and the reader stands still."""
    capture = net.start("scan", "live:near0?ring=256KiB", "--window", "30d", "--threshold", "1").ready()
    hold(capture)
    net.send(talk("10.0.0.7", 20_000))
    os.kill(capture.process.pid, signal.SIGCONT)
    wait_for(lambda: "packets are dropped" in capture.err, lambda: capture.err)
    capture.end()
    counters = capture.counters
    assert counters["drops"] > 10_000
    assert counters["packets"] + counters["drops"] == 20_000
    assert {row["drops"] for row in capture.rows} == {counters["drops"]}
    assert f"DROPPED before they could be read: {counters['drops']:,} packets" in capture.err


@pytest.mark.slow
def test_without_the_right_to_capture(net: Namespace) -> None:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
    ended = net.command("scan", "live:near0", "--key-file", "public", prefix=nobody)
    *warned, said = ended.stderr.splitlines()
    assert all("machine code cannot be kept" in line for line in warned)  # by a user without a folder
    assert ended.returncode == 3
    assert "CAP_NET_RAW" in said
    assert "setcap" in said


def test_no_such_interface(net: Namespace) -> None:
    ended = net.command("scan", "live:eth7")
    assert ended.returncode == 3
    assert ended.stderr.startswith("superhosts: live:eth7: no such interface; here are lo, far0, near0")
    assert ended.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("gone", "said"), [("set near0 down", "the interface is down"), ("delete near0", "vanished")])
def test_an_interface_goes_and_comes_back(net: Namespace, gone: str, said: str) -> None:
    capture = net.start("scan", "live:near0", *ALL).ready()
    net.send(talk("10.0.0.7", 300))
    net.run("ip", "link", *gone.split())
    wait_for(lambda: said in capture.err, lambda: capture.err)
    if "delete" in gone:
        net.pair()
    else:
        net.run("ip", "link", "set", "near0", "up")
    wait_for(lambda: "the interface is up again" in capture.err, lambda: capture.err)
    net.send(talk("10.0.0.8", 200))
    capture.end()
    assert capture.found == {"10.0.0.7": 300, "10.0.0.8": 200}
    assert capture.err.count(said) == 1


@pytest.mark.slow
def test_an_edge_captures(net: Namespace, tmp_path: Path) -> None:
    options = ["--to", str(tmp_path / "link"), "--site", "ams", "--spool", str(tmp_path / "spool"), "--memory", "1MiB"]
    rows = ["--output", str(tmp_path / "rows.jsonl"), "--threshold", "100", "--key-file", "public"]
    edge = net.start("edge", "live:near0", *options, *rows, "--window", "1h").ready()
    net.send(talk("10.0.0.7", 300))
    edge.end(signal.SIGTERM)
    assert edge.process.returncode == 0, edge.err
    written = (tmp_path / "rows.jsonl").read_text()
    assert '"peers": 300' in written
    assert '"drops": 0' in written
    assert '"drops": 0' in (tmp_path / "spool" / "status.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("tunnels", ["inner", "both"])
def test_tunnels(net: Namespace, run: Run, tmp_path: Path, tunnels: str) -> None:
    frames: Frames = [(0, frame) for frame, _ in TUNNELS.values()]
    options = ("--window", "all", "--threshold", "1", "--special", "keep", "--tunnels", tunnels, "--ipv6-prefix", "128")
    capture = net.start("scan", "live:near0", *options).ready()
    net.send(frames)
    capture.end()
    assert capture.found == from_file(run, tmp_path, frames, *options)
    assert len(capture.found) > 4
    assert capture.counters["packets"] == len(frames)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["live:near0", "live:any"])
def test_contacts_and_ports(net: Namespace, run: Run, tmp_path: Path, name: str) -> None:
    frames: Frames = []
    for number in range(1, 60):
        there, back = ("10.0.0.1", f"10.0.1.{number}"), (f"10.0.1.{number}", "10.0.0.1")
        frames.append((0, p.ethernet(0x0800, p.ipv4(*there, tcp(5000, number, 2), protocol=6))))
        if number % 3 == 0:
            frames.append((0, p.ethernet(0x0800, p.ipv4(*back, tcp(number, 5000, 18), protocol=6))))
    for options in (("--peers", "unanswered"), ("--count", "ports")):
        capture = net.start("scan", name, "--window", "all", "--threshold", "5", *options).ready()
        net.send(frames)
        capture.end()
        assert capture.found == {"10.0.0.1": 40 if "--peers" in options else 59}


def tcp(src: int, dst: int, flags: int) -> bytes:
    return struct.pack(">HHIIBBHHH", src, dst, 1, 2, 0x50, flags, 1000, 0, 0)
