"""Text that comes from files, sites and the network, made safe to show.

Names and messages from outside may hold escape codes that change a terminal, line breaks that forge log lines, marks
that turn the reading direction, or lone surrogates that no encoder accepts. Every place that shows such text passes it
through `printable` first.
"""

from __future__ import annotations

MOST_SHOWN = 200  # characters of a text from outside that a message quotes
MOST_NAME = 63  # bytes of a name
NAME_RULE = f'1 to {MOST_NAME} bytes of printable text without " and \\'


def printable(text: object, most: int = MOST_SHOWN) -> str:
    """Return `text` as one printable line: other characters are escaped as in Python, a long text is shortened."""
    whole = str(text)
    shown = "".join(map(_escape, whole[:most]))
    return shown if len(whole) <= most else f"{shown}… ({len(whole):,} characters)"


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def is_name(text: str) -> bool:
    """Return True if `text` can name a site: short, printable, and without the characters that quoting needs."""
    return text.isprintable() and not set(text) & set('"\\') and 1 <= len(text.encode()) <= MOST_NAME
