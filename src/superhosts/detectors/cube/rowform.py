"""The rows form of a cube in a file: the rows of every host, from which all bits and labels follow.

A pair sets the same row in all arrays of its host. A cube that still has its pairs therefore writes each row once,
instead of one bit in each array, and a label is the name of a host that is listed anyway. No peer and no hash of a pair
is stored beyond its row; the hosts are, mangled.

    counts      (2, n)      numbers of rows that hosts have, ascending, and how many hosts have each of them
    hosts       (words, n)  mangled hosts in ascending order within each of these groups; high words first
    rows        (n)         rows of each host in ascending order
    giants      (n / 64)    one bit for each row: giant columns have it, too. Empty if there are no giant columns
    winners     (n)         for each host, one bit per array: its label there is this host's
    priorities  (n)         for each of these bits, the priority of the label, inverted

The first host of a group, and the first row of a host, are stored as they are, each further one as the difference to
the one before, less one: whatever a file says, the rows of a host are distinct and ascending. Hosts with equally many
rows have differences of the same distribution, so they are next to each other, in one block of the compressor. The form
is a function of the set of pairs alone.

`gather` and `encode` make the form from the set of pairs without ever having the bits. Pairs are taken table by table,
so that their hosts stay in a core's cache. Radix passes order the pairs of a table by row, and a last one by host,
which leaves the rows of each host in order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.hashing import MASK32, MASK64, Key, column_draw, fold, pair_hash
from superhosts.core.text import counted
from superhosts.cubefile.header import ArrayError
from superhosts.detectors.cube.addressing import (
    LINE_WORDS,
    column_of,
    giant_column_of,
    is_for_giants,
    is_sampled,
    label_of,
    label_word,
    limb_of,
    line_turn_of,
    lowest_priority,
    priority_of,
    rotation_of,
    row_of,
    ticket_of,
)
from superhosts.detectors.cube.geometry import Geometry
from superhosts.detectors.engines.base import Arrays, ArrayShape, Words
from superhosts.detectors.engines.bins import BLOCK, Portion, cache_shift, unpack_all
from superhosts.detectors.engines.pairset import PairSet
from superhosts.detectors.engines.pairtable import HOST_MULTIPLIER
from superhosts.jit.cache import compiled

Numbers = NDArray[np.int64]
BYTES_PER_HOST = 64  # upper bound of the memory for a decoded host, without its rows


def shapes(geometry: Geometry) -> dict[str, ArrayShape]:
    words, host = (2, "<u8") if geometry.key_bits == 128 else (1, "<u4" if geometry.key_bits == 32 else "<u8")
    return {
        "counts": ArrayShape((2, None), "<u4"),
        "hosts": ArrayShape((words, None), host),
        "rows": ArrayShape((None,), "<u2" if geometry.column_bits <= 16 else "<u4"),
        "giants": ArrayShape((None,)),
        "winners": ArrayShape((None,), "|u1"),
        "priorities": ArrayShape((None,), "<u4"),
    }


class HostRows(NamedTuple):
    hosts: Words  # (hosts, 2): mangled, high and low word
    starts: Numbers  # (hosts + 1,): index of each host's first row
    rows: NDArray[Any]
    giants: Words  # one bit for each row
    winners: NDArray[np.uint8]
    first_wins: Numbers  # (hosts,): index of each host's first priority
    priorities: NDArray[np.uint32]  # inverted
    members: Numbers  # indexes of the hosts, slice by slice
    edges: Numbers  # (slices + 1,): index of the first of each slice in `members`


def decode_hosts(stored_counts: NDArray[Any], stored: NDArray[Any], geometry: Geometry) -> tuple[Words, Numbers]:
    """Return the mangled hosts (high, low) and where the rows of each begin, then of all end. Raise ArrayError."""
    counts, sizes = stored_counts.astype(np.int64)
    least = 0 if geometry.sample_bits else 1  # No pair of a host may be among those that are written.
    if len(counts) and not (counts[0] >= least and (np.diff(counts) > 0).all() and counts[-1] <= geometry.rows):
        raise ArrayError("counts", f"must be numbers of rows from {least} to {geometry.rows}, in ascending order")
    if (sizes < 1).any() or sizes.sum() != stored.shape[1]:
        grouped = f"{counted(sizes.sum(), 'host')} in groups of at least one"
        raise ArrayError("counts", f"{grouped}, but array hosts has {stored.shape[1]:,}")
    hosts = np.empty((stored.shape[1], 2), np.uint64)
    wrong = add_differences(stored, sizes, geometry.key_bits, hosts)
    if wrong >= 0:
        raise ArrayError("hosts", f"host {wrong} has more than {geometry.key_bits} bits")
    low = np.sort(hosts[:, 1])
    if (low[1:] == low[:-1]).any():  # Most often there is none, and to sort both words takes longer.
        ordered = hosts[np.lexsort((hosts[:, 1], hosts[:, 0]))]
        if (ordered[1:] == ordered[:-1]).all(axis=1).any():
            raise ArrayError("hosts", "lists a host twice")
    return hosts, np.concatenate([np.zeros(1, np.int64), np.cumsum(np.repeat(counts, sizes))])


def decode(arrays: Mapping[str, NDArray[Any]], geometry: Geometry, threads: int) -> HostRows:
    """Check the arrays of a file and decode them. Raise ArrayError, which names the array, if they are invalid."""
    if len(arrays["rows"]) > geometry.exact_pairs:
        most = f"the most of a cube of these sizes that is still exact is {geometry.exact_pairs:,}"
        raise ArrayError("rows", f"has {counted(len(arrays['rows']), 'row')}, {most}")
    hosts, starts = decode_hosts(arrays["counts"], arrays["hosts"], geometry)
    if starts[-1] != len(arrays["rows"]):
        raise ArrayError("rows", f"has {counted(len(arrays['rows']), 'row')}, but hosts have {starts[-1]:,}")
    rows = np.empty_like(arrays["rows"])
    spans = [(span, starts, arrays["rows"], geometry.rows, rows) for span in split_evenly(len(hosts), threads)]
    wrong = max(run_parallel(undo_differences, spans, threads))
    if wrong >= 0:
        raise ArrayError("rows", f"host {wrong} has a row that is not below {geometry.rows}")
    giants, marked = arrays["giants"], len(rows) if geometry.giants else 0  # one bit for each row
    if len(giants) != -(-marked // 64):
        raise ArrayError("giants", f"has {counted(len(giants), 'word')}, must have {-(-marked // 64):,}")
    if marked % 64 and giants[-1] >> np.uint64(marked % 64):
        raise ArrayError("giants", f"has a bit after those of {counted(marked, 'row')}")
    first_wins = _check_labels(arrays["winners"], arrays["priorities"], len(hosts), geometry)
    slices = (hosts[:, 1] & np.uint64((1 << geometry.slice_bits) - 1)).astype(np.uint16)
    members = np.argsort(slices, kind="stable")
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(slices, minlength=1 << geometry.slice_bits))])
    marks = giants, arrays["winners"], first_wins, arrays["priorities"]
    return HostRows(hosts, starts, rows, *marks, members, edges)


def _check_labels(
    winners: NDArray[np.uint8], priorities: NDArray[np.uint32], hosts: int, geometry: Geometry
) -> Numbers:
    """Return the index of each host's first priority. Raise ArrayError if labels are invalid."""
    if len(winners) != hosts:
        raise ArrayError("winners", f"has {counted(len(winners), 'host')}, must have {hosts:,}")
    if geometry.arrays < 8 and (winners >> geometry.arrays).any():
        raise ArrayError("winners", f"names an array that is not below {geometry.arrays}")
    wins = ONES_OF_BYTE[winners]
    ends = np.cumsum(wins)
    if (ends[-1] if hosts else 0) != len(priorities):
        raise ArrayError("priorities", f"has {len(priorities):,}, but hosts have {counted(int(wins.sum()), 'label')}")
    if len(priorities) and int(priorities.max()) > MASK32 - max(1, lowest_priority(geometry.share_bits)):
        raise ArrayError("priorities", "has one below those that compete for labels")
    first_wins: Numbers = ends - wins
    return first_wins


