"""Delimited text; `fuzz/texts.py` compares it with the oracle."""

from __future__ import annotations

import ipaddress
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import naive_text
from superhosts.errors import InputError
from superhosts.sources.input import Input
from superhosts.sources.tables.formats import CSV, begin_text, table_format
from superhosts.sources.tables.textreader import LONGEST_LINE, TextReader
from table_reading import Drips, Reading, options, read, read_file


def read_text(text: str | bytes, step: int = 1 << 20, map: str = "", time: str = "start") -> Reading:
    data = text if isinstance(text, bytes) else text.encode()
    return read(TextReader(Drips(data, step), partial(begin_text, "text", CSV, options(map, time=time))))


def test_a_field_in_quotes_may_hold_delimiters_newlines_and_quotes() -> None:
    text = 'note,src,dst,time,more\n"a, ""b""\nc",1.1.1.1,"2.2.2.2",5,"x\n\n,y"\nplain,1.1.1.1,3.3.3.3,6,\n'
    for step in (1, 2, 3, 7, 1000):
        assert read_text(text, step).rows == naive_text.read_csv(text).rows
    assert len(read_text(text).rows) == 2


def test_a_quote_that_is_not_closed_is_a_character() -> None:
    rows = "".join(f"x,1.1.1.1,10.0.{i // 250}.{i % 250},{i}\n" for i in range(5000))
    for step in (1000, 1 << 20):
        found = read_text(f'note,src,dst,time\n"x,1.1.1.1,2.2.2.2,7\n{rows}', step)
        assert len(found.rows) == 5001
        assert found.bad == 0


def test_what_may_come_around_rows() -> None:
    for start in ("\ufeff", "\n\n", "# a comment\n", "\ufeff# a comment\r\n\r\n"):
        found = read_text(start + "src,dst,ts\n1.1.1.1,2.2.2.2,5\n# comment\n\n3.3.3.3,4.4.4.4,6")
        assert [row[3] for row in found.rows] == [5 * 10**9, 6 * 10**9], start
        assert found.columns == ["src", "dst", "ts"]
    found = read_text("src   dst  time\n  1.1.1.1    2.2.2.2 5   \n3.3.3.3 4.4.4.4 6\n")
    assert [row[3] for row in found.rows] == [5 * 10**9, 6 * 10**9]
    found = read_text("src,dst,time\r\n1.1.1.1,2.2.2.2,5\r\n" * 2)  # a header that comes again
    assert (len(found.rows), found.bad, found.skipped) == (2, 0, 0)


def test_a_table_without_a_header_is_mapped_by_places() -> None:
    found = read_text("1.1.1.1,443,2.2.2.2,5\n1.1.1.1,443,3.3.3.3,6\n", map="src=1,dst=3,time=4")
    assert [row[2] for row in found.rows] == [0x02020202, 0x03030303]
    with pytest.raises(InputError, match=r"which column is src and which is dst.*its columns: 1, 2, 3"):
        read_text("1.1.1.1,443,2.2.2.2\n")


def test_the_first_bad_lines_are_described_with_their_numbers() -> None:
    rows = ["1.1.1.1,2.2.2.2,5", "1.1.1.1", "x,2.2.2.2,5", "", "1.1.1.1,::1,5"]
    rows += ["1.1.1.1,2.2.2.2,soon", "\x1b[2J,1.1.1.1,5"]
    found = read_text("\n".join(["src,dst,time", *rows, ""]))
    assert (len(found.rows), found.bad) == (1, 5)
    assert found.first_bad == [
        (3, "fields are missing: 1.1.1.1"),
        (4, "no address: x,2.2.2.2,5"),
        (6, "IPv4 and IPv6 in one row: 1.1.1.1,::1,5"),
    ]
    found = read_text("src,dst,time\n" + "y" * 5000 + ",1.1.1.1,5\n")
    assert found.first_bad == [(2, f"no address: {'y' * 80}…")]


def test_the_last_line_counts_if_it_has_all_fields() -> None:
    assert len(read_text("src,dst,time,n\n1.1.1.1,2.2.2.2,5,x").rows) == 1
    found = read_text("src,dst,time,n\n1.1.1.1,2.2.2.2,5,x\n1.1.1.1,2.2.2.2,17134")
    assert (len(found.rows), found.bad) == (1, 1)
    assert found.first_bad == [(3, "the input ends inside this line: 1.1.1.1,2.2.2.2,17134")]


