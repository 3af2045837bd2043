"""Evidence of runs: the pairs that count, windows that slide, and what rows and tables say."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import superhosts as sh
from commands import Run
from naive_evidence import Packet, hash_of, sample
from packets import enhanced, ethernet, interface, ipv4, pcap, section
from sketch.evidence.scenes import HOST, TCP, UDP, Scene, browsing, horizontal_scan
from sketch.evidence.test_sampling import SECRET, batch_of
from superhosts.core import pairs as said
from superhosts.output.report import COLUMNS
from superhosts.pipeline import builder as building
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings
from superhosts.sketch.evidence import sample as sampling
from superhosts.sources.base import Wants
from superhosts.sources.capture import open_capture

MINUTE = 60_000_000_000
ADDRESS = str(IPv4Address(HOST))


def frame(packet: Packet) -> bytes:
    """Return the Ethernet frame of a packet."""
    protocol = packet.detail >> 32 & 255
    ports = packet.detail & 0xFFFFFFFF
    head = ports.to_bytes(4, "big")
    if protocol == TCP:
        head += bytes(9) + bytes([packet.detail >> 40 & 255]) + bytes(6)
    elif protocol == UDP:
        head += bytes(4)
    else:
        head = bytes([packet.detail >> 40 & 255]) + bytes(7)
    return ethernet(0x0800, ipv4(str(IPv4Address(packet.src)), str(IPv4Address(packet.dst)), head, protocol=protocol))


def write(path: Path, packets: list[Packet]) -> Path:
    frames = [(packet.time, frame(packet)) for packet in packets]
    blocks = [section(), interface(), *(enhanced(when // 1000, data) for when, data in frames)]
    path.write_bytes(pcap(frames) if path.suffix == ".pcap" else b"".join(blocks))
    return path


def traffic(minutes: int = 4) -> list[Packet]:
    """Return a scan and other hosts' connections, spread over some minutes."""
    scene = Scene()
    horizontal_scan(scene, 300)
    packets = list(scene.packets)
    for number in range(10):
        other = Scene(number, host=10 << 24 | 500 + number)
        browsing(other, 8)
        packets += other.packets
    return spread(packets, range(len(packets)), minutes)


