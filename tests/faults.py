"""Faults of the system that tests make without root."""

from __future__ import annotations

import io
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def full_disk(room: int = 0) -> Iterator[None]:
    """Let no file grow beyond `room` bytes in this process: each write there fails with "File too large" (EFBIG)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class FakeStdin:
    """Standard input that gives the bytes of another file."""

    def __init__(self, data: bytes | io.BufferedIOBase) -> None:
        self.buffer: Any = io.BytesIO(data) if isinstance(data, bytes) else data
