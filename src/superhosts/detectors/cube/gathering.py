"""From a set of pairs to the rows form of a cube (`hostrows`), without ever having its bits.

Pairs are taken table by table, so that their hosts stay in a core's cache. Radix passes order the pairs of a table by
row, and a last one by host, which leaves the rows of each host in order.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import MASK32, Key, column_draw, fold, pair_hash
from superhosts.cubefile.container import BLOCK as FILE_BLOCK
from superhosts.detectors.cube.addressing import (
    column_of,
    is_for_giants,
    is_sampled,
    label_of,
    lowest_priority,
    priority_of,
    row_of,
    ticket_of,
)
from superhosts.detectors.cube.geometry import Geometry
from superhosts.detectors.cube.hostrows import shapes
from superhosts.detectors.engines.base import Arrays, Words
from superhosts.detectors.engines.bins import BLOCK, cache_shift
from superhosts.detectors.engines.pairset import PairSet
from superhosts.detectors.engines.pairtable import HOST_MULTIPLIER, Portion, unpack_portion
from superhosts.jit.cache import compiled

Numbers = NDArray[np.int64]
GIANT = 1 << 31  # mark of a row that giant columns have, too
ARRAY_OVERHEAD = 66  # bytes of a small array in a file besides its content: its line of the header, and frames


class Gathered(NamedTuple):
    """Hosts with their rows and priorities."""

    hosts: Words  # (hosts, 2): mangled, high and low word
    counts: Numbers  # rows of each host
    rows: NDArray[np.uint32]  # of all hosts, ascending within each; GIANT marks those of giant columns
    best: NDArray[np.uint32]  # (hosts, arrays): the highest priority of each host's pairs; 0 if none competes


def gather(pairs: PairSet, geometry: Geometry, key: Key) -> Gathered:
    """Return the hosts of a set of pairs, ordered by the number of their rows and then by host. The set is drained."""
    found = [_empty(geometry)]

    def take(portion: Portion) -> None:
        hosts, peers = unpack_portion(portion)
        index = np.zeros(1 << (2 * len(peers)).bit_length(), np.int32)  # no memory is used before it is written
        found.append(Gathered(*gather_pairs(hosts, peers, index, geometry, key, HOST_MULTIPLIER)))

    pairs.pass_to(take, pairs.bins.threads)
    whole = Gathered(*(np.concatenate(each) for each in zip(*found, strict=True)))
    found.clear()
    order = np.lexsort((whole.hosts[:, 1], whole.hosts[:, 0], whole.counts))
    rows = np.empty_like(whole.rows)
    reorder_rows(order, whole.counts, np.cumsum(whole.counts) - whole.counts, whole.rows, rows)
    return Gathered(whole.hosts[order], whole.counts[order], rows, whole.best[order])


def _empty(geometry: Geometry) -> Gathered:
    best = np.empty((0, geometry.arrays), np.uint32)
    return Gathered(np.empty((0, 2), np.uint64), np.empty(0, np.int64), np.empty(0, np.uint32), best)


@compiled
def gather_pairs(
    hosts: Words, peers: Words, index: NDArray[np.int32], geometry: Geometry, key: Key, multiplier: Any
) -> tuple[Words, Numbers, NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the fields of `Gathered` for some pairs. `index` is a table of zeros, at least twice as large.

    The multiplier distributes hosts over it.

    The memory of the pairs is overwritten: a host moves to its number, a peer becomes (number of the host, row).
    """
    best = np.zeros((64, geometry.arrays), np.uint32)
    hashes, numbers = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.int64)
    chosen = np.empty(BLOCK, np.int64)
    shift, mask = cache_shift(len(index)), len(index) - 1
    count, known = 0, 0
    for start in range(0, len(peers), BLOCK):
        size = min(BLOCK, len(peers) - start)
        for i in range(size):
            folded = fold(hosts[start + i, 0], hosts[start + i, 1], key)
            hashes[i] = np.uint64(pair_hash(folded, peers[start + i], key))
        kept = 0
        for i in range(size):
            if not is_sampled(hashes[i], geometry):
                continue
            high, low = hosts[start + i, 0], hosts[start + i, 1]
            place = np.int64((low * multiplier) >> shift)
            while index[place] and (hosts[index[place] - 1, 1] != low or hosts[index[place] - 1, 0] != high):
                place = (place + 1) & mask
            if index[place] == 0:
                hosts[known, 0], hosts[known, 1] = high, low
                known += 1
                index[place] = known
            hashes[kept], numbers[kept] = hashes[i], index[place] - 1
            kept += 1
        while known > len(best):
            best = np.concatenate((best, np.zeros_like(best)))
        _keep_best(hashes[:kept], numbers, chosen, best, geometry, key)
        for i in range(kept):
            mark = np.uint64(is_for_giants(hashes[i])) * np.uint64(GIANT if geometry.giants else 0)
            peers[count] = np.uint64(numbers[i]) << np.uint64(32) | mark | np.uint64(row_of(hashes[i], geometry))
            count += 1
    rows, counts = _order(peers[:count], known, geometry)
    return hosts[:known].copy(), counts, rows, best[:known].copy()


