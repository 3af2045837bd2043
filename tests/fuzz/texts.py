"""Tables of text: rows that are well-formed are those of the oracle, and damage harms no line but its own."""

from __future__ import annotations

import json
from functools import partial
from random import Random

from hypothesis import strategies as st

import naive_details
import naive_text
from fuzz.mutations import Edit, apply, edits
from fuzz.targets import target
from superhosts.errors import InputError
from superhosts.sources.tables.formats import CSV, JSON_LINES, begin_text
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.textreader import TextReader
from table_reading import Drips, Reading, read

HEADER = "note,src,dst,time"
FIRST = json.dumps({"src": "10.0.0.1", "dst": "10.0.0.2", "time": 1})
ENDS = [
    "10.0.0.1",
    "255.255.255.255",
    "2001:db8::7",
    "::ffff:1.2.3.4",
    "fe80::1%eth0",
    "1.2.3",
    "x",
    "167772161",
    "-",
    "",
]
TIMES = ["1700000000", "1700000000.123456789", "2024-02-29T23:59:59.5Z", "1700000000123", "never", "", "1e9"]
NOTES = ["", "a b", "ü", "\\", "{", "[]", "0" * 40]
LAST = "end,192.0.2.1,192.0.2.2,77"
PROTOCOLS = ["tcp", "UDP", "6", "1", "300", "what", "-", "", "ipv6-icmp"]
PORTS = ["0", "443", "65535", "65536", "80.0", "0x50", "x", ""]
FLAGS = ["2", "0x12", "...AP.SF", "FSPA", "SYN", "", "-", "99999"]

cases = st.tuples(st.integers(0, 2**32), st.integers(0, 30), edits, st.integers(1, 300))


def rows_of(seed: int, count: int) -> list[tuple[str, str, str, str]]:
    drawn = Random(seed)
    return [(drawn.choice(NOTES), drawn.choice(ENDS), drawn.choice(ENDS), drawn.choice(TIMES)) for _ in range(count)]


def read_bytes(data: bytes, step: int, *, is_json: bool) -> Reading | None:
    grammar = partial(begin_text, "text", JSON_LINES if is_json else CSV, TableOptions())
    try:
        return read(TextReader(Drips(data, step), grammar))
    except InputError:
        return None


def check(
    good: str, last: str, expected: naive_text.Reading, case: tuple[int, int, list[Edit], int], *, is_json: bool
) -> None:
    _, _, changes, step = case
    found = read_bytes(good.encode(), step, is_json=is_json)
    assert found is not None
    assert found.rows == expected.rows
    assert (found.bad, found.skipped) == (expected.bad, expected.skipped)
    # Damage behind the first line, and a whole line behind the damage: however the bytes arrive, the same comes out.
    first, _, rest = good.encode().partition(b"\n")
    damaged = first + b"\n" + apply(rest, changes) + b"\n" + last.encode() + b"\n"
    results = [read_bytes(damaged, size, is_json=is_json) for size in (step, 1 << 20)]
    assert said(results[0]) == said(results[1])
    if is_json or b'"' not in damaged:  # A quote that is not closed may swallow lines.
        assert results[0] is not None
        assert results[0].rows[-1][3] == 77 * 10**9


def said(reading: Reading | None) -> object:
    """Return what a reading must say, however the bytes arrive."""
    return reading and (reading.rows, reading.bad, reading.skipped, reading.first_bad[:3])


@target(cases)
def delimited(case: tuple[int, int, list[Edit], int]) -> None:
    lines = [HEADER, *(",".join(row) for row in rows_of(case[0], case[1])), ""]
    text = "\n".join(lines)
    check(text, LAST, naive_text.read_csv(text), case, is_json=False)


@target(cases)
def jsonlines(case: tuple[int, int, list[Edit], int]) -> None:
    names = HEADER.split(",")
    drawn = Random(case[0])
    lines = [FIRST]
    for row in rows_of(case[0], case[1]):
        items = list(zip(names, row, strict=True))
        drawn.shuffle(items)
        lines.append(json.dumps(dict(items), ensure_ascii=drawn.random() < 0.5))
    text = "\n".join([*lines, ""])
    last = json.dumps(dict(zip(names, LAST.split(","), strict=True)))
    check(text, last, naive_text.read_json(text, ("src", "dst", "time")), case, is_json=True)


@target(cases)
def details(case: tuple[int, int, list[Edit], int]) -> None:
    """Details are those of the oracle, and damage that is read with them changes no row."""
    seed, count, changes, step = case
    drawn = Random(seed)
    names = ("proto", "sport", "dport", "flags")
    rows = [tuple(map(drawn.choice, (PROTOCOLS, PORTS, PORTS, FLAGS))) for _ in range(count + 1)]
    text = "".join(f"10.0.0.1,10.0.0.2,1,{','.join(row)}\n" for row in rows)
    head = f"src,dst,time,{','.join(names)}\n".encode()
    found = read_detailed(head + text.encode(), step, wanted=True)
    expected = [naive_details.of_record(dict(zip(names, row, strict=True)), names) for row in rows]
    assert found.details == expected
    damaged = head + apply(text.encode(), changes)
    with_them, without = (read_detailed(damaged, step, wanted=wanted) for wanted in (True, False))
    assert (with_them.rows, with_them.bad, with_them.skipped) == (without.rows, without.bad, without.skipped)
    assert len(with_them.details) == len(with_them.rows)


def read_detailed(data: bytes, step: int, *, wanted: bool) -> Reading:
    return read(TextReader(Drips(data, step), partial(begin_text, "text", CSV, TableOptions(details=wanted))))