ONES_OF_BYTE: Numbers = np.array([number.bit_count() for number in range(256)], np.int64)


@compiled
def add_differences(stored: NDArray[Any], sizes: Numbers, key_bits: int, hosts: Words) -> int:
    """Decode hosts to `hosts` (high, low). Return the index of the first that has too many bits, or −1."""
    last = stored.shape[0] - 1
    one, zero = np.uint64(1), np.uint64(0)
    i = 0
    for size in sizes:
        high, low = zero, zero
        for number in range(size):
            next_low, next_high = np.uint64(stored[last, i]), np.uint64(stored[0, i]) if last else zero
            if number:
                step = next_low + one
                next_high += high + np.uint64(step == zero)
                next_low = low + step
                next_high += np.uint64(next_low < low)
                if next_high < high or (next_high == high and next_low <= low):
                    return i
                if last == 0 and next_high:
                    return i
            if key_bits == 32 and next_low >> np.uint64(32):
                return i
            high, low = next_high, next_low
            hosts[i, 0] = high
            hosts[i, 1] = low
            i += 1
    return -1


@compiled
def undo_differences(
    span: tuple[int, int], starts: Numbers, stored: NDArray[Any], limit: int, rows: NDArray[Any]
) -> int:
    """Decode the rows of the hosts in `span`. Return the last host with a row at or above `limit`, or −1."""
    wrong = -1
    for host in range(span[0], span[1]):
        row = np.int64(-1)
        for i in range(starts[host], starts[host + 1]):
            row += np.int64(stored[i]) + 1
            rows[i] = row
        if row >= limit:
            wrong = host
    return wrong


