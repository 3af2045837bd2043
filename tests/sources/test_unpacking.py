"""Compressed streams: the same bytes, errors and offsets however they arrive; linear work; bounded memory."""

from __future__ import annotations

import gzip
import lzma
import random
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
import zstandard

from superhosts.errors import InputError
from superhosts.sources import compression
from superhosts.sources.compression import ALONE_AFTER, INFLATER, decompressed
from superhosts.sources.stream import PlainStream

RNG = random.Random(7)
DATA = b"".join(bytes([RNG.randrange(4)]) * RNG.randrange(1, 60) for _ in range(1000)) + RNG.randbytes(1500)
NOISE = RNG.randbytes(200_000)  # does not compress


def with_checksum(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def streamed(data: bytes) -> bytes:
    """Return a zstd frame without its content's size, of many blocks."""
    compressor = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    parts = [data[at : at + 4000] for at in range(0, len(data), 4000)]
    blocks = [compressor.compress(part) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for part in parts]
    return b"".join(blocks) + compressor.flush()


def filtered(data: bytes) -> bytes:
    chain = [{"id": lzma.FILTER_DELTA, "dist": 4}, {"id": lzma.FILTER_LZMA2, "preset": 1}]
    return lzma.compress(data, check=lzma.CHECK_SHA256, filters=chain)


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip-stored": lambda data: gzip.compress(data, 0),
    "zstd": zstandard.ZstdCompressor().compress,
    "zstd-checksum": with_checksum,
    "zstd-streamed": streamed,
    "xz": lzma.compress,
    "xz-crc32": lambda data: lzma.compress(data, check=lzma.CHECK_CRC32, preset=0),
    "xz-unchecked": lambda data: lzma.compress(data, check=lzma.CHECK_NONE),
    "xz-filtered": filtered,
}
KINDS = ("gzip", "zstd", "xz")


class Chopped:
    """A file that is read in pieces of given sizes, again and again."""

    def __init__(self, data: bytes, sizes: Iterable[int]) -> None:
        self._data, self._at, self._sizes, self._turn = data, 0, list(sizes), 0

    def readinto(self, view: memoryview) -> int:
        piece = self._data[self._at : self._at + min(len(view), self._sizes[self._turn % len(self._sizes)])]
        self._turn += 1
        self._at += len(piece)
        view[: len(piece)] = piece
        return len(piece)


class Outcome(NamedTuple):
    output: bytes
    error: str
    offset: int | None
    ended_early: str


def read(
    data: bytes,
    view: int = 1 << 16,
    sizes: Iterable[int] = (1 << 20,),
    live: bool = False,
    alone_after: int = ALONE_AFTER,
) -> Outcome:
    stream = decompressed(PlainStream("file", Chopped(data, sizes), live), alone_after)
    output, error, offset = bytearray(), "", None
    room = memoryview(bytearray(view))
    try:
        while got := stream.readinto(room):
            output += room[:got]
    except InputError as caught:
        error, offset = str(caught), caught.offset
    return Outcome(bytes(output), error, offset, stream.ended_early)


WAYS: list[dict[str, Any]] = [
    {"view": 4 << 20},
    {"view": 333, "sizes": (1, 2, 3, 29)},
    {"view": 1 << 16, "sizes": (4093, 5), "live": True},
    {"view": 1021, "sizes": (1, 70_001, 3, 8192), "alone_after": 1000},
]


def same_in_all_ways(data: bytes) -> Outcome:
    outcomes = [read(data, **way) for way in WAYS]
    assert all(outcome == outcomes[0] for outcome in outcomes), [outcome[1:] for outcome in outcomes]
    return outcomes[0]


@pytest.mark.parametrize("name", COMPRESSORS)
def test_whole_data_in_every_way(name: str) -> None:
    compress = COMPRESSORS[name]
    parts = [DATA[:1], DATA[1:700], b"", DATA[700:]]
    for packed in (compress(DATA), b"".join(map(compress, parts)), bytes(8).join(map(compress, parts)) + bytes(5000)):
        assert same_in_all_ways(packed) == Outcome(DATA, "", None, "")


