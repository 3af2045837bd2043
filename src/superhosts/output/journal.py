"""What is being appended to a file, noted before it happens: after a kill, the next run finds out how far it was.

    FOLDER/journal.json     the place of the last append, and the ids of the last reports

If the bytes are there after a restart, the report is in the file; if only a part of them is, that part is removed, and
the report is appended again. So the rows of a report are in the file once, whenever the program is killed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from superhosts.core.files import read_state, write_json

RECENT = 64  # reports whose ids are known: a caller that was killed hands in the last one again
FILE = "journal.json"


@dataclass(frozen=True)
class Span:
    """Bytes of a file: which file, from where, how many, and a digest of them."""

    device: int
    inode: int
    start: int
    length: int
    digest: str

    def is_of(self, data: bytes) -> bool:
        """Return True if these are the bytes."""
        return len(data) == self.length and digest_of(data) == self.digest


def digest_of(data: bytes) -> str:
    """Return a digest of bytes that are appended."""
    return blake2b(data, digest_size=16).hexdigest()


class Journal:
    """The last append to a file, and the last reports. Without a folder it is in memory, and ends with the run."""

    def __init__(self, folder: Path | None, say: Callable[[str], None]) -> None:
        self._path = None if folder is None else folder / FILE
        self.recent: deque[str] = deque(maxlen=RECENT)
        self.last: tuple[str, Span] | None = None  # the id of the report that was appended last, and where
        found = None if self._path is None else read_state(self._path, _fits, say)
        if found is not None:
            self.recent.extend(found["recent"])
            self.last = found["id"], Span(**found["span"])

    def add(self, ids: Iterable[str]) -> None:
        """Remember reports. They are on disk when the next one is appended, or in the queue until then."""
        self.recent.extend(each for each in ids if each not in self.recent)

    def begin(self, report: str, span: Span) -> None:
        """Note durably that a report is about to be appended."""
        self.last = report, span
        if self._path is not None:
            write_json(self._path, {"id": report, "span": asdict(span), "recent": list(self.recent)})


def _fits(content: Any) -> bool:
    """Return True if the content of a file is a journal."""
    if not isinstance(content, dict) or not isinstance(content.get("id"), str):
        return False
    recent, span = content.get("recent"), content.get("span")
    if not isinstance(recent, list) or not all(isinstance(each, str) for each in recent):
        return False
    kinds = {"device": int, "inode": int, "start": int, "length": int, "digest": str}
    return isinstance(span, dict) and {name: type(value) for name, value in span.items()} == kinds
