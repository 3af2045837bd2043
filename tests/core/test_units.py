"""Parsing and formatting of sizes, counts and durations; errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superhosts import errors
from superhosts.core import units
from superhosts.core.units import SECOND, format_duration, format_size, parse_count, parse_duration, parse_size
from superhosts.errors import InputError, MissingExtraError, UsageError

SIZES = {
    134217728: 134217728,
    "134217728": 134217728,
    "128MiB": 128 << 20,
    "128 mib": 128 << 20,
    "128M": 128 << 20,
    "128MB": 128 * 10**6,
    "1.5GiB": 3 << 29,
    "1.5GB": 1_500_000_000,
    "64k": 65536,
    "2TiB": 2 << 40,
    "7b": 7,
}
COUNTS = {"5M": 5_000_000, "100k": 100_000, "1.5G": 1_500_000_000, 12: 12, "12": 12}
SECONDS = {"90s": 90, "5m": 300, "1h": 3600, "30d": 2_592_000, "2w": 1_209_600, "1.5h": 5400, "0.25s": 0.25}
WRITTEN = {
    0: "0 B",
    999: "999 B",
    1000: "0.977 KiB",
    1024: "1 KiB",
    128 << 20: "128 MiB",
    3 << 29: "1.5 GiB",
    1 << 40: "1 TiB",
    int(999.7 * 1024): "0.976 MiB",
}


def test_sizes_counts_and_durations() -> None:
    assert {text: parse_size(text) for text in SIZES} == SIZES
    assert {text: parse_count(text) for text in COUNTS} == COUNTS
    assert {text: parse_duration(text) / SECOND for text in SECONDS} == SECONDS
    assert parse_duration("0.000000001s") == 1
    assert {size: format_size(size) for size in WRITTEN} == WRITTEN


@pytest.mark.parametrize("text", ["9" * 5000, "9" * 400 + ".5", "9" * 5000 + "MiB", "1." + "9" * 5000])
def test_numbers_too_long_for_python_are_no_sizes(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size") as caught:
        parse_size(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "text", ["", "5", "m", "-5m", "5 parsecs", "1e3s", "0s", "0.0000000001s", "5m5s", "٥m", "16000w", "9" * 5000 + "s"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(UsageError, match=r"duration|longer"):
        parse_duration(text)


def test_whole_numbers_of_any_kind_are_sizes_and_counts_and_nothing_else_is() -> None:
    for parse, what in ((parse_size, "size"), (parse_count, "count")):
        for number in (np.int64(5_000_000), np.uint32(5_000_000), 5e6, np.float64(5e6), np.float32(5e6)):
            assert (parse(number), type(parse(number))) == (5_000_000, int)  # type: ignore[arg-type]
        for text in ("", "lots", "-1", "1.5.2M", "5Q", "0x10", "1 000"):
            with pytest.raises(UsageError, match=f"is not a {what}; write it like"):
                parse(text)
        for other in (-1, np.int8(-1), 2.5, float("inf"), float("nan"), True, None, b"5M", [5], {}):
            with pytest.raises(UsageError, match=f"is not a {what}; give a whole number, or write it like"):
                parse(other)  # type: ignore[arg-type]


@given(st.integers(0, 1 << 49))
def test_written_sizes_are_short_and_read_back(size: int) -> None:
    text = format_size(size)
    assert "e" not in text
    assert abs(parse_size(text) - size) <= 0.006 * size


def test_durations_read_back() -> None:
    for text in ("90s", "5m", "1h", "30d", "7d", "1s", "0.5s", "0.01s"):
        assert format_duration(parse_duration(text)) == text
    assert {format_duration(parse_duration(text)) for text in ("300s", "5m", "5.0m")} == {"5m"}


# Errors


def test_errors_know_their_exit_status() -> None:
    statuses = {
        errors.UsageError("x"): 2,
        errors.GeometryError("x"): 2,
        errors.MergeError("x"): 2,
        MissingExtraError("x", "y"): 2,
        InputError("x", file="f"): 3,
        errors.SketchFileError("x", file="f"): 3,
        errors.OutputError("x"): 4,
    }
    assert all(error.exit_status == status for error, status in statuses.items())


def test_input_errors_name_file_and_offset() -> None:
    assert str(InputError("is bad", file="a.pcap")) == "a.pcap: is bad"
    assert str(InputError("is bad", file="a.pcap", offset=0)) == "a.pcap: byte 0: is bad"


def test_an_address_is_a_host_and_a_port_and_without_a_host_this_machine() -> None:
    for text, place in (
        (":9105", units.Place("127.0.0.1", 9105)),
        ("0.0.0.0:80", units.Place("0.0.0.0", 80)),
        ("hub.example:0", units.Place("hub.example", 0)),
        ("[::1]:65535", units.Place("::1", 65535)),
    ):
        assert units.parse_place(text) == units.parse_place(str(place)) == place
    for wrong in ("", "9105", ":", "a:", "a:b", ":65536", ":-1", "::1:9105", ":٣", "a:1:2"):
        with pytest.raises(UsageError, match="write it like :9105"):
            units.parse_place(wrong)
