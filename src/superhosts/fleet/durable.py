"""Files that survive a power cut: written whole under another name, synced, renamed, and the folder synced."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. File systems that cannot (network mounts) are left as they are."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def place(source: Path, target: Path) -> None:
    """Rename a synced file into place, durably."""
    source.replace(target)
    sync_folder(target.parent)


def write_json(path: Path, content: Any, *, durable: bool = True, indent: int | None = 1) -> None:
    """Replace a small file at once. Without `durable` only readers are safe from half of it, not the power cut."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=indent) + "\n")  # json.dump, in pieces, takes eight times as long
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def read_json(path: Path) -> Any:
    """Read such a file; None where there is none or somebody has damaged it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
