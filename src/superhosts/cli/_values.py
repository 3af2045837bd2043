"""How the values of options are written: sizes like 128MiB, durations like 5m, counts like 5M, lists with commas.

An error says which value is wrong and what is accepted; `_program.py` adds the name of the option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from superhosts.core.units import SECOND, parse_count, parse_duration, parse_size
from superhosts.errors import UsageError


def parse_threshold(text: str | float) -> float:
    """Read a number of peers: 1024, 1k, 1.5k or 1e3."""
    with suppress(ValueError):
        return float(text)
    try:
        return float(parse_count(str(text)))
    except UsageError:
        raise UsageError(f"{text!r} is not a number; write it like 1024 or 1k") from None


def parse_whole(text: str | int) -> int:
    """Read a whole number."""
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a whole number; write it like 20") from None


def toml_text(value: Any) -> str:
    """Return a value as a configuration file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return '""' if value is None else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def parse_at_least_one(text: str | int) -> int:
    """Read a whole number that is not below 1."""
    number = parse_whole(text)
    if number < 1:
        raise UsageError(f"{number} is too small; write a whole number, at least 1")
    return number


def one_of(*words: str) -> Callable[[str], None]:
    """Return the check of an option that takes one of some words."""

    def check(text: str) -> None:
        if text not in words:
            raise UsageError(f"{text!r} is none of {', '.join(words)}")

    return check


def parse_seconds(text: str) -> float:
    """Read a duration in seconds; zero is allowed."""
    return 0.0 if text.strip() == "0" else parse_duration(text, allow_zero=True) / SECOND


def split_commas(values: list[str]) -> list[str]:
    """Return the items of a list whose items may hold several each: `in,out` is two."""
    return [item.strip() for value in values for item in value.split(",")]


def split_sizes(values: list[str]) -> list[str]:
    """Return several sizes, each checked."""
    sizes = split_commas(values)
    for size in sizes:
        parse_size(size)
    return sizes


def check_window(text: str) -> None:
    """Raise UsageError if the text is neither a duration nor "all"."""
    try:
        if text != "all":
            parse_duration(text)
    except UsageError as error:
        raise UsageError(f"{error}, or all") from None


def check_web_url(text: str) -> str:
    """Read the address of a dashboard, to which pages can be appended."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{text!r} is not an address like https://hub.example/superhosts")
    return text.rstrip("/")


def check_positive_count(text: str) -> None:
    """Raise UsageError if the text is not a count of at least 1."""
    if parse_count(text) < 1:
        raise UsageError(f"{text!r} is too small; write a count of at least 1, like 100k or 5M")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return which of the known words was probably meant; "" if none is like it."""
    import difflib  # here: few runs have a typing error

    return next(iter(difflib.get_close_matches(word, list(known), 1)), "")
