"""Make text from files, sites and the network safe to display.

Untrusted names and messages may contain escape codes that change a terminal, line breaks that forge log lines,
characters that reverse the reading direction, or lone surrogates that cannot be encoded. All code that displays such
text passes it through `printable` first.
"""

from __future__ import annotations

MOST_SHOWN = 200  # characters of untrusted text that a message quotes
MOST_NAME = 63  # bytes of a name in UTF-8
NAME_RULE = f'1 to {MOST_NAME} bytes of printable text without " and \\'


def printable(text: object, most: int = MOST_SHOWN) -> str:
    """Return `text` as one line: escape unprintable characters as Python does, and shorten long text."""
    whole = str(text)
    shown = "".join(map(_escape, whole[:most]))
    return shown if len(whole) <= most else f"{shown}… ({len(whole):,} characters)"


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def is_name(text: str) -> bool:
    """Return True if `text` is a valid site name: short, printable, and without quotes and backslashes."""
    return text.isprintable() and not set(text) & set('"\\') and 1 <= len(text.encode()) <= MOST_NAME
