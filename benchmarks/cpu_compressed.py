"""Section "compressed": scans of compressed captures, beside the same scans with Python's zlib, and of many files.

The peer is the same command in a process that cannot import zlib-ng, and zlib alone, which inflates the same bytes and
does nothing else. The rounds of all of them are interleaved.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import zstandard

from captures import FRAME, first_packets, split_capture, write_captures
from cpu_scan import MARGIN, START, TINY
from harness import Report, run_command
from superhosts.sources.compression import decompressed
from superhosts.sources.stream import PlainStream
from superhosts.sources.synthetic.traffic import Traffic

ROUNDS = 5
FILES = 16  # of a rotation, one after the other in time
LEVEL = 6  # the default of the gzip command
WITH_ZLIB = "import sys; sys.modules['zlib_ng'] = None\nfrom superhosts.cli import main\nsys.exit(main())"


def run(report: Report, folder: Path) -> None:
    """Measure a gzip file, a zstd file, and a rotation of gzip files."""
    scale = 10 if report.quick else 1
    traffic = Traffic(flows=1_000_000 // scale, packets=12_000_000 // scale, super_hosts=120 // scale)
    pcap, pcapng = write_captures(traffic, folder)
    pcapng.unlink()
    tiny = first_packets(pcap, TINY, folder / "tiny.pcap")
    gz, tiny_gz = _gzip(pcap), _gzip(tiny)
    zst, tiny_zst = _zstd(pcap), _zstd(tiny)
    rotation = [str(_gzip(part)) for part in split_capture(pcap, FILES, folder)]
    commands: dict[str, Callable[[], float]] = {
        "gzip": lambda: _scan(str(gz)),
        f"gzip{START}": lambda: _scan(str(tiny_gz)),
        "gzip with zlib": lambda: _scan_with_zlib(str(gz)),
        f"gzip with zlib{START}": lambda: _scan_with_zlib(str(tiny_gz)),
        "zstd": lambda: _scan(str(zst)),
        f"zstd{START}": lambda: _scan(str(tiny_zst)),
        f"{FILES} gzip files": lambda: _scan(*rotation),
        f"{FILES} gzip files{START}": lambda: _scan(str(tiny_gz)),
        f"{FILES} gzip files with zlib": lambda: _scan_with_zlib(*rotation),
        f"{FILES} gzip files with zlib{START}": lambda: _scan_with_zlib(str(tiny_gz)),
        "inflating alone": lambda: _inflate(gz),
        "inflating alone, zlib": lambda: _inflate_with_zlib(gz),
    }
    runs: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(ROUNDS + 1):  # The first round warms the compile cache and the page cache.
        for name, command in commands.items():
            seconds = command()
            if turn:
                runs[name].append(seconds)
    note = (
        f"{traffic.packets:,} packets of {FRAME} bytes, {pcap.stat().st_size / gz.stat().st_size:.1f} times compressed"
    )
    net: dict[str, float] = {}
    for name, times in runs.items():
        if name.endswith(START):
            continue
        starts = runs.get(name + START, [0.0])
        work = min(times) - min(starts)
        if work < MARGIN * (sorted(starts)[len(starts) // 2] - min(starts)):
            print(f"  {name}: {work:.3f} s beyond a start of {min(starts):.2f} s are too few")
            continue
        net[name] = work
        title = f"scan, {name}: without the start" if len(starts) > 1 else name
        report.add("compressed", title, work, "s", note=note, runs=times)
    for name, peer in (
        ("gzip", "gzip with zlib"),
        (f"{FILES} gzip files", f"{FILES} gzip files with zlib"),
        ("inflating alone", "inflating alone, zlib"),
        ("gzip", "inflating alone, zlib"),
        (f"{FILES} gzip files", "inflating alone, zlib"),
    ):
        if name in net and peer in net:
            title = f"compressed, {name}: times as fast as {peer}"
            report.add("compressed", title, net[peer] / net[name], "times")


def _scan(*paths: str) -> float:
    return run_command("scan", *paths, "--json", "--quiet")[0]


def _scan_with_zlib(*paths: str) -> float:
    return run_command("scan", *paths, "--json", "--quiet", program=(sys.executable, "-c", WITH_ZLIB))[0]


def _inflate(path: Path) -> float:
    """Return the seconds that the stream of a capture takes, with a thread of its own, into a buffer of a reader."""
    room = memoryview(bytearray(4 << 20))
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        stream = decompressed(PlainStream(path.name, file, live=False))
        while stream.readinto(room):
            pass
        stream.close()
    return time.perf_counter() - start


def _inflate_with_zlib(path: Path) -> float:
    start = time.perf_counter()
    inflater = zlib.decompressobj(wbits=31)
    with path.open("rb", buffering=0) as file:
        while piece := file.read(1 << 16):
            inflater.decompress(piece)
    return time.perf_counter() - start


def _gzip(path: Path) -> Path:
    out = path.with_name(path.name + ".gz")
    compressor = zlib.compressobj(LEVEL, wbits=31)
    with path.open("rb") as file, out.open("wb") as packed:
        while piece := file.read(1 << 20):
            packed.write(compressor.compress(piece))
        packed.write(compressor.flush())
    return out


def _zstd(path: Path) -> Path:
    out = path.with_name(path.name + ".zst")
    with path.open("rb") as file, out.open("wb") as packed:
        zstandard.ZstdCompressor().copy_stream(file, packed)
    return out