@compiled
def _keep_best(
    hashes: Words, numbers: Numbers, chosen: Numbers, best: NDArray[np.uint32], geometry: Geometry, key: Key
) -> None:
    """Keep the highest priority of each host. First list the pairs that compete: a branch would be mispredicted."""
    lowest, tickets = np.uint64(lowest_priority(geometry.share_bits)), np.empty_like(hashes)
    for array in range(geometry.arrays):
        for i in range(len(hashes)):
            tickets[i] = ticket_of(hashes[i], array, geometry, key)
        for i in range(len(hashes)):
            tickets[i] = priority_of(tickets[i], array, geometry)
        competing = 0
        for i in range(len(hashes)):
            chosen[competing] = i
            competing += tickets[i] >= lowest
        for j in range(competing):
            i = chosen[j]
            best[numbers[i], array] = max(best[numbers[i], array], np.uint32(tickets[i]))


@compiled
def _order(entries: Words, hosts: int, geometry: Geometry) -> tuple[NDArray[np.uint32], Numbers]:
    """Return the rows of entries (number of the host, row) in order, without repeats, and the rows of each host."""
    other = np.empty_like(entries)
    for digit in range(0, geometry.column_bits, 8):
        _scatter(entries, np.uint64(digit), np.uint64(255), 256, other)
        entries, other = other, entries
    _scatter(entries, np.uint64(32), np.uint64(MASK32), hosts, other)
    rows, counts = np.empty(len(other), np.uint32), np.zeros(hosts, np.int64)
    unmarked, kept, before = ~np.uint64(GIANT), 0, np.uint64(0)
    for i in range(len(other)):
        entry = other[i] & unmarked
        kept += i == 0 or entry != before
        if i == 0 or entry != before:
            rows[kept - 1] = np.uint32(0)
            counts[np.int64(entry >> np.uint64(32))] += 1
        rows[kept - 1] |= np.uint32(other[i] & np.uint64(MASK32))
        before = entry
    return rows[:kept].copy(), counts


@compiled
def _scatter(entries: Words, shift: np.uint64, mask: np.uint64, digits: int, out: Words) -> None:
    """Copy entries to `out`, in the order of some of their bits and otherwise as they were."""
    places = np.zeros(digits + 1, np.int64)
    for i in range(len(entries)):
        places[np.int64((entries[i] >> shift) & mask) + 1] += 1
    for digit in range(digits):
        places[digit + 1] += places[digit]
    for i in range(len(entries)):
        digit = np.int64((entries[i] >> shift) & mask)
        out[places[digit]] = entries[i]
        places[digit] += 1


@compiled
def reorder_rows(
    order: Numbers, counts: Numbers, starts: Numbers, rows: NDArray[np.uint32], out: NDArray[np.uint32]
) -> None:
    """Copy the rows of the hosts in `order`, one host after the other."""
    place = 0
    for host in order:
        for i in range(starts[host], starts[host] + counts[host]):
            out[place] = rows[i]
            place += 1


