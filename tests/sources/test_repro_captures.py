"""Captures that once broke the readers: what came before damage counts, memory is bounded, every byte is read once."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

import packets as p
from commands import Run
from frames import COMPRESSORS, V4, T, mixed, write
from superhosts.errors import SuperhostsError
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings
from superhosts.sources.capture import BLOCK_PACKETS, READER_MEMORY, most_memory
from superhosts.sources.open import open_inputs

PLAIN = p.ethernet(0x0800, V4)

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


@pytest.mark.parametrize("compression", ["plain", *COMPRESSORS])
@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_all_packets_before_damage_count(kind: str, compression: str, tmp_path: Path) -> None:
    for packets in (0, 1, 2, 999, 1000, 1001, BLOCK_PACKETS, BLOCK_PACKETS + 1):
        data = good(kind, packets)
        path = write(tmp_path, COMPRESSORS.get(compression, bytes)(data + DAMAGE[kind]))
        counted, errors, _ = scanned(path)
        assert counted == packets
        assert [str(error).split(": damaged")[0] for error in errors] == [f"{path}: byte {len(data)}"]


def test_interfaces_of_mixed_link_types(run: Run, tmp_path: Path) -> None:
    data = p.section() + p.interface() + p.interface(249) + p.enhanced(1, PLAIN) * 3 + p.enhanced(2, PLAIN, 1)
    ended = run("scan", write(tmp_path, data), "--json", "--threshold", 1, "--detector", "exact")
    assert ended.status == 0
    assert "\n4 packets" in ended.err
    assert "1 of an unsupported link type" in ended.err
    assert ended.err.count("warning: ") == ended.err.count("link type 249 (USB, Windows) is not supported") == 1
    assert ended.rows


# Reads captures in a process of its own; prints the packets, and by how many bytes the process grew at most.
# getrusage would not do: there the largest size of a process is at least that of the one that started it.
GROWTH = """
import sys
from collections import deque
from pathlib import Path
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings
from superhosts.sources.capture import BLOCKS_HELD, Cutting, open_capture
from superhosts.sources.open import open_inputs

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

def scanned(paths, _):
    scan = Scan(open_inputs(paths), Settings(memory="1MiB"))
    list(scan)
    return scan.counters.packets

def in_pieces(paths, size):
    # As many blocks are held as wait in a scan.
    source, held = open_capture(paths[0], cutting=Cutting(size)), deque(maxlen=BLOCKS_HELD - 1)
    held.extend(source.blocks())
    return source.counters.packets

packets = {"scanned": scanned, "in_pieces": in_pieces}[sys.argv[1]]
packets(sys.argv[2:3], 1000)  # compiles, and makes a cube
before = peak()
print(packets(sys.argv[3:], 1 << 20), peak() - before, Cutting(1 << 20).memory())
"""


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc/self/status here")


def growth(small: Path, paths: list[Path], how: str = "scanned") -> list[int]:
    """Return the packets of captures, the bytes by which a process grew that reads them, and the bound of pieces."""
    arguments = [sys.executable, "-c", GROWTH, how, str(small), *map(str, paths)]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    return [int(word) for word in result.stdout.split()]


def zstd_frame(*blocks: bytes | tuple[int, bytes], window_bits: int = 17) -> bytes:
    """Return a frame of blocks: bytes as they are, and (count, byte) repeated, by hand: a compressor is not needed."""
    parts = [b"\x28\xb5\x2f\xfd\0", bytes([window_bits - 10 << 3])]
    for number, block in enumerate(blocks):
        is_last = number == len(blocks) - 1
        content, size, kind = (block, len(block), 0) if isinstance(block, bytes) else (block[1], block[0], 1)
        parts += [struct.pack("<I", size << 3 | kind << 1 | is_last)[:3], content]
    return b"".join(parts)


@pytest.mark.slow
@needs_proc
def test_zeros_that_compress_well_take_little_memory(tmp_path: Path) -> None:
    """Two kilobytes that stand for 64 MiB of empty records, eight times at once."""
    zeros = [(1 << 17, b"\0")] * 512
    bomb = zstd_frame(p.pcap_header(), *zeros)
    assert len(bomb) < 2200
    paths = [write(tmp_path, bomb, f"bomb{number}.pcap.zst") for number in range(8)]
    packets, grown, _ = growth(write(tmp_path, p.pcap(mixed()), "small"), paths)
    assert packets == 8 * (64 << 20) // 16
    assert grown < 8 * (24 << 20)


@pytest.mark.slow
@needs_proc
def test_an_input_takes_no_more_memory_than_is_announced(tmp_path: Path) -> None:
    """The longest window, a record of the largest size, and packets of which a block holds many."""
    header = p.pcap_header(snaplen=2**32 - 1)
    largest = struct.pack("<IIII", 0, 0, 64 << 20, 64 << 20)
    some = p.record(T, p.ethernet(0x86DD, p.ipv6(payload=b""))) * 1000
    data = [header, *[some] * 2000, largest, *[(1 << 17, b"x")] * 512]
    path = write(tmp_path, zstd_frame(*data, window_bits=27), "large.pcap.zst")
    packets, grown, _ = growth(write(tmp_path, p.pcap(mixed()), "small"), [path])
    assert packets == 2_000_000 + 1
    assert 192 << 20 < grown < READER_MEMORY <= most_memory()


@pytest.mark.slow
@needs_proc
def test_pieces_take_no_more_memory_than_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv6 packets without payload: their columns take most of all. All of them would be more than the bound."""
    monkeypatch.setenv("SUPERHOSTS_THREADS", "16")
    some = p.record(T, p.ethernet(0x86DD, p.ipv6(payload=b""))) * 1000
    path = write(tmp_path, p.pcap_header() + some * 4000, "large.pcap")
    packets, grown, bound = growth(write(tmp_path, p.pcap(mixed(300)), "small"), [path], "in_pieces")
    assert packets == 4_000_000
    assert grown < bound < 40 * packets
