"""Results: rows, columns, tables of other libraries, and text, compared with lists of plain Python values."""

from __future__ import annotations

import copy
import html
import ipaddress
import pickle
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import superhosts as sh
from superhosts.core.hosttable import SHOWN
from superhosts.core.pairs import HostFormat
from superhosts.core.results import UNBOUNDED
from superhosts.errors import MissingExtraError
from superhosts.lab.rivals.gse import Gse
from superhosts.output.report import COLUMNS, make_rows
from test_api import pairs
from traffic import talk, write

NOON = 1_794_657_600_000_000_000  # 2026-11-14T12:00:00Z
WINDOW = sh.Window(NOON, NOON + 300_000_000_000)
TYPES = {
    **dict.fromkeys(("window_start", "window_end"), "timestamp[ns, tz=UTC]"),
    **dict.fromkeys(("host", "side", "direction", "detector"), "string"),
    **dict.fromkeys(("peers", "peers_low", "peers_high"), "int64"),
    **dict.fromkeys(("exact", "saturated"), "bool"),
    "family": "int8",
}


def some(count: int = 5, first: int = 0x0A000001) -> sh.SuperHosts:
    """Hosts with 100, 99, … peers."""
    peers = 100 - np.arange(count)
    hosts = (first + np.arange(count)).astype(np.uint32)
    return sh.SuperHosts(hosts, peers, peers - 5, peers + 5, np.zeros(count, bool)).named("cube")


def saturated_and_not() -> sh.SuperHosts:
    detector = Gse("1MiB")
    detector.update(*pairs(50_000))  # saturated: no number and no upper bound
    detector.update(*pairs(2000, "10.1.2.4"))
    return detector.super_hosts(1024)


def both_families() -> sh.Sketch:
    """Hosts of 32, 64 and 128 bits in four parts of one sketch."""
    widths = {4: 32, 6: 64}
    sketch = sh.Sketch(lambda part: sh.Exact(key_bits=128 if part.side == "outer" else widths[part.family]))
    sketch.window = WINDOW
    sketch.part(sh.Part(4)).update(*pairs(9))
    sketch.part(sh.Part(4, "inner", "out")).update(*pairs(7))
    wide = np.arange(8, dtype=np.uint64)
    sketch.part(sh.Part(6)).update(np.full(8, 0x20010DB800000000, np.uint64), wide)
    outer = np.tile(np.array([[0x20010DB800000000, 5]], np.uint64), (8, 1))
    sketch.part(sh.Part(6, "outer")).update(outer, wide)
    return sketch


RESULTS = {
    "some": some,
    "none": sh.SuperHosts.none,
    "an empty detector": lambda: sh.Exact().super_hosts(1),
    "saturated": saturated_and_not,
    "a sketch": lambda: both_families().super_hosts(5),
    "an empty sketch": lambda: sh.Sketch().super_hosts(5),
    "estimates": lambda: both_families().estimate("10.1.2.3"),
}
each_result = pytest.mark.parametrize("name", RESULTS)


# Rows


@each_result
def test_a_result_is_indexed_and_sliced_as_a_list_of_its_rows(name: str) -> None:
    found = RESULTS[name]()
    rows = list(found)
    assert len(found) == len(rows)
    for i in range(-len(rows), len(rows)):
        assert found[i] == found[np.int64(i)] == rows[i]
    for i in (len(rows), -len(rows) - 1):
        with pytest.raises(IndexError, match=f"row {i} of {len(rows)}"):
            found[i]
    for keep in (slice(2), slice(1, None), slice(None, None, -1), slice(-2, None), slice(5, 2)):
        assert isinstance(found[keep], sh.SuperHosts)
        assert list(found[keep]) == rows[keep]
    every = list(range(len(rows)))
    assert list(found[every[::-1]]) == rows[::-1]
    assert list(found[np.array(every, np.intp) % 2 == 0]) == rows[::2]
    assert list(found[[i % 2 == 1 for i in every]]) == rows[1::2]


FEW_PEERS = st.integers(1, 9) | st.sampled_from([1 << 31, 1 << 40])


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), FEW_PEERS), unique_by=lambda pair: pair[0]),
    st.sampled_from([np.uint32, np.uint64]),
)
def test_hosts_are_sorted_as_python_sorts_them(hosts: list[tuple[int, int]], dtype: Any) -> None:
    numbers, peers = np.array([h for h, _ in hosts], dtype), np.array([p for _, p in hosts], np.int64)
    found = sh.SuperHosts(numbers, peers, peers, peers, np.zeros(len(peers), bool))
    original = found.in_original_order()
    for each, expected in ((found, sorted(hosts, key=lambda pair: (-pair[1], pair[0]))), (original, hosts)):
        assert list(zip(each.hosts.tolist(), each.peers.tolist(), strict=True)) == expected


