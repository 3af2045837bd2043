"""Loops that read memory by address stay within their buffers: the pages around these cannot be read."""

from __future__ import annotations

import mmap
import random
import sys

import numpy as np
import pytest

from guards import between_guards
from superhosts.core.columns.addresses import Bytes, parse_spans
from superhosts.sources.tables.formats import CSV, JSON_LINES, begin_text
from superhosts.sources.tables.parquet import parse_lengths, take_runs
from superhosts.sources.tables.textreader import Layout, last_lines, walk_lines
from superhosts.sources.tables.textscan import PADDING
from table_reading import options

LINES = {
    "json": [
        '{"src":"1.1.1.1","dst":"::1","time":5}',
        "",
        "[",
        "]",
        ",",
        "{}",
        '{"a":{"b":[1,"\\u0041"]}}',
        '{"src":"',
    ],
    "csv": ["1.1.1.1,2.2.2.2,5", '"1.1.1.1","a,\n",2024-01-01', "", '"', '""', "::1,1234567890,1e9", ",,,", "\r"],
}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mprotect is called as on Linux")


@pytest.fixture(scope="module")
def guarded() -> Bytes:
    return between_guards(2 * mmap.PAGESIZE)


def layout_of(format: str) -> Layout:
    log, head = (JSON_LINES, LINES["json"][0]) if format == "json" else (CSV, "src,dst,time")
    begun = begin_text("text", log, options("src=src,dst=dst,time=time"), head.encode() + b"\n", True)
    assert begun is not None
    return begun[1]


@pytest.mark.parametrize("format", LINES)
def test_walks_over_lines(guarded: Bytes, format: str) -> None:
    generator, layout = random.Random(3), layout_of(format)
    for _ in range(1000):
        text = bytearray("".join(f"{line}\n" for line in generator.choices(LINES[format], k=4)).encode())
        text[generator.randrange(len(text))] = generator.choice(b'{}[]":,\\u%.\r\n')
        text += b"\n"
        size = len(text)
        for data in (guarded[: size + PADDING], guarded[-size - PADDING :]):
            for final in (False, True):
                data[:size] = text
                walk_lines(data, (0, size), layout, final=final)
            data[:size] = text
            last_lines(data, size - 1, layout)


def test_addresses_at_the_end_of_memory(guarded: Bytes) -> None:
    generator = random.Random(3)
    texts = ["1.2.3.4", "::", "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255", "", "1::2.3.4.5", "x" * 70]
    for _ in range(500):
        chosen = [text.encode() for text in generator.choices(texts, k=3)] + [b"1.1.1.1"]
        joined = b"".join(chosen)
        data = guarded[-len(joined) :]
        data[:] = np.frombuffer(joined, np.uint8)
        places = np.cumsum([0, *map(len, chosen)])
        kinds, _ = parse_spans(data, places[:-1], places[1:], threads=1)
        assert kinds[-1] == 4


def test_pages_of_parquet(guarded: Bytes) -> None:
    generator, texts = random.Random(5), [b"%d.1.22.%d" % (number, number * 7 % 256) for number in range(256)]
    addresses, known = np.empty(40, np.uint32), np.arange(2**10, dtype=np.uint32)
    for _ in range(2000):
        page = b"".join(len(text).to_bytes(4, "little") + text for text in generator.choices(texts, k=5))
        data = guarded[-len(page) :]
        data[:] = np.frombuffer(page, np.uint8)
        assert parse_lengths(data, 0, addresses[:5])
        data[generator.randrange(len(data))] = generator.randrange(256)
        parse_lengths(data, 0, addresses)
        take_runs(data, 0, known, addresses)
