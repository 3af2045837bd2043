"""Captures that once broke the readers: what came before damage counts, memory is bounded, every byte is read once."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

import packets as p
from commands import Run
from superhosts.errors import InputError, SuperhostsError
from superhosts.pipeline import Scan, open_inputs
from superhosts.settings import Settings
from superhosts.sources.capture import BLOCK_PACKETS, open_capture
from test_capture import V4, T, write

REPRO = Path(os.environ.get("SUPERHOSTS_REPRO", Path(__file__).parents[2] / "shared" / "repro"))
PLAIN = p.ethernet(0x0800, V4)
needs_repro = pytest.mark.skipif(not REPRO.exists(), reason=f"no folder {REPRO} (set SUPERHOSTS_REPRO)")

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "xz": lzma.compress,
}
DAMAGE = {"pcap": p.record(T, PLAIN, captured=2**31 - 1), "pcapng": b"\x99\0\0\0\x08\0\0\0" + bytes(8)}


def good(kind: str, packets: int) -> bytes:
    """Return a capture of so many packets."""
    if kind == "pcap":
        return p.pcap_header() + p.record(T, PLAIN) * packets
    return p.section() + p.interface() + p.enhanced(T // 1000, PLAIN) * packets


def scanned(*paths: Path) -> tuple[int, list[SuperhostsError], list[str]]:
    """Return packets, errors and warnings of a scan."""
    errors: list[SuperhostsError] = []
    scan = Scan(open_inputs(paths, errors.append), Settings(memory="1MiB"), on_error=errors.append)
    counted = sum(window.packets for window in scan)
    assert counted == scan.counters.ipv4 + scan.counters.ipv6
    return scan.counters.packets, errors, scan.counters.warnings


@pytest.mark.parametrize("compression", COMPRESSORS)
@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_all_packets_before_damage_count(kind: str, compression: str, tmp_path: Path) -> None:
    for packets in (0, 1, 2, 999, 1000, 1001, BLOCK_PACKETS, BLOCK_PACKETS + 1):
        data = good(kind, packets)
        path = write(tmp_path, COMPRESSORS[compression](data + DAMAGE[kind]))
        counted, errors, _ = scanned(path)
        assert counted == packets
        assert [str(error).split(": damaged")[0] for error in errors] == [f"{path}: byte {len(data)}"]


@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_damage_at_the_edge_of_a_block(kind: str, tmp_path: Path) -> None:
    data = good(kind, 5)
    path = write(tmp_path, data + DAMAGE[kind])
    for size in range(len(data) - 3, len(data) + 30):
        source = open_capture(path, block_bytes=size)
        with pytest.raises(InputError, match=f"byte {len(data)}: damaged"):
            list(source.blocks())
        assert source.counters.packets == 5


@needs_repro
def test_one_packet_then_damage(run: Run) -> None:
    ended = run("scan", REPRO / "one_then_damage.pcap", "--json", "--threshold", 1, "--detector", "exact")
    assert ended.status == 3
    assert "byte 82: damaged" in ended.err
    assert "\n1 packets" in ended.err
    assert len(ended.rows) == 2


@needs_repro
def test_a_wrong_gzip_checksum(run: Run) -> None:
    ended = run("scan", REPRO / "gz_bad_crc.pcap.gz", "--json", "--threshold", 1, "--detector", "exact")
    assert ended.status == 0
    assert "\n3 packets" in ended.err
    assert "warning: " in ended.err
    assert "gz_bad_crc.pcap.gz: byte 79 of the compressed data: wrong gzip checksum; what came before" in ended.err
    assert ended.rows


@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_packets_before_a_wrong_checksum_count(kind: str, tmp_path: Path) -> None:
    for packets in (1, 2, 1000):
        packed = bytearray(gzip.compress(good(kind, packets)))
        packed[-8] ^= 1
        path = write(tmp_path, bytes(packed))
        counted, errors, warnings = scanned(path)
        assert (counted, errors) == (packets, [])
        assert warnings == [
            f"{path}: byte {len(packed) - 4} of the compressed data: wrong gzip checksum; "
            "what came before counts, and some of it may be damaged"
        ]


@needs_repro
def test_a_window_that_is_too_long(run: Run) -> None:
    path = REPRO / "long_window.pcap.zst"
    ended = run("scan", path, "--json")
    assert ended.status == 3
    assert "damaged" not in ended.err
    assert "needs a window of 1 GiB" in ended.err
    assert f"decompress it first: zstd -dc --long=30 {path} | superhosts scan -" in ended.err


@needs_repro
def test_interfaces_of_mixed_link_types(run: Run) -> None:
    ended = run("scan", REPRO / "mixed_links.pcapng", "--json", "--threshold", 1, "--detector", "exact")
    assert ended.status == 0
    assert "\n204 packets" in ended.err
    assert "1 of an unsupported link type" in ended.err
    assert ended.err.count("warning: ") == ended.err.count("link type 249 (USB, Windows) is not supported") == 1
    assert ended.rows
