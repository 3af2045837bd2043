"""Captures that are cut or damaged: a warning, an `InputError`, or packets; never anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

import naive_capture
import packets as p
from frames import V4, V6, T, mixed, rows, write
from fuzz.__main__ import run_process
from fuzz.captures import ONE_THREAD, compare, read
from superhosts.errors import InputError
from superhosts.sources.capture import BLOCK_BYTES, Cutting

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


@pytest.mark.parametrize("data", [SMALL_PCAP, SMALL_PCAPNG, p.pcap(mixed(12)), p.pcap(mixed(12), 1, p.MODIFIED, ">")])
def test_cut_at_every_byte(data: bytes, tmp_path: Path) -> None:
    for length in range(4, len(data) + 1):
        path, oracle = write(tmp_path, data[:length]), naive_capture.read(data[:length])
        for cutting in (ONE_THREAD, Cutting(100, 4096, threads=3)):
            reading = read(path, BLOCK_BYTES, cutting)
            compare(reading, oracle)
            said = f"{path}: byte {oracle.ends_inside}: the file ends inside a record; what came before counts"
            found = [text for text in reading.warnings if "ends inside" in text]
            assert found == ([] if oracle.ends_inside is None else [said])


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


@pytest.mark.slow
def test_nothing_is_read_outside_a_block() -> None:
    """Damaged captures are what the oracle says, in code that is compiled with a check of every index."""
    assert run_process("captures", 1, 300, 0.0)