@pytest.mark.parametrize("name", COMPRESSORS)
def test_what_ends_early_is_the_same_in_every_way(name: str) -> None:
    packed = COMPRESSORS[name](DATA)
    seen = 0
    for length in (*range(6, 40, 3), *range(40, len(packed), len(packed) // 10), len(packed) - 1):
        outcome = same_in_all_ways(packed[:length])
        assert outcome.ended_early == f"the {name.split('-')[0]} data ends early"
        assert not outcome.error
        assert DATA.startswith(outcome.output)
        assert len(outcome.output) >= seen
        seen = len(outcome.output)
    if "zstd" not in name:  # whose blocks are decompressed as a whole
        assert seen == len(DATA)


@pytest.mark.parametrize("kind", KINDS)
def test_long_members_one_after_the_other(kind: str) -> None:
    """A member ends in a step whose predecessor reached the limit of output; other members follow in the same bytes."""
    parts = [DATA, b"x" * (3 * compression.MOST_OUTPUT), DATA, DATA]
    assert same_in_all_ways(b"".join(map(COMPRESSORS[kind], parts))) == Outcome(b"".join(parts), "", None, "")


def blocks_of_zstd(data: bytes) -> list[bytes]:
    compressor = zstandard.ZstdCompressor().compressobj()
    parts = [data[at : at + 1000] for at in range(0, len(data), 1000)]
    return [compressor.compress(part) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for part in parts]


def test_damage_costs_little_before_it() -> None:
    """Nothing of gzip, no whole block of zstd, and at most 8 KiB of xz, whose damage shows some bytes later."""
    blocks = blocks_of_zstd(DATA)
    for number in (1, 2, 10, 19):
        place = len(b"".join(blocks[:number]))
        changed = bytearray(b"".join(blocks))
        changed[place] |= 6  # the reserved kind of block
        outcome = same_in_all_ways(bytes(changed))
        assert outcome.output == DATA[: 1000 * number]
        assert outcome.error.endswith(f"(near byte {place} of the compressed data)")
    packed = gzip.compress(NOISE, 0)  # stored blocks tell where their bytes are: damage goes in between two of them
    at, before = 10, 0
    for _ in range(2):
        size = struct.unpack_from("<H", packed, at + 1)[0]
        at, before = at + 5 + size, before + size
    assert 0 < before < len(NOISE)
    for way in WAYS:
        outcome = read(packed[:at] + b"\x07" + packed[at + 1 :], **way)
        assert outcome.output == NOISE[:before]
        assert outcome.error.startswith(f"file: byte {before}: damaged gzip data: invalid block type (near byte ")
    data = b"".join(random.Random(3).choices((b"spam", b"egg", b"bacon"), k=50_000))
    packed = lzma.compress(data, check=lzma.CHECK_NONE)
    for share in (0.2, 0.5, 0.8):
        place = round(share * len(packed))
        kept = int(share * 0.9 * len(data)) - 8192
        for way in WAYS:
            outcome = read(packed[:place] + NOISE, **way)
            assert outcome.output[:kept] == data[:kept]
            assert "damaged xz data: " in outcome.error


def test_a_wrong_checksum_is_damage_behind_its_data() -> None:
    for kind, compress, lost in (("gzip", gzip.compress, 0), ("zstd", with_checksum, 0), ("xz", lzma.compress, 8192)):
        good = compress(DATA)
        changed = bytearray(good)
        changed[{"gzip": -5, "zstd": -1, "xz": -29}[kind]] ^= 1
        for way in WAYS:
            outcome = read(good + bytes(changed) + good, **way)
            assert 2 * len(DATA) - lost <= len(outcome.output) <= 2 * len(DATA)
            assert (2 * DATA).startswith(outcome.output)
            assert f"damaged {kind} data: " in outcome.error


def window_descriptor(exponent: int) -> bytes:
    """Return a zstd frame with a window of so many bits, that holds one byte."""
    return b"\x28\xb5\x2f\xfd\x00" + bytes([exponent - 10 << 3]) + b"\x09\0\0x"


@pytest.mark.parametrize("bits", [27, 28, 31, 32])
def test_the_window_of_zstd_is_bounded(bits: int) -> None:
    start = with_checksum(DATA)
    outcome = same_in_all_ways(start + window_descriptor(bits) + start)
    if bits <= 27:
        assert outcome == Outcome(DATA + b"x" + DATA, "", None, "")
        return
    assert outcome.output == DATA
    if bits > 31:
        assert "damaged zstd data: Frame requires too much memory" in outcome.error
    else:
        assert outcome.error == (
            f"file: byte {len(DATA)}: the zstd data needs a window of {'256 MiB' if bits == 28 else '2 GiB'}, "
            f"longer than 128 MiB; decompress it first: zstd -dc --long={bits} file | superhosts scan -"
        )


@pytest.mark.parametrize("size", [128 << 20, 192 << 20])
def test_the_window_of_xz_is_bounded(size: int) -> None:
    chain = [{"id": lzma.FILTER_LZMA2, "dict_size": size, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3}]
    packed = lzma.compress(b"x" * 100, filters=chain)
    outcome = same_in_all_ways(packed)
    if size <= 128 << 20:
        assert outcome == Outcome(b"x" * 100, "", None, "")
    else:
        assert "window of more than 128 MiB" in outcome.error
        assert "decompress it first: xz -dc file | superhosts scan -" in outcome.error


@pytest.mark.parametrize("kind", KINDS)
def test_a_look_at_the_first_bytes_does_not_read_all_empty_members(kind: str) -> None:
    data = COMPRESSORS[kind](b"first") + 5000 * COMPRESSORS[kind](b"")
    stream = decompressed(PlainStream("file", Chopped(data, [9999]), False))
    room = memoryview(bytearray(1 << 16))
    assert stream.readinto(room) == 5
    assert stream.position() < 1200 * len(COMPRESSORS[kind](b""))
    assert stream.readinto(room) == 0
    assert stream.ended_early == ""


class Counting:
    """A decompressor that adds up the bytes that go in, come out, and are copied unused."""

    work = 0

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def decompress(self, data: bytes, *limit: int) -> bytes:
        output: bytes = self._inner.decompress(data, *limit)
        Counting.work += len(data) + len(output) + len(self._inner.unused_data)
        return output

    def decompressobj(self, **options: int) -> Counting:
        return Counting(self._inner.decompressobj(**options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_for_empty_members_is_linear(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "INFLATER", Counting(INFLATER))
    for library, name in ((zstandard, "ZstdDecompressor"), (lzma, "LZMADecompressor")):
        make = getattr(library, name)
        monkeypatch.setattr(library, name, lambda make=make, **options: Counting(make(**options)))
    for count in (1000, 10_000):
        Counting.work = 0
        assert read(COMPRESSORS[kind](b"first") + COMPRESSORS[kind](b"") * count).output == b"first"
        assert count < Counting.work <= 2500 * count + 20_000


def decompressing() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("decompress this")]


@pytest.mark.parametrize("kind", KINDS)
def test_closing_ends_the_thread_that_decompresses(kind: str) -> None:
    file = Chopped(COMPRESSORS[kind](NOISE) * 40, [1 << 20])
    file.close = lambda: closed.append(decompressing())  # type: ignore[attr-defined]
    closed: list[list[str]] = []
    stream = decompressed(PlainStream("this", file, False), alone_after=1)
    room = memoryview(bytearray(1000))
    assert stream.readinto(room) == 1000
    while not decompressing():
        assert stream.readinto(room) == 1000
    stream.close()
    assert closed == [[]]  # the file is closed when no thread reads it


def test_the_position_is_that_of_the_bytes_returned() -> None:
    """However far ahead the thread is: a progress bar shows what was read."""
    packed = gzip.compress(NOISE * 40, 0)
    stream = decompressed(PlainStream("this", Chopped(packed, [1 << 20]), False), alone_after=0)
    room = memoryview(bytearray(1 << 20))
    total = 0
    while got := stream.readinto(room):
        total += got
        assert total <= stream.position() <= total + compression.MOST_INPUT + 1000
    assert stream.position() == len(packed)


@pytest.mark.parametrize("name", ["gzip", "gzip-stored"])
def test_both_inflaters_return_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert INFLATER.__name__.startswith("zlib_ng")
    good = COMPRESSORS[name](DATA) * 2
    inputs = [good, good[:-9]]
    for place in random.Random(2).sample(range(6, len(good)), 20):
        inputs.append(good[:place] + bytes([good[place] ^ 1 << place % 7]) + good[place + 1 :])
    fast = [read(data) for data in inputs]
    monkeypatch.setattr(compression, "INFLATER", zlib)
    assert [read(data) for data in inputs] == fast


def test_without_the_fast_one_zlib_inflates() -> None:
    script = (
        "import sys; sys.modules['zlib_ng'] = None\n"
        "from superhosts.sources.input import Input\n"
        "from superhosts.sources.compression import INFLATER\n"
        "stream, room = Input('-').open(), memoryview(bytearray(1 << 20))\n"
        "total = 0\n"
        "while got := stream.readinto(room): total += got\n"
        "print(INFLATER.__name__, total)"
    )
    done = subprocess.run([sys.executable, "-c", script], input=gzip.compress(DATA), capture_output=True, check=True)
    assert done.stdout.decode().split() == ["zlib", str(len(DATA))]
