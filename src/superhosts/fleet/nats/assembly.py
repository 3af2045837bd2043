"""A sketch that is arriving in pieces: its file, and the acknowledgements that the server waits for.

Pieces are written to disk as they arrive; memory holds one byte per piece, and the address for its acknowledgement. The
file is open only while a piece is written, so that any number of sites can send at once.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from superhosts.core.files import remove_or_set_aside
from superhosts.fleet.link import Acceptor
from superhosts.fleet.nats.wire import Chunk
from superhosts.fleet.receipts import Receipt

ENDING = ".part"
GONE = f".gone{ENDING}"


@dataclass
class Assembly:
    """The state of one sketch."""

    path: Path
    name: str
    site: str
    step: int
    size: int
    have: bytearray
    missing: int
    touched: float  # when the last new piece arrived
    held: dict[int, tuple[str, int]] = field(default_factory=dict)  # position in the stream → (address, bytes)
    handed_in: bool = False  # complete, and with the intake
    retry: float | None = None  # when to hand it in again, after a failure
    failures: int = 0

    @classmethod
    def begin(cls, folder: Path, chunk: Chunk, site: str, now: float) -> Assembly:
        """Begin with whichever piece arrives first."""
        path = folder / (chunk.name + ENDING)
        remove_or_set_aside(path)
        return cls(path, chunk.name, site, chunk.step, chunk.size, bytearray(chunk.pieces), chunk.pieces, now)

    @property
    def whole(self) -> bool:
        """Return True if all pieces are there."""
        return self.missing == 0

    def fits(self, chunk: Chunk) -> bool:
        """Return True if a piece has the same sizes as the others; a sketch may be sent again with other sizes."""
        return (chunk.step, chunk.size) == (self.step, self.size)

    def restart(self, chunk: Chunk) -> None:
        """Begin again with other piece sizes."""
        self.step, self.size = chunk.step, chunk.size
        self.have, self.missing = bytearray(chunk.pieces), chunk.pieces
        self.path.unlink(missing_ok=True)

    def write(self, chunk: Chunk, data: bytes) -> None:
        """Write a piece to its place in the file."""
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            offset = chunk.number * chunk.step
            view = memoryview(data)
            while view:
                written = os.pwrite(handle, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(handle)

    def mark(self, chunk: Chunk, now: float) -> None:
        """Count a piece that is on disk."""
        self.have[chunk.number] = 1
        self.missing -= 1
        self.touched = now

    def step_aside(self) -> Path:
        """Rename the file, so that the same sketch can begin again at once; return the path to remove."""
        gone = self.path.with_name(self.name + GONE)
        with contextlib.suppress(FileNotFoundError):
            self.path.replace(gone)
        return gone

    def hand_in(self, intake: Acceptor) -> Receipt:
        """Flush the complete file to disk and hand it to the intake; remove what the intake does not keep."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        receipt = intake.accept(self.path, self.name, self.site)
        self.path.unlink(missing_ok=True)
        return receipt
