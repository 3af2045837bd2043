"""Parsing and formatting of sizes, counts and durations; threads and devices."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superhosts import errors
from superhosts.core import device
from superhosts.core.units import SECOND, format_duration, format_size, parse_count, parse_duration, parse_size
from superhosts.errors import InputError, MissingExtraError, UsageError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (134217728, 134217728),
        ("134217728", 134217728),
        ("128MiB", 128 << 20),
        ("128 mib", 128 << 20),
        ("128M", 128 << 20),
        ("128MB", 128 * 10**6),
        ("1.5GiB", 3 << 29),
        ("1.5GB", 1_500_000_000),
        ("64k", 65536),
        ("2TiB", 2 << 40),
        ("7b", 7),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["9" * 5000, "9" * 400 + ".5", "9" * 5000 + "MiB", "1." + "9" * 5000])
def test_numbers_too_long_for_python_are_no_sizes(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size") as caught:
        parse_size(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "count"), [("5M", 5_000_000), ("100k", 100_000), ("1.5G", 1_500_000_000), (12, 12), ("12", 12)]
)
def test_counts(text: str | int, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1h", 3600), ("30d", 2_592_000), ("2w", 1_209_600), ("1.5h", 5400)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds * SECOND


def test_short_durations() -> None:
    assert parse_duration("0.25s") == SECOND // 4
    assert parse_duration("0.000000001s") == 1


@pytest.mark.parametrize(
    "text", ["", "5", "m", "-5m", "5 parsecs", "1e3s", "0s", "0.0000000001s", "5m5s", "٥m", "16000w", "9" * 5000 + "s"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(UsageError, match=r"duration|longer"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "lots", "-1", "1.5.2M", "5Q", "0x10", "1 000"])
def test_no_sizes_and_counts(text: str) -> None:
    for parse, what in ((parse_size, "size"), (parse_count, "count")):
        with pytest.raises(UsageError, match=f"is not a {what}; write it like"):
            parse(text)


@pytest.mark.parametrize("number", [np.int64(5_000_000), np.uint32(5_000_000), 5e6, np.float64(5e6), np.float32(5e6)])
def test_whole_numbers_of_any_kind(number: Any) -> None:
    for parse in (parse_size, parse_count):
        assert parse(number) == 5_000_000
        assert type(parse(number)) is int


@pytest.mark.parametrize("number", [-1, np.int8(-1), 2.5, float("inf"), float("nan"), True, None, b"5M", [5], {}])
def test_other_things_are_no_sizes_and_counts(number: Any) -> None:
    for parse, what in ((parse_size, "size"), (parse_count, "count")):
        with pytest.raises(UsageError, match=f"is not a {what}; give a whole number, or write it like"):
            parse(number)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.977 KiB"),
        (1024, "1 KiB"),
        (128 << 20, "128 MiB"),
        (3 << 29, "1.5 GiB"),
        (1 << 40, "1 TiB"),
        (int(999.7 * 1024), "0.976 MiB"),
    ],
)
def test_written_sizes(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(0, 1 << 49))
def test_written_sizes_are_short_and_read_back(size: int) -> None:
    text = format_size(size)
    assert "e" not in text
    assert abs(parse_size(text) - size) <= 0.006 * size


@pytest.mark.parametrize("text", ["90s", "5m", "1h", "30d", "7d", "1s", "0.5s", "0.01s"])
def test_durations_read_back(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


def test_equal_durations_are_written_alike() -> None:
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


# Devices and threads


def test_devices() -> None:
    assert device.choose_device("auto") == device.choose_device("cpu") == "cpu"
    with pytest.raises(UsageError, match="device 'abacus'"):
        device.choose_device("abacus")


def test_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERHOSTS_THREADS", "3")
    assert device.thread_count() == 3
    monkeypatch.setenv("SUPERHOSTS_THREADS", "")
    assert device.thread_count() >= 1


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("calls", [0, 1, 2, 40])
def test_results_come_in_the_order_of_the_calls(threads: int, calls: int) -> None:
    assert device.run_parallel(lambda a, b: a * b, [(i, 2) for i in range(calls)], threads) == [
        2 * i for i in range(calls)
    ]


def test_calls_run_side_by_side() -> None:
    barrier = threading.Barrier(2, timeout=240)
    assert len(device.run_parallel(barrier.wait, [(), ()], 2)) == 2


def test_an_error_in_any_thread_reaches_the_caller() -> None:
    for bad in (0, 3):
        with pytest.raises(ZeroDivisionError):
            device.run_parallel(lambda i, bad: 1 // (i - bad), [(i, bad) for i in range(4)], 2)


@given(st.integers(0, 1000), st.integers(1, 40))
def test_even_splits(count: int, parts: int) -> None:
    runs = device.split_evenly(count, parts)
    assert [i for a, b in runs for i in range(a, b)] == list(range(count))
    sizes = [b - a for a, b in runs]
    assert len(runs) <= parts
    assert not count or (min(sizes) >= 1 and max(sizes) - min(sizes) <= 1)
