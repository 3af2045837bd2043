"""`update` and `estimate_many` take columns of every kind: each real producer against plain Python."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from naive_columns import peers_of

import superhosts as sh
from superhosts.core.columns.hosts import BLOCK
from tables import numbers

HOSTS = ["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "255.255.255.255", "10.0.0.2", "0.0.0.0", "10.0.0.1"]
PEERS = ["1.2.3.4", "1.2.3.5", "1.2.3.4", "1.2.3.4", "128.0.0.1", "0.0.0.0", "1.1.1.1", "200.200.200.200"]
WIDE_HOSTS = ["2001:db8::1", "2001:db8::1", "2001:db8:0:1::2", "::", "2001:db8::1"]
WIDE_PEERS = ["2001:db8::9", "fe80::1", "fe80::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db8::9"]


def packed(texts: list[str]) -> list[bytes]:
    return [ipaddress.ip_address(text).packed for text in texts]


def mapped(texts: list[str]) -> list[bytes]:
    """Return IPv4 addresses as IPv6 addresses of 16 bytes."""
    return [bytes(10) + b"\xff\xff" + each for each in packed(texts)]


def rows(texts: list[bytes]) -> np.ndarray:
    """Return byte strings of one length as rows of uint8."""
    return np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), -1)


class Stream:
    """An Arrow producer that is none of pyarrow: it has one method."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.inner.__arrow_c_stream__(requested_schema)


class Array:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.inner.__arrow_c_array__(requested_schema)


Make = Callable[[list[str]], Any]
COLUMNS: dict[str, Make] = {
    **{
        f"integers {kind}": lambda texts, kind=kind: np.array(numbers(texts), kind)
        for kind in ("u4", ">u4", "i8", ">i8", "u8", ">u8")
    },
    "integers, every second": lambda texts: np.repeat(np.array(numbers(texts)), 2)[::2],
    "integers, read only": lambda texts: np.frombuffer(np.array(numbers(texts), np.uint32).tobytes(), np.uint32),
    "list of int": numbers,
    "tuple of NumPy integers": lambda texts: tuple(np.array(numbers(texts))),
    "list of str": list,
    "iterator": iter,
    "memoryview": lambda texts: memoryview(np.array(numbers(texts), np.uint32)),
    "list of bytes as text": lambda texts: [text.encode() for text in texts],
    "list of packed bytes": packed,
    "list of ipaddress": lambda texts: [ipaddress.ip_address(text) for text in texts],
    "list of mapped IPv6": lambda texts: [f"::ffff:{text}" for text in texts],
    "list of a mixture": lambda texts: [ipaddress.ip_address(texts[0]), packed(texts)[1], *texts[2:]],
    "NumPy str": np.array,
    "NumPy bytes": lambda texts: np.array(texts, "S"),
    "NumPy StringDType": lambda texts: np.array(texts, np.dtypes.StringDType()),
    "NumPy objects": lambda texts: np.array(texts, object),
    "NumPy S4": lambda texts: np.array(packed(texts), "S4"),
    "NumPy V4": lambda texts: np.array(packed(texts), "V4"),
    "NumPy V16": lambda texts: np.array(mapped(texts), "V16"),
    "uint8 (n, 4)": lambda texts: rows(packed(texts)),
    "uint8 (n, 16)": lambda texts: rows(mapped(texts)),
    "masked": lambda texts: np.ma.array(numbers(texts), mask=False),
    **{
        f"Arrow {kind}": lambda texts, kind=kind: pa.array(texts, kind)
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    },
    **{
        f"Arrow {kind}": lambda texts, kind=kind: pa.array(packed(texts), kind)
        for kind in (pa.binary(), pa.large_binary(), pa.binary(4), pa.binary_view())
    },
    "Arrow binary(16)": lambda texts: pa.array(mapped(texts), pa.binary(16)),
    "Arrow binary with text": lambda texts: pa.array(texts).cast(pa.binary()),
    "Arrow uint32": lambda texts: pa.array(numbers(texts), pa.uint32()),
    "Arrow int64, a slice": lambda texts: pa.array([-1, *numbers(texts), -1]).slice(1, len(texts)),
    "Arrow strings, a slice": lambda texts: pa.array(["x", *texts, "x"]).slice(1, len(texts)),
    "Arrow binary(4), a slice": lambda texts: pa.array([b"xxxx", *packed(texts)], pa.binary(4)).slice(1),
    "Arrow dictionary": lambda texts: pa.array(texts).dictionary_encode(),
    "Arrow dictionary, a slice": lambda texts: pa.array(["x", *texts]).dictionary_encode().slice(1),
    "Arrow dictionary of int": lambda texts: pa.array(numbers(texts)).dictionary_encode(),
    "Arrow chunks": lambda texts: pa.chunked_array([texts[:1], [], texts[1:]]),
    "Arrow stream": lambda texts: Stream(pa.chunked_array([texts[:3], texts[3:]])),
    "Arrow array": lambda texts: Array(pa.array(texts)),
    "pandas objects": lambda texts: pd.Series(texts, dtype=object),
    **{
        f"pandas {kind}": lambda texts, kind=kind: pd.Series(texts, dtype=kind)
        for kind in ("str", "string[python]", "string[pyarrow]", "category", pd.ArrowDtype(pa.large_string()))
    },
    **{
        f"pandas {kind}": lambda texts, kind=kind: pd.Series(numbers(texts)).astype(kind)
        for kind in ("int64", "uint32", "Int64", "UInt32", "category", "int64[pyarrow]")
    },
    "pandas index": pd.Index,
    "Polars str": pl.Series,
    "Polars int": lambda texts: pl.Series(numbers(texts)),
    "Polars categorical": lambda texts: pl.Series(texts, dtype=pl.Categorical),
    "Polars bytes": lambda texts: pl.Series(packed(texts)),
}


