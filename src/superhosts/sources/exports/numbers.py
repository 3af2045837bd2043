"""Numbers and times in the bytes of exports, for compiled loops. Whoever calls has checked that the bytes are there."""

from __future__ import annotations

import numpy as np

from superhosts.jit.cache import compiled
from superhosts.sources.exports.layout import (
    BEFORE_EXPORT,
    MILLISECONDS,
    NTP,
    SECONDS,
    UPTIME,
    Bytes,
)

_NTP_EPOCH = 2_208_988_800  # seconds from 1900 to 1970
_ERA = 1 << 32  # seconds after which NTP's count begins again, in 2036
_FAR = 4 * 10**9  # seconds; a time beyond them does not fit


@compiled
def byte(block: Bytes, at: int) -> int:
    """One byte."""
    return np.int64(block[np.uint64(at)])  # type: ignore[return-value]


@compiled
def half(block: Bytes, at: int) -> int:
    """Two bytes in network order."""
    return byte(block, at) << 8 | byte(block, at + 1)


@compiled
def word(block: Bytes, at: int) -> int:
    """Four bytes in network order."""
    return half(block, at) << 16 | half(block, at + 2)


@compiled
def wide(block: Bytes, at: int) -> np.uint64:
    """Eight bytes in network order."""
    return np.uint64(word(block, at)) << np.uint64(32) | np.uint64(word(block, at + 4))


@compiled
def number(block: Bytes, at: int, width: int) -> int:
    """Up to eight bytes in network order; 2^62 if they are more than that."""
    if width == 8:
        return np.int64(min(wide(block, at), np.uint64(1 << 62)))  # type: ignore[return-value]
    value = 0
    for place in range(at, at + width):
        value = value << 8 | byte(block, place)
    return value


@compiled
def signed(value: int) -> int:
    """Return a difference of 32 bits as the nearer one: uptimes begin again after 49 days."""
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


@compiled
def time_of(kind: int, value: int, export: int, uptime: int, boot: int) -> int:
    """Return the nanoseconds that a field says, 0 if it says nothing.

    `uptime` is that of the header in milliseconds, -1 if it has none; `boot` is 0 if it is not known. Of NTP times,
    `value` is what `ntp_time` returned.
    """
    if kind == MILLISECONDS:
        return value * 1_000_000 if value < _FAR * 1000 else 0
    if kind == SECONDS:
        return value * 1_000_000_000 if value < _FAR else 0
    if kind == UPTIME:
        if uptime >= 0:
            return export - signed(uptime - value) * 1_000_000 if value < 1 << 32 else 0
        return boot + value * 1_000_000 if boot and value < _FAR * 1000 else 0
    if kind == BEFORE_EXPORT:
        return export - value * 1000 if value < _FAR * 1000 else 0
    if kind == NTP:
        return value
    return 0


@compiled
def ntp_time(block: Bytes, at: int) -> int:
    """Return the nanoseconds since 1970 of an NTP timestamp; 0 if it is 0."""
    seconds, fraction = word(block, at), word(block, at + 4)
    if seconds == 0 and fraction == 0:
        return 0
    seconds += 0 if seconds >= _NTP_EPOCH else _ERA
    return (seconds - _NTP_EPOCH) * 1_000_000_000 + (fraction * 1_000_000_000 >> 32)
