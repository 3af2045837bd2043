from __future__ import annotations

import pytest

from superhosts.errors import InputError, UsageError
from superhosts.sources.tables import mapping
from superhosts.sources.tables.formats import FORMATS
from superhosts.sources.tables.mapping import ENDS, STARTS, Column, Mapping, as_map, parse_map, resolve
from superhosts.sources.tables.options import FORMAT_NAMES, TableOptions


def test_a_map() -> None:
    assert parse_map("src=a, dst=b,time=c:ms") == Mapping(Column("a"), Column("b"), Column("c", "ms"))
    assert parse_map("src=x:ms").src == Column("x:ms")  # an address has no unit
    assert parse_map("time=a:b").time == Column("a:b")
    assert parse_map("time=").untimed
    assert as_map({"src": "a", "dst": 2}) == Mapping(Column("a"), Column("2"))
    assert as_map(None) is None


def test_a_map_that_makes_no_sense() -> None:
    for text, says in (
        ("", "it names no column; write it like src=COLUMN,dst=COLUMN,time=COLUMN"),
        ("src", "'src': write it like src=COLUMN,dst=COLUMN,time=COLUMN; it may name src, dst, time, "),
        ("host=a", "'host=a': write it like"),
        ("src=", "src= names no column"),
        ("src=a,src=b", "src is given twice"),
    ):
        with pytest.raises(UsageError, match=f'^map="{text}": ') as error:
            parse_map(text)
        assert says in str(error.value)
    with pytest.raises(UsageError, match="'host'"):
        as_map({"host": "a"})
    with pytest.raises(UsageError, match="it names no column"):
        as_map({})
    with pytest.raises(UsageError, match='time="middle": must be one of record, start, end'):
        TableOptions(time="middle")


def test_usual_names() -> None:
    for src, dst in ENDS:
        found = resolve(None, ["x", dst.upper(), src.upper(), "y"], "f")
        assert (found.src, found.dst, found.time) == (Column(src.upper()), Column(dst.upper()), None)
    for name in STARTS:
        expected = Mapping(Column("src"), Column("dst"), Column(name), Column("te"), Column("dur"))
        assert resolve(None, ["src", "dst", name, "te", "dur"], "f") == expected
    assert tuple(format.name for format in FORMATS) == FORMAT_NAMES
    for names in (STARTS, mapping.STOPS, mapping.DURATIONS):
        assert len(set(names)) == len(names)
        assert all(name == name.lower() for name in names)


def test_what_is_asked_for_is_not_guessed() -> None:
    columns = ["src", "dst", "src_ip", "ts", "When", "dur"]
    found = resolve(parse_map("src=src_ip,time=when"), columns, "f")
    assert found == Mapping(Column("src_ip"), Column("dst"), Column("When"))
    assert not resolve(parse_map("time="), columns, "f").has_time
    assert resolve(parse_map("src=3"), columns, "f").src == Column("src_ip")
    assert resolve(parse_map("src=1"), ["1", "0", "dst"], "f").src == Column("1")


def test_columns_that_are_not_there() -> None:
    with pytest.raises(InputError) as error:
        resolve(None, ["a", "b\n"], "f.parquet")
    assert str(error.value) == (
        'f.parquet: which column is src and which is dst? say it with map="src=COLUMN,dst=COLUMN,time=COLUMN"; '
        "its columns: a, b\\n"
    )
    with pytest.raises(InputError) as error:
        resolve(parse_map("src=a,dst=c"), ["a", "b"], "f.parquet")
    assert str(error.value) == 'f.parquet: map="dst=c": it has no such column; its columns: a, b'
    with pytest.raises(InputError, match="and 70 more"):
        resolve(None, [f"c{i}" for i in range(100)], "f")
    with pytest.raises(InputError, match=r"^f: src and dst are the same column, a; its columns: a, b"):
        resolve(parse_map("src=a,dst=a"), ["a", "b"], "f")
    with pytest.raises(InputError, match="dport=5"):
        resolve(parse_map("dport=5"), ["src", "dst"], "f")
