"""What a site may be called. Where a name becomes part of a file's name or of a NATS subject, a stricter rule holds."""

from __future__ import annotations

import re

MAX_NAME = 63  # bytes of a name in UTF-8
NAME_RULE = f'1 to {MAX_NAME} bytes of printable text without " and \\'
FILE_NAME_RULE = "a name without slashes is needed, since it becomes part of file names"
FLEET_NAME_RULE = f"letters, digits, - and _ ({MAX_NAME} at most, the first a letter or digit)"
FLEET_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_NAME - 1}}}")  # part of a NATS subject and of file names


def is_name(text: str) -> bool:
    """Return True if a sketch may name this site: short, printable, and without quotes and backslashes."""
    return text.isprintable() and not set(text) & set('"\\') and 1 <= len(text.encode()) <= MAX_NAME


def is_file_name(text: str) -> bool:
    """Return True if this name may be part of the name of a saved sketch."""
    return bool(text) and not set(text) & set("/\\\0")


def is_fleet_name(text: str) -> bool:
    """Return True if an edge or a hub may have this name."""
    return FLEET_NAME.fullmatch(text) is not None
