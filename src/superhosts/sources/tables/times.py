"""Times of rows as nanoseconds since the epoch, from numbers in any unit and from text.

A number without a unit is taken by its magnitude: below 1e11 it is seconds (that is the year 5138), below 1e14
milliseconds (from 1973 on), below 1e17 microseconds, else nanoseconds. Every row is judged by itself, so that a result
does not depend on how rows are grouped. Times before 1970 and after 2262 are none.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import Times
from superhosts.jit.cache import compiled
from superhosts.sources.tables.base import NO_TIME
from superhosts.sources.tables.mapping import UNITS

BY_MAGNITUDE = 0  # in place of the nanoseconds of a unit
MOST = (1 << 63) - 1
SECONDS, MILLISECONDS, MICROSECONDS = 10**11, 10**14, 10**17  # numbers below are in this unit
_NS_OF_SECOND, _NS_OF_MS, _NS_OF_US = 10**9, 10**6, 10**3


def factor_of(unit: str) -> int:
    """Return the nanoseconds of a unit, 0 (go by the magnitude) for none."""
    return UNITS.get(unit, BY_MAGNITUDE)


@compiled
def nanoseconds_of(number: int, factor: int) -> int:
    """Return a time in nanoseconds, NO_TIME if it makes none; `factor` 0 goes by the magnitude."""
    if number < 0:
        return NO_TIME
    if factor == 0:
        if number < SECONDS:
            factor = _NS_OF_SECOND
        elif number < MILLISECONDS:
            factor = _NS_OF_MS
        elif number < MICROSECONDS:
            factor = _NS_OF_US
        else:
            factor = 1
    if number > MOST // factor:
        return NO_TIME
    return number * factor


@compiled
def nanoseconds_of_float(number: float, factor: int) -> int:
    """Return a time in nanoseconds of a number with a fraction, NO_TIME if it makes none."""
    if not (0.0 <= number < 9.2e18):
        return NO_TIME
    if factor == 0:
        if number < SECONDS:
            factor = _NS_OF_SECOND
        elif number < MILLISECONDS:
            factor = _NS_OF_MS
        elif number < MICROSECONDS:
            factor = _NS_OF_US
        else:
            factor = 1
    whole = int(number)
    if whole >= MOST // factor:
        return NO_TIME
    # The whole part apart: a product with 1e9 would lose what a float64 holds of a second.
    return whole * factor + int((number - whole) * factor + 0.5)


@compiled
def scale_integers(numbers: NDArray[np.int64], factor: int) -> Times:
    """Return whole numbers as times."""
    times = np.empty(len(numbers), np.int64)
    for i in range(len(numbers)):
        times[i] = nanoseconds_of(numbers[i], factor)
    return times


@compiled
def scale_floats(numbers: NDArray[np.float64], factor: int) -> Times:
    """Return numbers with fractions as times."""
    times = np.empty(len(numbers), np.int64)
    for i in range(len(numbers)):
        times[i] = nanoseconds_of_float(numbers[i], factor)
    return times


def parse_time(text: str, factor: int = BY_MAGNITUDE) -> int:
    """Return one time from text, a number or ISO 8601 (UTC unless it says otherwise); NO_TIME if it is neither.

    The slow and plain way, for rows that compiled loops leave to it.
    """
    text = text.strip().strip('"')
    whole, _, fraction = text.partition(".")
    if whole.isascii() and whole.isdigit() and (not fraction or (fraction.isascii() and fraction.isdigit())):
        return _decimal(int(whole), fraction, factor)
    try:
        time = datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        try:
            return int(nanoseconds_of_float.py_func(float(text), factor))  # type: ignore[attr-defined]
        except ValueError:
            return NO_TIME
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    nanoseconds = (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000 + _beyond_microseconds(text)
    return nanoseconds if 0 <= nanoseconds <= MOST else NO_TIME


def _decimal(whole: int, fraction: str, factor: int) -> int:
    if factor == BY_MAGNITUDE:
        limits = ((SECONDS, _NS_OF_SECOND), (MILLISECONDS, _NS_OF_MS), (MICROSECONDS, _NS_OF_US))
        factor = next((unit for limit, unit in limits if whole < limit), 1)
    digits = int(fraction or "0")
    nanoseconds = whole * factor + digits * factor // 10 ** len(fraction)
    return nanoseconds if nanoseconds <= MOST else NO_TIME


def _beyond_microseconds(text: str) -> int:
    """Return the nanoseconds that `datetime` leaves out: digits seven to nine of a fraction."""
    fraction = text.replace(",", ".").partition(".")[2]
    digits = ""
    for letter in fraction:
        if not letter.isdigit():
            break
        digits += letter
    return int(digits[6:9].ljust(3, "0")) if len(digits) > 6 else 0