# From hosts and rows to the bits of a slice


class Slice(NamedTuple):
    number: int
    plain: Words  # (columns of the slice, words)
    giants: Words  # (giant columns of the slice, words)


@compiled
def write_rows(content: HostRows, slice_: Slice, geometry: Geometry, key: Key) -> NDArray[np.bool_]:
    """Set the bits of all hosts of a slice. Return which of its plain columns have a host."""
    hosts, starts, rows = content.hosts, content.starts, content.rows
    bits, giants, flags = slice_.plain.reshape(-1), slice_.giants.reshape(-1), content.giants
    shift = geometry.column_bits - 6
    first = slice_.number * geometry.arrays * geometry.columns
    first_giant = (geometry.arrays * geometry.columns << geometry.slice_bits) + slice_.number * len(slice_.giants)
    touched, words = np.zeros(len(slice_.plain), np.bool_), np.uint64(slice_.plain.shape[1])
    own = np.zeros(slice_.plain.shape[1], np.uint64)
    six, low_bits, one, line_words = np.uint64(6), np.uint64(63), np.uint64(1), np.uint64(LINE_WORDS)
    for member in range(content.edges[slice_.number], content.edges[slice_.number + 1]):
        host = content.members[member]
        low = hosts[host, 1]
        folded = fold(hosts[host, 0], low, key)
        start, stop = starts[host], starts[host + 1]
        # The rows of a large host are collected in a column of its own, whose turned words are then ORed.
        large = words >= line_words and np.uint64(stop - start) > words >> np.uint64(2)
        if large:
            for i in range(start, stop):
                own[rows[i] >> 6] |= one << (np.uint64(rows[i]) & low_bits)
        for array in range(geometry.arrays):
            draw = column_draw(array, key)
            column = np.int64(column_of(folded, low, array, draw, geometry)) - first
            turn = np.uint64(line_turn_of(folded, draw, geometry)) * line_words
            rotation = np.uint64(rotation_of(folded, draw))
            begin = np.uint64(column << shift)
            touched[column] = True
            if large:
                back = -rotation & low_bits
                for line in range(np.uint64(0), words, line_words):
                    place = begin + (line ^ turn)
                    for w in range(line_words):
                        bits[place + w] |= own[line + w] << rotation | own[line + w] >> back
                continue
            for i in range(start, stop):
                row = np.uint64(rows[i])
                bits[begin + ((row >> six) ^ turn)] |= one << ((row + rotation) & low_bits)
        if large:
            own[:] = 0
        if geometry.giants == 0:
            continue
        for word in range(start >> 6, ((stop - 1) >> 6) + 1):
            if flags[word] == 0:
                continue
            for i in range(max(start, word << 6), min(stop, (word + 1) << 6)):
                if (flags[word] >> np.uint64(i & 63)) & one == 0:
                    continue
                row = np.uint64(rows[i])
                for array in range(geometry.arrays):
                    draw = column_draw(array, key)
                    column = np.int64(giant_column_of(folded, low, array, draw, geometry)) - first_giant
                    turn = np.uint64(line_turn_of(folded, draw, geometry)) * np.uint64(LINE_WORDS)
                    place = np.uint64(column << shift) + ((row >> six) ^ turn)
                    giants[place] |= one << ((row + np.uint64(rotation_of(folded, draw))) & low_bits)
    return touched


@compiled
def write_labels(content: HostRows, number: int, labels: Words, geometry: Geometry, key: Key) -> None:
    for member in range(content.edges[number], content.edges[number + 1]):
        host = content.members[member]
        wins = content.winners[host]
        if wins == 0:
            continue
        high, low = content.hosts[host, 0], content.hosts[host, 1]
        folded = fold(high, low, key)
        label = np.int64(label_of(low, geometry))
        place = content.first_wins[host]
        for array in range(geometry.arrays):
            if (wins >> array) & 1 == 0:
                continue
            priority = np.uint64(~content.priorities[place])
            place += 1
            column = np.int64(column_of(folded, low, array, column_draw(array, key), geometry))
            for limb in range(labels.shape[2]):
                name = np.uint64(label_word(priority, np.uint64(limb_of(high, low, limb))))
                if name > labels[column, label, limb]:
                    labels[column, label, limb] = name


