"""RowBinary against a writer and an oracle in plain Python: types, NULLs, lengths, pieces of any size, damage."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superhosts.core.columns.addresses import AddressColumn
from superhosts.errors import InputError, UsageError
from superhosts.sources.tables.mapping import parse_map
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.rowbinary import RowBinaryReader, field_of, parse_schema, row_width
from superhosts.sources.tables.source import RowBlock
from superhosts.sources.tables.times import NO_TIME
from table_reading import Drips

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def length(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + length(number >> 7)


def text(value: str) -> bytes:
    return length(len(value.encode())) + value.encode()


def nullable(write: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return lambda value: b"\1" if value is None else b"\0" + write(value)


class Kind(NamedTuple):
    """A type of ClickHouse: how an address is written in it, and which families it takes."""

    write: Callable[[Any], bytes]
    families: tuple[int, ...]


def mapped(address: Address) -> bytes:
    return address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed


KINDS = {
    "IPv4": Kind(lambda address: struct.pack("<I", int(address)), (4,)),
    "UInt32": Kind(lambda address: struct.pack("<I", int(address)), (4,)),
    "UInt64": Kind(lambda address: struct.pack("<Q", int(address)), (4,)),
    "Int64": Kind(lambda address: struct.pack("<q", int(address)), (4,)),
    "FixedString(4)": Kind(lambda address: address.packed, (4,)),
    "IPv6": Kind(mapped, (4, 6)),
    "FixedString(16)": Kind(mapped, (4, 6)),
    "LowCardinality(IPv6)": Kind(mapped, (4, 6)),
    "UInt128": Kind(lambda address: mapped(address)[::-1], (4, 6)),
    "String": Kind(lambda address: text(str(address)), (4, 6)),
    "LowCardinality(Nullable(String))": Kind(nullable(lambda address: text(str(address))), (4, 6)),
    "Nullable(IPv4)": Kind(nullable(lambda address: struct.pack("<I", int(address))), (4,)),
}
ADDRESSES = {
    4: st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address),
    6: st.integers(0, 2**128 - 1).map(ipaddress.IPv6Address),
}


def plain(address: Address | None) -> Address | None:
    """The address that counts: IPv4 that is mapped to IPv6 is IPv4."""
    return address if address is None or address.version == 4 else address.ipv4_mapped or address


def read(data: bytes, schema: str, size: int = 1 << 20, map: str | None = None, time: str = "start") -> list[RowBlock]:
    options = TableOptions(map=None if map is None else parse_map(map), time=time)
    reader = RowBinaryReader(Drips(data, size, "rows"), options, parse_schema(schema) if schema else ())
    blocks = []
    while (block := reader.read()) is not None:
        blocks.append(block)
    return blocks


def addresses(column: Any) -> list[Address | None]:
    if not isinstance(column, AddressColumn):
        return [ipaddress.IPv4Address(int(number)) for number in column]
    found: list[Address | None] = []
    for kind, (high, low) in zip(column.kinds.tolist(), column.words.tolist(), strict=True):
        number = high << 64 | low
        found.append(
            None if kind == 0 else ipaddress.IPv4Address(number) if kind == 4 else ipaddress.IPv6Address(number)
        )
    return found


def columns(blocks: Sequence[RowBlock]) -> tuple[list[Address | None], list[Address | None]]:
    return [a for block in blocks for a in addresses(block.src)], [a for block in blocks for a in addresses(block.dst)]


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, bytes, list[tuple[Address | None, Address | None]]]:
    """A schema with other columns around the ends, the bytes of rows, and their ends."""
    ends = [draw(st.sampled_from(sorted(KINDS))) for _ in range(2)]
    rows, data = [], bytearray()
    noise = [
        draw(st.sampled_from(["UInt8", "String", "Nullable(UInt16)", "Float64", "DateTime64(3)"])) for _ in range(2)
    ]
    for _ in range(draw(st.integers(0, 12))):
        row: list[Address | None] = []
        for kind in ends:
            values = st.one_of([ADDRESSES[family] for family in KINDS[kind].families])
            row.append(draw(st.none() | values) if "Nullable" in kind else draw(values))
        written = [KINDS[kind].write(value) for kind, value in zip(ends, row, strict=True)]
        data += _noise(draw, noise[0]) + written[0] + _noise(draw, noise[1]) + written[1]
        rows.append((row[0], row[1]))
    return f"a {noise[0]}, src {ends[0]}, b {noise[1]}, dst {ends[1]}", bytes(data), rows


def _noise(draw: st.DrawFn, kind: str) -> bytes:
    if kind == "String":
        return text(draw(st.text(max_size=200)))
    if kind.startswith("Nullable"):
        return draw(st.sampled_from([b"\1", b"\0ab"]))
    return bytes(draw(st.binary(min_size=8, max_size=8)))[: field_of("x", kind).width]


@given(tables(), st.integers(1, 400))
def test_rows_are_those_of_the_oracle(
    table: tuple[str, bytes, list[tuple[Address | None, Address | None]]], size: int
) -> None:
    """With a schema, and with names and types before them."""
    schema, data, rows = table
    expected = [plain(row[0]) for row in rows], [plain(row[1]) for row in rows]
    assert columns(read(data, schema, size)) == expected
    pairs = [item.split(" ", 1) for item in schema.split(", ")]
    header = length(len(pairs)) + b"".join(map(text, [name for name, _ in pairs] + [kind for _, kind in pairs]))
    assert columns(read(header + data, "", 7)) == expected


@given(
    st.binary(max_size=300),
    st.sampled_from(["src String, dst String", "src Nullable(IPv4), dst IPv6", ""]),
    st.integers(1, 64),
)
def test_any_bytes_give_rows_or_an_error_that_names_the_place(data: bytes, schema: str, size: int) -> None:
    try:
        blocks = read(data, schema, size)
    except InputError as error:
        assert str(error).startswith("rows: ")  # noqa: PT017  either is right
    else:
        assert len(columns(blocks)[0]) == sum(len(block) for block in blocks)


def test_times() -> None:
    for kind, value, time in (
        ("DateTime", struct.pack("<I", 1_700_000_000), 1_700_000_000 * 10**9),
        ("DateTime('UTC')", struct.pack("<I", 1_700_000_000), 1_700_000_000 * 10**9),
        ("DateTime64(3, 'UTC')", struct.pack("<q", 1_700_000_000_123), 1_700_000_000_123 * 10**6),
        ("DateTime64(9)", struct.pack("<q", 17 * 10**17 + 5), 17 * 10**17 + 5),
        ("Nullable(DateTime)", b"\1", NO_TIME),
        ("Date", struct.pack("<H", 19_000), 19_000 * 86400 * 10**9),
        ("UInt64", struct.pack("<Q", 17 * 10**17 + 7), 17 * 10**17 + 7),
        ("UInt32", struct.pack("<I", 1_700_000_000), 1_700_000_000 * 10**9),
        ("UInt64", struct.pack("<Q", 2**64 - 1), NO_TIME),
        ("Int64", struct.pack("<q", -1), NO_TIME),
        ("Float64", struct.pack("<d", 1_700_000_000.5), 1_700_000_000_500_000_000),
        ("String", text("2023-11-14T22:13:20.25Z"), 1_700_000_000_250_000_000),
    ):
        (block,) = read(2 * (struct.pack("<II", 1, 2) + value), f"src IPv4, dst IPv4, time {kind}")
        assert block.time is not None
        assert block.time.tolist() == [time, time], kind
    data = struct.pack("<IIII", 1, 2, 1000, 2000)
    schema = "src IPv4, dst IPv4, start DateTime, end DateTime"
    assert [read(data, schema, time=which)[0].time for which in ("start", "end")] == [[1000 * 10**9], [2000 * 10**9]]


CUT = "is cut off by the end of the input; are its columns src IPv4, dst IPv4?"
SENSELESS = "row 1 has a length or a mark of NULL that makes no sense; are its columns"
NAMELESS = "does not begin with names and types of columns; of RowBinary say which they are"


def test_damage_is_named() -> None:
    for data, schema, message in (
        (b"123", "src IPv4, dst IPv4", f"byte 0: row 1 {CUT}"),
        (b"123456789", "src IPv4, dst IPv4", f"byte 8: row 2 {CUT}"),
        (b"5", "src Nullable(IPv4), dst IPv4", f"byte 0: {SENSELESS} src IPv4, dst IPv4?"),
        (b"\xff" * 9, "src String, dst IPv4", f"byte 0: {SENSELESS} src String, dst IPv4?"),
        (b"", "src Float64, dst IPv4", "column src (src) is Float64, which is not an address"),
        (b"", "src IPv4, dst IPv4, time IPv4", "column time (time) is IPv4, which is not a time"),
        (b"", "", "is empty: not even names and types of columns are there"),
        (b"\x20" + text("x" * (1 << 19)) * 64, "", f'{NAMELESS}: schema="src IPv4, dst IPv4"'),  # 32 MiB of names
        (b"\xff" * 6, "", f'{NAMELESS}: schema="src IPv4, dst IPv4"'),
    ):
        with pytest.raises(InputError) as raised:
            read(data, schema)
        assert str(raised.value) == f"rows: {message}"


def test_a_bad_row_is_described_by_its_values() -> None:
    data = text("10.0.0.1") + b"\1" + text("x") + b"\0" + struct.pack("<I", 5)
    (block,) = read(data, "src String, dst Nullable(UInt32)")
    assert [block.describe(index) for index in range(2)] == [(1, "src '10.0.0.1', dst NULL"), (2, "src 'x', dst 5")]


def test_colons_will_do_for_blanks() -> None:
    spaced = "`a b` UInt8, src LowCardinality(Nullable(String)), t DateTime64(3,'UTC'), d Decimal(18,4)"
    fields = parse_schema(spaced)
    shapes = [(field.name, field.width, field.nullable) for field in fields]
    assert shapes == [("a b", 1, False), ("src", 0, True), ("t", 8, False), ("d", 8, False)]
    assert fields == parse_schema(
        spaced.replace(", ", ",").replace("b` ", "b`:").replace("src ", "src:").replace("t D", "t:D")
    )
    assert row_width(parse_schema("a UUID, b Enum8('x' = 1), c FixedString(3)")) == 20


UNREADABLE = "cannot be read; write a type like IPv4, IPv6, UInt32 or String, or leave the column out of the query"


def test_a_schema_that_makes_no_sense_is_refused() -> None:
    for schema, message in (
        ("", "schema=\"\": no column; write it like 'src IPv4, dst IPv4, time DateTime'"),
        ("src", "schema=\"src\": 'src': write a name and a type, like src IPv4, dst IPv4, time DateTime"),
        ("a UInt8, a UInt8", "schema=\"a UInt8, a UInt8\": two columns 'a'; give them different names"),
        (
            "a Map(String, UInt8)",
            f'schema="a Map(String, UInt8)": column a: values of type Map(String, UInt8) {UNREADABLE}',
        ),
        (
            "a Array(Nullable(IPv4))",
            f'schema="a Array(Nullable(IPv4))": column a: values of type Array(Nullable(IPv4)) {UNREADABLE}',
        ),
        ("a FixedString(0)", f'schema="a FixedString(0)": column a: values of type FixedString(0) {UNREADABLE}'),
    ):
        with pytest.raises(UsageError) as raised:
            parse_schema(schema)
        assert str(raised.value) == message
