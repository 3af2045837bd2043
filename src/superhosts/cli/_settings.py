"""From options to `Settings`: the one place where a command's options become what the pipeline takes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from superhosts.cli._console import say
from superhosts.durable import exposure_warning
from superhosts.errors import UsageError
from superhosts.hashing import check_secret
from superhosts.pipeline.settings import Settings

_NAMES = {each.name for each in fields(Settings)}


def make_settings(*groups: Any, **others: Any) -> Settings:
    """Return the settings that groups of options and single values name; settings and options have the same names.

    A group's `key_file` becomes the key.
    """
    given: dict[str, Any] = {}
    for group in groups:
        for option in fields(group):
            if option.name == "key_file":
                given["key"] = read_key(group.key_file)
            elif option.name in _NAMES:
                given[option.name] = getattr(group, option.name)
    return Settings(**given, **others)


def read_key(path: Path | None) -> bytes | None:
    """Return the key from a file, without the newline at its end; None if no file is given."""
    if path is None:
        return None
    try:
        key = path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise UsageError(f"--key-file {path}: cannot be read: {error.strerror}") from None
    if warning := exposure_warning(path):
        say(f"superhosts: {warning}")
    return check_secret(key, f"--key-file {path}")
