"""What `update` says about columns that it cannot take."""

from __future__ import annotations

import ipaddress
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import superhosts as sh

FORMS = "these are integers (n,), uint64 (n, 2), uint8 (n, 4) or (n, 16), text, bytes or ipaddress objects"
TAKEN = "use integers alone, or address text, bytes and ipaddress objects"
OTHER = "is IPv6, but hosts here are IPv4; a detector with key_bits=128 takes it"

NULLABLE = "is not an integer; drop such rows, or use a nullable type (Int64)"
ARROW = "is not a type of addresses; integers, strings and 4 or 16 bytes are"
FAULTS: list[tuple[Any, ...]] = [  # what is said, and the columns
    ("hosts, row 2: -3 is negative", np.array([1, 2, -3]), [1, 2, 3]),
    ("hosts, row 1: -2 is negative", np.array([1, -2], np.int32), [1, 2]),
    ("peers, row 1: -2 is negative", [1, 2], np.array([1, -2])),
    ("hosts, row 1: 4294967296 does not fit in 32 bits", np.array([1, 1 << 32]), [1, 2]),
    (f"hosts, row 1: {1 << 200} does not fit in 32 bits", [1, 1 << 200], [1, 2]),
    (f"peers, row 1: {1 << 128} does not fit in 128 bits", [1, 1], [1, 1 << 128]),
    ("update: hosts have 128 bits, but this exact takes 32-bit hosts", np.array([[0, 5], [1, 5]], np.uint64), [1, 2]),
    (f"hosts, row 1: NaN (float64) {NULLABLE}", pd.Series(pd.arrays.SparseArray([1.0, np.nan])), [1, 2]),
    (f"hosts: Arrow's decimal128(2, 1) {ARROW}", pa.array([Decimal("1.5")]), [1]),
    (
        "hosts: Arrow cannot read this Series: Invalid or unsupported format string: '_pli128'",
        pl.Series([[1 << 100]], dtype=pl.List(pl.Int128)),
        [1],
    ),
    (f"hosts, row 1: NaN (float64) {NULLABLE}", np.array([1, np.nan]), [1, 2]),
    ("hosts, row 0: 1.0 (float64) is not an integer; convert the column to integers", pd.Series([1.0, 2.5]), [1, 2]),
    ("hosts, row 1: 2.5 is not an integer, but row 0 is", [1, 2.5], [1, 2]),
    ("hosts, row 1: '1.1.1.1' is not an integer, but row 0 is", [1, "1.1.1.1"], [1, 2]),
    ("hosts, row 0: True is not an address; " + TAKEN, [True, False], [1, 2]),
    ("hosts: bool (1,) is not a column of addresses; " + FORMS, np.array([True]), [1]),
    ("hosts, row 1: '1.1.1.256' is not an address", ["1.1.1.1", "1.1.1.256"], [1, 2]),
    (f"hosts, row 0: '{'x' * 60}…' is not an address", ["x" * 99], [1]),
    ("hosts, row 1: '1.1.1.1\\n1.1.1.1' is not an address", ["1.1.1.1", "1.1.1.1\n1.1.1.1"], [1, 2]),
    ("hosts, row 1: '1.1.1.١' is not an address", np.array(["1.1.1.1", "1.1.1.١"]), [1, 2]),
    ("hosts, row 0: IPv4Network('10.0.0.0/8') is not an address; " + TAKEN, [ipaddress.ip_network("10.0.0.0/8")], [1]),
    ("hosts, row 1: '2001:db8::1' " + OTHER, ["1.1.1.1", "2001:db8::1"], [1, 2]),
    ("hosts, row 0: ::1 " + OTHER, [ipaddress.ip_address("::1")], [1]),
    ("hosts, row 1: '?' is not an address", pd.Series(["1.1.1.1", "?", "?"], dtype="category"), [1, 2, 3]),
    ("hosts, row 1: 'abc' is not an address", [b"1.1.1.1", b"abc"], [1, 2]),
    ("update: 1 host but 2 peers", [1], [1, 2]),
    ("update: peers are missing; pass hosts and peers, or one PairBatch", np.zeros(3, np.uint32)),
    ("hosts: uint64 (3, 3) is not a column of addresses; " + FORMS, np.zeros((3, 3), np.uint64), [1]),
    ("hosts: str is not a column; pass an array, a list or a series", "1.1.1.1", "1.1.1.2"),
    ("hosts: int is not a column; pass an array, a list or a series", 1, 2),
    (f"hosts: Arrow's double {ARROW}", pa.array([1.5]), [1]),
    ("update: which columns? pass host=… and peer=…; the table has a, b", pd.DataFrame({"a": [1], "b": [2]})),
    ("update: which columns? pass host=… and peer=…; the table has a", duckdb.sql("select 1 as a")),
    ("hosts: a table with columns a; name two: host=…, peer=…", pl.DataFrame({"a": [1]}), pl.DataFrame({"b": [1]})),
    ("hosts: a table with columns a; name two: host=…, peer=…", np.zeros(1, [("a", "u4")]), [1]),
    ("hosts: datetime64[s] (1,) is not a column of addresses; " + FORMS, np.array(["2026-11-16"], "M8[s]"), [1]),
]


