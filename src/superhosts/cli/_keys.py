"""Which key a command uses, and what people must know about it. `superhosts.core.keys` explains the order."""

from __future__ import annotations

from pathlib import Path

from superhosts.core.files import exposure_warning, os_errors
from superhosts.core.hashing import DEFAULT_KEY, fingerprint, secret_of
from superhosts.core.keys import ChosenKey, choose_key, own_path, why_none_is_kept
from superhosts.core.notices import as_warning
from superhosts.errors import UsageError
from superhosts.output.console import tell

LONGEST = 8192  # bytes of a file with the token of a dashboard


def read_token(path: Path, option: str, *, least: int = 1, advice: str = "") -> str:
    """Return the token in the file of an option. Raise UsageError if there is none, or it is too short."""
    with os_errors(f"{option} {path}: cannot be read", UsageError), path.open("rb") as file:
        content = file.read(LONGEST + 1)
    token = content.decode("ascii", "replace").strip()
    is_word = token.isascii() and token.isprintable() and " " not in token and len(content) <= LONGEST
    if len(token) < least or not is_word:
        words = f"one word of at least {least} characters" if least > 1 else "one word of letters and digits"
        raise UsageError(f"{option} {path}: holds no token: a token is {words}{advice}")
    return token


MAKE_ONE = "give one with --key-file (superhosts key new FILE makes one)"


def announced_key(path: Path | None) -> ChosenKey:
    """Return the key, and say so if its file is new, or open to others."""
    chosen = choose_key(path)
    if chosen.is_new:
        tell(f"made a key of your own: {chosen.place}; sites must share this key to be merged")
    warn_if_exposed(chosen)
    return chosen


def given_key(path: Path | None) -> bytes | None:
    """Return the key of `--key-file`; None without it: then the library chooses, which makes no key."""
    return None if path is None else announced_key(path).secret


def key_for_sketches(path: Path | None, *, saves: bool) -> bytes:
    """Return the key of a command that makes sketches. `saves`: it also keeps them, so the key must last."""
    chosen = announced_key(path)
    if chosen.lost and saves:
        what = "later runs cannot query or merge the sketches that it saves"
        why = f"no key of your own can be kept ({chosen.lost})"
        tell(as_warning(f"{why}. This run uses a random key: {what}; {MAKE_ONE}"))
    return chosen.secret


def fleet_key(path: Path | None) -> bytes:
    """Return the key of an edge or a hub, which all sites share. Raise UsageError if it would not last."""
    chosen = announced_key(path)
    if chosen.lost:
        raise UsageError(f"the sites of a fleet share a key, but none can be kept here ({chosen.lost}); {MAKE_ONE}")
    return chosen.secret


def say_what_leaves(secret: bytes | str | None) -> None:
    """Say that no address leaves an edge's site in the clear, or warn that the key is one that everybody knows."""
    if secret_of(secret) == DEFAULT_KEY:
        warn_if_public(secret)
    else:
        key = f"without the key {fingerprint(secret_of(secret))}, nobody reads one from its sketches"
        tell(f"no address leaves this site in the clear: {key}")


def warn_if_public(secret: bytes | str | None) -> None:
    """Warn of a key that everybody knows; for edges and hubs, once they are ready."""
    if secret_of(secret) == DEFAULT_KEY:
        danger = "anyone can read addresses from the sketches, and hide a super host with five packets"
        tell(as_warning(f"the key in use is public: {danger}; {MAKE_ONE}"))


def next_key() -> str:
    """Return what happens when a command needs a key while there is none."""
    why = why_none_is_kept()
    if why:
        return f"none can be kept ({why}), so every run uses a random key"
    return f"the first command that needs one makes {own_path()}"


def warn_if_exposed(chosen: ChosenKey) -> None:
    """Warn if other users of the machine have access to the file of a key."""
    if isinstance(chosen.place, Path) and (warning := exposure_warning(chosen.place)):
        tell(warning)
