"""Where the secret key of a sketch comes from.

Commands take the file that `--key-file` names (`public`: the key that is part of the source), else the value of
SUPERHOSTS_KEY, else the user's own key, a file in the configuration folder that is made when it is first needed, else a
random key for this run. The library takes its `key` argument, SUPERHOSTS_KEY or the public key. To read a file, both
also look for the fingerprint of its key among the public key and the user's own. Why: docs/explanation/decisions.md.
"""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from superhosts.core.files import make_folder, os_errors, sync, sync_folder, write_private
from superhosts.core.hashing import DEFAULT_KEY, check_secret, fingerprint, secret_of
from superhosts.errors import OutputError, UsageError

PUBLIC = "public"  # the name that stands for the public key, in place of a file
VARIABLE = "SUPERHOSTS_KEY"
NO_HOME = "this user has no home folder"
MOST_BYTES = 1 << 20  # of a key file; a longer one is a mistake, or a device without an end


@dataclass(frozen=True)
class ChosenKey:
    """A key, and where it comes from. Its text never shows the secret."""

    secret: bytes = field(repr=False)
    place: Path | str  # a file; or the variable, the word for the public key, or nothing (random, or of a program)
    is_new: bool = False  # True if the file has just been made
    lost: str = ""  # why the key cannot be kept; empty if it can

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the key."""
        return fingerprint(self.secret)

    @property
    def is_public(self) -> bool:
        """True for the key that everybody knows, wherever it comes from."""
        return self.secret == DEFAULT_KEY

    def __str__(self) -> str:
        return f"{self.fingerprint} ({self.place})" if self.place else self.fingerprint


def find_key(path: Path | None = None, option: str = "--key-file ") -> ChosenKey | None:
    """Return the key of a file (errors name the `option`), of the environment, or the user's own, if there is one."""
    return _given_key(path, option) or _find_own()


def choose_key(path: Path | None = None) -> ChosenKey:
    """Return the key of a file, of the environment, or the user's own. If none can be made, a random one says why."""
    return _given_key(path) or _use_own()


def own_key() -> bytes:
    """Return the user's own key, which commands use without --key-file. It is made if there is none.

    Raise OutputError if it cannot be made.
    """
    chosen = _use_own()
    if chosen.lost:
        raise OutputError(f"no key of your own can be made: {chosen.lost}")
    return chosen.secret


def keys_at_hand(key: bytes | str | None) -> Iterator[ChosenKey]:
    """Yield the keys with which a file may have been written: the given one, or all that are known. None is made."""
    if key is not None:
        yield ChosenKey(secret_of(key), "")
    elif (given := _given_key(None)) is not None:
        yield given
    else:
        yield ChosenKey(DEFAULT_KEY, PUBLIC)
        if (own := _find_own()) is not None:
            yield own


def own_path() -> Path | None:
    given = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        folder = Path(given) if Path(given).is_absolute() else Path.home() / ".config"
    except RuntimeError:
        return None
    return folder / "superhosts" / "key"


def write_key(path: Path, *, replace: bool = False) -> bytes:
    """Write a new key to a file that only its owner can read, and return it. Raise FileExistsError if it exists.

    The complete file gets its name by a link, which fails if another process was faster: nobody ever reads a key that
    is half written or about to be replaced.
    """
    secret = secrets.token_urlsafe(32)
    make_folder(path.parent)
    if replace:
        write_private(path, secret)
        return secret.encode()
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{secret}\n")
            file.flush()
            sync(file.fileno())
        os.link(temporary, path)
    finally:
        Path(temporary).unlink()
    sync_folder(path.parent)
    return secret.encode()


def _given_key(path: Path | None, option: str = "--key-file ") -> ChosenKey | None:
    if path is not None:
        if str(path) == PUBLIC:
            return ChosenKey(DEFAULT_KEY, PUBLIC)
        return ChosenKey(_read(path, f"{option}{path}"), path)
    return ChosenKey(secret_of(None), VARIABLE) if os.environ.get(VARIABLE) else None


def _find_own() -> ChosenKey | None:
    path = own_path()
    if path is None or not os.path.lexists(path):
        return None
    place = f"your own key {path}"
    if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113  these do not raise
        raise UsageError(f"{place}: cannot be read: it is not a plain file")
    return ChosenKey(_read(path, place), path)


def why_none_is_kept() -> str:
    path = own_path()
    if path is None:
        return NO_HOME
    folder = path.parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        return f"{folder}: {os.strerror(errno.ENOTDIR)}"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder}: {os.strerror(errno.EACCES)}"


def _use_own() -> ChosenKey:
    found, path = _find_own(), own_path()
    if found is not None:
        return found
    if path is None:
        return ChosenKey(secrets.token_bytes(32), "", lost=NO_HOME)
    try:
        return ChosenKey(write_key(path), path, is_new=True)
    except FileExistsError as error:  # Another process was faster, or something else has the name of the folder.
        found, why = _find_own(), f"{path.parent}: {error.strerror}"
    except OSError as error:
        why = f"{error.filename or path}: {error.strerror or error}"
    return found or ChosenKey(secrets.token_bytes(32), "", lost=why)


def _read(path: Path, place: str) -> bytes:
    with os_errors(f"{place}: cannot be read", UsageError), path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UsageError(f"{place}: is not a key file: it is larger than {MOST_BYTES >> 20} MiB")
    return check_secret(content.rstrip(b"\r\n"), place)
