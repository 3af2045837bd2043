"""Parquet and Arrow files with every type of column, against plain Python."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather, ipc

from superhosts.sources.tables import parquet
from table_reading import options, read_file
from tables import SECOND, Line, answer, arrow_table, found, make_rows, numbers, scan

ROWS = make_rows(2000)
BOTH = make_rows(2000, wide=True)
SOURCES, TARGETS = [row.src for row in ROWS], [row.dst for row in ROWS]


def write_stream(table: Any, path: Path) -> None:
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=300)


def write_parquet(table: Any, path: Path) -> None:
    pq.write_table(table, path, row_group_size=300)


WRITERS: dict[str, Callable[[Any, Path], None]] = {
    "parquet": write_parquet,
    "feather": lambda table, path: feather.write_feather(table, path, chunksize=300, compression="zstd"),
    "stream": write_stream,
}


@pytest.fixture(params=["parquet", "stream"])
def save(request: Any, tmp_path: Path) -> Callable[..., Path]:
    def write(columns: Any) -> Path:
        path = tmp_path / f"table.{request.param}"
        WRITERS[request.param](columns if isinstance(columns, pa.Table) else pa.table(columns), path)
        return path

    return write


def packed(texts: list[str]) -> list[bytes]:
    return [ip_address(text).packed for text in texts]


def ends(rows: list[Line]) -> tuple[list[str], list[str]]:
    return [row.src for row in rows], [row.dst for row in rows]


def table_of(rows: list[Line]) -> pa.Table:
    return arrow_table(rows, ts=[row.time // SECOND for row in rows])


NARROW = {
    "uint32": lambda texts: pa.array(numbers(texts), pa.uint32()),
    "int64": lambda texts: pa.array(numbers(texts), pa.int64()),
    "uint64": lambda texts: pa.array(numbers(texts), pa.uint64()),
    "float64": lambda texts: pa.array(numbers(texts), pa.float64()),
    "binary 4": lambda texts: pa.array(packed(texts), pa.binary(4)),
    "dictionary of numbers": lambda texts: pa.array(numbers(texts), pa.uint32()).dictionary_encode(),
}
WIDE = {
    "text": lambda texts: pa.array(texts, pa.string()),
    "large text": lambda texts: pa.array(texts, pa.large_string()),
    "text in upper case": lambda texts: pa.array([text.upper() for text in texts]),
    "dictionary of text": lambda texts: pa.array(texts).dictionary_encode(),
    "bytes": lambda texts: pa.array(packed(texts), pa.binary()),
    "large bytes": lambda texts: pa.array(packed(texts), pa.large_binary()),
    "text as bytes": lambda texts: pa.array([text.encode() for text in texts], pa.binary()),
    "16 bytes": lambda texts: pa.array(
        [b if len(b) == 16 else bytes(10) + b"\xff\xff" + b for b in packed(texts)], pa.binary(16)
    ),
}


def rows_of(lines: list[Line]) -> list[tuple[int, int, int, int]]:
    ends = ((ip_address(line.src), ip_address(line.dst)) for line in lines)
    return [(src.version, int(src), int(dst), 0) for src, dst in ends]


@pytest.mark.parametrize("writer", WRITERS)
def test_addresses_of_every_type(tmp_path: Path, writer: str) -> None:
    for kinds, lines in ((NARROW, ROWS), (WIDE, BOTH)):
        src, dst = ends(lines)
        for kind, make in kinds.items():
            WRITERS[writer](pa.table({"src": make(src), "dst": make(dst)}), tmp_path / "table")
            assert read_file(tmp_path / "table").rows == rows_of(lines), kind


def test_the_two_ends_may_have_different_types(save: Any) -> None:
    rows = [Line(f"10.0.0.{i % 5 + 1}", f"11.0.{i % 7}.9") for i in range(100)]  # int32 holds them
    src, dst = ends(rows)
    path = save({"src": pa.array(numbers(src), pa.int32()), "dst": pa.array(numbers(dst), pa.int64())})
    assert found(path, window="all") == answer(rows, None)
    path = save({"src": SOURCES, "dst": pa.array(numbers(TARGETS), pa.uint32())})
    assert found(path, window="all") == answer(ROWS, None)


STAMPS = [row.time for row in ROWS]
SECONDS = pa.array([t // SECOND for t in STAMPS])
TIMES: dict[str, Any] = {
    **{f"timestamp {unit}": pa.array([t // size for t in STAMPS], pa.timestamp(unit)) for unit, size in
       {"s": SECOND, "ms": 10**6, "us": 10**3, "ns": 1}.items()},
    "timestamp with a zone": pa.array([t // 1000 for t in STAMPS], pa.timestamp("us", "Asia/Tokyo")),
    "seconds": pa.array([t // SECOND for t in STAMPS], pa.int64()),
    "seconds of 32 bits": pa.array([t // SECOND for t in STAMPS], pa.uint32()),
    "milliseconds": pa.array([t // 10**6 for t in STAMPS], pa.int64()),
    "microseconds": pa.array([t // 10**3 for t in STAMPS], pa.uint64()),
    "nanoseconds": pa.array(STAMPS, pa.int64()),
    "floats": pa.array([t / SECOND for t in STAMPS], pa.float64()),
    "ISO": pa.array([datetime.fromtimestamp(t // SECOND, UTC).replace(tzinfo=None).isoformat() for t in STAMPS]),
    "ISO with Z": pa.array([datetime.fromtimestamp(t // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for t in STAMPS]),
    "ISO of mixed kinds": pa.array(
        [datetime.fromtimestamp(t // SECOND, UTC).strftime(("%Y-%m-%d %H:%M:%S.5", "%Y-%m-%dT%H:%M:%S+00:00")[i % 2])
         for i, t in enumerate(STAMPS)]
    ),
    "text of seconds": pa.array([f"{t // SECOND}.25" for t in STAMPS]),
    "dictionary": pa.array([t // SECOND for t in STAMPS]).dictionary_encode(),
}  # fmt: skip


@pytest.mark.parametrize("writer", WRITERS)
def test_times_of_every_type(tmp_path: Path, writer: str) -> None:
    for kind, times in TIMES.items():
        WRITERS[writer](pa.table({"src": SOURCES, "dst": TARGETS, "ts": times}), tmp_path / "table")
        assert [time // SECOND * SECOND for *_, time in read_file(tmp_path / "table").rows] == STAMPS, kind


def test_which_time_of_a_record_counts(save: Any) -> None:
    begin = SECONDS
    path = save({"src": SOURCES, "dst": TARGETS, "ts": begin})
    assert found(path, map="time=ts:ms") == answer(row._replace(time=row.time // 1000) for row in ROWS)
    path = save({"src": SOURCES, "dst": TARGETS, "start": begin, "dur": pa.array([400.5] * len(ROWS))})
    later = [row._replace(time=row.time + 400 * SECOND) for row in ROWS]
    assert found(path) == answer(ROWS)
    assert found(path, time="end") == answer(later)
    stopped = save({"src": SOURCES, "dst": TARGETS, "end": begin, "took": pa.array([400_000] * len(ROWS))})
    earlier = [row._replace(time=row.time - 400 * SECOND) for row in ROWS]
    assert found(stopped, time="end") == answer(ROWS)
    assert found(stopped, map="time_end=end,duration=took:ms") == answer(earlier)


def test_which_columns_are_read(save: Any) -> None:
    flow = pa.StructArray.from_arrays([pa.array(SOURCES), pa.array(TARGETS), SECONDS], ["a", "b", "start"])
    path = save(pa.table({"flow": flow, "tags": pa.array([["x"]] * len(ROWS))}))
    assert found(path, map="src=flow.a,dst=flow.b,time=flow.start") == answer(ROWS)
    zeek = save({"id.orig_h": SOURCES, "id.resp_h": TARGETS, "ts": [t / SECOND for t in STAMPS]})
    assert found(zeek) == answer(ROWS)
    path = save({"first": SOURCES, "second": TARGETS, "third": SECONDS})
    assert found(path, map={"src": "first", "dst": "second", "time": "third"}) == answer(ROWS)
    assert found(path, map="src=1,dst=2,time=3") == answer(ROWS)
    others = {f"c{i}": pa.array([i] * 20) for i in range(3000)}
    path = save({**others, "src": SOURCES[:20], "dst": TARGETS[:20]})
    assert found(path, window="all") == answer(ROWS[:20], None)


def test_rows_without_an_address_or_a_time_are_counted_and_the_first_shown(save: Any) -> None:
    rows = ROWS[:500]
    src: list[Any] = [row.src for row in rows]
    dst: list[Any] = [row.dst for row in rows]
    stamps: list[Any] = [row.time / SECOND for row in rows]
    src[10] = dst[20] = None
    src[30], dst[40], dst[50] = "-", "10.0.0.256", "2001:db8::1"
    stamps[60], stamps[70], stamps[80] = float("nan"), None, -1.0
    bad = {10, 20, 30, 40, 50, 60, 70, 80}
    path = save({"src": src, "dst": dst, "ts": pa.array(stamps, pa.float64())})
    run = scan(path)
    got = {window.window.start: {str(row.host): int(row.peers) for row in window} for window in run}
    assert got == answer(row for i, row in enumerate(rows) if i not in bad)
    counters = run.counters
    assert (counters.rows, counters.bad_rows, counters.packets, counters.ipv4) == (500, 8, 500, 492)
    assert [warning.partition(": ")[2].partition(":")[0] for warning in counters.warnings] == [
        f"row {number} does not count" for number in (11, 21, 31)
    ]
    assert f"src=null, dst={dst[10]}" in counters.warnings[0]


NO_ADDRESSES = [
    pa.array([-1, 1 << 32, 5, 6, None], pa.int64()),
    pa.array([-1, 1 << 40, 5, 6, None], pa.int64()),
    pa.array([1 << 32, 1 << 33, 5, 6, None], pa.int64()),
    pa.array([-7, -1, 5, 6, None], pa.int32()),
    pa.array([1.5, float("nan"), 5, 6, None], pa.float64()),
    pa.array([b"\0\0\0", b"", b"\0\0\0\5", b"\0\0\0\6", None], pa.binary()),
    pa.array(["", "x", "0.0.0.5", "0.0.0.6", None]).dictionary_encode(),
]


def test_what_is_no_address_never_becomes_one(tmp_path: Path) -> None:
    for number, column in enumerate(NO_ADDRESSES):
        write = (write_parquet, write_stream)[number % 2]
        write(pa.table({"src": column, "dst": ["10.0.0.1"] * 5}), tmp_path / "table")
        run = scan(tmp_path / "table", window="all")
        assert [sorted((str(row.host), int(row.peers)) for row in window) for window in run] == [
            [("0.0.0.5", 1), ("0.0.0.6", 1), ("10.0.0.1", 2)]
        ], column.type
        assert run.counters.bad_rows == 3


def test_pieces_and_batches_of_large_row_groups_keep_the_order(monkeypatch: Any, tmp_path: Path) -> None:
    pq.write_table(table_of(ROWS), tmp_path / "a.parquet", row_group_size=700)
    monkeypatch.setattr(parquet, "BATCH_ROWS", 90)
    expected = [(*row[:3], line.time) for row, line in zip(rows_of(ROWS), ROWS, strict=True)]
    for rows in (100, 1400, 1 << 20):
        monkeypatch.setattr(parquet, "PIECE_ROWS", rows)
        for threads in (1, 3):
            assert read_file(tmp_path / "a.parquet", options(threads=threads)).rows == expected


def write_as_others_do(folder: Path, table: pa.Table) -> None:
    """Write the files of pyarrow, pandas, Polars and DuckDB, with their defaults and with every compression."""
    import duckdb

    frame, polars = table.to_pandas(), pl.from_arrow(table)
    assert isinstance(polars, pl.DataFrame)
    levels = {"oldest": pl.CompatLevel.oldest(), "newest": pl.CompatLevel.newest()}
    for codec in (None, "lz4", "zstd"):
        options = ipc.IpcWriteOptions(compression=codec)
        with ipc.new_file(folder / f"pyarrow-{codec}.arrow", table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=300)
        with ipc.new_stream(folder / f"pyarrow-{codec}.arrows", table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=300)
        for level, chosen in levels.items():
            name = f"polars-{codec}-{level}"
            polars.write_ipc(folder / f"{name}.arrow", compression=codec, compat_level=chosen)
            polars.write_ipc_stream(folder / f"{name}.arrows", compression=codec, compat_level=chosen)
            polars.lazy().sink_ipc(folder / f"{name}-sink.arrow", compression=codec, compat_level=chosen)
        frame.to_feather(folder / f"pandas-{codec}.feather", compression=codec or "uncompressed")
    for codec in ("snappy", "gzip", "zstd", "brotli", "lz4", "none"):
        pq.write_table(table, folder / f"pyarrow-{codec}.parquet", compression=codec)
        frame.to_parquet(folder / f"pandas-{codec}.parquet", compression=None if codec == "none" else codec)
        own_name = "uncompressed" if codec == "none" else codec
        polars.write_parquet(folder / f"polars-{codec}.parquet", compression=own_name)
    polars.write_ipc(folder / "polars.arrow")
    polars.lazy().sink_parquet(folder / "polars-sink.parquet")
    polars.write_parquet(folder / "polars.parquet")
    frame.to_feather(folder / "pandas.feather")
    frame.to_parquet(folder / "pandas.parquet")
    with duckdb.connect() as connection:
        for codec in (None, "uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4"):
            connection.from_arrow(table).write_parquet(str(folder / f"duckdb-{codec}.parquet"), compression=codec)


def test_the_files_of_other_programs_by_path_and_by_pipe(tmp_path: Path, stdin: Callable[[Any], None]) -> None:
    rows = ROWS[:400]
    write_as_others_do(tmp_path, table_of(rows))
    expected = answer(rows)
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 57
    for path in paths:
        assert [time for *_, time in read_file(path).rows] == [row.time for row in rows], path.name
        if path.name in PIPED:
            assert found(path) == expected, path.name
            stdin(path.read_bytes())
            assert found("-") == expected, path.name


PIPED = {
    "pyarrow-lz4.arrows",
    "polars-zstd-newest.arrow",
    "pandas.feather",
    "polars-sink.parquet",
    "duckdb-None.parquet",
}


def test_a_compressed_table_a_url_and_no_rows(save: Any, tmp_path: Path) -> None:
    path = save(table_of(ROWS))
    (tmp_path / "z").write_bytes(gzip.compress(path.read_bytes()))
    assert found(tmp_path / "z") == answer(ROWS)
    assert found(f"file://{path}", window="all") == answer(ROWS, None)
    run = scan(save(pa.table({"src": pa.array([], pa.uint32()), "dst": pa.array([], pa.uint32())})), window="all")
    assert (list(run), run.counters.rows) == ([], 0)


def test_integer_columns_are_not_copied(tmp_path: Path) -> None:
    from superhosts.sources.tables.arrow import addresses_of

    array = pa.array(numbers(SOURCES), pa.uint32())
    column = addresses_of(array, "src")
    assert column.__array_interface__["data"][0] == array.buffers()[1].address