OF_SKETCHES = {  # those of hosts that sketches are asked for
    *("list of int", "list of str", "list of ipaddress", "NumPy str", "integers i8", "integers u4", "Arrow string"),
    *("pandas objects", "pandas int64", "Polars str", "Polars int"),
}


def counts(detector: sh.Detector) -> dict[str, int | None]:
    return {str(row.host): row.peers for row in detector.top(1000)}


def check(detector: sh.Detector, hosts: list[Any], peers: list[Any]) -> None:
    expected, dropped = peers_of(hosts, peers)
    assert counts(detector) == expected
    assert detector.dropped == dropped


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_every_kind(kind: str) -> None:
    exact, make = sh.Exact(), COLUMNS[kind]
    exact.update(make(HOSTS), make(PEERS))
    check(exact, HOSTS, PEERS)
    expected = [counts(exact)[host] for host in HOSTS * 3]  # more than are converted one by one
    of_sketches = [sh.Sketch.of(exact).estimate] if kind in OF_SKETCHES else []
    for asked in (exact.estimate_many, exact.estimate, *of_sketches):
        assert [row.peers for row in asked(make(HOSTS * 3))] == expected


def test_ipv6_text_in_detectors_of_both_widths() -> None:
    exact = sh.Exact(key_bits=128)
    exact.update(WIDE_HOSTS, pl.Series(WIDE_PEERS))
    exact.update(rows(packed(WIDE_HOSTS)), packed(WIDE_PEERS))
    check(exact, WIDE_HOSTS, WIDE_PEERS)
    assert [row.peers for row in exact.estimate_many(WIDE_HOSTS * 4)] == [2, 2, 1, 1, 2] * 4
    prefixes = sh.Exact(key_bits=64)
    prefixes.update(WIDE_HOSTS, WIDE_PEERS)
    assert counts(prefixes) == {"2001:db8::/64": 2, "2001:db8:0:1::/64": 1, "::/64": 1}
    assert [row.peers for row in prefixes.estimate_many(WIDE_HOSTS * 4)] == [2, 2, 1, 1, 2] * 4


