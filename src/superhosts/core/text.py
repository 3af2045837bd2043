"""Text for people: numbers with their nouns, settings as the caller writes them, and untrusted text made safe.

A setting has two spellings: somebody who typed a command reads of `--memory 16MiB`, a caller in Python of
`memory="16MiB"`. The command line says once that it is running (`speaking_options`).

Untrusted names and messages may contain escape codes that change a terminal, line breaks that forge log lines,
characters that reverse the reading direction, or lone surrogates that cannot be encoded. All code that displays such
text passes it through `printable` first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

SURROGATES = "surrogatepass"  # how lone surrogates are encoded: different texts have different bytes
MOST_SHOWN = 200  # characters of untrusted text that a message quotes
UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_commands = 0  # that run now; threads of one process may run several
_lock = threading.Lock()


def printable(text: object, most: int = MOST_SHOWN) -> str:
    """Return `text` as one line: escape unprintable characters as Python does, and shorten long text."""
    whole = str(text)
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in whole[:most])
    return shown if len(whole) <= most else f"{shown}… ({len(whole):,} characters)"


def counted(number: float, noun: str, plural: str = "") -> str:
    """Return a number with its noun: 1 host, 2,000 hosts. A plural that is more than an added s is given as well."""
    shown = f"{number:,.0f}" if number == round(number) else f"{number:,g}"
    return f"{shown} {noun if number == 1 else plural or f'{noun}s'}"


def aligned(rows: Sequence[Sequence[str]], is_number: Sequence[bool]) -> Iterator[str]:
    """Yield rows as lines of columns, those of numbers aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, is_number, strict=True)
        yield "  ".join(text.rjust(width) if right else text.ljust(width) for text, width, right in cells).rstrip()


def at_least(number: int | None, low: int) -> str:
    """Return an estimate: 1,024, or ≥ 900 if only its lower bound is known."""
    return f"≥ {low:,}" if number is None else f"{number:,}"


def short_count(number: float, digits: int = 6) -> str:
    """Return a number with few characters, for the scale of a figure: 500, 2k, 1.5M. It is rounded to some digits."""
    rounded = float(f"{number:.{digits}g}")  # before its unit is chosen: 999,999 in three digits is 1M
    for size, unit in UNITS:
        if abs(rounded) >= size:
            return f"{rounded / size:g}{unit}"
    return f"{rounded:g}"


def short_rate(number: float) -> str:
    if number >= 1e6:
        return f"{number / 1e6:,.1f} M"
    return f"{number / 1e3:.0f} k" if number >= 1e4 else f"{number:,.0f}"


@contextmanager
def speaking_options() -> Iterator[None]:
    """Spell settings as options of commands from now on: a command runs in this process."""
    global _commands
    with _lock:
        _commands += 1
    try:
        yield
    finally:
        with _lock:
            _commands -= 1


def setting(name: str, value: object) -> str:
    """Return a setting as the caller writes it: --ipv6-prefix 48 in a shell, ipv6_prefix=48 in Python."""
    return either(f"--{name.replace('_', '-')} {value}", f"{name}={_quoted(value)}")


def option(name: str) -> str:
    """Return the name of a setting as the caller writes it: --ipv6-prefix in a shell, ipv6_prefix= in Python."""
    return either(f"--{name.replace('_', '-')}", f"{name}=")


def named(name: str) -> str:
    return option(name).removesuffix("=")


def either(shell: str, python: str) -> str:
    return shell if _commands else python


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
