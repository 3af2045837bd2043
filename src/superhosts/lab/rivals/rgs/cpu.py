"""The loops of RGS-Sketch. One thread writes, because what a pair adds depends on all pairs before it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import Key, column_draw, column_hash, mangle32, pair_hash
from superhosts.core.pairs import Addresses
from superhosts.detectors.estimate import Floats
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.rgs.addressing import MAX_RANK, draw_of, group_number, group_of, rank_of, register_of
from superhosts.lab.rivals.rgs.geometry import CELLS, GROUP_BYTES, HOST_GROUPS, REGISTER_BITS, REGISTERS, Geometry

Groups = NDArray[np.uint8]
Cells = NDArray[np.uint32]  # rows (mangled host, count); a cell with count 0 is empty
MAX_COUNT = 0xFFFFFFFF


class State(NamedTuple):
    """The whole state of an RGS-Sketch."""

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
        group = np.int64(group_of(mangled, np.uint64(group_number(pair)), np.uint64(geometry.groups), key))
        word = read_group(groups, group)
        shift = np.uint64(REGISTER_BITS) * np.uint64(register_of(pair))
        old, rank = (word >> shift) & np.uint64(MAX_RANK), np.uint64(rank_of(pair))
        if rank <= old:
            continue
        first = CELLS * np.int64(column_hash(mangled, bucket_draw, geometry.buckets))
        draw = np.float64(draw_of(pair, key)) / 2.0**32
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
