"""Files with the token of a dashboard: of the program that asks for it, and of `superhosts top`, which brings it."""

from __future__ import annotations

from pathlib import Path

from superhosts.errors import UsageError

LONGEST = 8192  # bytes


def read_token(path: Path, option: str, *, least: int = 1, advice: str = "") -> str:
    """Return the token in the file of an option. Raise UsageError if there is none, or it is too short."""
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST + 1)
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be read: {error.strerror or error}") from None
    token = content.decode("ascii", "replace").strip()
    is_word = token.isascii() and token.isprintable() and " " not in token and len(content) <= LONGEST
    if len(token) < least or not is_word:
        words = f"one word of at least {least} characters" if least > 1 else "one word of letters and digits"
        raise UsageError(f"{option} {path}: holds no token: a token is {words}{advice}")
    return token
