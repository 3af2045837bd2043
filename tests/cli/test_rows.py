"""`superhosts rows`: rows in every format on standard input give the rows of `superhosts scan` on the same packets."""

from __future__ import annotations

import csv
import io
import ipaddress
import json
import random
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import traffic
from commands import Ended, process, start
from superhosts.output.formats import TYPES
from superhosts.output.report import COLUMNS

Pair = tuple[str, str]
START = 1_700_000_100  # seconds: the begin of a window of 5 minutes
TIMED = "src IPv4, dst IPv4, time DateTime"
SCHEMA = "src IPv6, dst IPv6"


def make_pairs() -> list[Pair]:
    """Return pairs with some super hosts, of both families."""
    draw = random.Random(7)
    hosts = [f"10.0.0.{draw.randrange(9) ** 2 // 9}" for _ in range(3000)]
    found = [(host, str(ipaddress.IPv4Address(draw.getrandbits(32)))) for host in hosts]
    found += [(f"2001:db8::{draw.randrange(3)}", str(ipaddress.IPv6Address(draw.getrandbits(128)))) for _ in range(500)]
    draw.shuffle(found)
    return found


PAIRS = make_pairs()


def packed(address: str) -> bytes:
    found = ipaddress.ip_address(address)
    return found.packed if found.version == 6 else b"\0" * 10 + b"\xff\xff" + found.packed


def length(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + length(number >> 7)


def text(value: str) -> bytes:
    return length(len(value.encode())) + value.encode()


def binary(pairs: list[Pair] = PAIRS) -> bytes:
    return b"".join(packed(src) + packed(dst) for src, dst in pairs)


def timed() -> bytes:
    """Rows with times, one second apart."""
    stamps = (struct.pack("<I", START + number) for number in range(len(PAIRS)))
    return b"".join(packed(src) + packed(dst) + stamp for (src, dst), stamp in zip(PAIRS, stamps, strict=True))


def rows(*arguments: object, given: bytes) -> Ended:
    return process("rows", *arguments, given=given)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frames = [traffic.packet((START + number) * 10**9, *pair) for number, pair in enumerate(PAIRS)]
    return traffic.write(tmp_path_factory.mktemp("rows") / "all.pcap", frames)


def scanned(capture: Path, *options: object) -> list[dict[str, Any]]:
    ended = process("scan", capture, "--json", *options)
    assert ended.status == 0, ended.err
    return ended.rows


@pytest.fixture(scope="module")
def top() -> list[dict[str, Any]]:
    """The first hosts of all pairs, from RowBinary."""
    return rows("--schema", SCHEMA, "-n", 5, "--out", "JSONEachRow", given=binary()).rows


def without_window(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "window_start": None, "window_end": None} for row in found]


@pytest.mark.parametrize("options", [["-n", 5], ["--exact", "off", "-t", 100, "--direction", "out,in"]])
def test_rows_are_those_of_a_scan(capture: Path, options: list[object]) -> None:
    ended = rows("--schema", SCHEMA, "--out", "JSONEachRow", *options, given=binary())
    assert (ended.status, ended.err) == (0, "")
    assert ended.rows == without_window(scanned(capture, "--window", "all", *options))
    assert ended.rows


def test_windows_are_those_of_a_scan(capture: Path) -> None:
    schema = f"{SCHEMA}, time DateTime"
    ended = rows("--schema", schema, "--out", "JSONEachRow", "-n", 2, "--window", "10m", given=timed())
    assert (ended.status, ended.rows) == (0, scanned(capture, "--window", "10m", "-n", 2))
    assert len({row["window_start"] for row in ended.rows}) == 7


def test_an_input_of_names_and_types_is_recognised(top: list[dict[str, Any]]) -> None:
    header = length(2) + b"".join(map(text, ("SrcAddr", "DstAddr", "IPv6", "LowCardinality(IPv6)")))
    ended = rows("-n", 5, "--out", "JSONEachRow", given=header + binary())
    assert (ended.status, ended.err, ended.rows) == (0, "", top)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], '{{"src": "{0}", "dst": "{1}"}}\n'),
        (["--format", "JSONEachRow"], '{{"bytes": 1, "src": "{0}", "dst": "{1}"}}\n'),
        (["--format", "CSV", "--schema", "src, dst"], '"{0}","{1}"\n'),
        (["--format", "TabSeparated", "--schema", "src, dst"], "{0}\t{1}\n"),
    ],
)
def test_text_gives_the_same_rows(options: list[str], line: str, top: list[dict[str, Any]]) -> None:
    given = "".join(line.format(*pair) for pair in PAIRS).encode()
    ended = rows(*options, "-n", 5, "--out", "JSONEachRow", given=given)
    assert (ended.status, ended.err) == (0, "")
    assert ended.rows == top
    if "--schema" in options:
        headed = [options[0], f"{options[1]}WithNames"]
        names = ("src,dst\n" if options[1] == "CSV" else "src\tdst\n").encode()
        assert rows(*headed, "-n", 5, "--out", "JSONEachRow", given=names + given) == ended


