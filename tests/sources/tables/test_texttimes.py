"""Times in text against the oracle."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import naive_text
from superhosts.sources.tables.textscan import PADDING
from superhosts.sources.tables.times import NO_TIME, UNIT_DIGITS, parse_duration, parse_time

NUMBERS = st.from_regex(r"[0-9]{0,22}(\.[0-9]{0,12})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
DATES = st.from_regex(
    r"(19|20|22)[0-9]{2}[-/][01][0-9][-/][0-3][0-9]([T _t][0-2][0-9]:[0-5][0-9](:[0-6][0-9])?([.,][0-9]{1,12})? ?"
    r"(Z|z|UTC|GMT|[+-][0-2][0-9](:?[0-6][0-9])?|x)?)?",
    fullmatch=True,
)


def parsed(text: str, unit: str = "") -> int | None:
    data = np.frombuffer(text.encode() + bytes(PADDING), np.uint8)
    found = parse_time(data.ctypes.data, data.ctypes.data + len(text.encode()), UNIT_DIGITS[unit])
    return None if found == NO_TIME else found


@given(NUMBERS | DATES | st.datetimes().map(str), st.sampled_from(list(UNIT_DIGITS)))
@example("9223372036854775807", "ns")
@example("9223372036854775808", "ns")
@example("9223372036.854775807", "s")
@example("9223372036.854775808", "s")
@example("9214646399.9999999999", "s")
@example("17134847959432390000000e-4", "ns")
@example("1713484795.943239", "")
@example("2024-02-29T23:59:60.999999999+23:59", "")
@example("1970-01-01T00:00:00+00:01", "")
@example("2261-12-31 23:59:59.999999999-23:59", "")
def test_times_are_those_of_the_oracle(text: str, unit: str) -> None:
    assert parsed(text, unit) == naive_text.time(text, unit)


def test_the_magnitude_says_the_unit() -> None:
    for number in (10**11 - 1, 10**11, 10**14 - 1, 10**14, 10**17 - 1, 10**17):
        for text in (str(number), f"{number}.5"):
            assert parsed(text) == naive_text.time(text)


def test_durations() -> None:
    for text, expected in (
        ("7.25", 7_250_000_000),
        ("0", 0),
        ("01:02:03.5", 3_723_500_000_000),
        ("02:03", 123 * 10**9),
        ("1:9223372036", None),
        (":1", None),
        ("-1", None),
    ):
        data = np.frombuffer(text.encode() + bytes(PADDING), np.uint8)
        found = parse_duration(data.ctypes.data, data.ctypes.data + len(text), UNIT_DIGITS["s"])
        assert found == (NO_TIME if expected is None else expected), text
