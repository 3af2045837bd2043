"""`superhosts.spark` in a real local Spark: eight partitions give the rows of a scan of the same packets."""

from __future__ import annotations

import ipaddress
import os
import random
import shutil
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import superhosts as sh
import traffic
from superhosts.errors import InputError, MergeError, UsageError
from superhosts.spark import merge_sketches, sketch_partitions

SMALL = {"memory": "1MiB"}
START = 1_700_000_100 * 10**9
LACKS = [name for name, is_there in (("pyspark", find_spec("pyspark")), ("Java", shutil.which("java"))) if not is_there]
if LACKS and os.environ.get("SUPERHOSTS_NEED_SPARK"):
    raise RuntimeError(f"{' and '.join(LACKS)}: missing, and SUPERHOSTS_NEED_SPARK is set")
needs_spark = pytest.mark.skipif(bool(LACKS), reason=f"{' and '.join(LACKS)} not installed")
# pyspark warns of the versions of other packages, and leaves sockets to the end of the process.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def make_pairs() -> list[tuple[str, str]]:
    draw = random.Random(5)
    found = []
    for host, peers in (("10.0.0.1", 3000), ("10.0.0.2", 1200), ("192.0.2.3", 2000), ("2001:db8::7", 1500)):
        width, make = (128, ipaddress.IPv6Address) if ":" in host else (32, ipaddress.IPv4Address)
        found += [(host, str(make(draw.getrandbits(width)))) for _ in range(peers)]
    draw.shuffle(found)
    return found


PAIRS = make_pairs()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        usual = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        builder = SparkSession.builder.master("local[2]").appName("superhosts tests")
        session = builder.config(map=usual).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture
def frame(spark: Any) -> Any:
    return spark.createDataFrame(PAIRS, ["a", "b"]).repartition(8)


def scanned(folder: Path, **settings: Any) -> list[Any]:
    frames = [traffic.packet(START + number, *pair) for number, pair in enumerate(PAIRS)]
    (window,) = sh.scan(traffic.write(folder / "all.pcap", frames), window="all", **SMALL, **settings)
    return plain(window)


def plain(rows: Any) -> list[Any]:
    """Return rows without their windows: a DataFrame has none."""
    return [row._replace(window=None) for row in rows]


@needs_spark
def test_eight_partitions_give_the_rows_of_a_scan(frame: Any, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"inner": "10.0.0.0/8,2001:db8::/32", "direction": ("in", "out"), "ipv4_prefix": 24}
    rows = sketch_partitions(frame, src="a", dst="b", **SMALL, **settings).collect()
    assert len(rows) == 8
    assert (sum(row["rows"] for row in rows), sum(row["bad_rows"] for row in rows)) == (len(PAIRS), 0)
    whole = merge_sketches(rows)
    assert plain(whole.super_hosts(500)) == scanned(tmp_path, threshold=500, **settings)
    assert [str(row.host) for row in whole.super_hosts(500)] == ["10.0.0.0/24", "2001:db8::/64"]


@needs_spark
def test_the_parquet_files_of_spark_are_read(frame: Any, tmp_path: Path) -> None:
    frame.coalesce(2).write.parquet(str(tmp_path / "files"))
    (window,) = sh.scan(tmp_path / "files", map="src=a,dst=b", window="all", threshold=500, **SMALL)
    assert plain(window) == scanned(tmp_path, threshold=500)


@needs_spark
def test_pairs_of_a_host_and_its_peer(frame: Any, tmp_path: Path) -> None:
    whole = merge_sketches(sketch_partitions(frame.coalesce(2), host="a", peer="b", **SMALL))
    assert plain(whole.super_hosts(500)) == scanned(tmp_path, threshold=500, direction="out")
    assert len(whole.super_hosts(500)) == 4


@needs_spark
def test_numbers_nulls_and_rows_that_are_no_addresses(spark: Any) -> None:
    numbers = [(7, peer) for peer in range(1000, 3000)] + [(None, 5), (-1, 5)]
    sketches = sketch_partitions(
        spark.createDataFrame(numbers, "host long, peer long"), host="host", peer="peer", **SMALL
    )
    assert sum(row["bad_rows"] for row in sketches.collect()) == 2
    (row,) = merge_sketches(sketches).super_hosts(500)
    assert (str(row.host), abs(row.peers - 2000) < 200) == ("0.0.0.7", True)


@needs_spark
def test_a_key_is_that_of_the_caller(frame: Any) -> None:
    sketches = sketch_partitions(frame.coalesce(1), host="a", peer="b", key=b"a key of somebody", **SMALL).collect()
    with pytest.raises(MergeError, match=r"^sketch 1: written with key"):
        merge_sketches(sketches)
    assert len(merge_sketches(sketches, key=b"a key of somebody").super_hosts(500)) == 4


@needs_spark
def test_partitions_without_rows_have_no_sketch(spark: Any) -> None:
    nothing = sketch_partitions(spark.createDataFrame([], "a string, b string"), host="a", peer="b")
    assert list(merge_sketches(nothing).super_hosts(1)) == []


@needs_spark
def test_wrong_arguments_are_named(frame: Any) -> None:
    for columns, message in (
        ({"host": "a"}, r"name two columns, host= and peer=, or src= and dst="),
        ({"host": "a", "peer": "b", "src": "a"}, r"name two columns"),
        ({"host": "a", "peer": "x"}, r"no column x; there are a, b"),
        ({"host": "a", "peer": "b", "direction": "in"}, r"direction=: only with src= and dst="),
        ({"src": "a", "dst": "b", "threshold": 5}, r"threshold=: sketches are made without it"),
        ({"src": "a", "dst": "b", "detector": "best"}, r'^detector="best": one of'),
    ):
        with pytest.raises(UsageError, match=message):
            sketch_partitions(frame, **columns)


def test_sketches_may_be_bytes(tmp_path: Path) -> None:
    cube = sh.Cube(**SMALL)
    cube.update(*_columns())
    cube.save(tmp_path / "a.cube")
    data = (tmp_path / "a.cube").read_bytes()
    assert len(merge_sketches([data, bytearray(data)]).super_hosts(500)) == 1
    with pytest.raises(InputError, match=r"^sketch 2: "):
        merge_sketches([data, data[:-9]])


def _columns() -> Any:
    import numpy as np

    return np.full(1000, 7, np.uint32), np.arange(1000, dtype=np.uint32)