def test_arrow_streams_give_the_same_rows(top: list[dict[str, Any]]) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"src": [src for src, _ in PAIRS], "dst": [dst for _, dst in PAIRS]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)
    ended = rows("-n", 5, given=sink.getvalue())
    assert ended.rows == top
    assert ended.rows


@pytest.mark.slow
def test_text_formats_hold_the_same_values() -> None:
    options = ["--schema", SCHEMA, "-n", 4]
    found = rows(*options, "--out", "JSONEachRow", given=binary()).rows
    for out, delimiter, null in (("CSVWithNames", ",", ""), ("TabSeparatedWithNames", "\t", "\\N")):
        ended = rows(*options, "--out", out, given=binary())
        named = list(csv.DictReader(io.StringIO(ended.out), delimiter=delimiter))
        expected = [
            {
                name: null if value is None else value if isinstance(value, str) else json.dumps(value)
                for name, value in row.items()
            }
            for row in found
        ]
        assert named == expected
        bare = rows(*options, "--out", out.removesuffix("WithNames"), given=binary())
        assert bare.out.splitlines() == ended.out.splitlines()[1:]


def read_value(kind: str, stream: io.BytesIO) -> Any:
    """Read a value of RowBinary, the slow and plain way."""
    if kind.startswith("Nullable("):
        return None if stream.read(1) == b"\1" else read_value(kind[9:-1], stream)
    if kind == "String":
        return stream.read(stream.read(1)[0]).decode()
    if kind == "Bool":
        return stream.read(1) == b"\1"
    number = int.from_bytes(stream.read(1 if kind == "UInt8" else 8), "little")
    if kind.startswith("DateTime64"):
        return datetime.fromtimestamp(number / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return number


def test_rowbinary_holds_the_same_values() -> None:
    options = ["--schema", f"{SCHEMA}, time DateTime", "-n", 2, "--window", "10m"]
    found = rows(*options, "--out", "JSONEachRow", given=timed()).rows
    names = length(len(COLUMNS)) + b"".join(map(text, [*COLUMNS, *TYPES.values()]))
    for out, header in (("RowBinary", b""), ("RowBinaryWithNamesAndTypes", names)):
        child = start("rows", *map(str, options), "--out", out)
        data, err = child.communicate(timed())
        assert (child.returncode, err) == (0, b"")
        assert data.startswith(header)
        stream = io.BytesIO(data[len(header) :])
        read = [{name: read_value(TYPES[name], stream) for name in COLUMNS} for _ in found]
        assert (read, stream.read()) == (found, b"")


def test_columns_are_those_asked_for() -> None:
    ended = rows("--schema", SCHEMA, "-n", 1, "--out", "CSVWithNames", "--columns", "peers,host", given=binary())
    assert ended.out.splitlines()[0] == "peers,host"


def test_no_rows_are_no_super_hosts() -> None:
    assert rows("--schema", SCHEMA, given=b"") == (0, "", "")
    assert rows("--schema", SCHEMA, "--out", "CSVWithNames", "--columns", "host", given=b"") == (0, "host\n", "")


@pytest.mark.slow
def test_arrays_are_answered_row_by_row() -> None:
    groups = [PAIRS[:700], [], PAIRS[700:2000]]
    array = "src:Array(IPv6),dst:Array(IPv6)"
    given = b""
    for group in groups:
        given += b"".join(length(len(group)) + b"".join(packed(pair[end]) for pair in group) for end in (0, 1))
    options = ["--schema", array, "--columns", "host,peers", "-n", 3, "--direction", "out"]
    whole = start("rows", *map(str, options)).communicate(given)[0]
    stream = io.BytesIO(whole)
    for group in groups:
        one = rows("--schema", SCHEMA, "-n", 3, "--direction", "out", "--out", "JSONEachRow", given=binary(group)).rows
        tuples = [
            tuple(read_value(TYPES[name], stream) for name in ("host", "peers")) for _ in range(stream.read(1)[0])
        ]
        assert tuples == [(row["host"], row["peers"]) for row in one]
    assert stream.read() == b""
    chunked = start("rows", "--chunks", *map(str, options)).communicate(b"3\n" + given + b"3\n" + given)[0]
    assert chunked == whole + whole


@pytest.mark.parametrize(
    ("arguments", "given", "status", "message"),
    [
        (["--format", "RowBinary"], b"", 2, "--format RowBinary: it does not say what its columns are"),
        (["--format", "XML"], b"", 2, "--format XML: no such format; use RowBinary, RowBinaryWithNamesAndTypes"),
        (["--format", "CSV"], b"", 2, "--format CSV: give the names of its columns with --schema 'src, dst'"),
        (["--format", "JSONEachRow", "--schema", "a UInt8"], b"", 2, "--schema: not with --format JSONEachRow"),
        (["--schema", SCHEMA, "--out", "ArrowStream"], b"", 2, "--out ArrowStream: rows are not written in it"),
        (["--schema", SCHEMA, "--out", "XML"], b"", 2, "--out XML: no such format; use JSONEachRow, TabSeparated"),
        (["--schema", SCHEMA, "--columns", "host,x"], b"", 2, "--columns x: no such column; use window_start"),
        (["--schema", SCHEMA, "--chunks"], b"", 2, "--chunks: only with arrays in --schema"),
        (["--schema", "src IPv4"], b"", 3, "stdin: which column is src and which is dst? say it with --map"),
        (["--schema", "src IPv4, dst IPv4"], b"123", 3, "stdin: byte 0: row 1 is cut off by the end of the input"),
        (["--schema", SCHEMA, "--window", "5m"], bytes(32), 3, "stdin: its rows have no time: --window all"),
        (["--schema", "src String, dst String"], text("a") + text("b"), 3, "stdin: its only row is bad; row 1"),
        (["--schema", "src Array(IPv6), dst Array(IPv6)"], b"\0\1" + bytes(16), 3, "row 1 has 0 sources and 1 dest"),
        (["--schema", "src Array(IPv6), dst IPv6"], b"", 3, "stdin: column dst is no array of addresses"),
        (["--schema", "src Array(IPv4), dst Array(IPv4)", "--chunks"], b"x", 3, "where a line with a number of rows"),
        (["--schema", TIMED, "--time", "end"], b"", 3, "stdin: the end of its rows is not known; name its column"),
        ([], b"no names", 3, "of RowBinary say which they are: --schema 'src IPv4, dst IPv4'; --help lists other"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_written(arguments, given, status, message) -> None:
    ended = rows(*arguments, given=given)
    assert (ended.status, ended.out) == (status, "")
    assert message in ended.err
    assert ended.err.count("\n") == 1


def test_bad_rows_are_counted_and_shown() -> None:
    given = text("10.0.0.1") + text("10.0.0.2") + text("?") + text("10.0.0.2")
    ended = rows("--schema", "src String, dst String", "--out", "JSONEachRow", given=given)
    assert (ended.status, len(ended.rows)) == (0, 2)
    assert "row 2 does not count: src '?', dst '10.0.0.2'" in ended.err


@pytest.mark.parametrize(
    ("start", "delimiter", "written", "ends"),
    [("\ufeff", ",", ",", "\n"), ("", ";", ",", "\r\n"), ("\ufeff", "\t", "\t", "\r\n"), ("", "\t", "\t", "\n")],
)
def test_text_with_names_is_recognised(start: str, delimiter: str, written: str, ends: str) -> None:
    lines = [delimiter.join(line) for line in (("src", "dst"), ("10.0.0.1", "192.0.2.1"), ("10.0.0.1", "192.0.2.2"))]
    ended = rows("--columns", "host,peers", "--top", 1, given=(start + ends.join([*lines, ""])).encode())
    assert ended.out.splitlines() == [f"host{written}peers", f"10.0.0.1{written}2"]


def test_a_wide_header_of_rowbinary_is_no_text() -> None:
    names = [f"{number:09}" for number in range(42)] + ["src", "dst"]
    header = length(len(names)) + b"".join(length(len(name)) + name.encode() for name in names)
    header += b"".join(length(len(kind)) + kind.encode() for kind in ["UInt8"] * 42 + ["IPv4", "IPv4"])
    row = bytes(42) + struct.pack("<II", 0x0A000001, 0xC0000201)
    ended = rows("--columns", "host,peers", "--inner", "10.0.0.0/8", "--out", "CSV", given=header + row)
    assert ended.out.split() == ["10.0.0.1,1"], ended.err
