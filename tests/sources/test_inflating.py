"""The fast inflater beside Python's zlib: the same bytes, errors and places, whole or damaged; and without it."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from superhosts.sources.compression import INFLATER, MOST_INPUT, MOST_OUTPUT, Damaged, Gzip


class Outcome(NamedTuple):
    output: bytes
    error: str
    taken: int
    wrong_checksums: int
    is_between: bool


def inflate(inflater: Any, data: bytes, arriving: int = MOST_INPUT) -> Outcome:
    unpacker, output, error = Gzip(inflater), bytearray(), ""
    start = end = 0
    while True:
        try:
            taken, more = unpacker.unpack(memoryview(data)[start:end], end == len(data))
        except Damaged as damage:
            error = str(damage)
            break
        start, output = start + taken, output + more
        if not taken and not more:
            if end == len(data):
                break
            end = min(end + arriving, len(data))
    return Outcome(bytes(output), error, start, unpacker.wrong_checksums, unpacker.is_between())


@st.composite
def members(draw: st.DrawFn) -> bytes:
    """Draw a member of any kind of deflate blocks."""
    content = draw(st.one_of(st.binary(max_size=2000), st.binary(min_size=1, max_size=90)))
    content *= draw(st.sampled_from([1, 1, 2, 700, 16_000]))
    strategy = draw(st.sampled_from([zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED]))
    compressor = zlib.compressobj(draw(st.sampled_from([0, 1, 6, 9])), wbits=31, strategy=strategy)
    return compressor.compress(content[:1_500_000]) + compressor.flush()


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Draw members in a row, some of them damaged, shortened or followed by something else."""
    data = bytearray(b"".join(draw(st.lists(members(), min_size=1, max_size=3))))
    for place in draw(st.lists(st.integers(0, 1 << 20), max_size=3)):
        data[place % len(data)] ^= 1 << place % 7
    data = data[: draw(st.sampled_from([len(data), len(data), draw(st.integers(0, len(data)))]))]
    return bytes(data) + draw(st.sampled_from([b"", b"", bytes(9), b"\x1f\x8b\x08\x04 and more"]))


@given(data=streams(), arriving=st.sampled_from([1, 7, 1000, MOST_INPUT]))
@example(data=gzip.compress(b"x" * (3 * MOST_OUTPUT)) + gzip.compress(b"y"), arriving=MOST_INPUT)
def test_both_inflaters_return_the_same(data: bytes, arriving: int) -> None:
    assert inflate(INFLATER, data, arriving) == inflate(zlib, data)


def test_the_fast_one_is_used() -> None:
    assert INFLATER.__name__.startswith("zlib_ng")


@pytest.mark.parametrize("data", [b"x" * 300_000, b""])
def test_without_it_zlib_inflates(data: bytes) -> None:
    script = (
        "import sys; sys.modules['zlib_ng'] = None\n"
        "from superhosts.sources.input import Input\n"
        "from superhosts.sources.compression import INFLATER\n"
        "stream, room = Input('-').open(), memoryview(bytearray(1 << 20))\n"
        "total = 0\n"
        "while got := stream.readinto(room): total += got\n"
        "print(INFLATER.__name__, total)"
    )
    done = subprocess.run([sys.executable, "-c", script], input=gzip.compress(data), capture_output=True, check=True)
    assert done.stdout.decode().split() == ["zlib", str(len(data))]
