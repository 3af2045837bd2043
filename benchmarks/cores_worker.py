"""One measurement on the cores that this process may use; prints one number. Called by `cores.py`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from cases import THETA, load_pairs, update_in_batches
from superhosts.core.device import run_parallel, thread_count
from superhosts.detectors.cube import Cube
from superhosts.sources.capture import format_of, open_capture
from superhosts.sources.frames.columns import POSITION, TALLY_SLOTS, new_columns, start_walk

WORDS = 1 << 25  # of each thread's array that is copied: 256 MiB
PIECE = 1 << 18  # bytes that a thread reads at a time
CACHED = 1 << 20  # bytes that are walked again and again: with fewer, threads wait for each other in Python


def update(place: str) -> float:
    """Return the seconds from an empty cube to the super hosts of all pairs."""
    hosts, peers = load_pairs(Path(place))
    warm = Cube("128MiB", device="cpu")
    update_in_batches(warm, hosts[:1_000_000], peers[:1_000_000])
    warm.super_hosts(THETA)
    start = time.perf_counter()
    cube = Cube("128MiB", device="cpu")
    update_in_batches(cube, hosts, peers)
    cube.super_hosts(THETA)
    return time.perf_counter() - start


def copy(_: str) -> float:
    """Return the GB/s at which all threads together copy memory, reading and writing counted."""
    threads = thread_count()
    arrays = [(np.ones(WORDS), np.zeros(WORDS)) for _ in range(threads)]
    start = time.perf_counter()
    run_parallel(lambda source, target: np.copyto(target, source), arrays, threads)
    return threads * WORDS * 16 / 1e9 / (time.perf_counter() - start)


def read(path: str) -> float:
    """Return the seconds in which all threads together read a file from the page cache."""
    threads, size = thread_count(), Path(path).stat().st_size
    share = -(-size // threads)

    def work(thread: int) -> None:
        buffer = memoryview(bytearray(PIECE))
        with Path(path).open("rb", buffering=0) as file:
            file.seek(thread * share)
            left = share
            while left > 0 and (got := file.readinto(buffer[: min(left, PIECE)])):
                left -= got

    work(0)
    start = time.perf_counter()
    run_parallel(work, [(thread,) for thread in range(threads)], threads)
    return time.perf_counter() - start


def walk(path: str) -> float:
    """Return the seconds in which all threads together walk as many packets as a capture has, in bytes in a cache."""
    with Path(path).open("rb") as file:
        block = np.frombuffer(file.read(CACHED), np.uint8)
    threads, turns = thread_count(), Path(path).stat().st_size // CACHED

    def work(turns: int) -> None:
        walked = format_of(block[:8].tobytes())
        assert walked is not None
        columns, tally = new_columns(CACHED, 0), np.zeros(TALLY_SLOTS, np.int64)
        start_walk(tally, 1)
        walked.walk(block, tally, columns)  # the header
        second = int(tally[POSITION])
        for _ in range(turns):
            start_walk(tally, CACHED)
            tally[POSITION] = second
            walked.walk(block, tally, columns)

    work(1)
    start = time.perf_counter()
    run_parallel(work, [(turns // threads,)] * threads, threads)
    return time.perf_counter() - start


def columns(path: str) -> float:
    """Return the seconds in which the packets of a capture are read and become columns of addresses."""
    for _ in range(2):  # the first time compiles, or loads what was compiled
        start = time.perf_counter()
        for _ in open_capture(path).blocks():
            pass
        seconds = time.perf_counter() - start
    return seconds


if __name__ == "__main__":
    print({"update": update, "copy": copy, "read": read, "walk": walk, "columns": columns}[sys.argv[1]](sys.argv[2]))
