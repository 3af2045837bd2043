"""`superhosts rows`: rows in every format on standard input give the rows of `superhosts scan` on the same packets."""

from __future__ import annotations

import csv
import io
import ipaddress
import json
import random
from pathlib import Path
from typing import Any

import pytest

import traffic
from commands import Ended, process, start

Pair = tuple[str, str]
START = 1_700_000_100  # seconds: the begin of a window of 5 minutes


def make_pairs() -> list[Pair]:
    """Return pairs with some super hosts, of both families."""
    draw = random.Random(7)
    hosts = [f"10.0.0.{draw.randrange(9) ** 2 // 9}" for _ in range(3000)]
    found = [(host, str(ipaddress.IPv4Address(draw.getrandbits(32)))) for host in hosts]
    found += [(f"2001:db8::{draw.randrange(3)}", str(ipaddress.IPv6Address(draw.getrandbits(128)))) for _ in range(500)]
    draw.shuffle(found)
    return found


PAIRS = make_pairs()


def text(line: str, pairs: list[Pair] = PAIRS) -> bytes:
    """Return the pairs as lines; {n} is a time, one second later in each."""
    return "".join(line.format(*pair, n=START + n) + "\n" for n, pair in enumerate(pairs)).encode()


LISTED = text('{{"src": "{}", "dst": "{}"}}')
TIMED = text('{{"src": "{}", "dst": "{}", "time": {n}}}')


def stream_of(columns: dict[str, Any]) -> bytes:
    pa = pytest.importorskip("pyarrow")
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)
    return sink.getvalue()


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
    return rows("-n", 5, given=LISTED).rows


@pytest.mark.parametrize("options", [["-n", 5], ["--exact", "off", "-t", 100, "--direction", "out,in"]])
def test_rows_are_those_of_a_scan(capture: Path, options: list[object]) -> None:
    ended = rows(*options, given=LISTED)
    assert (ended.status, ended.err) == (0, "")
    untimed = {"window_start": None, "window_end": None}
    assert ended.rows == [row | untimed for row in scanned(capture, "--window", "all", *options)]
    assert ended.rows


def test_windows_are_those_of_a_scan(capture: Path) -> None:
    ended = rows("-n", 2, "--window", "10m", given=TIMED)
    assert (ended.status, ended.rows) == (0, scanned(capture, "--window", "10m", "-n", 2))
    assert len({row["window_start"] for row in ended.rows}) == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "given"),
    [
        (["--format", "JSONEachRow"], text('{{"bytes": 1, "src": "{}", "dst": "{}"}}')),
        (["--format", "CSV", "--schema", "src IPv4, `dst` LowCardinality(String)"], text('"{}","{}"')),
        (["--format", "CSVWithNames"], b"src,dst\n" + text('"{}","{}"')),
        (["--format", "TabSeparated", "--schema", "src, dst"], text("{}\t{}")),
        (["--format", "TabSeparatedWithNames"], b"src\tdst\n" + text("{}\t{}")),
    ],
)
def test_text_gives_the_same_rows(options: list[str], given: bytes, top: list[dict[str, Any]]) -> None:
    assert rows(*options, "-n", 5, "--out", "JSONEachRow", given=given) == (0, *rows("-n", 5, given=LISTED)[1:])
    assert top


def test_arrow_streams_give_the_same_rows(top: list[dict[str, Any]]) -> None:
    given = stream_of({"src": [src for src, _ in PAIRS], "dst": [dst for _, dst in PAIRS]})
    assert rows("-n", 5, given=given).rows == top
    assert top


@pytest.mark.slow
def test_text_formats_hold_the_same_values() -> None:
    found = rows("-n", 4, given=LISTED).rows
    for out, delimiter, null in (("CSVWithNames", ",", ""), ("TabSeparatedWithNames", "\t", "\\N")):
        ended = rows("-n", 4, "--out", out, given=LISTED)
        named = list(csv.DictReader(io.StringIO(ended.out), delimiter=delimiter))
        expected = [
            {
                name: null if value is None else value if isinstance(value, str) else json.dumps(value)
                for name, value in row.items()
            }
            for row in found
        ]
        assert named == expected
        bare = rows("-n", 4, "--out", out.removesuffix("WithNames"), given=LISTED)
        assert bare.out.splitlines() == ended.out.splitlines()[1:]