def test_integers_of_detectors_with_wide_hosts() -> None:
    wide = sh.Exact(key_bits=128)
    wide.update([1, 1 << 100, (1 << 128) - 1], [5, 6, 1 << 127])
    assert set(counts(wide)) == {"::1", str(ipaddress.ip_address(1 << 100)), "ffff:" * 7 + "ffff"}
    wide.update(np.array([1], np.int16), np.array([7]))
    assert wide.estimate(1).peers == 2
    middle = sh.Exact(key_bits=64)
    middle.update(np.array([1, 2], np.int32), np.array([1, 2]))
    middle.update(np.array([(1 << 64) - 1], np.uint64), np.array([1]))
    assert len(middle.top(10)) == 3


TABLES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dict": lambda columns: columns,
    "pandas": pd.DataFrame,
    "pandas, Arrow": lambda columns: pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "Polars": pl.DataFrame,
    "Polars, lazy": pl.LazyFrame,
    "Arrow table": pa.table,
    "Arrow batch": lambda columns: pa.record_batch(pa.table(columns).to_batches()[0]),
    "Arrow reader": lambda columns: pa.RecordBatchReader.from_stream(pa.table(columns)),
    "Arrow batches": lambda columns: Stream(pa.Table.from_batches(pa.table(columns).to_batches(max_chunksize=3))),
    "Arrow array": lambda columns: Array(pa.table(columns).to_batches()[0]),
    "dataset": lambda columns: ds.dataset(pa.table(columns)),
    "DuckDB": lambda columns: duckdb.from_arrow(pa.table(columns)),
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_every_kind(kind: str) -> None:
    columns = {"time": [1.5] * len(HOSTS), "src ip": HOSTS, "dst": numbers(PEERS)}
    exact = sh.Exact()
    exact.update(TABLES[kind](columns), host="src ip", peer="dst")
    check(exact, HOSTS, PEERS)
    with pytest.raises(sh.UsageError, match=r"^peer='to': the table has no such column; it has time, src ip, dst$"):
        exact.update(TABLES[kind](columns), host="src ip", peer="to")


@pytest.mark.parametrize("kind", [kind for kind in TABLES if kind != "dict"])
def test_nulls_are_dropped_and_counted(kind: str) -> None:
    hosts, peers = [*HOSTS, None, "10.0.0.1", None, "10.0.0.9"], [*numbers(PEERS), 5, None, None, 0]
    exact = sh.Exact()
    exact.update(
        TABLES[kind]({"src": hosts, "dst": pd.array(peers, "Int64") if kind == "pandas" else peers}),
        host="src",
        peer="dst",
    )
    check(exact, hosts, peers)
    assert exact.estimate("0.0.0.0").peers == 1  # Nulls are not the address 0.
    exact.clear()
    assert exact.dropped == 0


NULLS: dict[str, tuple[Any, Any]] = {
    "lists": (["10.0.0.1", None], ["1.1.1.1", "x"]),
    "NaN among text": (["10.0.0.1", float("nan")], np.array(["1.1.1.1", None], object)),
    "NA": ([pd.NA, int(ipaddress.ip_address("10.0.0.1"))], [-1, 7]),
    "ipaddress": ([ipaddress.ip_address("10.0.0.1"), None], ["1.1.1.1", b"\1\1\1\1"]),
    "bytes": ([b"\x0a\0\0\1", None], [b"1.1.1.1", b"?"]),
    "masked": (np.ma.array([0x0A000001, -1], mask=[0, 1]), [1, 2]),
    "masked strings": (np.ma.array(["10.0.0.1", "?"], mask=[0, 1]), [1, 2]),
    "masked rows": (np.ma.array(rows(packed(["10.0.0.1", "1.1.1.1"])), mask=[[0] * 4, [0, 0, 0, 1]]), [1, 2]),
    "category": (pd.Series(["10.0.0.1", None], dtype="category"), [1, 2]),
    "Polars": (pl.Series(["10.0.0.1", None]), pl.Series([1, None])),
    "Arrow dictionary": (pa.array(["10.0.0.1", None]).dictionary_encode(), pa.array([None, "9.9.9.9"][::-1])),
    "Arrow fixed size": (pa.array([b"\x0a\0\0\1", None], pa.binary(4)), [1, -5]),
    "Arrow binary": (pa.array([b"\x0a\0\0\1", None]), [1, -5]),
    "Arrow views": (pa.array(["10.0.0.1", None], pa.string_view()), [1, 1 << 40]),
    "Arrow null": (pa.array(["10.0.0.1", None]), pa.chunked_array([pa.array([1]), pa.array([None], pa.int64())])),
}


