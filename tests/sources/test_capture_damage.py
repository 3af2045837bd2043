"""Captures that are cut or damaged: a warning, an `InputError`, or packets; never anything else."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import packets as p
from frames import FRAMES, V4, V6, T, mixed, mixed_pcapng, rows, write
from places import ROOT, TESTS
from superhosts.errors import InputError

PLAIN = p.ethernet(0x0800, V4)
SMALL_PCAP = p.pcap([(T, PLAIN), (T, p.ethernet(0x0806, p.arp())), (T, p.ethernet(0x86DD, V6)), (T, PLAIN)])
SMALL_PCAPNG = (
    p.section()
    + p.interface(1, "<", 9, 3)
    + p.enhanced(5, PLAIN)
    + p.block(5, bytes(24))
    + p.section(">")
    + p.interface(1, ">")
    + p.simple(PLAIN, ">")
    + p.obsolete(5, p.ethernet(0x86DD, V6), 0, ">")
)


def ends(data: bytes) -> set[int]:
    """Where the records or blocks of a small capture end."""
    found = set()
    if data is SMALL_PCAP:
        at = 24
        found.add(at)
        while at < len(data):
            at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
            found.add(at)
        return found
    at, order = 0, "little"
    while at < len(data):
        if data[at : at + 4] == b"\x0a\x0d\x0d\x0a":
            order = "little" if data[at + 8] == 0x4D else "big"
        at += int.from_bytes(data[at + 4 : at + 8], order)  # type: ignore[arg-type]
        found.add(at)
    return found


@pytest.mark.parametrize("data", [SMALL_PCAP, SMALL_PCAPNG], ids=["pcap", "pcapng"])
def test_cut_at_every_byte(data: bytes, tmp_path: Path) -> None:
    starts = ends(data)
    seen = 0
    for length in range(4, len(data) + 1):
        path = write(tmp_path, data[:length])
        _, counters = rows(path)
        assert counters.packets >= seen
        seen = counters.packets
        cuts = [text for text in counters.warnings if "ends inside" in text]
        last = max([0, *(end for end in starts if end <= length)])
        if length in starts:
            assert cuts == []
        else:
            assert cuts == [f"{path}: byte {last}: the file ends inside a record; what came before counts"]
    assert seen == (4 if data is SMALL_PCAP else 3)


@pytest.mark.parametrize(("snaplen", "largest"), [(96, 262_144), (0, 262_144), (400_000, 400_000), (2**32 - 1, 2**26)])
@pytest.mark.parametrize("size", [50, 1 << 20])
def test_a_record_length_beyond_reason(snaplen: int, largest: int, size: int, tmp_path: Path) -> None:
    start = p.pcap_header(snaplen=snaplen) + p.record(T, PLAIN)
    found, counters = rows(write(tmp_path, start + p.record(T, PLAIN, captured=largest)), block_bytes=size)
    assert len(found) == 1
    assert len(counters.warnings) == 1
    path = write(tmp_path, start + p.record(T, PLAIN, captured=largest + 1))
    with pytest.raises(InputError, match=rf"byte {len(start)}: damaged: a record of {largest + 1} captured") as caught:
        rows(path, block_bytes=size)
    assert caught.value.offset == len(start)


def test_a_record_larger_than_a_block_is_read_whole(tmp_path: Path) -> None:
    frames = [(T, PLAIN + bytes(200_000)), (T + 1000, PLAIN)]
    for size in (100, 70_000):
        assert [row[3] for row in rows(write(tmp_path, p.pcap(frames)), block_bytes=size)[0]] == [T, T + 1000]


def flips(seed: int, count: int) -> list[bytes]:
    """Captures with one to four bytes changed."""
    rng = random.Random(seed)
    whole = [SMALL_PCAP, SMALL_PCAPNG, p.pcap(mixed(), 1, p.MODIFIED, ">"), mixed_pcapng()]
    whole += [p.pcap([(T, V4), (T, V6)], link) for link in (0, 12, 108, 113, 276)]
    result = []
    for number in range(count):
        data = bytearray(whole[number % len(whole)])
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        result.append(bytes(data))
    return result


def fuzz(folder: Path, count: int) -> int:
    """Read damaged captures; how many were refused."""
    refused = 0
    for data in flips(1, count):
        path = write(folder, data)
        outcomes = []
        for size in (1 << 16, 61):
            try:
                outcomes.append(repr(rows(path, block_bytes=size)))
            except InputError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
        refused += "capture: " in outcomes[0] and "SourceCounters" not in outcomes[0]
    return refused


def short_frames(folder: Path) -> None:
    """Read captures that end with a frame that is cut, at every length: nothing lies behind it."""
    for link, frame, _, _ in FRAMES.values():
        for length in range(min(len(frame), 64)):
            rows(write(folder, p.pcap([(T, frame[:length])], link)))


@pytest.mark.slow
def test_changed_bytes_give_packets_or_a_named_error(tmp_path: Path) -> None:
    assert 30 < fuzz(tmp_path, 1000) < 970


@pytest.mark.slow
def test_nothing_is_read_outside_a_block(tmp_path: Path) -> None:
    """The same, compiled with a check of every index; `make fuzz` keeps such code in the same folder."""
    program = (
        "import sys; from pathlib import Path; import test_capture_damage as damage;"
        "folder = Path(sys.argv[1]); damage.short_frames(folder); damage.fuzz(folder, 400); print('checked')"
    )
    path = os.pathsep.join(
        [str(Path(__file__).parent), str(TESTS), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    )
    environment = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(ROOT / ".fuzz-cache"),
        "PYTHONPATH": path,
    }
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=240
    )
    assert result.stdout.strip() == "checked", result.stderr