def test_columns_of_a_saturated_host_hold_its_lower_bound_and_sort_by_it() -> None:
    hosts, low = np.array([1, 2, 3], np.uint32), np.array([190, 200, 205])
    columns = (np.array([210, 999, 215]), low, np.array([230, UNBOUNDED, 225]), np.array([False, True, False]))
    found = sh.SuperHosts(hosts, *columns)
    assert found.hosts.tolist() == [3, 1, 2]
    assert (found.peers.tolist(), found.peers_high.tolist()) == ([215, 210, 200], [225, 230, UNBOUNDED])
    assert [(row.peers, row.peers_low, row.known_peers) for row in found][-1] == (None, 200, 200)


def test_who_is_in_a_result() -> None:
    found = some()
    address = ipaddress.ip_address("10.0.0.3")
    for host in (address, "10.0.0.3", 0x0A000003, np.uint32(0x0A000003), "10.0.0.3/32", found[2]):
        assert host in found
        assert host not in found[:2]
    for host in ("10.0.0.9", "::a00:3", "10.0.0.0/24", "no address", -1, 1 << 40, True, None, 3.0, [1]):
        assert host not in found
    networks = some()
    networks.format = HostFormat(4, 24)
    assert ("10.0.0.77" in networks, "10.0.1.77" in networks) == (False, False)  # 10.0.0.1 is not a prefix of 24 bits
    both = both_families().super_hosts(5)
    for text in ("10.1.2.3", "2001:db8::/64", "2001:db8::5"):
        assert text in both
    assert "2001:db8::6" not in both.of_part(sh.Part(6, "outer"))
    assert "2001:db8::6" in both.of_part(sh.Part(6))  # in the /64
    row = both.of_part(sh.Part(4, "inner", "out"))[0]
    assert row in both
    assert row._replace(part=sh.Part(4, "outer")) not in both


def test_a_result_of_several_widths_gives_the_hosts_of_one_part_as_the_part_has_them() -> None:
    sketch = both_families()
    found = sketch.super_hosts(1)
    assert found.hosts.shape == (len(found), 2)
    with pytest.raises(sh.UsageError, match=r"several formats.*of_part\(sh\.Part\(4\)\)"):
        found.format  # noqa: B018
    for part, detector in sketch:
        own, alone = found.of_part(part), detector.super_hosts(1)
        assert (own.hosts.dtype, own.hosts.tolist()) == (alone.hosts.dtype, alone.hosts.tolist())
        assert own.window == WINDOW
        assert [row._replace(window=None) for row in own] == list(alone.named("exact", part))
        assert detector.estimate_many(own).peers.tolist() == own.peers.tolist()
    assert len(found.of_part(sh.Part(4, "outer"))) == 0