def test_nulls_in_columns() -> None:
    for kind, columns in NULLS.items():
        exact = sh.Exact()
        exact.update(*columns)
        assert (counts(exact), exact.dropped) == ({"10.0.0.1": 1}, 1), kind
    exact = sh.Exact()
    for hosts in (
        pa.nulls(2),
        pd.Series([None, None], dtype="category"),
        [None, None],
        pa.array([None, None], pa.string()).dictionary_encode(),
    ):
        exact.update(hosts, [1, 2])
    assert (counts(exact), exact.dropped) == ({}, 8)
    with pytest.raises(sh.UsageError, match="hosts, row 1: null is not a host"):
        exact.estimate_many(pl.Series([1, None]))


def test_a_structured_array() -> None:
    table = np.array(list(zip(numbers(HOSTS), numbers(PEERS), strict=True)), [("from", ">u4"), ("to", "i8")])
    exact = sh.Exact()
    exact.update(table, host="from", peer="to")
    check(exact, HOSTS, PEERS)
    exact.update(np.ma.array(table), host="from", peer="to")
    exact.update(table.view(np.recarray), host="from", peer="to")
    check(exact, HOSTS, PEERS)


def test_nothing_in_any_form() -> None:
    exact = sh.Exact()
    arrays = np.array([]), np.array([], "U7"), np.empty((0, 16), np.uint8)
    series = pl.Series([], dtype=pl.String), pa.array([], pa.string()), pd.Series([], dtype="str")
    for nothing in ([], (), *arrays, *series):
        exact.update(nothing, nothing)
        assert len(exact.estimate_many(nothing)) == 0
    exact.update(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}), host="a", peer="b")
    assert counts(exact) == {}


@pytest.mark.parametrize(("left", "right"), [("i8", "i8"), ("u4", "i8"), (">u8", "u4")])
def test_long_columns_are_narrowed_in_blocks(left: str, right: str) -> None:
    count = 2 * BLOCK + 5
    hosts, peers = np.arange(count) % 3, np.arange(count) // 2
    exact, plain = sh.Exact(), sh.Exact()
    plain.update(hosts.astype(np.uint32), peers.astype(np.uint32))
    exact.update(hosts.astype(left), peers.astype(right))
    assert counts(exact) == counts(plain)
    exact.clear()
    exact.update_many([sh.PairBatch(hosts.astype(left), peers.astype(right)), sh.PairBatch(hosts[:9], peers[:9])])
    assert counts(exact) == counts(plain)
    exact.clear()
    late = hosts.astype(np.int64)
    late[-1] = -1
    with pytest.raises(sh.UsageError, match=f"hosts, row {count - 1}: -1 is negative"):
        exact.update(late, peers)
    exact.update(hosts, peers)  # Rows that were added before the error change nothing.
    assert counts(exact) == counts(plain)
    exact.clear()
    exact.update(hosts, peers + (1 << 40))  # Peers of 64 bits are peers.
    assert sum(filter(None, counts(exact).values())) == sum(filter(None, counts(plain).values()))


