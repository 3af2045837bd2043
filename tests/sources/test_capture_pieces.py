"""A file read in pieces by several threads gives what one thread gives: packets, counters, warnings and errors."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packets as p
from frames import V4, V6, T, mixed, mixed_pcapng, write
from fuzz.captures import ONE_THREAD, Reading, read
from superhosts.errors import InputError
from superhosts.sources import capture
from superhosts.sources.base import SourceCounters
from superhosts.sources.capture import Cutting, PieceReader, open_capture, open_pieces
from superhosts.sources.input import Input

PLAIN, WIDE = p.ethernet(0x0800, V4), p.ethernet(0x86DD, V6)
ROOM = 4096
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc/self/fd here")


def reading(path: Path, cutting: Cutting) -> Reading:
    return read(path, capture.BLOCK_BYTES, cutting)


def check(path: Path, piece_bytes: int, room_bytes: int = ROOM, expected: Reading | None = None) -> Reading:
    """Compare both ways of reading, and return the result."""
    one = expected or reading(path, ONE_THREAD)
    assert reading(path, Cutting(piece_bytes, room_bytes, threads=3)) == one, (piece_bytes, room_bytes)
    return one


def opened(path: Path, piece_bytes: int, room_bytes: int = ROOM) -> PieceReader:
    found = open_pieces(Input(path), SourceCounters(), 1 << 16, Cutting(piece_bytes, room_bytes, threads=3))
    assert found is not None
    return found


def confirmed(path: Path, piece_bytes: int, room_bytes: int = ROOM) -> int:
    """Return the number of pieces that did not have to be read again."""
    reader = opened(path, piece_bytes, room_bytes)
    while reader.read() is not None:
        pass
    reader.close()
    return reader.confirmed


def open_descriptors() -> int:
    """Return the number of files that this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def reading_threads() -> int:
    """Return the number of threads that read pieces. They stay, and other tests may have started some."""
    return sum(thread.name.startswith("pieces") for thread in threading.enumerate())


