"""RGS-Sketch (Zhang, Huang, Sun, Gao, PVLDB 18(4), 2025): hosts share groups of registers, and cells name hosts.

A pair goes to one of its host's 32 groups of 8 registers. There it raises one register to its rank, as in HyperLogLog.
From the values of a group follows the probability q that a new pair raises one of them, so each pair that does counts
as 1/q new pairs of its host ("register group sharing"). Counts are in cells: every host has a bucket of 8 cells, each
with a host and a count. If all are taken, a further host takes over the smallest count c with probability 1/(c + 1).
If it does not, its pair does not raise the register either, so that small hosts leave the registers to large ones
("limited register update").

This is written from the paper's abstract and from the structure and sizes of its authors' published program: 5-bit
registers, 8 per group, 32 groups per host, 8 cells per bucket, 35 % of the memory for cells. It differs in three
points. Hash functions are keyed and have 64 bits, so ranks go up to 31 instead of 25. Random numbers come from the
pair's hash, so that the same stream gives the same sketch. Intervals are ours; the authors give none.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import THRESHOLD
from superhosts.core.hashing import Key, column_draw, column_hash, mangle32, pair_hash
from superhosts.core.pairs import Addresses
from superhosts.core.results import UNBOUNDED
from superhosts.detectors.engines.base import Arrays
from superhosts.detectors.estimate import CONFIDENCE, FILLED, Estimate, Floats
from superhosts.detectors.formulas import check_limits
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.base import Mangled, Rival, parse_memory, plain_columns

REGISTERS = 8  # of a group
REGISTER_BITS = 5
GROUP_BYTES = REGISTERS * REGISTER_BITS // 8
HOST_GROUPS = 32  # groups of a host: 256 registers, shared with other hosts
CELLS = 8  # of a bucket
CELL_BYTES = 8  # host and count
BUCKET_SHARE = 0.35  # of the memory
UINT32_RANGE = 1 << 32


class Geometry(NamedTuple):
    groups: int = 17_448_307
    buckets: int = 734_003

    @classmethod
    def for_memory(cls, memory: str | int, _threshold: float = THRESHOLD) -> Self:
        size = parse_memory(memory, 366, "rgs")  # two buckets
        buckets = int(BUCKET_SHARE * size) // (CELLS * CELL_BYTES)
        groups = (size - buckets * CELLS * CELL_BYTES) // GROUP_BYTES
        return cls(groups, buckets).check()

    def check(self) -> Self:
        check_limits(self, {"groups": (2, UINT32_RANGE), "buckets": (2, UINT32_RANGE)})
        return self

    @property
    def memory(self) -> int:
        return GROUP_BYTES * self.groups + CELLS * CELL_BYTES * self.buckets


# Addressing: five bits of the pair's hash select one of the host's groups, three bits the register in it, and the
# leading zeros give the rank with which the pair competes for the register. A second hash of the pair's hash is the
# random number that rounds counts and decides about evictions, so that the same stream always gives the same sketch.

MAX_RANK = (1 << REGISTER_BITS) - 1


@compiled
def group_of(mangled: int, number: int, groups: int, key: Key) -> int:
    """Return the group that is the host's group `number`, from 0 to groups - 1."""
    return ((pair_hash(mangled, number, key) >> 32) * groups) >> 32


@compiled
def rank_of(pair: int) -> int:
    """Return the leading zeros of a pair's hash plus one, at most the largest value of a register."""
    rank = 1
    while rank < MAX_RANK and (pair >> (64 - rank)) & 1 == 0:
        rank += 1
    return rank


Groups = NDArray[np.uint8]
Cells = NDArray[np.uint32]  # rows (mangled host, count); a cell with count 0 is empty
MAX_COUNT = 0xFFFFFFFF


class State(NamedTuple):
    groups: Groups
    cells: Cells


@compiled
def read_group(groups: Groups, group: int) -> np.uint64:
    """Return the registers of a group as one word, the first in the lowest bits."""
    word = np.uint64(0)
    for i in range(GROUP_BYTES):
        word |= np.uint64(groups[group, i]) << np.uint64(8 * i)
    return word


@compiled
def write_group(groups: Groups, group: int, word: np.uint64) -> None:
    """Write the registers of a group from one word."""
    for i in range(GROUP_BYTES):
        groups[group, i] = np.uint8((word >> np.uint64(8 * i)) & np.uint64(0xFF))


@compiled
def openness(word: np.uint64) -> float:
    """Return the probability that a new pair of a group raises one of its registers."""
    chances = 0
    for _ in range(REGISTERS):
        value = np.int64(word & np.uint64(MAX_RANK))
        if value < MAX_RANK:  # A register with the largest value cannot be raised.
            chances += 1 << (MAX_RANK - 1 - value)
        word >>= np.uint64(REGISTER_BITS)
    return chances / (REGISTERS << (MAX_RANK - 1))


@compiled
def take_cell(cells: Cells, first: int, mangled: np.uint32, weight: float, draw: float) -> bool:
    """Add `weight` to a host's count; `draw` in [0, 1) rounds it. Return False if the host gets no cell.

    A host that has none takes an empty cell or, with probability 1/(c + 1), that of the smallest count c, which it
    continues.
    """
    least = first
    for cell in range(first, first + CELLS):
        count = np.int64(cells[cell, 1])
        if count == 0 or cells[cell, 0] == mangled:
            whole = np.int64(weight)
            cells[cell, 0] = mangled
            cells[cell, 1] = np.uint32(min(MAX_COUNT, count + whole + (draw < weight - whole)))
            return True
        if count < cells[least, 1]:
            least = cell
    if draw * (np.int64(cells[least, 1]) + 1) >= 1.0:
        return False
    cells[least, 0] = mangled
    cells[least, 1] = np.uint32(min(MAX_COUNT, np.int64(cells[least, 1]) + 1))
    return True


