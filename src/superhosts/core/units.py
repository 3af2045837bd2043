"""Parse and format sizes, counts, durations and places to listen at: 128MiB, 5M, 90s, 5m, 1h, 30d, :9105."""

from __future__ import annotations

import math
import operator
import re
from numbers import Real
from typing import Any, NamedTuple

from superhosts.errors import UsageError

# The number of digits is limited because int() raises ValueError above 4,300 digits.
_NUMBER = re.compile(r"\s*([0-9]{1,40}(?:\.[0-9]{1,40})?)\s*([A-Za-zµ]*)\s*")
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_BYTES |= {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
SECOND = 10**9  # nanoseconds
SWITCH = {"on": True, "off": False}  # the words of a switch


def _parse(text: str, units: dict[str, int], what: str, example: str) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in units:
        raise UsageError(f"{text[:100]!r} is not a {what}; write it like {example}")
    number, unit = match[1], units[match[2].lower()]
    return int(number) * unit if number.isdigit() else round(float(number) * unit)


def whole_number(number: Any) -> int | None:
    if isinstance(number, bool):
        return None
    try:
        return operator.index(number)
    except TypeError:
        is_whole = isinstance(number, Real) and math.isfinite(number) and number == math.floor(number)
        return int(number) if is_whole else None


def parse_size(text: str | int) -> int:
    """Return a size in bytes. Accepts 134217728, "128MiB", "128M" (binary) and "1.5GB" (decimal)."""
    return _parse_or_int(text, _BYTES, "size", "128MiB")


def parse_count(text: str | int) -> int:
    return _parse_or_int(text, _COUNTS, "count", "100k or 5M")


def _parse_or_int(text: Any, units: dict[str, int], what: str, example: str) -> int:
    if isinstance(text, str):
        return _parse(text, units, what, example)
    number = whole_number(text)
    if number is None or number < 0:
        raise UsageError(f"{text!r} is not a {what}; give a whole number, or write it like {example}")
    return number


def parse_duration(text: str, *, allow_zero: bool = False) -> int:
    """Return the nanoseconds of "90s", "5m", "1h" or "30d"."""
    if not isinstance(text, str):  # a number of seconds, a timedelta
        raise UsageError(f"{text!r} is not a duration; write it like '90s', '5m', '1h' or '30d'")
    nanoseconds = _parse(text, {unit: s * SECOND for unit, s in _SECONDS.items()}, "duration", "90s, 5m, 1h or 30d")
    if nanoseconds < 0 or not (nanoseconds or allow_zero):
        raise UsageError(f"{text!r}: a duration must be greater than zero; write it like 90s, 5m, 1h or 30d")
    if nanoseconds >= 1 << 63:
        raise UsageError(f"{text!r} is longer than the limit of 292 years; use a shorter duration such as 30d")
    return nanoseconds


def parse_share(share: str | float) -> float:
    """Return the share that 0.01, "0.01" or "1%" stands for. It must be above 0 and below 1."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(%?)\s*", share) if isinstance(share, str) else None
    number: Any = float(match[1]) / (100 if match[2] else 1) if match else share
    if not isinstance(number, Real) or not 0 < float(number) < 1:
        raise UsageError(f"{share!r} is not a share of the super hosts; write it like 1% or 0.01")
    return float(number)


def format_size(size: float) -> str:
    """Format a size with a binary unit and three significant digits: 128 MiB, 1.5 GiB."""
    if size > 1e300:  # A damaged header may name an int that is too large to convert to float.
        return "more than 9e+287 TiB"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 999.5:  # "%.3g" would format 999.5 as 1e+03.
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def exact_size(size: int) -> str:
    """Write a size as options take it, without rounding, in the largest unit that divides it: 128MiB, 100MB, 1234."""
    names = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "TB": 10**12, "GB": 10**9, "MB": 10**6, "KiB": 1 << 10}
    units = {**names, "KB": 10**3}
    name = next((name for name, unit in units.items() if size and size % unit == 0), "")
    return f"{size // units.get(name, 1)}{name}"


def format_duration(nanoseconds: int) -> str:
    for unit, seconds in sorted(_SECONDS.items(), key=lambda item: -item[1]):
        if unit != "w" and nanoseconds % (seconds * SECOND) == 0:
            return f"{nanoseconds // (seconds * SECOND)}{unit}"
    return f"{nanoseconds / SECOND:g}s"


class Place(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_place(text: str) -> Place:
    """Read an address: `:9105`, `127.0.0.1:9105`, `[::1]:9105`. Raise UsageError if it is none."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""  # an IPv6 address without brackets
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"{text!r} is not an address to listen at; write it like :9105 or 0.0.0.0:9105")
    return Place(host or "127.0.0.1", int(port))


def parse_host_port(text: str) -> tuple[str, int]:
    """Read an address whose host must be named: `127.0.0.1:4222`, `[::1]:4222`. Raise UsageError if it is none."""
    host, colon, port = text.rpartition(":")
    matched = host.startswith("[") == host.endswith("]")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not matched or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text!r} is not HOST:PORT; write it like 127.0.0.1:4222, 0.0.0.0:4222 or [::1]:4222")
    return host, int(port)
