"""What waits in the queues of destinations, read as another program reads it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from superhosts.output.delivery import QUEUE


def waiting_in(folder: Path) -> list[dict[str, Any]]:
    """Return the batches in all queues of a folder and its folders, in order."""
    found = []
    for path in sorted(folder.rglob(QUEUE)):
        with closing(sqlite3.connect(path)) as database:
            found += database.execute("SELECT content FROM batches ORDER BY number").fetchall()
    return [json.loads(content) for (content,) in found]