def encode(gathered: Gathered, geometry: Geometry, key: Key) -> Arrays | None:
    """Return the arrays of the rows form; None if a file of bits and labels would probably be smaller."""
    hosts, counts, marked, best = gathered
    types = {name: shape.dtype for name, shape in shapes(geometry).items()}
    numbers, sizes = np.unique(counts, return_counts=True)
    wins, columns = find_winners(hosts, best, geometry, key), column_loads(hosts, counts, geometry, key)
    if _size(gathered, wins, geometry) > _size_of_bits(columns, np.count_nonzero(wins), geometry):
        return None
    rows = np.empty(len(marked), types["rows"])
    giants = np.zeros(-(-len(marked) // 64) if geometry.giants else 0, np.uint64)
    row_differences(counts, marked, rows, giants)
    return {
        "counts": np.stack([numbers, sizes]).astype(types["counts"]),
        "hosts": host_differences(hosts, sizes)[0 if geometry.key_bits == 128 else 1 :].astype(types["hosts"]),
        "rows": rows,
        "giants": giants,
        "winners": np.packbits(wins, axis=1, bitorder="little")[:, 0],
        "priorities": ~best[wins],
    }


def _size(gathered: Gathered, wins: NDArray[np.bool_], geometry: Geometry) -> float:
    """Return the bytes that the rows form takes in a file, a little too many."""
    hosts, won = len(gathered.hosts), int(np.count_nonzero(wins))
    rows = _entropy(geometry.rows, gathered.counts)
    names = hosts * (geometry.key_bits + 3 - math.log2(max(hosts, 1)))
    labels = 32 * won + _entropy(max(wins.size, 1), np.array([won]))
    giants = len(gathered.rows) / 8 if geometry.giants else 0
    return 1.06 * (rows + names + labels + giants) / 8 + 6 * ARRAY_OVERHEAD


def _size_of_bits(columns: Numbers, labels: int, geometry: Geometry) -> float:
    """Return the bytes that bits and labels take in a file, a little too few."""
    filled = geometry.rows * -np.expm1(-columns / geometry.rows)
    blocks = geometry.total_columns * geometry.rows / 8 / FILE_BLOCK
    return _entropy(geometry.rows, np.rint(filled)) / 8 + 7 * geometry.limbs * labels + 20 * blocks + 2 * ARRAY_OVERHEAD


def _entropy(size: int, chosen: NDArray[Any]) -> float:
    """Return the bits that sets of these sizes take, each chosen from `size` elements."""
    values, times = np.unique(chosen, return_counts=True)
    bits = 0.0
    for value, number in zip(values.tolist(), times.tolist(), strict=True):
        bits += number * (math.lgamma(size + 1) - math.lgamma(value + 1) - math.lgamma(size - value + 1)) / math.log(2)
    return bits


@compiled
def column_loads(hosts: Words, counts: Numbers, geometry: Geometry, key: Key) -> Numbers:
    """Return the rows of all hosts of each plain column."""
    loads = np.zeros((geometry.arrays * geometry.columns) << geometry.slice_bits, np.int64)
    for i in range(len(hosts)):
        folded = fold(hosts[i, 0], hosts[i, 1], key)
        for array in range(geometry.arrays):
            loads[np.int64(column_of(folded, hosts[i, 1], array, column_draw(array, key), geometry))] += counts[i]
    return loads


@compiled
def find_winners(hosts: Words, best: NDArray[np.uint32], geometry: Geometry, key: Key) -> NDArray[np.bool_]:
    """Return for each host and array whether its priority is the highest of its label; several may be equal."""
    columns = (geometry.arrays * geometry.columns) << geometry.slice_bits
    labels = np.zeros(columns << geometry.label_bits, np.uint32)
    wins = np.zeros(best.shape, np.bool_)
    for is_known in (False, True):
        for i in range(len(hosts)):
            folded = fold(hosts[i, 0], hosts[i, 1], key)
            label = np.int64(label_of(hosts[i, 1], geometry))
            for array in range(geometry.arrays):
                if best[i, array] == 0:
                    continue
                column = np.int64(column_of(folded, hosts[i, 1], array, column_draw(array, key), geometry))
                place = (column << geometry.label_bits) + label
                if is_known:
                    wins[i, array] = best[i, array] == labels[place]
                else:
                    labels[place] = max(labels[place], best[i, array])
    return wins


@compiled
def host_differences(hosts: Words, sizes: Numbers) -> Words:
    """Return hosts as (high words, low words): the first of each group, then differences less one."""
    out = np.empty((2, len(hosts)), np.uint64)
    i, one = 0, np.uint64(1)
    for size in sizes:
        for number in range(size):
            high, low = hosts[i, 0], hosts[i, 1]
            if number:
                before_high, before_low = hosts[i - 1, 0], hosts[i - 1, 1]
                high -= before_high + np.uint64(low < before_low)
                low -= before_low
                high -= np.uint64(low == np.uint64(0))
                low -= one
            out[0, i], out[1, i] = high, low
            i += 1
    return out


@compiled
def row_differences(counts: Numbers, marked: NDArray[np.uint32], rows: NDArray[Any], giants: Words) -> None:
    """Write the differences of each host's rows, and one bit for each row that giant columns have."""
    place = 0
    for count in counts:
        before = np.int64(-1)
        for _ in range(count):
            row = np.int64(marked[place] & np.uint32(GIANT - 1))
            rows[place] = row - before - 1
            before = row
            if marked[place] >> np.uint32(31):
                giants[place >> 6] |= np.uint64(1) << np.uint64(place & 63)
            place += 1