def test_an_error_names_the_column_and_the_row_and_adds_nothing() -> None:
    for message, *columns in FAULTS:
        exact = sh.Exact()
        with pytest.raises(sh.UsageError) as caught:
            exact.update(*columns)
        assert str(caught.value) == message
        assert len(exact.top(9)) == 0


def test_rows_of_a_stream_are_counted_from_its_beginning() -> None:
    table = pa.table({"src": ["1.1.1.1"] * 5 + ["?"], "dst": range(6)})
    exact = sh.Exact()
    with pytest.raises(sh.UsageError, match=r"^column 'src', row 5: '\?' is not an address$"):
        exact.update(table.to_reader(max_chunksize=2), host="src", peer="dst")
    assert exact.estimate("1.1.1.1").peers == 4  # of the batches before
    with pytest.raises(sh.UsageError, match=r"'a', row 0: '10.0.0.1' is IPv4, but hosts here are IPv6; .* key_bits=32"):
        sh.Exact(key_bits=128).update({"a": ["10.0.0.1"], "b": [1]}, host="a", peer="b")
    with pytest.raises(sh.UsageError, match="host= and peer= name columns of one table"):
        exact.update([1], [2], host="a", peer="b")  # type: ignore[call-overload]


def test_what_is_no_table() -> None:
    with pytest.raises(sh.UsageError, match="list is not a table"):
        sh.Exact().update([1], host="a", peer="b")  # type: ignore[call-overload]
    connection = duckdb.connect().execute("select 1 as a, 2 as b")  # returns the connection itself
    for names in ({}, {"host": "a", "peer": "b"}):
        with pytest.raises(sh.UsageError, match=r"DuckDBPyConnection is not a table; pass a relation, .*\.sql\("):
            sh.Exact().update(connection, **names)  # type: ignore[call-overload]
    frame = pytest.importorskip("dask.dataframe").from_pandas(pd.DataFrame({"a": [1], "b": [2]}), npartitions=1)
    with pytest.raises(sh.UsageError, match=r"^update: which columns\? pass host=… and peer=…; the table has a, b"):
        sh.Exact().update(frame)
    with pytest.raises(sh.UsageError, match=r"a Dask frame is not computed yet; pass .*\.compute\(\).*partition"):
        sh.Exact().update(frame, host="a", peer="b")


@pytest.mark.parametrize("keys", [None, "text"])
def test_an_arrow_array_that_points_outside_of_its_data(keys: Any) -> None:
    for offsets in ([0, 1 << 30, 14], [0, -7, 7], [0, 14, 7]):
        buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"1.1.1.12.2.2.2")]
        damaged = pa.Array.from_buffers(pa.string(), 2, buffers)
        with pytest.raises(sh.UsageError, match="hosts: a damaged Arrow array: values lie outside of its data"):
            sh.Cube(keys=keys).update(damaged, ["1.1.1.1", "2.2.2.2"])


def test_sets_have_no_order_and_are_no_columns() -> None:
    cube = sh.Cube(memory="1MiB")
    with pytest.raises(sh.UsageError, match=r"^hosts: a set has no order"):
        cube.update({"10.0.0.1", "10.0.0.2"}, ["192.0.2.1", "192.0.2.2"])  # type: ignore[arg-type]
    with pytest.raises(sh.UsageError, match=r"^peers: a frozenset has no order"):
        cube.update(["10.0.0.1"], frozenset({"192.0.2.1"}))  # type: ignore[arg-type]
    talks = {"10.0.0.1": "192.0.2.1", "10.0.0.2": "192.0.2.2"}
    cube.update(talks.keys(), talks.values())  # type: ignore[arg-type]
    assert len(cube.top(5)) == 2


def test_two_columns_of_one_name() -> None:
    frame = pd.DataFrame([["10.0.0.1", "192.0.2.1", "192.0.2.2"]], columns=["src", "dst", "dst"])
    with pytest.raises(sh.UsageError, match=r"^peer='dst': the table has several columns of this name"):
        sh.Cube(memory="1MiB").update(frame, host="src", peer="dst")
