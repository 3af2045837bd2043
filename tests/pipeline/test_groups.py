"""Traffic of exporters, interfaces and VLANs is counted apart: the same addresses, each with the peers of its group."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import exports as e
import packets as p
import rings
import superhosts as sh
from commands import Run
from superhosts.core.pairs import MOST_GROUPS, PacketBlock, Part
from superhosts.errors import UsageError
from superhosts.output.alerts.machine import AlertMachine, Policy
from superhosts.output.alerts.rules import Rule
from superhosts.output.report import make_rows
from superhosts.pipeline.scan import Scan, SecondPass
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.windows import Limits
from superhosts.sketch.files import read_header
from superhosts.sources import livecapture as live
from superhosts.sources.base import SourceCounters, Wants
from superhosts.sources.capture import Cutting, open_capture
from superhosts.sources.exports.collector import Collector
from superhosts.sources.exports.collector import Settings as ExportSettings
from superhosts.sources.frames import columns
from superhosts.sources.open import open_inputs

NOON = e.NOON * e.SECOND
HOST4, HOST6 = "10.0.0.1", "2001:db8::1"
INNER = ["10.0.0.0/8", "2001:db8::/56"]
Frames = list[tuple[int, bytes]]
Found = dict[tuple[str, str], int]


def tagged(number: int, kind: int, packet: bytes, tag: int = 0x8100) -> bytes:
    """Return a frame of a VLAN, with a priority, or of none."""
    return p.ethernet(tag, p.vlan(kind, packet, number | 0x6000)) if number else p.ethernet(kind, packet)


def traffic(peers: Mapping[int, int], step: int = 1000, time: int = NOON) -> Frames:
    """Return packets of the same two hosts in several VLANs, each with so many peers, one VLAN after the other."""
    packets = [
        tagged(number, kind, packet, 0x88A8 if number == 7 else 0x8100)
        for peer in range(max(peers.values()))
        for number, count in peers.items()
        if peer < count
        for kind, packet in (
            (0x0800, p.ipv4(HOST4, f"198.51.{number % 256}.{peer}")),
            (0x86DD, p.ipv6(HOST6, f"fd00:{number}::{peer + 1}")),
        )
    ]
    return [(time + place * step, packet) for place, packet in enumerate(packets)]


def written(folder: Path, content: bytes, name: str = "capture") -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def found(rows: Iterable[Any]) -> Found:
    return {(row.part.group, str(row.host)): row.peers for row in rows}


def scanned(path: Path | list[Path], **options: Any) -> Found:
    (window,) = sh.scan(path, inner=INNER, top=1000, window="all", **options)
    return found(window)


PEERS = {0: 20, 5: 30, 6: 40, 7: 50}
NAMES = {0: "no vlan", 5: "vlan 5", 6: "vlan 6", 7: "vlan 7"}
WANTED = {(NAMES[each], host): count for each, count in PEERS.items() for host in (HOST4, "2001:db8::/64")}


@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_vlans_of_a_capture(tmp_path: Path, kind: str) -> None:
    frames = traffic(PEERS)
    numbered = p.section() + p.interface() + b"".join(p.enhanced(time // 1000, frame) for time, frame in frames)
    path = written(tmp_path, p.pcap(frames) if kind == "pcap" else numbered)
    assert scanned(path, group_by="vlan") == WANTED
    assert scanned(path) == {("", HOST4): 140, ("", "2001:db8::/64"): 140}


def test_vlans_of_other_links_and_what_is_not_one(tmp_path: Path) -> None:
    inside = p.ipv4(HOST4, "198.51.100.1")
    double = p.ethernet(0x88A8, p.vlan(0x8100, p.vlan(0x0800, inside, 9), 12))
    frames = [
        double,
        p.ethernet(0x8100, p.vlan(0x0800, inside, 0xE000)),
        p.ethernet(0x0800, inside),
    ]  # a priority alone
    path = written(tmp_path, p.pcap([(NOON, frame) for frame in frames]))
    assert scanned(path, group_by="vlan") == {("vlan 12", HOST4): 1, ("no vlan", HOST4): 1}
    cooked = written(tmp_path, p.pcap([(NOON, p.sll(0x8100, p.vlan(0x0800, inside, 33)))], link=113))
    assert scanned(cooked, group_by="vlan") == {("vlan 33", HOST4): 1}
    plain = written(tmp_path, p.pcap([(NOON, inside)], link=101))
    assert scanned(plain, group_by="vlan") == {("no vlan", HOST4): 1}


def test_a_capture_that_threads_read_in_pieces(tmp_path: Path) -> None:
    frames = traffic(dict.fromkeys((0, 5, 6), 250)) * 4
    path = written(tmp_path, p.pcap(sorted(frames)))
    cutting = Cutting(4096, 4096, threads=2)
    source = open_capture(path, cutting=cutting)
    (window,) = Scan([source], Settings(inner=INNER, window="all", group_by="vlan", top=100))
    assert found(window) == {(NAMES[each], host): 250 for each in (0, 5, 6) for host in (HOST4, "2001:db8::/64")}


def test_interfaces_of_a_pcapng_file(tmp_path: Path, run: Run) -> None:
    blocks = [p.section(), p.interface(), p.interface()]
    for number, count in ((0, 5), (1, 8)):
        blocks += [
            p.enhanced(NOON // 1000, p.ethernet(0x0800, p.ipv4(HOST4, f"192.0.2.{n}")), number) for n in range(count)
        ]
    path = written(tmp_path, b"".join(blocks))
    assert scanned(path, group_by="interface") == {("interface 0", HOST4): 5, ("interface 1", HOST4): 8}
    other = written(tmp_path, p.pcap(traffic({5: 1})), "other")
    ended = run("scan", other, "--group-by", "interface")
    assert ended.status != 0
    assert "--group-by interface: " in ended.err
    assert "pcapng files do" in ended.err


def ring_block(packets: list[tuple[bytes, int, int, int]], size: int) -> bytes:
    """Return a block of a ring: frames, with the status, the tag that the kernel took off, and the interface."""
    data = bytearray(rings.block([rings.Packet(frame, NOON) for frame, *_ in packets], size))
    at = 48
    for _, status, tag, index in packets:
        struct.pack_into("<I", data, at + 20, status)
        struct.pack_into("<I", data, at + 32, tag)
        struct.pack_into("<i", data, at + 48 + 4, index)
        at += struct.unpack_from("<I", data, at)[0]
    return bytes(data)


@pytest.mark.parametrize("group", ["vlan", "interface"])
def test_the_tag_that_the_kernel_takes_off_and_the_interface(group: str) -> None:
    inside = p.ethernet(0x0800, p.ipv4(HOST4, "192.0.2.1", bytes(60)))
    wide = p.ethernet(0x86DD, p.ipv6(HOST6, "fd00::1", bytes(60)))
    valid, size = 1 | 1 << 4, 1 << 14
    packets = [(inside, valid, 0x2005, 1)] * 5 + [(inside, 1, 0x2006, 2)] * 3 + [(wide, valid, 9, 3)] * 2
    packets += [(tagged(7, 0x0800, p.ipv4(HOST4, "192.0.2.1")), 1, 0, 1)] * 4
    data = ring_block(packets, size)
    wants = Wants(group=group)
    lender, tally = columns.ColumnLender(100, 100, wants), np.zeros(columns.TALLY_SLOTS, np.int64)
    tally[columns.WANTS] = columns.wants_of(wants)
    columns.start_walk(tally, 100)
    room, words = lender.borrow(), np.frombuffer(bytearray(data), np.uint32)
    cursor = live.Cursor(words, np.zeros(live.PLACE_SLOTS, np.int64), live.Layout(size, 1, 0))
    live.walk_ring(words.view(np.uint8), cursor, tally, room)
    named = columns.vlan_name if group == "vlan" else str
    block = columns.take(lender.kept(room, tally), tally, SourceCounters(), named)
    counts = {(batch.family, batch.group): len(batch) for batch in block}
    assert counts == (
        {(4, "vlan 5"): 5, (4, "no vlan"): 3, (4, "vlan 7"): 4, (6, "vlan 9"): 2}
        if group == "vlan"
        else {(4, "1"): 9, (4, "2"): 3, (6, "3"): 2}
    )


FLOWS = [e.version5([e.record5(HOST4, f"192.0.2.{number}")], sequence=number) for number in range(5)]


def grouped_rows(blocks: Iterable[PacketBlock]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for batch in (batch for block in blocks for batch in block):
        counts[batch.group] = counts.get(batch.group, 0) + len(batch)
    return counts


def test_exporters_of_one_batch_are_one_block() -> None:
    collector = Collector(SourceCounters(), ExportSettings(wants=Wants(group="exporter")))
    senders = ["192.0.2.7", "192.0.2.8", "2001:db8::7", "192.0.2.7", "192.0.2.7"]
    blocks = list(collector.feed(e.batch(FLOWS, senders)))
    assert len(blocks) == 1
    assert grouped_rows(blocks) == {"192.0.2.7": 3, "192.0.2.8": 1, "2001:db8::7": 1}
    flow = e.data(256, [e.usual(HOST4, "192.0.2.1")])
    waiting = list(collector.feed(e.batch([e.version9(flow), e.version9(flow)], ["192.0.2.7", "192.0.2.8"])))
    assert grouped_rows(waiting) == {}  # their templates are not there yet
    templates = e.batch([e.version9(e.template(256, e.USUAL))] * 2, ["192.0.2.7", "192.0.2.8"])
    assert grouped_rows(collector.feed(templates)) == {"192.0.2.7": 1, "192.0.2.8": 1}


def test_exporters_of_a_capture_and_of_files_that_do_not_tell_them(tmp_path: Path, run: Run) -> None:
    from tunnels import udp  # builders of tunnelled packets, which need more time to load

    frames = [
        (NOON + n, p.ethernet(0x0800, p.ipv4(f"192.0.2.{7 + n % 2}", "192.0.2.99", udp(2055, flow, 5000))))
        for n, flow in enumerate(FLOWS)
    ]
    path = written(tmp_path, p.pcap(frames))
    options = ("--format", "netflow", "--inner", "10.0.0.0/8", "--top", 5, "--json", "--quiet")
    rows = run("scan", path, *options, "--group-by", "exporter").rows
    assert {row["group"]: row["peers"] for row in rows} == {"192.0.2.7": 3, "192.0.2.8": 2}
    plain = written(tmp_path, b"".join(FLOWS), "plain")
    ended = run("scan", plain, *options, "--group-by", "exporter")
    assert (ended.status != 0, ended.rows) == (True, [])
    assert "--group-by exporter: nobody knows who has sent the datagrams of a file" in ended.err


@pytest.mark.parametrize(
    ("name", "group", "said"),
    [
        ("synth:flows=30k", "vlan", "synth:flows=30k does not tell it"),
        ("capture", "exporter", "does not tell it; it has interface and vlan"),
        ("table.csv", "vlan", "table.csv does not tell it"),
        ("netflow://127.0.0.1:2055", "vlan", "does not tell it; it has exporter"),
    ],
)
def test_an_input_that_does_not_tell_the_group(tmp_path: Path, name: str, group: str, said: str) -> None:
    (tmp_path / "table.csv").write_text("src,dst,time\n10.0.0.1,192.0.2.1,1700000000\n")
    written(tmp_path, p.pcap(traffic({5: 1})))
    path = name if ":" in name else str(tmp_path / name)
    with pytest.raises(UsageError, match=said):
        sh.scan(path, group_by=group)


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(UsageError, match="one of exporter, interface, vlan"):
        Settings(group_by="colour")
    with pytest.raises(UsageError, match="a sample of pairs does not tell which group"):
        Settings(group_by="vlan", evidence=True)
    with pytest.raises(UsageError, match="128 detectors with buffers"):
        Settings(group_by="vlan", memory_total="2GiB")
    assert Settings(group_by="vlan").fingerprint["group_by"] == "vlan"
    assert "group_by" not in Settings().fingerprint


def test_who_opened_is_decided_within_a_group(tmp_path: Path) -> None:
    """The same addresses and ports in two VLANs: in one of them the request is there, in the other only an answer."""

    def tcp(src: str, dst: str, ports: tuple[int, int], flags: int) -> bytes:
        return p.ipv4(src, dst, struct.pack(">HHIIBBHHH", *ports, 0, 0, 0x50, flags, 0, 0, 0), protocol=6)

    ask, answer = tcp(HOST4, "192.0.2.1", (1024, 80), 2), tcp("192.0.2.1", HOST4, (80, 1024), 0x12)
    frames = [tagged(5, 0x0800, ask), tagged(5, 0x0800, answer), tagged(6, 0x0800, answer)]
    path = written(tmp_path, p.pcap([(NOON + n, frame) for n, frame in enumerate(frames)]))
    (window,) = sh.scan(path, inner=INNER, peers=("opened", "answered"), group_by="vlan", threshold=1, window="all")
    counts = {(row.part.group, row.part.direction): row.peers for row in window}
    assert counts[("vlan 5", "opened")] == counts[("vlan 5", "answered")] == 1
    halves = [  # packets of several inputs are put in order before they are judged
        written(tmp_path, p.pcap([(NOON + number, frame) for number, frame in enumerate(frames)][place::2]), f"{place}")
        for place in (0, 1)
    ]
    (both,) = sh.scan(halves, inner=INNER, peers=("opened", "answered"), group_by="vlan", threshold=1, window="all")
    assert {(row.part.group, row.part.direction): row.peers for row in both} == counts
    together = sh.scan(path, inner=INNER, peers=("opened",), group_by="vlan", threshold=1, window="all", proto="udp")
    assert [*next(iter(together))] == []


def test_windows_and_those_that_overlap_keep_groups(tmp_path: Path) -> None:
    minute = 60 * e.SECOND
    start = NOON // (2 * minute) * 2 * minute
    frames = [each for n in range(6) for each in traffic({5: 20 + n, 6: 40}, time=start + n * minute)]
    path = written(tmp_path, p.pcap(frames))
    tumbling = [found(window) for window in sh.scan(path, inner=INNER, window="2m", top=9, group_by="vlan")]
    assert [each["vlan 5", HOST4] for each in tumbling] == [21, 23, 25]
    sliding = [found(window) for window in sh.scan(path, inner=INNER, window="2m", slide="1m", top=9, group_by="vlan")]
    assert [each["vlan 5", HOST4] for each in sliding][:6] == [20, 21, 22, 23, 24, 25]
    assert all(each["vlan 6", HOST4] == 40 for each in sliding[:6])


def test_saved_sketches_keep_groups_and_merges_never_unite_them(tmp_path: Path, run: Run) -> None:
    paths = [
        written(tmp_path, p.pcap(traffic(each)), f"{number}.pcap")
        for number, each in enumerate(({5: 20, 6: 30}, {6: 50, 7: 10}))
    ]
    options = ("--inner", ",".join(INNER), "--save", tmp_path / "s")
    for site, path in zip(("ams", "fra"), paths, strict=True):
        ended = run("scan", path, *options, "--group-by", "vlan", "--site", site, "--quiet")
        assert ended.status == 0, ended.err
    files = sorted((tmp_path / "s").glob("*.cube"))
    assert {part.group for part in read_header(files[0]).kinds} == {"vlan 5", "vlan 6"}
    whole = sh.union(files)
    wanted = {("vlan 5", HOST4): 20, ("vlan 6", HOST4): 50, ("vlan 7", HOST4): 10}
    assert {key: count for key, count in found(whole.top(100)).items() if key[1] == HOST4} == wanted
    assert whole.parts[Part(4, group="vlan 5")].kind == whole.parts[Part(4, group="vlan 6")].kind
    again = run("scan", paths[0], *options, "--group-by", "vlan", "--site", "ams")
    assert "merged into the sketch that was there" in again.err
    table = run("hosts", *files, "--top", 3, "--threshold", 1)
    assert table.out.count("vlan 6") >= 2
    merged = run("merge", *files, "-o", tmp_path / "whole.cube")
    assert merged.status == 0, merged.err
    rows = run("hosts", tmp_path / "whole.cube", "--json", "--top", 20).rows
    assert {(row["group"], row["host"]): row["peers"] for row in rows if row["host"] == HOST4} == wanted
    plain = run("scan", paths[1], *options, "--site", "fra")
    assert plain.status == 0, plain.err  # what was not grouped is a part of its own
    assert {part.group for part in read_header(files[1]).kinds} == {"vlan 6", "vlan 7", ""}


def test_groups_beyond_the_most_are_counted_and_said(tmp_path: Path, run: Run) -> None:
    peers = dict.fromkeys(range(1, MOST_GROUPS + 7), 3)
    path = written(tmp_path, p.pcap(traffic(peers)))
    ended = run("scan", path, "--inner", ",".join(INNER), "--group-by", "vlan", "--threshold", 1, "--json")
    assert len({row["group"] for row in ended.rows}) == MOST_GROUPS
    assert "36 of more groups than 64 in a window" in ended.err
    assert "NOT COUNTED" in ended.err


def test_packets_that_wait_in_a_file_keep_their_group(tmp_path: Path) -> None:
    path = written(tmp_path, p.pcap(traffic({5: 20, 6: 30})))
    (source,) = open_inputs([path])
    source.want(Wants(group="vlan"))
    length = 300 * e.SECOND
    second = SecondPass(length, [NOON // length], Limits(packets=10))
    second.read(source, lambda: False)
    counts: dict[tuple[int, str], int] = {}
    for _, batches in second.windows():
        for batch in batches:
            counts[batch.family, batch.group] = counts.get((batch.family, batch.group), 0) + len(batch)
    second.close()
    assert counts == {(4, "vlan 5"): 20, (4, "vlan 6"): 30, (6, "vlan 5"): 20, (6, "vlan 6"): 30}


def test_tables_csv_and_parquet_have_the_group(tmp_path: Path, run: Run) -> None:
    path = written(tmp_path, p.pcap(traffic({5: 20, 6: 30})))
    out = tmp_path / "rows.csv"
    ended = run("scan", path, "--inner", "10.0.0.0/8", "--group-by", "vlan", "--top", 2, "-o", out, "--quiet")
    header, *rows = out.read_text().splitlines()
    assert header.split(",")[-1] == "group"
    assert [row.split(",")[-1] for row in rows] == ["vlan 6", "vlan 5"]
    assert ended.out.splitlines()[1].split()[:2] == ["group", "host"]
    with pytest.raises(UsageError):
        sh.scan(path, group_by="vlan", evidence=True)
    json.loads(run("scan", path, "--group-by", "vlan", "--top", 1, "--json").out.splitlines()[0])["group"]


def test_alerts_of_two_groups_are_two() -> None:
    machine = AlertMachine(Policy(rules=(Rule(threshold=500),)))
    from superhosts.core.pairs import Window
    from superhosts.core.results import SuperHost

    events = []
    for number in range(3):
        window = Window(NOON + number * 300 * e.SECOND, NOON + (number + 1) * 300 * e.SECOND)
        both = [
            SuperHost(HOST4, 1000, 1000, 1000, True, False, part=Part(4, group=group), detector="cube")
            for group in ("vlan 5", "vlan 6")
        ]
        events += machine.take(window, make_rows(window, both if number < 1 else both[:1]))
    assert [(each["event"], each["group"]) for each in events] == [
        ("opened", "vlan 5"),
        ("opened", "vlan 6"),
        ("closed", "vlan 6"),
    ]
    assert len({each["alert"] for each in events}) == 2
    assert events[0]["text"].startswith("OPENED many-peers: 10.0.0.1 of vlan 5 has 1,000 peers")