def read_stream(data: bytes) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the types and the rows of an Arrow stream; times as JSON has them."""
    pa = pytest.importorskip("pyarrow")
    table = pa.ipc.open_stream(data).read_all()
    found = table.to_pylist()
    for row in found:
        for name in ("window_start", "window_end"):
            if row.get(name) is not None:
                row[name] = f"{row[name]:%Y-%m-%dT%H:%M:%SZ}"
    return [str(each) for each in table.schema.types], found


ARROW_TYPES = (
    *("timestamp[ns, tz=UTC]", "timestamp[ns, tz=UTC]", "string", "uint8", "string", "string"),
    *("uint64", "uint64", "uint64", "bool", "bool", "string"),
)


def test_arrow_streams_hold_the_same_values() -> None:
    for given, options in ((TIMED, ["-n", "2", "--window", "10m"]), (b"src,dst\n", [])):
        data, err = start("rows", *options, "--out", "ArrowStream").communicate(given)
        assert err == b""
        assert read_stream(data) == ([*ARROW_TYPES], rows(*options, "--out", "JSONEachRow", given=given).rows)


def test_columns_are_those_asked_for() -> None:
    ended = rows("-n", 1, "--out", "CSVWithNames", "--columns", "peers,host", given=LISTED)
    assert ended.out.splitlines()[0] == "peers,host"


def test_no_rows_are_no_super_hosts() -> None:
    assert rows("--columns", "host", given=b"src,dst\n") == (0, "host\n", "")
    assert rows("--format", "CSV", "--schema", "src,dst", given=b"") == (0, "", "")


@pytest.mark.slow
def test_arrays_are_answered_row_by_row() -> None:
    groups = [PAIRS[:700], [], PAIRS[700:2000]]
    chunk = stream_of(
        {name: [[pair[end] for pair in group] for group in groups] for end, name in enumerate(("src", "dst"))}
    )
    options = ["-n", "3", "--direction", "out", "--columns", "host,peers"]
    whole, err = start("rows", "--chunks", *options).communicate(2 * (b"3\n" + chunk))
    assert err == b""
    half = len(whole) // 2
    assert whole[:half] == whole[half:]
    plain = [*options, "--out", "JSONEachRow"]
    expected = [rows(*plain, given=text('{{"src": "{}", "dst": "{}"}}', group) or b"src,dst\n") for group in groups]
    answers = read_stream(whole[:half])[1]
    assert [row["result"] for row in answers] == [each.rows for each in expected]


@pytest.mark.parametrize(
    ("arguments", "given", "status", "message"),
    [
        (["--format", "XML"], b"", 2, "--format: 'XML' is none of ArrowStream, JSONEachRow"),
        (["--format", "CSV"], b"", 2, "--format CSV: give the names of its columns with --schema 'src, dst'"),
        (["--format", "JSONEachRow", "--schema", "a UInt8"], b"", 2, "--schema: not with --format JSONEachRow"),
        (["--schema", "src,dst"], b"", 2, "--schema src,dst: of which format? choose --format CSV or TabSeparated"),
        (["--format", "CSV", "--schema", "a UInt8, a"], b"", 2, "two columns 'a'; give them different names"),
        (["--format", "CSV", "--schema", ","], b"", 2, "--schema ,: no column; write it like 'src, dst, time'"),
        (["--out", "XML"], LISTED, 2, "--out: 'XML' is none of ArrowStream, JSONEachRow"),
        (["--columns", "host,x"], LISTED, 2, "--columns x: no such column; use window_start"),
        (["--chunks", "--out", "CSV"], b"", 2, "--chunks: only with --format and --out ArrowStream"),
        ([], b'{"src": "10.0.0.1"}\n', 3, "stdin: which column is src and which is dst? say it with --map"),
        (["--window", "5m"], LISTED, 3, "stdin: its rows have no time: --window all"),
        ([], b'{"src": "a", "dst": "b"}\n', 3, "stdin: its only row is bad; row 1"),
        (["--time", "end"], TIMED, 3, "stdin: the end of its rows is not known; name its column"),
        ([], b"", 3, "stdin: is empty; --format says which it is: JSONEachRow, CSV"),
        ([], b"no names", 3, "stdin: its rows are in no format that is recognised; --format says which it is"),
        (["--chunks"], b"x", 3, "stdin: expected the number of rows, found b'x'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_written(arguments, given, status, message) -> None:
    ended = rows(*arguments, given=given)
    assert (ended.status, ended.out) == (status, "")
    assert message in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.slow
def test_damaged_chunks_are_not_answered() -> None:
    one, two = [["10.0.0.1"]], [["10.0.0.2", "10.0.0.3"]]
    for number, src, dst, cut, message in (
        (1, one, two, None, "row 1 has 1 sources and 2 destinations: one for each pair"),
        (1, one, one[0], None, "column dst is string, which is not an array of addresses"),
        (2, one, one, None, "a chunk has 1 row, and its first line says 2"),
        (1, one, one, 90, "damaged Arrow stream: "),
    ):
        given = b"%d\n%s" % (number, stream_of({"src": src, "dst": dst})[:cut])
        ended = rows("--chunks", given=given)
        assert (ended.status, ended.out, ended.err.count("\n")) == (3, "", 1)
        assert f"stdin: {message}" in ended.err


def test_bad_rows_are_counted_and_shown() -> None:
    given = b"src\tdst\n10.0.0.1\t10.0.0.2\n?\t10.0.0.2\n"
    ended = rows("--out", "JSONEachRow", given=given)
    assert (ended.status, len(ended.rows)) == (0, 2)
    assert "row 3 does not count: no address: ?\\t10.0.0.2" in ended.err


@pytest.mark.parametrize(
    ("start", "delimiter", "written", "ends"),
    [("\ufeff", ",", ",", "\n"), ("", ";", ",", "\r\n"), ("\ufeff", "\t", "\t", "\r\n"), ("", "\t", "\t", "\n")],
)
def test_text_with_names_is_recognised(start: str, delimiter: str, written: str, ends: str) -> None:
    lines = [delimiter.join(line) for line in (("src", "dst"), ("10.0.0.1", "192.0.2.1"), ("10.0.0.1", "192.0.2.2"))]
    ended = rows("--columns", "host,peers", "--top", 1, given=(start + ends.join([*lines, ""])).encode())
    assert ended.out.splitlines() == [f"host{written}peers", f"10.0.0.1{written}2"]
