"""Address text: every row as `ipaddress` reads it. Text that is made by chance is in `fuzz/addresses.py`."""

from __future__ import annotations

import ipaddress
import itertools

import numpy as np
import pytest

from superhosts.core.columns.addresses import AddressColumn, packets_of, parse_address, parse_spans

WORDS = """
: :: ::: 1 1:: ::1 1::8 1:2:3:4:5:6:7:: ::2:3:4:5:6:7:8 1:2:3:4:5:6:7:8:: 0.0.0.0 255.255.255.255 256.1.1.1 01.1.1.1
1.1.1 1.1.1.1. .1.1.1.1 1..1.1 .... 1.1.1.1 1:2:3:4:5:6:7:8 1:2:3:4:5:6:7 1:2:3:4:5:6:7:8:9 :1:2:3:4:5:6:7
1:2:3:4:5:6:7: 12345:: g:: ::ffff:192.0.2.1 ::FFFF:c000:201 ::fffe:1.2.3.4 1:2:3:4:5:6:1.2.3.4 1:2:3:4:5:6:7:1.2.3.4
::1.2.3 1.2.3.4:: ::1.2.3.4:5 1::2::3 fe80::1%eth0 0000:0000:0000:0000:0000:0000:255.255.255.255
"""
FORMS = ["", *WORDS.split()]


def naive(text: str) -> tuple[int, int, int]:
    """Return the kind and the words of an address; zeros for any other text."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return 0, 0, 0
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return 0, 0, 0
        address = address.ipv4_mapped or address
    return address.version, int(address) >> 64, int(address) & (1 << 64) - 1


def column(texts: list[str]) -> AddressColumn:
    encoded = [text.encode() for text in texts]
    places = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return AddressColumn(*parse_spans(np.frombuffer(b"".join(encoded), np.uint8), places[:-1], places[1:]))


def parsed(texts: list[str]) -> list[tuple[int, int, int]]:
    kinds, words = column(texts)
    return [(int(kind), int(high), int(low)) for kind, (high, low) in zip(kinds, words, strict=True)]


def test_every_form_of_an_address() -> None:
    assert parsed(FORMS) == [naive(text) for text in FORMS]
    for text in FORMS:  # alone: nothing behind the text can be read
        assert parsed([text]) == [naive(text)], text


def test_several_threads_read_many_addresses() -> None:
    kinds, words = column(["1.2.3.4"] * 40_000)
    assert kinds.tolist() == [4] * 40_000
    assert np.unique(words, axis=0).tolist() == [[0, 0x01020304]]


@pytest.mark.slow
def test_numbers_of_every_length_at_every_place() -> None:
    numbers = ("", "0", "7", "00", "10", "99", "000", "100", "255", "256", "999", "0255", "1000", "1234", "12345", "1x")
    texts = [".".join(four) for four in itertools.product(numbers, repeat=4)]
    kinds, words = column(texts)
    assert [(kind, *row) for kind, row in zip(kinds.tolist(), words.tolist(), strict=True) if kind] == [
        found for found in map(naive, texts) if found[0]
    ]
    assert kinds.tolist() == [naive(text)[0] for text in texts]


@pytest.mark.slow
def test_an_address_inside_other_text() -> None:
    data = np.frombuffer(b'"192.0.2.7",2001:db8::1;', np.uint8)
    assert tuple(map(int, parse_address(data, 1, 10))) == (4, 0, 0xC0000207)
    assert tuple(map(int, parse_address(data, 12, 23))) == (6, 0x20010DB8 << 32, 1)
    assert parse_address(data, 0, 10)[0] == 0
    assert parse_address(data, 24, 24)[0] == 0


def test_rows_become_packets_of_both_families() -> None:
    src = column(["10.0.0.1", "2001:db8::1", "10.0.0.2", "x", "10.0.0.3"])
    dst = column(["10.0.0.9", "2001:db8::2", "2001:db8::3", "10.0.0.8", "::ffff:1.2.3.4"])
    (narrow, wide), dropped = packets_of(src, dst, np.arange(5) * 10)
    assert (narrow.family, wide.family, dropped.tolist()) == (4, 6, [2, 3])
    assert narrow.src.tolist() == [0x0A000001, 0x0A000003]
    assert narrow.dst.tolist() == [0x0A000009, 0x01020304]
    assert narrow.time.tolist() == [0, 40]
    assert wide.src.tolist() == [[0x20010DB8 << 32, 1]]
    assert wide.dst.tolist() == [[0x20010DB8 << 32, 2]]
    assert wide.span == (10, 10)


def test_integers_are_not_copied() -> None:
    src, dst, time = np.arange(3, dtype=np.uint32), np.arange(3, 6, dtype=np.uint32), np.arange(3)
    (batch,), dropped = packets_of(src, dst, time)
    assert (batch.src is src, batch.dst is dst, batch.time is time, len(dropped)) == (True, True, True, 0)


def test_integers_beside_text() -> None:
    dst = column(["1.2.3.4", "::1"])
    (batch,), dropped = packets_of(np.array([7, 8], np.uint32), dst, np.array([1, 2]))
    assert (batch.src.tolist(), batch.dst.tolist(), dropped.tolist()) == ([7], [0x01020304], [1])
    assert packets_of(np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty(0, np.int64))[0] == ()
