"""Compressed captures: the rows of what they decompress to, up to the damage, however the bytes arrive."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import threading
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import zstandard
from hypothesis import strategies as st

import naive_capture
from fuzz.captures import Reading, block_sizes, captures_drawn, compare, read
from fuzz.mutations import apply, edits
from fuzz.targets import fresh_folder, target

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "xz": lzma.compress,
}
_START: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "zstd": lambda: zstandard.ZstdDecompressor().decompressobj(),
    "xz": lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=129 << 20),  # a window of 128 MiB
}
_ERRORS = (zlib.error, zstandard.ZstdError, lzma.LZMAError, EOFError)
WHOLE, CUT, DAMAGED = "whole", "cut", "damaged"


def decompress(kind: str, data: bytes) -> tuple[bytes, str]:
    """Return what compressed bytes stand for up to their end or damage, and how they end.

    They are taken one at a time, so that nothing before the damage is lost with it.
    """
    given, member = io.BytesIO(), None
    for value in data:
        if member is None and value == 0:  # zeros between members are padding
            continue
        member = member or _START[kind]()
        try:
            given.write(member.decompress(bytes([value])))
        except _ERRORS:
            return given.getvalue(), DAMAGED
        member = None if member.eof else member
    return given.getvalue(), CUT if member else WHOLE


def kind_of(data: bytes) -> str | None:
    if data[:2] == b"\x1f\x8b":
        return "gzip"
    if data[:4] == b"\x28\xb5\x2f\xfd" or (data[1:4] == b"\x2a\x4d\x18" and data[0] >> 4 == 5):
        return "zstd"
    return "xz" if data[:6] == b"\xfd7zXZ\0" else None


def feed(path: Path, data: bytes, step: int) -> threading.Thread:
    """Write bytes into a pipe, a few at a time, while somebody reads it."""

    def write() -> None:
        with path.open("wb", buffering=0) as pipe:
            try:
                for start in range(0, len(data), step):
                    pipe.write(data[start : start + step])
            except BrokenPipeError:  # the reader has seen enough
                return

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def read_pipe(folder: Path, data: bytes, block_bytes: int, step: int) -> Reading:
    path = folder / "pipe"
    os.mkfifo(path)
    thread = feed(path, data, step)
    try:
        return read(path, block_bytes)
    finally:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))  # lets a writer go whom nobody has read
        thread.join()
        path.unlink()


def _packed(kind: str, parts: list[bytes], padding: int) -> bytes:
    return bytes(padding).join(map(COMPRESS[kind], parts))


def _split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


_members = st.builds(_split, captures_drawn, st.lists(st.integers(0, 1 << 16), max_size=3))
_streams = st.builds(
    apply,
    st.builds(_packed, st.sampled_from(sorted(COMPRESS)), _members, st.sampled_from([0, 0, 0, 1, 4])),
    st.just([]) | edits,
)


@target(st.tuples(_streams, block_sizes, st.integers(1, 5000)))
def streams(case: tuple[bytes, int, int]) -> None:
    data, block_bytes, step = case
    kind = kind_of(data)
    plain, end = (data, WHOLE) if kind is None else decompress(kind, data)
    oracle = naive_capture.read(plain)
    with fresh_folder() as folder:
        path = folder / "capture"
        path.write_bytes(data)
        reading = read(path, block_bytes)
        others = [read(path, 1 << 22), read_pipe(folder, data, block_bytes, step)]
    if end == DAMAGED:  # what the last step had decompressed is lost, and depends on how the bytes arrive
        for each in (reading, *others):
            assert each.ipv4 == oracle.ipv4[: len(each.ipv4)]
            assert each.ipv6 == oracle.ipv6[: len(each.ipv6)]
            assert each.error is not None or any("ends early" in text for text in each.warnings), each.warnings
        return
    for other in others:
        assert (other.ipv4, other.ipv6) == (reading.ipv4, reading.ipv6)
        assert (other.error and other.error.offset) == (reading.error and reading.error.offset)
    if end == WHOLE:
        compare(reading, oracle)
        return
    assert (reading.ipv4, reading.ipv6) == (oracle.ipv4, oracle.ipv6)
    assert (reading.error and reading.error.offset) == oracle.damage or not oracle.is_capture
    assert reading.error is not None or any("ends early" in text for text in reading.warnings), reading.warnings
