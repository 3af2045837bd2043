from __future__ import annotations

import gzip
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import packets as p
from frames import COMPRESSORS, V4, T, mixed, mixed_pcapng, rows, write
from superhosts.core.pairs import PacketBlock
from superhosts.errors import InputError
from superhosts.sources.capture import open_capture
from superhosts.sources.open import open_all

PLAIN = p.ethernet(0x0800, V4)


zstd = COMPRESSORS["zstd"]
CAPTURES = {"pcap": p.pcap(mixed(400)), "pcapng": mixed_pcapng() * 4}


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("kind", COMPRESSORS)
def test_compressed_is_the_same_as_plain(kind: str, capture: str, tmp_path: Path) -> None:
    data, compress = CAPTURES[capture], COMPRESSORS[kind]
    plain = rows(write(tmp_path, data))
    path = write(tmp_path, compress(data), "no-telling-name")
    for size in (1, 100, 4096, 1 << 22):
        found, counters = rows(path, block_bytes=size)
        assert found == plain[0]
        assert (counters.packets, counters.truncated) == (plain[1].packets, plain[1].truncated)
    source = open_capture(path)
    assert source.first_time() is not None
    assert source.size() == path.stat().st_size
    assert source.position() == 0
    assert list(source.blocks())
    assert source.position() == source.size()


def test_a_skippable_zstd_frame_may_come_first(tmp_path: Path) -> None:
    data = CAPTURES["pcap"]
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    assert rows(write(tmp_path, skippable + zstd(data) + skippable)) == rows(write(tmp_path, data))


def test_not_a_capture(tmp_path: Path) -> None:
    for data in (b"GET / HTTP/1.1\r\n", gzip.compress(b"x")):
        with pytest.raises(InputError, match="capture: not a capture: it looks like text"):
            open_capture(write(tmp_path, data))


def test_no_packets_are_no_error(tmp_path: Path) -> None:
    for data in (b"", gzip.compress(b""), zstd(b""), p.pcap([]), p.section(), p.section() + p.interface(105)):
        found, counters = rows(write(tmp_path, data))
        assert found == []
        assert counters.packets == 0
        assert len(counters.warnings) == (data in (b"", gzip.compress(b""), zstd(b"")))
        assert open_capture(write(tmp_path, data)).first_time() is None


def test_what_cannot_be_opened_is_said_in_plain_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing: cannot be opened: No such file"):
        open_capture(tmp_path / "missing")
    with pytest.raises(InputError, match="is a folder"):
        open_capture(tmp_path)
    with pytest.raises(InputError, match="cannot be opened"):
        open_capture("a\0b")
    secret = write(tmp_path, p.pcap([]))
    secret.chmod(0)
    if not os.access(secret, os.R_OK):
        with pytest.raises(InputError, match="cannot be opened: Permission denied"):
            open_capture(secret)


def test_nothing_is_held_open_before_it_is_read(tmp_path: Path) -> None:
    held = Path("/proc/self/fd")
    before = len(list(held.iterdir())) if held.exists() else 0
    path = write(tmp_path, p.pcap(mixed()))
    sources = [open_capture(path) for _ in range(2000)]
    assert {source.first_time() for source in sources} == {T}
    if before:
        assert len(list(held.iterdir())) <= before + 1


def soon(blocks: Iterator[PacketBlock]) -> PacketBlock:
    """The next block, which must come without further data."""
    result: list[PacketBlock] = []
    thread = threading.Thread(target=lambda: result.append(next(blocks)), daemon=True)
    thread.start()
    thread.join(240)  # the first one compiles, perhaps on a machine that is busy with other work
    assert result, "no block although a packet is there"
    return result[0]


@pytest.mark.parametrize("peek", [False, True])
@pytest.mark.parametrize("kind", ["pcap", "pcapng", "gzip", "zstd"])
def test_a_live_pipe_is_handed_out_as_it_arrives(kind: str, peek: bool) -> None:
    first, second = p.record(T, PLAIN), p.record(T + p.SECOND, PLAIN)
    head = p.pcap_header()
    if kind == "pcapng":
        head = p.section() + p.interface()
        first, second = p.enhanced(T // 1000, PLAIN), p.enhanced(T // 1000 + 1_000_000, PLAIN)
    parts = [head + first + second[:20], second[20:]]
    if kind in COMPRESSORS:
        parts = [COMPRESSORS[kind](part) for part in parts]
    end, pipe = os.pipe()
    source = open_capture(f"/dev/fd/{end}")
    os.write(pipe, parts[0])
    if peek:
        assert source.first_time() == source.first_time() == T
    blocks = source.blocks()
    assert soon(blocks)[0].time.tolist() == [T]
    assert source.counters.packets == 1
    os.write(pipe, parts[1])
    assert soon(blocks)[0].time.tolist() == [T + p.SECOND]
    os.close(pipe)
    os.close(end)
    assert list(blocks) == []
    assert source.counters.packets == 2
    assert source.counters.warnings == []
    assert source.position() == sum(map(len, parts))
    assert source.size() is None


@pytest.mark.parametrize("real", [True, False])
def test_stdin(real: bool, tmp_path: Path, stdin: Callable[[Any], None]) -> None:
    path = write(tmp_path, p.pcap(mixed()))
    expected = rows(path)
    with path.open("rb") as file:
        stdin(file if real else path.read_bytes())
        source = open_capture("-")
        assert source.name == "stdin"
        assert source.first_time() == T
        assert source.size() == (path.stat().st_size if real else None)
        assert sum(len(batch) for block in source.blocks() for batch in block) == len(expected[0])
        assert source.counters == expected[1]
        assert not sys.stdin.buffer.closed


def test_a_pipe_that_is_not_a_capture_or_empty(stdin: Callable[[Any], None]) -> None:
    stdin(b"hello, world")
    (source,) = open_all("-")
    for _ in range(2):
        with pytest.raises(InputError, match="stdin: not a capture: it looks like text"):
            source.first_time()
    with pytest.raises(InputError, match="not a capture"):
        list(source.blocks())
    stdin(b"")
    (source,) = open_all("-")
    assert source.first_time() is None
    assert list(source.blocks()) == []
    assert source.counters.warnings == ["stdin: it is empty"]