def test_times_of_the_end() -> None:
    text = "src,dst,start,end,duration\n1.1.1.1,2.2.2.2,100,160,7.5\n"
    assert [read_text(text, 9, time=time).rows[0][3] for time in ("start", "end")] == [100 * 10**9, 160 * 10**9]
    rows = [f"1.1.1.1,2.2.2.2,100,{duration}" for duration in ("7.5", "-", "00:01:02.5", "x")]
    found = read_text("\n".join(["src,dst,start,dur", *rows, ""]), 9, time="end")
    assert [row[3] for row in found.rows] == [107_500_000_000, 100 * 10**9, 162_500_000_000]
    assert found.bad == 1
    for time, header in (("end", "src,dst,start"), ("start", "src,dst,end")):  # It is never replaced by the other.
        with pytest.raises(InputError, match=f"the {time} of its rows is not known; name its column"):
            read_text(f"{header}\n1.1.1.1,2.2.2.2,100\n", time=time)


def test_a_line_that_never_ends_is_an_error() -> None:
    with pytest.raises(InputError, match="a line is longer than 16 MiB"):
        read_text("src,dst,time\n" + "x" * (LONGEST_LINE + 10), 1 << 20)


def test_hostile_lines_are_bad_or_skipped_and_harm_no_other() -> None:
    long = b"9" * 400 + b"," + b"9" * 400 + b",1e999"
    for line in (b"\0" * 50, b"\xff\xfe,\xff,\xff", b",,,,,,", long, b'"', b'""""', b"\x0b,\x0c,\x1f"):
        for step in (1, 1000):
            found = read_text(b"src,dst,time\n1.1.1.1,2.2.2.2,5\n" + line + b"\n3.3.3.3,4.4.4.4,6\n", step)
            assert [row[3] for row in found.rows] == [5 * 10**9, 6 * 10**9], line
            assert found.bad + found.skipped == 1


def big_table(rows: int, note: str = "x") -> str:
    lines = [f"{note},{ipaddress.IPv4Address(i * 77)},10.0.0.1,{1_700_000_000 + i}" for i in range(rows)]
    return "\n".join(["note,src,dst,time", *lines, ""])


def test_pieces_of_a_file_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superhosts.sources.tables.textreader.PIECE_BYTES", 5000)
    text = big_table(2000) + "x,bad,10.0.0.1,5\n" + big_table(500, note='"a\nb, c"') + "y,1.1.1.1,2.2.2.2"
    path = tmp_path / "table.csv"
    path.write_text(text)
    several, one = read_file(path, options(threads=3)), read_file(path, options(threads=1))
    assert several == one
    assert several.rows == naive_text.read_csv(text).rows[: len(several.rows)]
    assert len(several.rows) == 2500
    assert [row for row, _ in several.first_bad][:1] == [2002]


@pytest.mark.parametrize("newlines", [1, 7, 400])
def test_a_field_in_quotes_across_two_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newlines: int) -> None:
    for name, value in {"PIECE_BYTES": 5000, "LONGEST_LINE": 20_000}.items():
        monkeypatch.setattr(f"superhosts.sources.tables.textreader.{name}", value)
    before = big_table(200)[:4990].rpartition("\n")[0] + "\n"
    text = before + '"' + "z" * (5000 - len(before)) + "\n" * newlines + '",9.9.9.9,10.0.0.1,5\n' + big_table(2000)
    path = tmp_path / "table.csv"
    path.write_text(text)
    found = read_file(path, options(threads=3))
    assert found.rows == naive_text.read_csv(text).rows
    assert len(found.rows) == before.count("\n") + 2000


def test_a_file_that_becomes_shorter_ends_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superhosts.sources.tables.textreader.PIECE_BYTES", 5000)
    path = tmp_path / "table.csv"
    text = big_table(2000)
    path.write_text(text)
    source = Input(path)
    found = table_format("csv", source.first_lines())
    assert found is not None
    reader: Any = found.open(source, options(threads=3))
    assert reader.read() is not None
    os.truncate(path, 7000)
    blocks = []
    while (block := reader.read()) is not None:
        blocks.append(block)
    reader.close()
    assert sum(len(block) for block in blocks) < 2000
    assert reader.ended_early == "it has become shorter while it was read"


def test_a_column_that_is_to_mean_two_things() -> None:
    for map, says in (
        ("time=src", "src and time are the same column, src"),
        ("src=1,dst=1", "src and dst are the same column, src"),
        ("time_end=dst,duration=d", "dst and time are the same column, dst"),
        ("time_end=t,duration=t", "time and duration are the same column, t"),
    ):
        for text in ("src,dst,t,d\n1.1.1.1,2.2.2.2,100,7\n", '{"src":"1.1.1.1","dst":"2","t":5,"d":7}\n'):
            with pytest.raises(InputError, match=says):
                read_text(text, map=map)