@compiled
def write(hosts: NDArray[np.uint32], peers: Addresses, state: State, geometry: Geometry, key: Key) -> None:
    """Write pairs. A pair raises its register only if its host has or gets a cell."""
    groups, cells = state
    bucket_draw = column_draw(0, key)
    for i in range(len(hosts)):
        mangled = np.uint64(mangle32(np.uint64(hosts[i]), key))
        pair = np.uint64(pair_hash(mangled, np.uint64(peers[i]), key))
        number = pair & np.uint64(HOST_GROUPS - 1)
        group = np.int64(group_of(mangled, number, np.uint64(geometry.groups), key))
        word = read_group(groups, group)
        shift = np.uint64(REGISTER_BITS) * ((pair >> np.uint64(5)) & np.uint64(REGISTERS - 1))
        old, rank = (word >> shift) & np.uint64(MAX_RANK), np.uint64(rank_of(pair))
        if rank <= old:
            continue
        first = CELLS * np.int64(column_hash(mangled, bucket_draw, geometry.buckets))
        draw = np.float64(pair_hash(pair, key.pair[1], key) >> np.uint64(32)) / 2.0**32
        if take_cell(cells, first, np.uint32(mangled), 1.0 / openness(word), draw):
            write_group(groups, group, word + ((rank - old) << shift))


@compiled
def measure(
    mangled: NDArray[np.uint32],
    state: State,
    geometry: Geometry,
    key: Key,
    peers: Floats,
    crowds: Floats,
    weights: Floats,
) -> None:
    """Write each host's count, the smallest count of its bucket if no cell is empty, and the weight of a new pair.

    The weight is the number of new pairs for each one that raises a register: the mean over the host's groups.
    """
    groups, cells = state
    bucket_draw = column_draw(0, key)
    for i in range(len(mangled)):
        host = np.uint64(mangled[i])
        first = CELLS * np.int64(column_hash(host, bucket_draw, geometry.buckets))
        peers[i], crowds[i] = 0.0, np.inf
        for cell in range(first, first + CELLS):
            crowds[i] = min(crowds[i], cells[cell, 1])
            if cells[cell, 1] > 0 and cells[cell, 0] == mangled[i]:
                peers[i] = cells[cell, 1]
        weights[i] = 0.0
        for number in range(HOST_GROUPS):
            group = np.int64(group_of(host, np.uint64(number), np.uint64(geometry.groups), key))
            weights[i] += 1.0 / max(openness(read_group(groups, group)), 2.0**-MAX_RANK) / HOST_GROUPS


MOST_PEERS = 2**62  # an upper bound above it says nothing


class Rgs(Rival):
    """RGS-Sketch for 32-bit hosts, on one CPU thread, of 128 MiB by default. It was made for 100 KB to 500 KB.

    What a pair counts depends on the pairs before it, so the order of pairs matters, and so does a repetition of a pair
    that came before its host had a cell. The authors merge registers by maximum and estimate the hosts that cells name
    from the merged registers: the result is a list of hosts, not a sketch of both streams. So it cannot be merged here.

    The confidence interval accounts for the pairs that raised no register, as if all had come last, when each counted
    most. It also accounts for what a host inherited with its cell, and for its pairs before it had one.
    """

    name = "rgs"
    broken_laws = frozenset({"order", "repetition"})
    geometry_type = Geometry
    geometry: Geometry

    def _allocate(self) -> None:
        groups = np.zeros((self.geometry.groups, GROUP_BYTES), np.uint8)
        self.state = State(groups, np.zeros((CELLS * self.geometry.buckets, 2), np.uint32))

    def _memory(self) -> int:
        return sum(array.nbytes for array in self.state)

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        write(*plain_columns(hosts, peers, self.key), self.state, self.geometry, self.key)

    def _find(self, threshold: float) -> tuple[Mangled, Estimate]:
        cells = self.state.cells
        mangled = np.unique(cells[cells[:, 1] >= max(1.0, threshold), 0])
        return mangled, self._measure(mangled)

    def _measure(self, mangled: Mangled) -> Estimate:
        peers, crowds, weights = np.empty((3, len(mangled)))
        measure(mangled, self.state, self.geometry, self.key, peers, crowds, weights)
        deviations = CONFIDENCE * np.sqrt(peers * (weights - 1))
        # A host inherits at most the smallest count c. It waits for a cell until one of its pairs that raise a register
        # wins, each with probability 1/(c + 1): for at most 3.69·c of them in 39 of 40 cases.
        low = np.maximum(0, np.floor(peers - crowds - deviations)).astype(np.int64)
        high = np.ceil(peers + crowds * (FILLED * weights - 1) + deviations)
        full = peers == MAX_COUNT
        bounded = np.where(full | (high > MOST_PEERS), UNBOUNDED, np.minimum(high, MOST_PEERS).astype(np.int64))
        return Estimate(peers, low, bounded, full)

    def _arrays(self) -> Arrays:
        return {"groups": self.state.groups, "cells": self.state.cells}
