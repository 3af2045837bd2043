"""Times of rows as nanoseconds since the epoch, from numbers in any unit and from text.

- Numbers since the epoch: the log's format or the map says their unit. Where neither does, the magnitude of each number
  does (`digits_of`), so that a result does not depend on how rows are grouped. In text a number may have a fraction and
  an exponent; no float is involved, so that nine decimals are exact, and further digits are cut off.
- Dates in text: 2024-04-19T00:00:01.5Z, 2019/04/04 16:23:00.325010, 2024-04-19 00:00:01,5 +02:00 and the like; a date
  without a time of day is its midnight. A time without an offset is UTC.

Times before 1970 and after 2261 (numbers of columns: 2262) are not times (`NO_TIME`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import Rows
from superhosts.core.columns.column import Text
from superhosts.core.pairs import Times
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import byte_at
from superhosts.sources.tables.textscan import PADDING

NO_TIME = -(1 << 63)  # in a column of times: this row has none
ANY_UNIT = 15  # by the magnitude
UNIT_DIGITS = {"": ANY_UNIT, "s": 9, "ms": 6, "us": 3, "ns": 0}  # decimal places between a unit and a nanosecond
_LARGEST = 2**63 - 1
_MOST_EXPONENT = 400
_LAST_YEAR = 2261
_AFTER = 9_214_646_400 * 10**9  # the end of that year
_POWERS = np.array([10**power for power in range(19)], np.int64)


@compiled
def digits_of(number: float) -> int:
    """Return the decimal places between the unit of a number, by its magnitude, and a nanosecond.

    Numbers below 1e11 are seconds (until the year 5138), below 1e14 milliseconds (from 1973 on), below 1e17
    microseconds.
    """
    return 9 if number < 10**11 else 6 if number < 10**14 else 3 if number < 10**17 else 0


@compiled
def nanoseconds_of(number: int, factor: int) -> int:
    """Return a time in nanoseconds, NO_TIME if it makes none; `factor` 0 goes by the magnitude."""
    if number < 0:
        return NO_TIME
    if factor == 0:
        factor = _POWERS[digits_of(number)]
    return NO_TIME if number > _LARGEST // factor else number * factor


@compiled
def nanoseconds_of_float(number: float, factor: int) -> int:
    """Return a time in nanoseconds of a number with a fraction, NO_TIME if it makes none."""
    if not (0.0 <= number < 9.2e18):
        return NO_TIME
    if factor == 0:
        factor = _POWERS[digits_of(number)]
    whole = int(number)
    if whole >= _LARGEST // factor:
        return NO_TIME
    # The whole part apart: a product with 1e9 would lose what a float64 holds of a second.
    return whole * factor + int((number - whole) * factor + 0.5)


@compiled
def scale_integers(numbers: NDArray[np.int64], factor: int) -> Times:
    times = np.empty(len(numbers), np.int64)
    for i in range(len(numbers)):
        times[i] = nanoseconds_of(numbers[i], factor)
    return times


@compiled
def scale_floats(numbers: NDArray[np.float64], factor: int) -> Times:
    times = np.empty(len(numbers), np.int64)
    for i in range(len(numbers)):
        times[i] = nanoseconds_of_float(numbers[i], factor)
    return times


def parse_times(text: Text, unit: str) -> Times:
    """Return the times of a column of text, without the blanks and quotes around them."""
    padded = np.append(text.data, np.zeros(PADDING, np.uint8))
    times = np.empty(len(text.starts), np.int64)
    read_times(padded, text.starts, text.ends, UNIT_DIGITS[unit], times)
    return times


@compiled
def _is_margin(byte: int) -> bool:
    return byte in (32, 9, 13, 10, 34)  # blank, tab, line break, quote


@compiled
def read_times(data: NDArray[np.uint8], starts: Rows, ends: Rows, unit: int, times: Times) -> None:
    """Read the times of texts, which have `PADDING` bytes behind them."""
    base = data.ctypes.data
    for i in range(len(times)):
        begin, end = base + starts[i], base + ends[i]
        while end > begin and _is_margin(byte_at(end - 1)):
            end -= 1
        while begin < end and _is_margin(byte_at(begin)):
            begin += 1
        times[i] = parse_time(begin, end, unit)


@compiled
def parse_time(begin: int, end: int, unit: int) -> int:
    """Return the time of the text between two addresses; NO_TIME if it is none. `unit` is a value of UNIT_DIGITS."""
    if end - begin >= 10:
        mark = byte_at(begin + 4)
        if mark == 45 or mark == 47:  # - /
            return _parse_date(begin, end, mark)
    time = parse_number(begin, end, unit)
    return time if time < _AFTER else NO_TIME


@compiled
def parse_number(begin: int, end: int, unit: int) -> int:
    """Return a number of units as nanoseconds, rounded down; NO_TIME if it is not a number or out of range."""
    value, scale, seen, at = 0, 0, 0, begin
    in_fraction = False
    while at < end:
        byte = byte_at(at)
        digit = byte - 48
        if 0 <= digit <= 9:
            seen += 1
            if value <= (_LARGEST - digit) // 10:
                value = value * 10 + digit
                scale -= in_fraction
            else:  # A time has no more digits.
                scale += not in_fraction
        elif byte == 46 and not in_fraction:  # .
            in_fraction = True
        elif (byte == 101 or byte == 69) and seen:  # e E
            scale += _exponent(at + 1, end)
            break
        else:
            return NO_TIME
        at += 1
    if not seen or scale > _MOST_EXPONENT:
        return NO_TIME
    if unit == ANY_UNIT:
        unit = digits_of(_scaled(value, scale))
    return _scaled(value, scale + unit)


@compiled
def parse_duration(begin: int, end: int, unit: int) -> int:
    """Return a duration, a number of units or 01:02:03.5, as nanoseconds; NO_TIME if it is none."""
    minutes, at = 0, begin
    while at < end:
        if byte_at(at) == 58:  # :
            part = parse_number(begin, at, 0)
            if part == NO_TIME or part > 10**6 or minutes > 10**6:
                return NO_TIME
            minutes = (minutes + part) * 60 if minutes else part * 60
            begin, unit = at + 1, 9
        at += 1
    rest = parse_number(begin, end, unit)
    return NO_TIME if rest == NO_TIME or rest > _LARGEST - minutes * 10**9 else minutes * 10**9 + rest


@compiled
def _scaled(value: int, power: int) -> int:
    """Return value * 10^power, rounded down; NO_TIME if that is too large."""
    if value == 0 or power < -18:
        return 0
    if power < 0:
        return value // _POWERS[-power]  # type: ignore[no-any-return]
    if power > 18 or value > _LARGEST // _POWERS[power]:
        return NO_TIME
    return value * _POWERS[power]  # type: ignore[no-any-return]


@compiled
def _exponent(at: int, end: int) -> int:
    """Return the exponent of a number, more than `_MOST_EXPONENT` if it makes no sense."""
    negative = False
    if at < end and (byte_at(at) == 45 or byte_at(at) == 43):
        negative = byte_at(at) == 45
        at += 1
    if at == end:
        return 2 * _MOST_EXPONENT
    value = 0
    while at < end:
        digit = byte_at(at) - 48
        if digit < 0 or digit > 9:
            return 2 * _MOST_EXPONENT
        value = min(value * 10 + digit, _MOST_EXPONENT)
        at += 1
    return -value if negative else value


@compiled
def _two(at: int) -> int:
    """Return a number of two digits, less than 0 if these are none. Both bytes exist."""
    tens, ones = byte_at(at) - 48, byte_at(at + 1) - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else -10_000


@compiled
def days_before(year: int, month: int, day: int) -> int:
    """Return the days from the epoch to a date of the Gregorian calendar. Years begin in March here."""
    year -= month <= 2
    era_year = year % 400
    month_days = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5
    return year // 400 * 146_097 + era_year * 365 + era_year // 4 - era_year // 100 + month_days + day - 1 - 719_468


@compiled
def _parse_date(begin: int, end: int, mark: int) -> int:
    """Return the time of a date of at least ten characters, whose parts are apart by `mark`."""
    year = 100 * _two(begin) + _two(begin + 2)
    month, day = _two(begin + 5), _two(begin + 8)
    if year < 1970 or year > _LAST_YEAR or month < 1 or month > 12 or day < 1 or byte_at(begin + 7) != mark:
        return NO_TIME
    most = 30 + (month + month // 8) % 2
    if month == 2:
        most = 28 + (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    if day > most:
        return NO_TIME
    seconds = days_before(year, month, day) * 86_400
    at = begin + 10
    if at == end:
        return seconds * 10**9
    between = byte_at(at)
    if end - at < 6 or (between != 84 and between != 32 and between != 116 and between != 95):  # T, blank, t, _
        return NO_TIME
    hour, minute, second = _two(at + 1), _two(at + 4), 0
    if byte_at(at + 3) != 58:
        return NO_TIME
    at += 6
    if end - at >= 3 and byte_at(at) == 58:
        second = _two(at + 1)
        at += 3
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 60:  # a leap second has number 60
        return NO_TIME
    fraction = 0
    if at < end and (byte_at(at) == 46 or byte_at(at) == 44):  # . ,
        at += 1
        places, digit = 0, 0
        while at < end:
            digit = byte_at(at) - 48
            if digit < 0 or digit > 9:
                break
            if places < 9:
                fraction = fraction * 10 + digit
            places += 1
            at += 1
        if not places:
            return NO_TIME
        fraction *= _POWERS[9 - min(places, 9)]
    offset = _offset(at, end)
    total = seconds + hour * 3600 + minute * 60 + second - offset * 60
    if offset == NO_TIME or total < 0:
        return NO_TIME
    return total * 10**9 + fraction


@compiled
def _offset(at: int, end: int) -> int:
    """Return the minutes that a zone is ahead of UTC: none, Z, UTC, GMT, +02, +0200, +02:00; NO_TIME if it is none."""
    while at < end and byte_at(at) == 32:
        at += 1
    left = end - at
    if left == 0:
        return 0
    sign = byte_at(at)
    if left == 1:
        return 0 if sign == 90 or sign == 122 else NO_TIME  # Z z
    if sign != 43 and sign != 45:  # + -
        name = (byte_at(at), byte_at(at + 1), byte_at(at + 2 if left == 3 else at))
        return 0 if left == 3 and (name == (85, 84, 67) or name == (71, 77, 84)) else NO_TIME
    if left < 3 or left > 6:
        return NO_TIME
    hours, minutes = _two(at + 1), 0
    if left == 6:
        if byte_at(at + 3) != 58:
            return NO_TIME
        minutes = _two(at + 4)
    elif left == 5:
        minutes = _two(at + 3)
    elif left == 4:
        return NO_TIME
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return NO_TIME
    return (hours * 60 + minutes) * (1 if sign == 43 else -1)
