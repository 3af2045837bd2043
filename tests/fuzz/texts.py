"""Tables of text: rows that are well-formed are those of the oracle, and damage harms no line but its own."""

from __future__ import annotations

import json
from functools import partial
from random import Random
from typing import Any

from hypothesis import strategies as st

import naive_details
import naive_text
from fuzz.mutations import Edit, apply, edits
from fuzz.targets import target
from superhosts.errors import InputError
from superhosts.sources.tables.formats import CSV, JSON_LINES, begin_text
from superhosts.sources.tables.mapping import parse_map
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.textreader import TextReader
from table_reading import Drips, Reading, read

ADDRESSES = st.one_of(
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(str),
    st.integers(0, (1 << 33) - 1).map(str),
    st.sampled_from(["", "-", "null", "1.2.3", "01.2.3.4", "fe80::1%eth0", "::ffff:1.2.3.4", "00:11:22:33:44:55", "x"]),
)
TIMES = st.one_of(
    st.integers(0, 1 << 64).map(str),
    st.decimals(0, 10**19, places=6).map(str),
    st.datetimes().map(str),
    st.datetimes().map(lambda time: time.isoformat() + "+02:00"),
    st.sampled_from(["", "-", "now", "1e9", "1.5E3", "2024-02-30", "2024/02/29", "2024-01-01T00:00:60Z", "1..5", "."]),
)
FILLERS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters='\r\n\0"#,'), max_size=9)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
JSON_MAP = parse_map("src=flow.src,dst=id.dst,time=start")
FIRST = '{"flow":{"src":"1.1.1.1"},"id.dst":"2.2.2.2","start":5}'
LAST = '{"flow":{"src":"192.0.2.1"},"id.dst":"192.0.2.2","start":77}'
PROTOCOLS = ["tcp", "UDP", "6", "1", "300", "what", "-", "", "ipv6-icmp"]
PORTS = ["0", "443", "65535", "65536", "80.0", "0x50", "x", ""]
FLAGS = ["2", "0x12", "...AP.SF", "FSPA", "SYN", "", "-", "99999"]

STEPS = st.integers(1, 300)
ROWS = st.lists(st.tuples(FILLERS, ADDRESSES, FILLERS, ADDRESSES, TIMES), max_size=12)
DELIMITED = st.tuples(ROWS, st.sampled_from(",\t;|"), st.sampled_from(["\n", "\r\n"]), st.booleans(), edits, STEPS)


@st.composite
def lines(draw: st.DrawFn) -> str:
    record: dict[str, Any] = draw(st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
    inner: dict[str, Any] = draw(st.dictionaries(st.text(max_size=8), VALUES, max_size=2))
    inner["src"] = draw(ADDRESSES | VALUES)
    record["flow"] = draw(st.sampled_from([inner, [inner], "x"]) | st.just(inner))
    if draw(st.booleans()):
        record["id"] = {"dst": draw(ADDRESSES)}
    else:
        record["id.dst"] = draw(ADDRESSES)
    when = draw(TIMES)
    record["start"] = int(when) if when.isdigit() and draw(st.booleans()) else when
    items = draw(st.permutations(list(record.items())))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :\t")]))
    text = json.dumps(dict(items), ensure_ascii=draw(st.booleans()), separators=separators)
    return text.replace("/", "\\/") if draw(st.booleans()) else text


def read_bytes(data: bytes, step: int, *, is_json: bool) -> Reading | None:
    log, options = (JSON_LINES, TableOptions(map=JSON_MAP)) if is_json else (CSV, TableOptions())
    try:
        return read(TextReader(Drips(data, step), partial(begin_text, "text", log, options)))
    except InputError:
        return None


def check(good: str, last: str, expected: naive_text.Reading, changes: list[Edit], step: int, *, is_json: bool) -> None:
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


@target(DELIMITED)
def delimited(case: tuple[list[tuple[str, ...]], str, str, bool, list[Edit], int]) -> None:
    rows, delimiter, newline, quoted, changes, step = case

    def field(text: str) -> str:
        text = text.replace(delimiter, " ")
        return f'"{text}"' if quoted else text

    lines = [delimiter.join(["a", "src", "b", "dst", "time"]), *(delimiter.join(map(field, row)) for row in rows)]
    text = newline.join([*lines, ""])
    last = delimiter.join(["end", "192.0.2.1", "", "192.0.2.2", "77"])
    check(text, last, naive_text.read_csv(text, delimiter), changes, step, is_json=False)


@target(st.tuples(st.lists(lines(), max_size=8), edits, STEPS))
def jsonlines(case: tuple[list[str], list[Edit], int]) -> None:
    texts, changes, step = case
    text = "\n".join([FIRST, *texts, ""])
    check(text, LAST, naive_text.read_json(text, ("flow.src", "id.dst", "start")), changes, step, is_json=True)


@target(st.tuples(st.integers(0, 2**32), st.integers(0, 30), edits, STEPS))
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
