"""Keeps tests out of the user's configuration folder, and their results independent of the key in it.

Services log as text, as on a terminal: most tests read that. Those of the log remove the variables.
"""

from __future__ import annotations

import os
import tempfile

PUBLIC_KEY = "superhosts default key: public, for tests and single sites"
TEXT_LOGS = {f"SUPERHOSTS_{command}_LOG_FORMAT": "text" for command in ("EDGE", "HUB", "WATCH")}
_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed when this process ends


def isolate() -> None:
    """Use an empty configuration folder, the public key and logs of text in this process, and in all that it starts.

    Machine code that cannot be kept on disk is an error.
    """
    _folders.append(tempfile.TemporaryDirectory(prefix="superhosts-tests-"))
    os.environ.update(XDG_CONFIG_HOME=_folders[-1].name, SUPERHOSTS_KEY=PUBLIC_KEY, **TEXT_LOGS)
    os.environ.setdefault("SUPERHOSTS_COMPILING", "kept")
