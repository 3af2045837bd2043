"""Pages of Parquet files: what is read here is what pyarrow wrote, and everything else is left to pyarrow."""

from __future__ import annotations

import io
import random
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superhosts.sources.tables.arrow import Places
from superhosts.sources.tables.parquet import ParquetReader, PlainPages, UnsupportedPage, _plain, have_values, take_runs
from tables import answer, arrow_table, found, make_rows, scan, times

ROWS = 5000
DRAW = random.Random(5)
NUMBERS = [DRAW.getrandbits(31) for _ in range(ROWS // 2)] + [DRAW.choice((1, 77, 2**31 - 1)) for _ in range(100)]
NUMBERS += [5] * 900  # a run of one index
NUMBERS += [DRAW.choice(NUMBERS[:300]) for _ in range(ROWS - len(NUMBERS))]
TEXTS = [str(IPv4Address(number)) for number in NUMBERS]
KINDS = {
    "text": pa.array(TEXTS),
    "large text": pa.array(TEXTS, pa.large_string()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
}
WRITING: dict[str, dict[str, Any]] = {
    "as usual": {},
    "without dictionaries": {"use_dictionary": False},
    "a small dictionary": {"dictionary_pagesize_limit": 2000, "data_page_size": 500, "write_batch_size": 50},
    "small pages": {"data_page_size": 700, "write_batch_size": 100},
    "version 1.0": {"version": "1.0"},
    "zstd": {"compression": "zstd"},
    "gzip": {"compression": "gzip"},
    "not compressed": {"compression": "none"},
    "row groups": {"row_group_size": 777},
    "no statistics": {"write_statistics": False},
    "checksums": {"write_page_checksum": True},
}


def written(columns: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), buffer, **options)
    return buffer.getvalue()


def pages(file: bytes, *names: str) -> list[np.ndarray] | None:
    opened = pq.ParquetFile(io.BytesIO(file))
    plain = PlainPages(Places(len(file), lambda: io.BytesIO(file)), opened, names or ("a",))
    return plain.read(range(opened.metadata.num_row_groups))


def test_what_was_written_is_read() -> None:
    pairs = {(kind, writing) for kind in KINDS for writing in ("as usual", "without dictionaries")}
    pairs |= {("text", writing) for writing in WRITING}
    for kind, writing in sorted(pairs):
        for nullable in (True, False):
            schema = pa.schema([("other", pa.string()), pa.field("a", KINDS[kind].type, nullable=nullable)])
            read = pages(written(pa.table([TEXTS, KINDS[kind]], schema), **WRITING[writing]), "a", "other")
            assert read is not None
            assert np.array_equal(read, [NUMBERS, NUMBERS]), (kind, writing)


def test_what_is_left_to_pyarrow() -> None:
    for column, options in [
        (pa.array([], pa.string()), {}),
        (pa.array([1, 3], pa.uint32()), {}),
        (pa.array(["1.1.1.1", None]), {"data_page_version": "2.0"}),
        (pa.array(["1.1.1.1", "::1"]), {}),
        (pa.array(["1.1.1.1", "1.1.1.1 "]), {"use_dictionary": False}),
        (pa.array(["1.1.1.1", ""]), {"use_dictionary": False}),
        (pa.array([b"1.1.1.1"]), {}),
        (pa.array([b"1234"], pa.binary(4)), {}),
        (pa.array([[1], [2]]), {}),
        (pa.array([{"a": 1}]), {}),
        (pa.array(TEXTS), {"column_encoding": "DELTA_LENGTH_BYTE_ARRAY", "use_dictionary": False}),
        (pa.array(TEXTS), {"column_encoding": "DELTA_BYTE_ARRAY", "use_dictionary": False}),
        (pa.array(TEXTS), {"compression": "lz4"}),
        (pa.array(TEXTS), {"data_page_version": "2.0"}),
    ]:
        assert pages(written({"a": column}, **options)) is None, (column, options)
    assert pages(written(pa.table([KINDS["text"], KINDS["text"]], ["a", "a"]))) is None
    inside = pa.array([{"b": "1.1.1.1"}], pa.struct([pa.field("b", pa.string(), nullable=False)]))
    schema = pa.schema([pa.field("a", inside.type, nullable=False), ("a.b", pa.string())])
    assert pages(written(pa.table([inside, pa.array(["1.1.1.2"])], schema)), "a.b") is None  # two columns of one path


def test_a_table_of_which_some_row_groups_are_odd(tmp_path: Path) -> None:
    rows = make_rows(3000)
    src: list[str | None] = [row.src for row in rows]
    src[1500] = None
    pq.write_table(arrow_table(rows, src=src, time=times(rows)), tmp_path / "a.parquet", row_group_size=100)
    assert found(tmp_path / "a.parquet", window="all") == answer(rows[:1500] + rows[1501:], None)


def test_rows_come_from_pages_with_their_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_rows(3000)
    pq.write_table(arrow_table(rows, time=times(rows)), tmp_path / "a.parquet", row_group_size=700)
    plain = found(tmp_path / "a.parquet", window="1m")

    def refuse(*_: Any) -> None:
        raise AssertionError("not by way of Arrow")

    with monkeypatch.context() as patched:
        patched.setattr(ParquetReader, "_convert", refuse)
        assert found(tmp_path / "a.parquet", window="1m") == plain
    monkeypatch.setattr(PlainPages, "read", lambda *_: None)
    assert found(tmp_path / "a.parquet", window="1m") == plain


SMALL = [
    written({"src": TEXTS[:200], "dst": TEXTS[200:400]}),
    written({"src": TEXTS[2400:2700], "dst": TEXTS[:300]}, use_dictionary=False),
]


@given(st.sampled_from(SMALL), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_damage_is_an_error_or_other_rows(file: bytes, changes: list[tuple[float, int]]) -> None:
    """The description at the end is as it was: pyarrow reads that."""
    end = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    damaged = bytearray(file)
    for place, byte in changes:
        damaged[4 + int(place * (end - 5))] = byte
    read = pages(bytes(damaged), "src", "dst")
    rows = pq.ParquetFile(io.BytesIO(file)).metadata.num_rows
    assert read is None or [len(column) for column in read] == [rows, rows]


def test_a_codec_that_does_not_exist_is_no_end_of_the_process(tmp_path: Path) -> None:
    """pyarrow aborts if it is asked for such a codec. The bytes of a page say how they are compressed."""
    rows = make_rows(300)
    pq.write_table(arrow_table(rows), tmp_path / "a")
    file = bytearray((tmp_path / "a").read_bytes())
    footer = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    for name in (b"src", b"dst"):  # a list of one name, then the codec
        place = file.index(b"\x19\x18\x03" + name + b"\x15\x02", footer)
        file[place + 7] = 0x7E
    (tmp_path / "a").write_bytes(file)
    assert found(tmp_path / "a", window="all") == answer(rows, None)


@pytest.mark.parametrize("codec", ["snappy", "gzip", "zstd"])
def test_fewer_bytes_than_a_header_says_are_never_filled_with_others(codec: str) -> None:
    packed = np.frombuffer(pa.Codec(codec).compress(b"abcd" * 10, asbytes=True), np.uint8)
    assert _plain(packed, 40).tobytes() == b"abcd" * 10
    for size in (39, 41, 4000):
        with pytest.raises(UnsupportedPage):
            _plain(packed, size)


def test_places_that_lie_outside_of_the_file_are_left_to_pyarrow() -> None:
    file = written({"a": TEXTS})
    opened = pq.ParquetFile(io.BytesIO(file))
    assert PlainPages(Places(100, lambda: io.BytesIO(file)), opened, ("a",)).read([0]) is None

    def fail() -> Any:
        raise OSError(22, "Invalid argument")

    assert PlainPages(Places(len(file), fail), opened, ("a",)).read([0]) is None


def test_a_page_that_claims_much_takes_no_memory() -> None:
    """Bytes that decompress to two gigabytes, says their header, are left to pyarrow, which looks at the bytes."""
    file = bytearray(written({"a": TEXTS}, use_dictionary=False))
    header = file.index(b"\x15\x00\x15", 4)  # kind 0, then the decompressed size
    file[header + 3 : header + 8] = b"\xfe\xff\xff\xff\x0f"
    assert pages(bytes(file)) is None


@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_definition_levels(bits: list[bool]) -> None:
    groups = (len(bits) + 7) // 8
    packed = bytes([groups << 1 | 1]) + sum(bit << place for place, bit in enumerate(bits)).to_bytes(groups, "little")
    for levels in (packed, bytes([len(bits) << 1, all(bits)])):
        assert have_values(np.frombuffer(levels, np.uint8), len(bits)) == all(bits)
        assert not have_values(np.frombuffer(levels, np.uint8), 8 * groups + 1)
        assert not have_values(np.frombuffer(levels[:-1], np.uint8), len(bits))


def naive_runs(data: bytes, width: int, count: int) -> list[int]:
    indices: list[int] = []
    at = 0
    while len(indices) < count:
        head = shift = 0
        while True:
            head |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                break
            if shift > 28:  # A number of more than five bytes is damage.
                raise IndexError
        size = (head >> 1) * width if head & 1 else (width + 7) // 8
        if len(data) - at < size or head < 2:
            raise IndexError
        bits = int.from_bytes(data[at : at + size], "little")
        at += size
        if head & 1:
            places = range(min(8 * (head >> 1), count - len(indices)))
            indices += [bits >> (place * width) & ((1 << width) - 1) for place in places]
        else:
            indices += [bits] * min(head >> 1, count - len(indices))
    return indices


@given(st.binary(max_size=60), st.integers(0, 32), st.integers(1, 100))
def test_runs_are_those_of_a_plain_reader(data: bytes, width: int, count: int) -> None:
    known = np.arange(1000, 1200, dtype=np.uint32)
    taken = np.zeros(count, np.uint32)
    whole = take_runs(np.frombuffer(bytes([width]) + data, np.uint8), 0, known, taken)
    try:
        indices = naive_runs(data, width, count)
    except IndexError:
        assert not whole
        return
    assert whole == (max(indices) < len(known))
    if whole:
        assert taken.tolist() == [1000 + index for index in indices]


def test_rows_without_a_time_are_bad_and_shown_where_all_addresses_are_good(tmp_path: Path) -> None:
    rows = make_rows(300)
    stamps = times(rows)
    stamps[7] = None
    pq.write_table(arrow_table(rows, time=stamps), tmp_path / "a.parquet")
    run = scan(tmp_path / "a.parquet", window="all")
    list(run)
    assert (run.counters.rows, run.counters.bad_rows) == (300, 1)
    assert any("row 8 does not count: src=" in text and "time=null" in text for text in run.counters.warnings)


def test_fewer_times_than_addresses_are_left_to_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_rows(300)
    pq.write_table(arrow_table(rows, time=times(rows)), tmp_path / "a.parquet")
    whole = ParquetReader._table

    def table(reader: Any, groups: Any, columns: list[str]) -> Any:
        return whole(reader, groups, columns).slice(0, 200 if columns == ["time"] else None)

    monkeypatch.setattr(ParquetReader, "_table", table)
    assert found(tmp_path / "a.parquet", window="all") == answer(rows, None)