def forms_of(texts: list[str]) -> dict[str, Any]:
    """Return addresses of both families in every form; IPv4 as integers once as they are and once mapped."""
    plain = [ipaddress.ip_address(text) for text in texts]
    wide = [int(each) | (0xFFFF << 32 if each.version == 4 else 0) for each in plain]
    as_mapped = [ipaddress.IPv6Address(number) for number in wide]
    return {
        "text": texts,
        "mapped text": [f"::ffff:{text}" if "." in text else text for text in texts],
        "objects": plain,
        "mapped objects": as_mapped,
        "bytes": [each.packed for each in plain],
        "packed": rows([each.packed for each in as_mapped]),
        "integers": [int(each) for each in plain],
        "mapped integers": wide,
        "words": np.array([(number >> 64, number & (1 << 64) - 1) for number in wide], np.uint64),
    }


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_a_mapped_address_is_one_peer_in_every_form(bits: int) -> None:
    ours = "10.0.0.1" if bits == 32 else "2001:db8::1"
    for texts in (["1.1.1.1", "1.1.1.2", "255.255.255.255"], ["1.1.1.1", "2001:db8::9", "fe80::1", "2.2.2.2"]):
        exact = sh.Exact(key_bits=bits, device="cpu")
        cube = sh.Cube("1MiB", key_bits=bits, device="cpu", exact=False)
        for form, column in forms_of(texts).items():
            for detector in (exact, cube):
                detector.update([ours] * len(texts), column)
                assert detector.estimate(ours).peers == len(texts), form
    few = forms_of(["1.1.1.1", "1.1.1.2"])
    exact.clear()
    exact.update([ours] * 2, np.array(few["mapped integers"], np.uint64))
    exact.update([ours] * 2, np.array(few["integers"], np.uint32))
    assert exact.estimate(ours).peers == 2


def test_a_mapped_address_is_one_host_in_every_form() -> None:
    for form, column in forms_of(["1.1.1.1", "1.1.1.2"]).items():
        exact = sh.Exact(device="cpu")
        exact.update(["1.1.1.1", "1.1.1.2"], [1, 2])
        exact.update(column, [1, 2])
        assert [(str(row.host), row.peers) for row in exact.top(9)] == [("1.1.1.1", 1), ("1.1.1.2", 1)], form
        assert exact.estimate_many(column).peers.tolist() == [1, 1], form
    for wrong in (0xFFFE01010101, 0x1FFFF01010101):
        with pytest.raises(sh.UsageError, match=f"^hosts, row 0: {wrong} does not fit in 32 bits"):
            exact.update(np.array([wrong]), [1])


def test_sparse_columns_and_integers_of_128_bits() -> None:
    wide = [1, 2, 1 << 100]
    for peers in (
        pl.Series(wide, dtype=pl.Int128),
        pl.Series(wide, dtype=pl.UInt128),
        pa.array(wide, pa.decimal128(38, 0)),
        pa.chunked_array([pa.array(wide[:1], pa.decimal128(38, 0)), pa.array(wide[1:], pa.decimal128(38, 0))]),
    ):
        exact = sh.Exact(device="cpu")
        exact.update(pd.Series(pd.arrays.SparseArray([7, 7, 7])), peers)
        exact.update([7, 7, 7], wide)
        assert exact.estimate(7).peers == 3
    hosts = pd.arrays.SparseArray([0, 0, 5])
    relation = duckdb.sql("select 0 as host, i::hugeint * 10000000000000000000000 as peer from range(3) t(i)")
    for table in (
        pd.DataFrame({"host": hosts, "peer": [1, 2, 3]}),
        pl.DataFrame({"host": pl.Series([0, 0, 5], dtype=pl.Int128), "peer": pl.Series([1, None, 3], dtype=pl.Int128)}),
        pl.LazyFrame({"host": [0, 0, 5], "peer": pl.Series(wide, dtype=pl.Int128)}),
        relation,
    ):
        exact = sh.Exact(device="cpu")
        exact.update(table, host="host", peer="peer")
        assert exact.estimate(0).peers == (3 if table is relation else 2 - exact.dropped)
    cube = sh.Cube("1MiB", keys="int64", device="cpu")
    cube.update(pl.Series([-5, -5], dtype=pl.Int128), pd.Series(hosts[:2]))
    assert cube.estimate(-5).peers == 1
