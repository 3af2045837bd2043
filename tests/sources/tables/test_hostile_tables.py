"""Damaged and unusual tables end in one line that names the file, never in a crash or in wrong rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from commands import Run
from superhosts.errors import InputError
from tables import make_rows, scan

ROWS = make_rows(1000)
SRC, DST = [row.src for row in ROWS], [row.dst for row in ROWS]


def make(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=250)
    return path


def text_table(path: Path) -> Path:
    return make(path, src=SRC, dst=DST)


def said(path: Path, **settings: Any) -> str:
    with pytest.raises(InputError) as error:
        list(scan(path, window="all", **settings))
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def test_files_that_were_cut(tmp_path: Path) -> None:
    path = text_table(tmp_path / "a.parquet")
    whole = path.read_bytes()
    for left in (5, 8, 12, 500, -1, -4, -8, -100):
        path.write_bytes(whole[:left])
        assert said(path).startswith("damaged Parquet file: "), left
    feather.write_feather(pa.table({"src": SRC, "dst": DST}), path, chunksize=250)
    whole = path.read_bytes()
    for left in (200, len(whole) // 2):
        path.write_bytes(whole[:left])
        assert said(path).startswith("damaged Arrow file: "), left


def stream(path: Path, **columns: Any) -> Path:
    table = pa.table(columns)
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)
    return path


def test_text_that_points_outside_of_its_column(tmp_path: Path) -> None:
    for offsets in ([0, 10, 1 << 30, 30], [0, 10, -20, 30]):
        buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"2024-01-01" * 3)]
        outside = pa.Array.from_buffers(pa.string(), 3, buffers)
        path = stream(tmp_path / "a.arrow", src=["1.1.1.1"] * 3, dst=["2.2.2.2"] * 3, time=outside)
        assert said(path).startswith("damaged Arrow file: ")
        path = stream(tmp_path / "a.arrow", src=outside, dst=["2.2.2.2"] * 3)
        assert said(path) == "column 'src': a damaged Arrow array: values lie outside of its data"


def test_columns_that_hold_no_addresses_or_times(tmp_path: Path) -> None:
    for column, kind in (
        (pa.array([True] * 3), "bool"),
        (pa.array([[1]] * 3), "which column is src"),
        (pa.array([{"a": 1}] * 3), "which column is src"),
        (pa.array([0] * 3, pa.timestamp("ms")), "timestamp[ms]"),
        (pa.array([b"abc"] * 3, pa.binary(3)), "fixed_size_binary[3]"),
    ):
        text = said(make(tmp_path / "a.parquet", src=column, dst=column))
        expected = f"column 'src': Arrow's {kind} is not a type of addresses; integers, strings and 4 or 16 bytes are"
        assert kind in text if kind == "which column is src" else text == expected
    path = make(tmp_path / "a.parquet", src=SRC[:2], dst=DST[:2], ts=pa.array([True, False]))
    assert said(path).startswith("column 'ts' has the type bool; times are TIMESTAMP, numbers")


def test_all_rows_are_bad(tmp_path: Path) -> None:
    path = make(tmp_path / "a.parquet", src=["x", "y"], dst=["10.0.0.1", None], port=[1, 2])
    assert said(path) == (
        "all of its 2 rows are bad; row 1 does not count: src=x, dst=10.0.0.1; its columns: src, dst, port; "
        'map="src=COLUMN,dst=COLUMN" says which to read'
    )


def test_without_pyarrow(monkeypatch: Any, tmp_path: Path, run: Run) -> None:
    path = text_table(tmp_path / "a.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    ended = run("scan", path, "--window", "all")
    assert ended.status == 2
    assert f"superhosts: {path}: reading Parquet and Arrow files needs packages that are not installed: " in ended.err
    assert "pip install 'superhosts[tables]'" in ended.err


def test_a_time_that_a_dictionary_does_not_have_is_a_bad_row(tmp_path: Path) -> None:
    places = pa.array([0, 1, 1 << 30], pa.int32())
    times = pa.DictionaryArray.from_arrays(places, pa.array(["2024-01-01"] * 2), safe=False)
    run = scan(stream(tmp_path / "a.arrow", src=["1.1.1.1"] * 3, dst=["2.2.2.2"] * 3, time=times))
    assert (len(list(run)), run.counters.rows, run.counters.bad_rows) == (1, 3, 1)


def test_bytes_that_are_no_text_are_bad_rows(tmp_path: Path) -> None:
    """In columns of text and in dictionaries, of addresses and of times."""
    for column in ("src", "dst", "ts"):
        for is_dictionary in (False, True):
            texts = {"src": SRC[:300], "dst": DST[:300], "ts": ["2024-02-03T04:05:06Z"] * 300}
            raw = [text.encode() for text in texts[column]]
            raw[5] = raw[280] = b"\xff\xfe" + raw[5][2:]
            damaged = pa.array(raw, pa.binary()).view(pa.string())
            arrays = {**texts, column: damaged.dictionary_encode() if is_dictionary else damaged}
            for path in (tmp_path / "a.parquet", tmp_path / "a.arrow"):
                if path.suffix == ".parquet":
                    make(path, **arrays)
                else:
                    feather.write_feather(pa.table(arrays), path)
                run = scan(path)
                list(run)
                assert (run.counters.rows, run.counters.bad_rows) == (300, 2), (column, is_dictionary, path.suffix)
                assert len(run.counters.warnings) == 2


def test_a_csv_with_a_nul_is_the_same_by_path_and_by_pipe(tmp_path: Path, stdin: Callable[[Any], None]) -> None:
    """Its row is bad, wherever it is; only a first line with one is not text."""
    lines = [b"src,dst,time", *(b"10.0.0.%d,192.0.2.%d,1700000000" % (i % 5, i % 99) for i in range(900))]
    for damaged in (1, 2, 3, 500, 900):
        text = b"\n".join([*lines[:damaged], lines[damaged].replace(b"192", b"1\0\xd8"), *lines[damaged + 1 :]])
        path = tmp_path / "a.csv"
        path.write_bytes(text + b"\n")
        stdin(path.read_bytes())
        for name in (path, "-"):
            run = scan(name, window="all")
            assert (len(list(run)), run.counters.rows, run.counters.bad_rows) == (1, 900, 1), (damaged, name)
    path.write_bytes(b"\n".join([b"src,dst,\0time", *lines[1:]]))
    stdin(path.read_bytes())
    for name in (path, "-"):
        with pytest.raises(InputError, match="not a capture"):
            list(scan(name, window="all"))


def test_descriptions_that_end_the_process_in_pyarrow(tmp_path: Path) -> None:
    """A column that is not optional has no histogram of levels: pyarrow ends the process when Python looks at it."""
    whole = text_table(tmp_path / "a.parquet").read_bytes()
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    at = whole.index(b"\x25\x02\x18\x03src", begin) + 1  # repetition: optional, name: src
    (tmp_path / "a.parquet").write_bytes(whole[:at] + b"\0" + whole[at + 1 :])
    assert said(tmp_path / "a.parquet").startswith("damaged Parquet file: ")


def test_dictionaries_and_names_that_end_the_process_or_are_no_text(tmp_path: Path) -> None:
    indices = pa.array([0, 1, 1 << 30], pa.int32())
    src = pa.DictionaryArray.from_arrays(indices, pa.array(["1.1.1.1", "1.1.1.2"]), safe=False)
    path = tmp_path / "a.arrow"
    feather.write_feather(pa.table({"src": src, "dst": ["2.2.2.2"] * 3}), path, compression="uncompressed")
    run = scan(path, window="all")
    assert (len(list(run)), run.counters.rows, run.counters.bad_rows) == (1, 3, 1)
    assert "src=?" in run.counters.warnings[0]
    for name in ("a.parquet", "a.arrow"):
        path = tmp_path / name
        table = pa.table({"src": SRC, "dst": DST, "other": SRC})
        if name == "a.parquet":
            pq.write_table(table, path, store_schema=False)
        else:
            feather.write_feather(table, path)
        path.write_bytes(path.read_bytes().replace(b"other", b"oth\xff\xfe"))
        assert said(path).startswith("damaged ")


def test_the_disk_is_full_when_a_pipe_is_copied(monkeypatch: Any, tmp_path: Path, stdin: Callable[[Any], None]) -> None:
    import tempfile

    from superhosts.errors import OutputError

    class Full:
        def write(self, _data: object) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_options: Full())
    stdin(text_table(tmp_path / "a.parquet").read_bytes())
    with pytest.raises(OutputError, match="a temporary file cannot be written: No space left on device; TMPDIR"):
        list(scan("-", window="all"))
