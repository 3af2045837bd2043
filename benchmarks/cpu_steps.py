"""Section "steps": where the time of a dense update goes, in nanoseconds of one core for each entry of full bins.

Steps that stand alone are timed alone. Others are left out by the geometry: fewer arrays, hardly any pairs that compete
for labels, no giant columns. The processor time of one thread is measured, so other load matters little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from cases import BATCH, SHUFFLED_5M, SHUFFLED_48M, Column
from harness import Report
from superhosts.detectors.cube import Cube, Geometry
from superhosts.detectors.cube.fill import SPAN, fetch, fill
from superhosts.detectors.engines.bins import UNSEEN, Portion, entry_width, make_scratch, unpack
from superhosts.detectors.engines.cpu import count_zeros
from superhosts.jit.cache import compiled

ROUNDS = 5
BEFORE = 5 * BATCH  # pairs that are in the cube before anything is timed
PIECE = 50_000  # pairs that are added to the bins at a time, until they are full


class FullError(Exception):
    """The bins are full."""


class Steps:
    """A dense cube of one thread with full bins."""

    def __init__(self, geometry: Geometry, hosts: Column, peers: Column) -> None:
        cube = Cube(geometry=geometry, device="cpu", exact=False, threads=1)
        before = min(BEFORE, len(hosts) // 2)
        for start in range(0, before, BATCH):
            cube.update(hosts[start : min(start + BATCH, before)], peers[start : min(start + BATCH, before)])
        self.engine = cube.engine
        self.engine.flush()
        self.pairs = hosts[before:], peers[before:]
        self.added = self.add()
        (self.portion,) = self.engine.bins.take()
        self.entries = int(self.portion.sizes.sum())

    def add(self) -> int:
        """Fill the bins and return the number of pairs that were added."""
        self.engine.bins.clear()
        for start in range(0, len(self.pairs[0]), PIECE):
            batch = [column[start : start + PIECE] for column in self.pairs]
            try:
                self.engine.bins.add([(batch[0], batch[1])], _refuse)
            except FullError:
                return start
        return len(self.pairs[0])

    def fill(self) -> None:
        """Write the entries."""
        self.engine.bins.seen[:] = 0
        self.engine.bins.seen[:, 0] = 1
        fill(self.portion, self.engine.store, self.engine.geometry, self.engine.key)


def run(report: Report, folder: Path) -> None:
    """Measure both sizes."""
    for full in (SHUFFLED_5M, SHUFFLED_48M):
        case = full.quick() if report.quick else full
        hosts, peers = (column[: 2 * BEFORE] for column in case.load(folder))
        _measure(report, f"steps, {full.label}", hosts, peers)


def _measure(report: Report, title: str, hosts: Column, peers: Column) -> None:
    default = Geometry.for_memory("128MiB")
    steps = Steps(default, hosts, peers)
    engine, portion, entries = steps.engine, steps.portion, steps.entries
    unseen = portion._replace(seen=UNSEEN)
    plain = default.plain_columns

    def add(name: str, call: Callable[[], object], count: int, note: str = "") -> None:
        call()
        runs = [1e9 * _seconds(call) / count for _ in range(ROUNDS)]
        report.add("steps", f"{title}: {name}", min(runs), "ns", note=note, runs=runs)

    written = unpack_pieces(portion)
    add("fill, in all", steps.fill, entries, f"{written / entries:.0%} are written")
    add("take out of the bins, with repeats", lambda: unpack_pieces(unseen), entries)
    add("take out of the bins", lambda: unpack_pieces(portion), entries)
    add("read all columns", lambda: fetch(engine.bits, 0, plain), entries)
    add("count zeros", lambda: count_zeros(engine.bits, engine.counts, 0, plain), entries)
    add("drop recent repeats, mangle and bin (each pair)", steps.add, steps.added)
    for name, geometry in {
        "fill without giant columns": default._replace(giants=0),
        "fill without giant columns and labels": default._replace(giants=0, share_bits=16),
        "fill without these, in four arrays": default._replace(giants=0, share_bits=16, arrays=4),
    }.items():
        without = Steps(geometry, hosts, peers)
        add(name, without.fill, without.entries)


@compiled
def unpack_pieces(portion: Portion) -> int:
    """Take all entries out of the bins and return the number of those that were not written recently."""
    scratch = make_scratch(SPAN, entry_width(portion.pool))
    number, total = 0, 0
    while number < len(portion.chunks):
        number, count = unpack(number, len(portion.chunks), 0, portion, scratch)
        total += count
    return total


def _refuse() -> None:
    raise FullError


def _seconds(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start
