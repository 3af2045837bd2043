"""Keeps tests out of the user's configuration folder, and their results independent of the key in it."""

from __future__ import annotations

import os
import tempfile

PUBLIC_KEY = "superhosts default key: public, for tests and single sites"
_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed when this process ends


def isolate() -> None:
    """Use an empty configuration folder and the public key in this process, and in all that it starts."""
    _folders.append(tempfile.TemporaryDirectory(prefix="superhosts-tests-"))
    os.environ.update(XDG_CONFIG_HOME=_folders[-1].name, SUPERHOSTS_KEY=PUBLIC_KEY)
