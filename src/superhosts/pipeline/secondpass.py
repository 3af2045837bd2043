"""Reads windows a second time if some of their packets were far out of order.

Later packets cannot be added to a window that has closed, because its sketch was yielded. So after all files were read,
they are read again for those windows alone. The packets of these windows wait in memory and, beyond a limit, in a
temporary file, until each window is built whole. The work stays linear: two readings, and each packet is written at
most once.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import PacketBatch
from superhosts.errors import InputError, OutputError
from superhosts.pipeline.windows import LIMITS, Limits, split_by_window
from superhosts.sources.base import Source, input_border

COLUMNS = ("src", "dst", "time", "details")


class SecondPass:
    """Collects whole windows, those in `wanted`, from inputs in any order."""

    def __init__(self, length: int, wanted: Iterable[int], limits: Limits = LIMITS) -> None:
        self._length = length
        self._wanted = np.asarray(sorted(wanted), np.int64)
        self._limits = limits
        self._held: dict[int, list[PacketBatch]] = {}  # packets by window, in memory
        self._count = self._pieces = 0  # of these
        self._stored: dict[int, list[tuple[int, int]]] = {}  # by window: family and place in the file
        self._file: IO[bytes] | None = None

    def read(self, source: Source, stopped: Callable[[], bool]) -> None:
        """Read an input. Damage ends it silently: the first reading has reported it."""
        with contextlib.suppress(InputError), input_border(source.name):
            for batch in (batch for block in source.blocks() for batch in block):
                if stopped():
                    return
                keep = np.isin(batch.time // self._length, self._wanted)
                for index, piece in split_by_window(batch.take(keep), self._length):
                    self._hold(index, piece)

    def windows(self) -> Iterator[tuple[int, Iterator[PacketBatch]]]:
        for index in sorted(self._held.keys() | self._stored.keys()):
            yield index, self._take(index)

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # what a full disk did not take is not needed
                self._file.close()

    def _hold(self, index: int, piece: PacketBatch) -> None:
        self._held.setdefault(index, []).append(piece)
        self._count += len(piece)
        self._pieces += 1
        if self._count > self._limits.packets or self._pieces > self._limits.pieces:
            self._store()

    def _store(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="superhosts-")  # noqa: SIM115  closed by `close`
            file = self._file
            for index, pieces in self._held.items():
                for family in sorted({piece.family for piece in pieces}):
                    self._stored.setdefault(index, []).append((family, file.tell()))
                    for column in _columns([piece for piece in pieces if piece.family == family]):
                        np.save(file, column, allow_pickle=False)
            file.flush()  # a full disk shows here, and not when the packets are read
        except OSError as error:
            way = f"{error.strerror}; TMPDIR names another folder"
            raise OutputError(f"{tempfile.gettempdir()}: a temporary file cannot be written: {way}") from None
        self._held, self._count, self._pieces = {}, 0, 0

    def _take(self, index: int) -> Iterator[PacketBatch]:
        for family, place in self._stored.pop(index, []):
            assert self._file is not None
            self._file.seek(place)
            src, dst, time, details = (np.load(self._file, allow_pickle=False) for _ in COLUMNS)
            yield PacketBatch(family, src, dst, time, details=details if len(details) else None)
        yield from self._held.pop(index, [])


def _columns(pieces: Sequence[PacketBatch]) -> Iterator[NDArray[Any]]:
    """Yield COLUMNS of packets of one family. The column of details is empty if no packet has any."""
    for name in COLUMNS[:-1]:
        yield np.concatenate([getattr(piece, name) for piece in pieces])
    known = any(piece.details is not None for piece in pieces)
    none = [np.zeros(len(piece) if known else 0, np.uint64) for piece in pieces]
    yield np.concatenate(
        [empty if piece.details is None else piece.details for piece, empty in zip(pieces, none, strict=True)]
    )