def pcapng(frames: list[tuple[int, bytes]], order: str = "<") -> bytes:
    blocks = (p.enhanced(time // 1000, frame, 0, order) for time, frame in frames)
    return p.section(order) + p.interface(1, order) + b"".join(blocks)


CAPTURES: dict[str, Callable[[list[tuple[int, bytes]]], bytes]] = {
    "pcap": p.pcap,
    "big": lambda frames: p.pcap(frames, 1, p.MICRO, ">"),
    "nano": lambda frames: p.pcap(frames, 1, p.NANO),
    "modified": lambda frames: p.pcap(frames, 1, p.MODIFIED),
    "pcapng": pcapng,
    "pcapng-big": lambda frames: pcapng(frames, ">"),
}


# Bytes between sizes or lengths that are tried: of the usual formats all, of their variants some.
STEPS = {"pcap": 1, "big": 7, "nano": 7, "modified": 5, "pcapng": 1, "pcapng-big": 7}


@pytest.mark.parametrize("kind", CAPTURES)
def test_pieces_of_any_size(kind: str, tmp_path: Path) -> None:
    """Small pieces end inside headers, at every byte of them."""
    path = write(tmp_path, CAPTURES[kind](mixed(45)))
    whole = reading(path, ONE_THREAD)
    assert min(len(whole.ipv4), len(whole.ipv6)) > 5
    for size in [*range(40, 140, STEPS[kind]), 500, 900, 901, 902, 903, 1500, 2000]:
        check(path, size, expected=whole)
    for room in (16, 90, 100, 300, 1000):
        check(path, 700, room, expected=whole)


@pytest.mark.parametrize("kind", CAPTURES)
def test_nearly_all_guesses_are_right(kind: str, tmp_path: Path) -> None:
    kinds = PLAIN, WIDE, p.ethernet(0x0806, p.arp())
    frames = [(T + 1_000_000 * number, kinds[number % 3]) for number in range(3000)]
    path = write(tmp_path, CAPTURES[kind](frames))
    check(path, 4096, 5000)
    pieces = -(-path.stat().st_size // 4096)
    assert confirmed(path, 4096, 5000) == pieces - 1  # the first one has the header


@pytest.mark.slow
def test_pcapng_that_changes_on_the_way(tmp_path: Path) -> None:
    path = write(tmp_path, mixed_pcapng() * 5)
    whole = reading(path, ONE_THREAD)
    assert len(whole.counters.warnings) == 1
    for size in [*range(64, 264, 12), 1000, 3000, 5000]:
        check(path, size, expected=whole)


def test_sections_with_the_same_interfaces_stay_confirmed(tmp_path: Path) -> None:
    path = write(tmp_path, pcapng([(T, PLAIN)] * 1000) * 20)
    check(path, 4096)
    pieces = path.stat().st_size // 4096
    assert confirmed(path, 4096) > 0.9 * pieces


def test_a_section_without_interfaces_ends_those_before_it(tmp_path: Path) -> None:
    """A thread that took the old interfaces for granted would read packets that are damage."""
    start, rest = pcapng([(T, PLAIN)] * 30), p.enhanced(T // 1000, PLAIN) * 300
    for size in range(400, 800, 20):
        whole = check(write(tmp_path, start + p.section() + p.block(5, bytes(24)) * 40 + rest), size)
        assert "an interface that was not declared" in whole.said
        assert whole.counters.packets == 30


def test_interfaces_of_unsupported_links_are_named_once_and_in_order(tmp_path: Path) -> None:
    names = b"".join(p.interface(link) for link in (1, 189, 195, 189))
    packets = [p.enhanced(T // 1000 + i, PLAIN, 3 - i // 100) for i in range(400)]
    path = write(tmp_path, p.section() + names + b"".join(packets))
    whole = check(path, 1000)
    assert len(whole.counters.warnings) == 2
    assert whole.counters.unsupported_link == 300
    only = write(tmp_path, p.section() + p.interface(189) + p.enhanced(T, PLAIN) * 300)
    assert "none of its 300 packets can be read" in check(only, 1000).said


def test_packets_without_a_time_get_that_of_the_packet_before_them(tmp_path: Path) -> None:
    simple, timed = p.simple(PLAIN), [p.enhanced(T // 1000 + i, PLAIN) for i in range(200)]
    for parts in (timed + [simple] * 200, [simple] * 200 + timed, [one + simple for one in timed], [simple] * 400):
        path = write(tmp_path, p.section() + p.interface() + b"".join(parts))
        assert len(check(path, 1000).counters.warnings) == 1
        check(path, 60)


def hidden(frames: list[tuple[int, bytes]], make: Callable[..., bytes]) -> list[tuple[int, bytes]]:
    """Return frames that contain whole captures, after some padding: chains of records that are none."""
    content = make(frames)
    return [(T + i, p.ethernet(0x0800, p.ipv4(payload=bytes(i) + content))) for i in range(4)]


@pytest.mark.parametrize("kind", CAPTURES)
def test_records_inside_packets_are_not_records(kind: str, tmp_path: Path) -> None:
    make = CAPTURES[kind]
    inner = [(T + i, p.ethernet(0x0800, p.ipv4("6.6.6.6", payload=b""))) for i in range(60)]
    path = write(tmp_path, make(mixed(5) + hidden(inner, make) + mixed(5)))
    whole = reading(path, ONE_THREAD)
    assert not any(0x06060606 in row for row in whole.ipv4)
    for size in [*range(64, 150, 3), 400, 800, 1600, 3200]:
        check(path, size, 8192, expected=whole)


@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_records_larger_than_pieces(kind: str, tmp_path: Path) -> None:
    large = PLAIN + bytes((1 << 26) - 100 - len(PLAIN))
    frames = [*mixed(200), (T, PLAIN + bytes(200_000)), *mixed(200)]
    if kind == "pcap":
        records = b"".join(p.record(time, frame) for time, frame in [*frames, (T, large), *frames])
        path = write(tmp_path, p.pcap_header(snaplen=2**32 - 1) + records)
    else:
        path = write(tmp_path, pcapng([*frames, (T, large), *frames]))
    whole = check(path, 10_000)
    assert whole.counters.packets == 803
    check(path, 1 << 20, 1 << 20, expected=whole)


def test_small_files_compressed_ones_and_pipes_are_left_to_one_thread(tmp_path: Path) -> None:
    cutting = Cutting(1000, ROOM, threads=3)

    def taken(data: bytes, how: Cutting = cutting) -> bool:
        reader = open_pieces(Input(write(tmp_path, data)), SourceCounters(), 1 << 16, how)
        if reader is not None:
            reader.close()
        return reader is not None

    data = p.pcap(mixed(100))
    assert taken(data)
    assert not taken(data, cutting._replace(threads=1))
    assert not taken(data[:3000])
    assert not taken(b"")
    assert not taken(gzip.compress(np.random.default_rng(1).bytes(5000)))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert open_pieces(Input(pipe), SourceCounters(), 1 << 16, cutting) is None


def test_bytes_that_are_added_while_reading_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap(mixed(100))[:-10])
    counters = SourceCounters()
    source = open_capture(path, cutting=Cutting(500, ROOM, threads=3), block_bytes=500)
    source.counters = counters
    blocks = source.blocks()
    next(blocks)
    with path.open("ab") as file:
        file.write(p.pcap(mixed(100))[-10:] + b"".join(p.record(T, PLAIN) for _ in range(100)))
    for _ in blocks:
        pass
    assert (counters.packets, counters.warnings) == (200, [])


@pytest.mark.parametrize("threads", [1, 3])
def test_a_file_that_becomes_shorter_is_said_also_where_a_record_ends(threads: int, tmp_path: Path) -> None:
    data = p.pcap([(T + 1000 * i, PLAIN) for i in range(2000)])
    path = write(tmp_path, data)
    source = open_capture(path, block_bytes=1000, cutting=Cutting(1000, ROOM, threads=threads))
    blocks = source.blocks()
    next(blocks)
    os.truncate(path, 24)
    for _ in blocks:
        pass
    said = [text for text in source.counters.warnings if "has become shorter while it was read" in text]
    assert len(said) == 1
    assert f"of {len(data):,} bytes" in said[0]


@needs_proc
def test_a_reader_that_is_closed_early_leaves_nothing_open(tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap(mixed(3000)))
    others = reading_threads()

    def read_one() -> None:
        source = open_capture(path, cutting=Cutting(1000, ROOM, threads=3))
        blocks = source.blocks()
        next(blocks)
        assert 0 < source.position() < path.stat().st_size
        blocks.close()  # type: ignore[attr-defined]
        assert 0 < source.position() < path.stat().st_size
        assert source.finished() == {}

    read_one()  # starts the threads, which all files share
    before = open_descriptors()
    for _ in range(20):
        read_one()
    assert open_descriptors() == before
    assert reading_threads() - others <= 3


def test_many_files_at_once_share_what_is_read_ahead(tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap(mixed(3000)))
    cutting = Cutting(700, ROOM, threads=16)
    found = [open_pieces(Input(path), SourceCounters(), 1 << 16, cutting) for _ in range(30)]
    readers = [reader for reader in found if reader is not None]
    for reader in readers:
        reader.read()
    assert [len(reader.ahead) for reader in readers] == [capture.LEAST_AHEAD] * 30
    for reader in readers[1:]:
        reader.close()
    readers[0].read()
    assert capture.LEAST_AHEAD < len(readers[0].ahead) <= capture.MOST_PIECES_AHEAD
    readers[0].close()


def held(path: Path, size: int = 40_000) -> tuple[list[Any], int]:
    """Return all blocks of a file, and how often memory for their pieces came from the system."""
    reader, blocks = opened(path, size), []
    while (block := reader.read()) is not None:
        blocks.append(block)
    reader.close()
    return blocks, reader.lender.made


def test_few_packets_do_not_hold_the_memory_of_their_piece(tmp_path: Path) -> None:
    large = [PLAIN + bytes(3000), WIDE + bytes(3000)]
    path = write(tmp_path, p.pcap([(T + i, large[i % 2]) for i in range(1000)]))
    blocks, made = held(path)
    assert len(blocks) > 60
    assert made <= 2 * 2 * (Cutting(threads=3).ahead() + 1)
    many = write(tmp_path, p.pcap([(T + i, PLAIN) for i in range(225_000)]), "many")
    blocks, made = held(many, 200_000)
    assert len(blocks) > 60
    assert made > len(blocks) - 5  # these are views


def test_pieces_of_many_files_at_once_are_smaller() -> None:
    cutting = Cutting(threads=16)
    sizes = [cutting.piece(1 << 40, files) for files in (1, 2, 3, 4, 100)]
    third, least = -(-capture.LARGEST_PIECE // 3 // 4) * 4, capture.BLOCK_BYTES
    assert sizes == [capture.LARGEST_PIECE, 8 << 20, third, least, least]


THREADS = """
import sys, threading
import superhosts as sh

for threads in (1, 2):
    run = sh.scan(sys.argv[1], memory="1MiB", threads=threads)
    print(sum(window.packets for window in run), sum(each.name.startswith("pieces") for each in threading.enumerate()))
"""


@pytest.mark.slow
def test_a_scan_says_how_many_threads_read(tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap_header() + p.record(T, PLAIN + bytes(3000)) * 5000)
    environment = {**os.environ, "SUPERHOSTS_THREADS": "4"}
    command = [sys.executable, "-c", THREADS, str(path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    one, two = ([int(word) for word in line.split()] for line in ended.stdout.splitlines())
    assert one == [5000, 0]
    assert two in ([5000, 1], [5000, 2])  # one, if it is done before there is more to read


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    stream = capture.FileStream("name", os.open(write(tmp_path, b""), os.O_WRONLY))
    with pytest.raises(InputError, match="name: cannot be read: "):
        stream.readinto(memoryview(bytearray(10)))
    stream.close()
