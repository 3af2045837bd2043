"""Sizes that decide how fast a detector works, how much memory it takes meanwhile and whether it fits a GPU.

They never change an answer. The defaults are measured. Tests use small sizes, so that a few pairs use the code paths
for millions.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TransferSizes:
    """Sizes of the transfer of pairs from pageable (ordinary) memory to a GPU."""

    piece: int = 1 << 24  # pairs per piece: many, because threads are started for each piece
    part_bytes: int = 1 << 22  # bytes that a thread copies at a time; with fewer, threads wait for each other


@dataclass(frozen=True)
class GpuTuning:
    """Sizes of the work on a GPU."""

    min_tiled_pairs: int = 1 << 22  # pairs per batch; sorting fewer by slice does not pay
    min_tiled_memory: int = 32 << 20  # bytes of a sketch; a smaller one stays in the cache without sorting
    max_tiled_pairs: int = 1 << 27  # pairs sorted at a time: 1 GiB if that is a small part of the GPU's memory
    max_memory: int = 1 << 34  # bytes of columns that 32-bit indexes can address
    rows: int = 1024  # capacity of an answer, in hosts; it is copied as a whole and grows when it is too small
    candidates: int = 1 << 16  # capacity of the list of candidates, which grows when it is too small
    host_slots: int = 1 << 20  # slots of a new set of hosts, 4 MiB; with most traffic, it grows once or never
    transfer: TransferSizes = TransferSizes()


@dataclass(frozen=True)
class Tuning:
    """Sizes of the work on the CPU, and those of the work on a GPU."""

    min_pairs_per_thread: int = 8192  # for fewer pairs, waking another thread costs more than it saves
    min_pending: int = 1 << 20  # pending pairs of the exact detector; sorting fewer is not worth the calls
    host_slots: int = 1 << 10  # slots of a new set of hosts in main memory
    gpu: GpuTuning = GpuTuning()