def pass_slices(
    content: HostRows, take: Callable[[int, Words], None], geometry: Geometry, key: Key, threads: int
) -> None:
    """Call take(number of the first column, columns) for the plain and for the giant columns of each slice."""
    plain, giants = geometry.arrays * geometry.columns, geometry.arrays * geometry.giants
    numbers = iter(range(1 << geometry.slice_bits))

    def run() -> None:
        memory = np.empty((plain + giants, geometry.words), np.uint64)
        for number in numbers:  # All threads share this iterator, which yields each number once.
            memory.fill(0)
            write_rows(content, Slice(number, memory[:plain], memory[plain:]), geometry, key)
            take(number * plain, memory[:plain])
            take((plain << geometry.slice_bits) + number * giants, memory[plain:])

    run_parallel(run, [()] * min(threads, 1 << geometry.slice_bits), threads)


def memory_of(sides: Mapping[str, Any], geometry: Geometry) -> int:
    rows = 2 * sides["rows"][0] * np.dtype(shapes(geometry)["rows"].dtype).itemsize
    marks = 8 * sides["giants"][0] + sides["winners"][0] + 4 * sides["priorities"][0]
    return int(rows + marks + 8 * sides["counts"][1] + BYTES_PER_HOST * sides["hosts"][1])


GIANT = 1 << 31  # mark of a row that giant columns have, too


class Gathered(NamedTuple):
    hosts: Words  # (hosts, 2): mangled, high and low word
    counts: Numbers  # rows of each host
    rows: NDArray[np.uint32]  # of all hosts, ascending within each; GIANT marks those of giant columns
    best: NDArray[np.uint32]  # (hosts, arrays): the highest priority of each host's pairs; 0 if none competes
    peers: NDArray[np.uint32]  # of each host
    identity: int  # of the set of pairs


def gather(pairs: PairSet, geometry: Geometry, key: Key) -> Gathered:
    """Return the hosts of a set of pairs, ordered by the number of their rows and then by host. The set is drained."""
    best, no_rows = np.empty((0, geometry.arrays), np.uint32), np.empty(0, np.uint32)
    found = [Gathered(np.empty((0, 2), np.uint64), np.empty(0, np.int64), no_rows, best, no_rows, 0)]

    def take(portion: Portion) -> None:
        hosts, peers = unpack_all(portion)
        index = np.zeros(1 << (2 * len(peers)).bit_length(), np.int32)  # no memory is used before it is written
        found.append(Gathered(*gather_pairs(hosts, peers, index, geometry, key, HOST_MULTIPLIER)))

    pairs.pass_to(take, pairs.bins.threads)
    *columns, identities = zip(*found, strict=True)
    hosts, counts, marked, best, peers = map(np.concatenate, columns)
    found.clear()
    order = np.lexsort((hosts[:, 1], hosts[:, 0], counts))
    rows = np.empty_like(marked)
    reorder_rows(order, counts, np.cumsum(counts) - counts, marked, rows)
    whole = sum(map(int, identities)) & MASK64, int(peers.sum(dtype=np.int64))
    # Not the sum itself: the difference of two would be the hash of a pair that only one of them has.
    identity = int.from_bytes(blake2b(struct.pack("<QQ", *whole), digest_size=8).digest(), "little")
    return Gathered(hosts[order], counts[order], rows, best[order], peers[order], identity)


@compiled
def gather_pairs(
    hosts: Words, peers: Words, index: NDArray[np.int32], geometry: Geometry, key: Key, multiplier: Any
) -> tuple[Words, Numbers, NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32], np.uint64]:
    """Return the fields of `Gathered` for some pairs. `index` is a table of zeros, at least twice as large.

    The multiplier distributes hosts over it.

    The memory of the pairs is overwritten: a host moves to its number, a peer becomes (number of the host, row).
    """
    best, counted_peers, identity = (
        np.zeros((64, geometry.arrays), np.uint32),
        np.zeros(len(peers), np.uint32),
        np.uint64(0),
    )
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
            high, low = hosts[start + i, 0], hosts[start + i, 1]
            place = np.int64((low * multiplier) >> shift)
            while index[place] and (hosts[index[place] - 1, 1] != low or hosts[index[place] - 1, 0] != high):
                place = (place + 1) & mask
            if index[place] == 0:
                hosts[known, 0], hosts[known, 1] = high, low
                known += 1
                index[place] = known
            identity += hashes[i]
            counted_peers[index[place] - 1] += np.uint32(1)
            if is_sampled(hashes[i], geometry):
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
    return hosts[:known].copy(), counts, rows, best[:known].copy(), counted_peers[:known].copy(), identity


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
    place = 0
    for host in order:
        for i in range(starts[host], starts[host] + counts[host]):
            out[place] = rows[i]
            place += 1


def encode(gathered: Gathered, geometry: Geometry, key: Key) -> Arrays:
    """Return the arrays of the rows form."""
    hosts, counts, marked, best = gathered[:4]
    types = {name: shape.dtype for name, shape in shapes(geometry).items()}
    numbers, sizes = np.unique(counts, return_counts=True)
    wins = find_winners(hosts, best, geometry, key)
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
