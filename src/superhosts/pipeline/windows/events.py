"""What happens to windows, and how packets are split by window."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from superhosts.core.pairs import PacketBatch, Window
from superhosts.pipeline.windows.jumps import Jump


class Piece(NamedTuple):
    """Packets of one window."""

    window: Window
    batch: PacketBatch


class Closed(NamedTuple):
    """A window that takes no more packets."""

    window: Window
    starts: tuple[int, ...] = ()  # of the windows that it joins; none: it is the one that begins at its start


class PutOff(NamedTuple):
    """Packets of a window that is closed; it is to be read again."""

    batch: PacketBatch


Event = Piece | Closed | PutOff | Jump


def split_by_window(batch: PacketBatch, length: int) -> Iterator[tuple[int, PacketBatch]]:
    """Split a batch by window, the earliest first. Nearly every batch belongs to one window."""
    if not len(batch):
        return
    first, last = batch.span[0] // length, batch.span[1] // length
    if first == last:
        yield first, batch
        return
    if (batch.time[1:] >= batch.time[:-1]).all():
        yield from _split_in_order(batch, length)
        return
    indexes = batch.time // length
    steps = np.diff(indexes)
    if (steps < 0).any():
        order = np.argsort(indexes, kind="stable")
        indexes, batch = indexes[order], batch.take(order, batch.span)
        steps = np.diff(indexes)
    edges = [0, *(np.flatnonzero(steps) + 1).tolist(), len(indexes)]
    for start, end in pairwise(edges):
        yield int(indexes[start]), batch.take(slice(start, end))


def _split_in_order(batch: PacketBatch, length: int) -> Iterator[tuple[int, PacketBatch]]:
    """Split packets in order of time: only where windows end is looked for, and no packet is divided."""
    start = 0
    while start < len(batch):
        index = int(batch.time[start]) // length
        end = len(batch)
        if index < batch.span[1] // length:
            end = start + int(np.searchsorted(batch.time[start:], (index + 1) * length))
        yield index, batch.take(slice(start, end), (int(batch.time[start]), int(batch.time[end - 1])))
        start = end