def test_equal_results_have_equal_rows() -> None:
    found = both_families().super_hosts(5)
    assert found == both_families().super_hosts(5)
    assert found != found[1:]
    assert found != list(found)
    assert some() != some(first=1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(found)
    for again in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert again == found


# The same columns everywhere


def test_rows_know_their_window_part_and_detector() -> None:
    found = both_families().super_hosts(9)
    row = found[0]
    assert (
        (row.window_start, row.window_end)
        == (found.window_start, found.window_end)
        == (datetime(2026, 11, 14, 12, tzinfo=UTC), datetime(2026, 11, 14, 12, 5, tzinfo=UTC))
    )
    assert (row.family, row.side, row.direction, row.detector) == (4, "inner", "any", "exact")
    alone = sh.Exact(key_bits=64)
    alone.update(np.array([5], np.uint64), np.array([5], np.uint64))
    assert alone.top(1).window_start is alone.top(1).window_end is None
    row = alone.estimate(5)
    assert (row.window, row.window_start, row.window_end, row.family, row.detector) == (None, None, None, 6, "exact")


def test_a_cube_its_file_and_a_window_of_a_scan_give_the_same_table(tmp_path: Path) -> None:
    trace = write(tmp_path / "trace.pcap", talk("10.1.2.3", 1500))
    options = {"inner": "10.0.0.0/8", "threshold": 1024, "window": "5m", "memory": "1MiB", "exact": False}
    (window,) = sh.scan(str(trace), **options)
    assert isinstance(window, sh.SuperHosts)
    window.sketch.save(tmp_path / "a.cube")
    loaded = sh.load(tmp_path / "a.cube").super_hosts(1024)
    assert loaded == window
    assert type(loaded) is type(window[:1]) is sh.SuperHosts
    alone = window.sketch.parts[sh.Part(4)].super_hosts(1024)
    assert [row._replace(window=window.window) for row in alone] == list(window)
    assert [found.to_arrow().schema for found in (loaded, alone)] == [window.to_arrow().schema] * 2
    assert "10.1.2.3" in window
    assert window.to_dict() == loaded.to_dict()


@each_result
def test_lists_are_the_json_rows(name: str) -> None:
    found = RESULTS[name]()
    rows = make_rows(found.window, found)
    assert found.to_dict() == {column: [row[column] for row in rows] for column in COLUMNS}


# Tables


def plain(found: sh.SuperHosts) -> dict[str, list[Any]]:
    """The table that a result should be."""
    rows = list(found)
    return {
        "window_start": [row.window_start for row in rows],
        "window_end": [row.window_end for row in rows],
        "host": [str(row.host) for row in rows],
        **{name: [getattr(row, name) for row in rows] for name in COLUMNS[3:]},
    }


@each_result
def test_every_arrow_consumer_reads_a_result_as_it_is(name: str) -> None:
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    found = RESULTS[name]()
    wanted = plain(found)
    for table in (found.to_arrow(), pa.table(found), pa.RecordBatchReader.from_stream(found).read_all()):
        assert {field.name: str(field.type) for field in table.schema} == TYPES
        assert table.to_pydict() == wanted
        table.validate(full=True)
    for frame in (found.to_polars(), pl.DataFrame(found)):
        assert frame.to_dict(as_series=False) == wanted
        assert frame.schema == found[:0].to_polars().schema


@each_result
def test_pandas_has_nullable_integers_and_the_same_types_without_rows(name: str) -> None:
    pytest.importorskip("pandas")
    found = RESULTS[name]()
    frame, wanted = found.to_pandas(), plain(found)
    assert list(frame.columns) == list(COLUMNS)
    for column, values in wanted.items():
        cells = zip(frame[column], frame[column].isna(), strict=True)
        assert [None if missing else value for value, missing in cells] == values
    kinds = {column: str(kind) for column, kind in frame.dtypes.items()}
    assert kinds == {column: str(kind) for column, kind in some().to_pandas().dtypes.items()}
    assert (kinds["peers"], kinds["peers_high"], kinds["family"], kinds["exact"]) == ("Int64", "Int64", "Int8", "bool")
    assert kinds["window_start"] == "datetime64[ns, UTC]"


@each_result
def test_duckdb_asks_a_result(name: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    found = RESULTS[name]()
    rows = duckdb.sql("select host, peers, peers_high from found").fetchall()
    assert rows == [(str(row.host), row.peers, row.peers_high) for row in found]


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_ipv4_addresses_as_text(numbers: list[int]) -> None:
    pytest.importorskip("pyarrow")
    count = np.zeros(len(numbers), np.int64)
    found = sh.SuperHosts(np.array(numbers, np.uint32), count, count, count, count.astype(bool), sort=False)
    assert found.to_arrow()["host"].to_pylist() == [str(ipaddress.IPv4Address(number)) for number in numbers]


@pytest.mark.parametrize(
    ("library", "verb"),
    [("pyarrow", "to_arrow"), ("polars", "to_polars"), ("pandas", "to_pandas"), ("pyarrow", "__arrow_c_stream__")],
)
def test_a_missing_library_names_the_command(monkeypatch: pytest.MonkeyPatch, library: str, verb: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'superhosts\[tables\]'"):
        getattr(sh.Exact().super_hosts(1), verb)()


# Text


def test_the_text_has_the_first_rows() -> None:
    assert repr(some(2)) == (
        "<SuperHosts: 2 hosts>\n"
        "  host      peers      95 %\n"
        "  10.0.0.1    100  95 – 105\n"
        "  10.0.0.2     99  94 – 104"
    )  # fmt: skip
    assert repr(sh.SuperHosts.none()) == "<SuperHosts: 0 hosts>"
    lines = repr(some(SHOWN + 10)).splitlines()
    assert (len(lines), lines[-1]) == (SHOWN + 3, "  … 10 more")
    both = repr(both_families().super_hosts(7))
    assert both.startswith("<SuperHosts: 4 hosts, 2026-11-14T12:00:00Z to 2026-11-14T12:05:00Z>\n")
    assert "10.1.2.3           7  exact  inner  out" in both
    first = repr(saturated_and_not()).splitlines()[2]
    assert first.split()[:3] == ["10.1.2.3", "≥", f"{saturated_and_not()[0].peers_low:,}"]


def parsed(found: sh.SuperHosts) -> tuple[list[str], list[str]]:
    """Return the tags and the texts of the table in HTML."""
    page = found._repr_html_()
    return re.findall(r"<(\w+)>", page), [html.unescape(text) for text in re.findall(">([^<]+)<", page)]


def test_a_notebook_shows_a_table_without_anything_that_a_host_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    tags, texts = parsed(some(2))
    assert tags.count("tr") == 3
    assert {"10.0.0.1", "100", "95 – 105"} <= set(texts)
    assert parsed(sh.SuperHosts.none())[0] == ["div", "p"]
    assert "… 5 more" in parsed(some(SHOWN + 5))[1]
    monkeypatch.setattr(HostFormat, "to_host", lambda *_: "<script>alert(1)</script>\x1b[2J")
    tags, texts = parsed(some(2))
    assert "script" not in tags
    assert texts.count("<script>alert(1)</script>\\x1b[2J") == 2