def spread(packets: list[Packet], order: Sequence[int], minutes: int) -> list[Packet]:
    """Return packets in an order, at times within some minutes."""
    times = np.sort(np.random.default_rng(4).integers(0, minutes * MINUTE // 1000, len(packets))) * 1000
    return [packets[i]._replace(time=int(when)) for i, when in zip(order, times, strict=True)]


@pytest.mark.parametrize(
    ("chosen", "keep"),
    [
        ({}, lambda p: True),
        ({"window": None}, lambda p: True),  # A short input is one window.
        ({"peers": "opened"}, lambda p: True),
        ({"inner": "10.0.0.0/24"}, lambda p: p.src >> 8 == 10 << 16 or p.dst >> 8 == 10 << 16),
        ({"inner": "10.0.0.0/24", "watch": "outer"}, lambda p: (p.src >> 8 == 10 << 16) != (p.dst >> 8 == 10 << 16)),
        ({"port": 22}, lambda p: 22 in (p.detail & 0xFFFF, p.detail >> 16 & 0xFFFF)),
        ({"proto": "udp"}, lambda p: p.detail >> 32 & 255 == UDP),
        ({"exclude": ADDRESS, "inner": f"{ADDRESS}/32"}, lambda p: False),
    ],
)
def test_the_sample_is_of_packets_that_count(tmp_path: Path, chosen: dict, keep: Callable[[Packet], bool]) -> None:
    packets = [packet._replace(time=packet.time + 4 * MINUTE) for packet in traffic(minutes=2)]
    path = write(tmp_path / "a.pcap", packets)
    options = {"window": "all", "evidence": True, "evidence_pairs": 1024, "key": SECRET}
    (window,) = sh.scan(path, **{**options, **chosen})
    assert window.sketch.evidence.rows[4].tolist() == sample(filter(keep, packets), 4, 1024, SECRET)
    for row in window:
        if str(row.host) == ADDRESS:
            assert window.verdict(row).pattern == "horizontal scan"


def test_rows_are_the_same_with_and_without(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", traffic())
    plain, sampled = (list(sh.scan(path, evidence=evidence, key=SECRET)) for evidence in (False, True))
    assert plain == sampled
    assert plain[0].verdict(plain[0][0]) is None


def test_windows_that_overlap_have_the_evidence_of_their_packets(tmp_path: Path) -> None:
    packets = traffic(minutes=6)
    path = write(tmp_path / "a.pcap", packets)
    run = sh.scan(path, window="3m", slide="1m", evidence=True, evidence_pairs=1024, key=SECRET, keep_sketch=True)
    windows = list(run)
    assert len(windows) >= 6
    for window in windows:
        inside = [packet for packet in packets if window.window.start <= packet.time < window.window.end]
        assert window.sketch.evidence.rows[4].tolist() == sample(inside, 4, 1024, SECRET)


def test_rows_tables_and_files_say_it(tmp_path: Path, run: Run) -> None:
    path = write(tmp_path / "a.pcap", traffic())
    told = run("scan", path, "--evidence", "--json", "--quiet", "--top", 3, "--save", tmp_path / "saved")
    row = json.loads(told.out.splitlines()[0])
    assert row["host"] == ADDRESS
    assert row["pattern"] == "horizontal scan"
    assert row["reason"].startswith("it asks, 96 % do not answer, 100 % on tcp/22, about")
    assert row["evidence"]["pairs"] == 300
    _title, names, first, *_ = run("scan", path, "--evidence", "--quiet", "--top", 3).out.splitlines()
    assert names.split()[-1] == "pattern"
    assert first.endswith("horizontal scan")
    again = run("hosts", tmp_path / "saved", "--json", "--top", 1)
    assert json.loads(again.out)["pattern"] == "horizontal scan"
    (saved,) = (tmp_path / "saved").rglob("*.cube")
    explained = run("explain", saved, ADDRESS).out
    assert "horizontal scan: it asks, 96 % do not answer" in explained
    assert "from 300 pairs, all of its pairs; peers in" in explained
    assert "services: tcp/22 at the peer 100 %" in explained
    plain = run("scan", path, "--json", "--quiet", "--top", 1)
    assert "pattern" not in json.loads(plain.out)


def test_tables_of_programs_have_the_pattern_behind_their_columns(tmp_path: Path, run: Run) -> None:
    path, file = write(tmp_path / "a.pcap", traffic()), tmp_path / "rows.parquet"
    saved = "--save", tmp_path / "saved"
    labels = tmp_path / "labels.csv"
    labels.write_text(f"{ADDRESS},the scanner\n")
    rows = run("scan", path, "--evidence", "--labels", labels, "--csv", "--quiet", "--top", 3, "-o", file, *saved).out
    header, first, *_ = csv.reader(io.StringIO(rows))
    assert header == [*COLUMNS, "pattern", "label"]
    assert first[-2:] == ["horizontal scan", "the scanner"]
    table = pyarrow.parquet.read_table(file)
    assert table.column_names == header
    assert (table["pattern"][0].as_py(), table["label"][0].as_py()) == ("horizontal scan", "the scanner")
    assert pyarrow.types.is_string(table["pattern"].type)
    (sketch,) = (tmp_path / "saved").rglob("*.cube")
    asked = run("hosts", sketch, "--csv", "--top", 1).out, run("explain", sketch, ADDRESS, "--csv").out
    for text, names in zip(asked, ([*COLUMNS, "site", "pattern"], [*COLUMNS, "pattern"]), strict=True):
        header, first = csv.reader(io.StringIO(text))
        assert (header, first[-1]) == (names, "horizontal scan")
    assert run("scan", path, "--csv", "--quiet", "--top", 3).out.splitlines()[0] == ",".join(COLUMNS)
    nothing = run("scan", path, "--evidence", "--csv", "--quiet", "--threshold", 10**6).out
    assert nothing == ",".join((*COLUMNS, "pattern")) + "\n"


def shuffled(packets: list[Packet], minutes: int) -> list[Packet]:
    return spread(packets, np.random.default_rng(4).permutation(len(packets)).tolist(), minutes)


FORMATS = pytest.mark.parametrize("ending", [".pcap", ".pcapng"])


@FORMATS
@pytest.mark.parametrize("piece", [None, 1 << 14])
def test_details_are_read_of_sampled_packets_only(tmp_path: Path, ending: str, piece: int | None) -> None:
    """Within the time of the sample, packets of pairs with larger hashes have no details; all others have them."""
    packets = shuffled(traffic(), 4)
    path = write(tmp_path / f"a{ending}", packets)
    chosen = Settings(evidence=True, key=SECRET).sampling
    assert chosen is not None
    chosen.limit = MINUTE, 3 * MINUTE, 1 << 61  # one pair in eight
    source = open_capture(str(path), **({} if piece is None else {"block_bytes": piece}))
    source.want(Wants(details=True, sampling=chosen))
    found = [int(detail) for block in source.blocks() for batch in block for detail in batch.details]
    unwanted = 0
    for packet, detail in zip(packets, found, strict=True):
        ends = sorted((packet.src, packet.dst))
        is_wanted = not MINUTE <= packet.time < 3 * MINUTE or hash_of(*ends, 4, SECRET) <= 1 << 61
        unwanted += not is_wanted
        assert detail == packet.detail or (detail == said.SKIPPED and not is_wanted)
    assert found.count(said.SKIPPED) > 0.9 * unwanted > len(packets) / 4  # unusual ones are told in any case


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "cut"),
    [(".pcap", {"window": "all"}), (".pcapng", {"window": "1m"}), (".pcap", {"window": "2m", "slide": "1m"})],
)
def test_what_is_left_out_is_unused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, cut: dict) -> None:
    packets: list[Packet] = []
    for number in range(40):
        scene = Scene(number, host=HOST + number)
        (browsing if number % 2 else horizontal_scan)(scene, 250)
        packets += scene.packets
    path = write(tmp_path / f"a{ending}", shuffled(packets, 4))
    monkeypatch.setattr(building, "GATHERED", 500)
    monkeypatch.setitem(sampling.WAITING, 4, 4096)
    found = {}
    for sampled in (True, False):
        if not sampled:
            monkeypatch.setattr(Settings, "sampling", None)
        run = Scan(
            [open_capture(str(path), block_bytes=1 << 14)],
            Settings(evidence=True, evidence_pairs=1024, key=SECRET, threads=2, **cut),
            make_detector=lambda part: sh.Exact(key_bits=32 if part.family == 4 else 64),
        )
        found[sampled] = [window.sketch.evidence for window in run]
    assert found[True] == found[False]
    assert len(found[True]) >= (1 if cut["window"] == "all" else 4)


@pytest.mark.parametrize(
    ("cut", "span"),
    [
        ({"window": "1m"}, (7 * MINUTE, 8 * MINUTE)),
        ({"window": "2m", "slide": "1m"}, (7 * MINUTE, 8 * MINUTE)),
        ({"window": "all"}, (-(1 << 63), (1 << 63) - 1)),
    ],
)
def test_sources_are_told_the_limit_of_the_window_that_is_open(cut: dict, span: tuple[int, int]) -> None:
    settings = Settings(evidence=True, evidence_pairs=1024, key=SECRET, device="cpu", **cut)
    told = settings.sampling
    builder = building.WindowBuilder(settings, find=False, gathers=1, sampling=told)
    builder.update(0 if cut["window"] == "all" else 7 * MINUTE, batch_of(traffic(), 4))
    assert told is not None
    assert told.limit == (*span, sampling.ALL)
