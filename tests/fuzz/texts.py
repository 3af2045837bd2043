"""Tables of text: rows that are well-formed are those of the oracle, and damage harms no line but its own.

Whole files, also of Parquet and Arrow: whatever is changed in them, they are read, or an error of one line names them.
"""

from __future__ import annotations

import io
import json
from contextlib import closing
from functools import cache, partial
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from pyarrow import feather, ipc

import naive_details
import naive_text
from fuzz.mutations import Edit, apply, edits
from fuzz.targets import fresh_folder, target
from superhosts.errors import InputError, SuperhostsError
from superhosts.sources.base import SourceCounters
from superhosts.sources.input import Input
from superhosts.sources.tables.formats import CSV, JSON_LINES, begin_text, table_format
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.source import RowPackets
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
    "-",
    "",
    "1.2.3",
    "x",
    "167772161",
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


@cache
def whole_files() -> list[tuple[str, bytes]]:
    """Return a small file of each kind, with the format that reads it."""
    src, dst = ([f"{net}.{i % 7}" for i in range(30)] for net in ("10.0.0", "192.0.2"))
    times = [1_700_000_000 + i for i in range(30)]
    rows = list(zip(src, dst, times, strict=True))
    zeek = "ts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\tservice\tduration\tconn_state"
    head = f"#separator \\x09\n#set_separator\t,\n#path\tconn\n#fields\t{zeek}\n#types\ttime\n"
    eve = {"event_type": "flow", "timestamp": "2023-11-14T22:13:20.5+0000", "flow": {"start": "2023-11-14T22:13:20Z"}}
    texts = {
        "csv": "time,src,dst,proto,dport\n" + "".join(f'{t},{a},{b},"t""c\np",80\n' for a, b, t in rows),
        "tsv": "time\tsrc\tdst\n" + "".join(f"{t}\t{a}\t{b}\n" for a, b, t in rows),
        "zeek": head + "".join(f"{t}.5\tC1\t{a}\t50\t{b}\t80\ttcp\t-\t0.5\tSF\n" for a, b, t in rows),
        "eve": "".join(json.dumps({**eve, "src_ip": a, "dest_ip": b, "proto": "TCP"}) + "\n" for a, b, _ in rows),
        "jsonl": "".join(json.dumps({"src": a, "dst": b, "time": t}) + "\n" for a, b, t in rows),
    }
    whens = [f"2023-11-14T22:13:{i:02}Z" for i in range(30)]
    tables: list[Any] = [
        pa.table({"src": src, "dst": dst, "time": times, "proto": ["tcp"] * 30}),
        pa.table({"src": pa.array(src).dictionary_encode(), "dst": pa.array(dst, pa.string_view()), "ts": whens}),
        pa.table({"src": pa.array(src, pa.large_string()), "dst": dst, "ts": pa.array(whens).dictionary_encode()}),
    ]
    found = [(name, text.encode()) for name, text in texts.items()]
    for table in tables:
        for name in ("parquet", "file", "stream"):
            file = io.BytesIO()
            if name == "parquet":
                pq.write_table(table, file, compression="none", row_group_size=20)
            elif name == "file":
                feather.write_feather(table, file, compression="uncompressed", chunksize=20)
            else:
                with ipc.new_stream(file, table.schema) as writer:
                    writer.write_table(table, max_chunksize=20)
            found.append(("parquet" if name == "parquet" else "arrow", file.getvalue()))
    return found


@target(st.tuples(st.integers(0, 13), edits, st.booleans(), st.booleans()))
def files(case: tuple[int, list[Edit], bool, bool]) -> None:
    """A file is read, or an error of one line names it: no other exception, whether it is recognised or named."""
    which, changes, is_named, details = case
    name, whole = whole_files()[which]
    counters, said = SourceCounters(), ""
    with fresh_folder() as folder:
        path = folder / "table"
        path.write_bytes(apply(whole, changes))
        source = Input(path)
        try:
            format = table_format(name if is_named else None, source.first_lines())
            if format is not None:
                reader = format.open(source, TableOptions(details=details))
                with closing(RowPackets(source.name, reader, counters, one_window=True)) as rows:
                    while rows.read() is not None:
                        rows.position()
        except SuperhostsError as error:
            said = str(error)
    assert not said or (said.startswith(f"{path}: ") and "\n" not in said)
    if not changes:
        assert (counters.rows, counters.bad_rows) == (30, 0)
