"""Text for people: numbers with their nouns, and text from files, sites and the network that is safe to display.

Untrusted names and messages may contain escape codes that change a terminal, line breaks that forge log lines,
characters that reverse the reading direction, or lone surrogates that cannot be encoded. All code that displays such
text passes it through `printable` first.
"""

from __future__ import annotations

MOST_SHOWN = 200  # characters of untrusted text that a message quotes


def printable(text: object, most: int = MOST_SHOWN) -> str:
    """Return `text` as one line: escape unprintable characters as Python does, and shorten long text."""
    whole = str(text)
    shown = "".join(map(_escape, whole[:most]))
    return shown if len(whole) <= most else f"{shown}… ({len(whole):,} characters)"


def counted(number: float, noun: str, plural: str = "") -> str:
    """Return a number with its noun: 1 host, 2,000 hosts. A plural that is more than an added s is given as well."""
    return f"{number:,.0f} {noun if number == 1 else plural or f'{noun}s'}"


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
