"""Text for people: numbers with their nouns, settings as the caller writes them, and untrusted text made safe.

A setting has two spellings: somebody who typed a command reads of `--memory 16MiB`, a caller in Python of
`memory="16MiB"`. The command line says once that it is running (`speaking_options`).

Untrusted names and messages may contain escape codes that change a terminal, line breaks that forge log lines,
characters that reverse the reading direction, or lone surrogates that cannot be encoded. All code that displays such
text passes it through `printable` first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

MOST_SHOWN = 200  # characters of untrusted text that a message quotes
_in_shell = False  # True while a command runs


def printable(text: object, most: int = MOST_SHOWN) -> str:
    """Return `text` as one line: escape unprintable characters as Python does, and shorten long text."""
    whole = str(text)
    shown = "".join(map(_escape, whole[:most]))
    return shown if len(whole) <= most else f"{shown}… ({len(whole):,} characters)"


def counted(number: float, noun: str, plural: str = "") -> str:
    """Return a number with its noun: 1 host, 2,000 hosts. A plural that is more than an added s is given as well."""
    shown = f"{number:,.0f}" if number == round(number) else f"{number:,g}"
    return f"{shown} {noun if number == 1 else plural or f'{noun}s'}"


@contextmanager
def speaking_options() -> Iterator[None]:
    """Spell settings as options of commands from now on: a command runs in this process."""
    global _in_shell
    before, _in_shell = _in_shell, True
    try:
        yield
    finally:
        _in_shell = before


def setting(name: str, value: object) -> str:
    """Return a setting as the caller writes it: --ipv6-prefix 48 in a shell, ipv6_prefix=48 in Python."""
    return either(f"--{name.replace('_', '-')} {value}", f"{name}={_quoted(value)}")


def option(name: str) -> str:
    """Return the name of a setting as the caller writes it: --ipv6-prefix in a shell, ipv6_prefix= in Python."""
    return either(f"--{name.replace('_', '-')}", f"{name}=")


def named(name: str) -> str:
    """Return it as it stands before a colon: --ipv6-prefix in a shell, ipv6_prefix in Python."""
    return option(name).removesuffix("=")


def either(shell: str, python: str) -> str:
    """Return the words for somebody who typed a command, or those for a caller in Python."""
    return shell if _in_shell else python


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
