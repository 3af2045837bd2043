"""Writing pending pairs to the slices of a labelled cube on CPU threads.

`fill` takes all pairs of a slice together and writes them array by array: one array of a slice is a few hundred KiB,
which stays in a core's own cache while tens of thousands of bits are set. It compares the label for every pair of high
priority, even if all bits were already set: another pair may have set them, and skipping the label would make the
result depend on the order of pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.detectors.cube.addressing import (
    LINE_WORDS,
    TICKET_ARRAYS,
    contender_bits,
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
    row_turn_of,
    slice_of,
    ticket_of,
)
from superhosts.detectors.cube.geometry import Geometry
from superhosts.detectors.cube.naming import Store
from superhosts.engines.arrays import Words
from superhosts.engines.bins import CHUNK, PADDING, Pool, Task, entry_width, make_scratch, unpack
from superhosts.engines.cpu import count_zeros
from superhosts.hashing import Key, column_draw, column_hash, fold, pair_hash

SPAN = 1 << 16  # most pairs that are written to one array before the next: 1 MiB of memory for each thread
BLOCK = 1024  # pairs whose addresses are computed before bits are set
MAX_CACHED_LINES = (16 << 20) // 64  # cache lines of the largest slice that stays in a shared cache during a fill


class Batch(NamedTuple):
    """Pairs to write, as arrays of equal length."""

    high: Words  # high word of the mangled host; of no length unless hosts have 128 bits
    low: Words
    folded: Words  # the mangled host folded into 64 bits
    pairs: Words  # hash of the pair
    tickets: Words  # the tickets that differ from it; of no length if all arrays have the same


class Block(NamedTuple):
    """BLOCK pairs of the batch in one array."""

    places: Words  # of their bits: the column, then the turned row
    contenders: NDArray[np.uint32]  # in the block: the pairs that compete for labels


class Work(NamedTuple):
    """All that the loops of one thread use."""

    batch: Batch
    block: Block
    store: Store
    geometry: Geometry
    key: Key


@compiled
def fill(task: Task, pool: Pool, store: Store, geometry: Geometry, key: Key) -> int:
    """Write the chunks of one thread's task, slice by slice. The result only keeps the compiler from dropping `fetch`.

    If many pairs belong to one slice, `fill` reads each array of it and its labels sequentially, then sets bits
    without testing them, and counts the zeros of the slice afterwards.
    """
    slices = (1 << geometry.slice_bits) - 1
    whole = pool.cursors.shape[1] - PADDING > slices  # False if a bin has pairs of several slices
    columns, giants = geometry.arrays * geometry.columns, geometry.arrays * geometry.giants
    first_giant = columns << geometry.slice_bits
    lines = columns * store.bits.shape[1] // LINE_WORDS
    room = min(SPAN, int(task.sizes.sum())) + CHUNK
    scratch = make_scratch(room, 3 if geometry.key_bits == 128 else entry_width(pool))
    folded = scratch.low if geometry.key_bits < 128 else np.empty(room, np.uint64)
    same_tickets = TICKET_ARRAYS + geometry.turned_lines  # arrays whose tickets are equal
    tickets = np.empty(room if geometry.arrays > same_tickets else 0, np.uint64)
    batch = Batch(scratch.high, scratch.low, folded, scratch.peers, tickets)
    block = Block(np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint32))
    work = Work(batch, block, store, geometry, key)
    labels = store.labels.reshape(len(store.labels), -1)
    number, fetched = 0, 0
    while number < len(task.chunks):
        slice_ = pool.owner[task.chunks[number]] & slices
        end, entries = number, 0
        while end < len(task.chunks) and pool.owner[task.chunks[end]] & slices == slice_:
            entries += task.sizes[end]
            end += 1
        many = whole and 2 * entries > lines and lines <= MAX_CACHED_LINES
        if many:
            fetched += fetch(store.bits, first_giant + slice_ * giants, first_giant + (slice_ + 1) * giants)
        while number < end:
            count = 0
            while number < end and count <= room - CHUNK:
                number, stop = unpack(number, end, count, task, pool, scratch)
                count = _hash(count, stop, batch, geometry, key)
            for array in range(geometry.arrays):
                if many and 2 * count > lines:
                    first = slice_ * columns + array * geometry.columns
                    fetched += fetch(store.bits, first, first + geometry.columns)
                    fetched += fetch(labels, first, first + geometry.columns)
                if array and array % same_tickets == 0:
                    _draw_tickets(array, count, work)
                _write(array, count, whole, many, tickets if array >= same_tickets else batch.pairs, work)
        if many:
            count_zeros(store.bits, store.zeros, slice_ * columns, (slice_ + 1) * columns)
            start = first_giant + slice_ * giants
            count_zeros(store.bits, store.zeros, start, start + giants)
    return fetched


@compiled
def fetch(bits: Words, start: int, stop: int) -> int:
    """Read a word of every cache line of some columns: sequential reads are several times faster than random misses."""
    fetched = 0
    for column in range(start, stop):
        for word in range(0, bits.shape[1], LINE_WORDS):
            fetched ^= np.int64(bits[column, word])
    return fetched


@compiled
def _hash(start: int, stop: int, batch: Batch, geometry: Geometry, key: Key) -> int:
    """Fold hosts and replace peers by the hashes of pairs, from index `start` to `stop` − 1.

    Pairs that are not written at all are dropped. Return the index after the last one that remains.
    """
    high, low, folded, pairs, _tickets = batch
    if geometry.key_bits == 128:
        for j in range(start, stop):
            folded[j] = fold(high[j], low[j], key)
    for j in range(np.uint64(start), np.uint64(stop)):
        pairs[j] = pair_hash(folded[j], pairs[j], key)
    if geometry.sample_bits == 0:
        return stop
    kept = start
    for j in range(start, stop):
        low[kept], folded[kept], pairs[kept] = low[j], folded[j], pairs[j]
        if geometry.key_bits == 128:
            high[kept] = high[j]
        kept += is_sampled(pairs[kept], geometry)
    return kept


@compiled
def _draw_tickets(array: int, count: int, work: Work) -> None:
    """Compute the tickets of pairs in one array."""
    pairs, tickets, geometry, key = work.batch.pairs, work.batch.tickets, work.geometry, work.key
    for j in range(np.uint64(count)):
        tickets[j] = ticket_of(pairs[j], array, geometry, key)


@compiled
def _write(array: int, count: int, whole: bool, blindly: bool, tickets: Words, work: Work) -> None:
    """Set the bits of pairs in one array and let them compete for its labels.

    If `whole`, all pairs belong to one slice. If `blindly`, the caller counts zeros later.
    """
    (_high, low, folded, pairs, _), (places, contenders), store, geometry, key = work
    bits, zeros = store.bits.reshape(-1), store.zeros
    six, one, low_bits, shift = np.uint64(6), np.uint64(1), np.uint64(63), np.uint64(geometry.column_bits)
    draw, wanted = column_draw(array, key), np.uint64(contender_bits(array, geometry))
    # The compiler must know that this number has 32 bits: multiplying it takes a third of the time.
    columns = np.uint64(np.uint32(geometry.columns))
    begin = _first_place(low[0], array, geometry)
    for start in range(0, count, BLOCK):
        # Indexes of views cannot be negative, which takes a third of the instructions from the loops.
        stop = min(start + BLOCK, count)
        ours, theirs, drawn = folded[start:stop], pairs[start:stop], tickets[start:stop]
        found = 0
        if not whole:
            for i in range(len(ours)):
                places[i] = _first_place(low[start + i], array, geometry)
        for i in range(len(ours)):
            first = begin if whole else places[i]
            places[i] = first + _place_in_array(ours[i], theirs[i], draw, columns, geometry)
            contenders[found] = i
            found += drawn[i] & wanted == wanted
        if blindly:
            for i in range(len(ours)):
                bits[places[i] >> six] |= one << (places[i] & low_bits)
        else:
            for i in range(len(ours)):
                mask = one << (places[i] & low_bits)
                if bits[places[i] >> six] & mask == 0:
                    bits[places[i] >> six] |= mask
                    zeros[places[i] >> shift] -= 1
        _compete(array, start, found, tickets, work)
        if array == 0 and geometry.giants:
            _write_giants(start, found, blindly, work)


@compiled
def _compete(array: int, start: int, found: int, tickets: Words, work: Work) -> None:
    """Let pairs compete for the labels of one array."""
    (high, low, _folded, _pairs, _), (places, contenders), store, geometry, _key = work
    labels, limbs = store.labels.reshape(-1), store.labels.shape[2]
    shift, lowest = np.uint64(geometry.column_bits), np.uint64(lowest_priority(geometry.share_bits))
    for i in range(found):
        index = np.uint64(contenders[i])  # A signed index is tested for negative values.
        j = np.uint64(start) + index
        priority = np.uint64(priority_of(tickets[j], array, geometry))
        if priority < lowest:
            continue
        label = (places[index] >> shift << np.uint64(geometry.label_bits)) + np.uint64(label_of(low[j], geometry))
        if limbs == 1:
            labels[label] = max(labels[label], np.uint64(label_word(priority, low[j])))
            continue
        for limb in range(limbs):
            name = np.uint64(label_word(priority, limb_of(high[j] if limbs == 4 else low[j], low[j], limb)))
            word = label * np.uint64(limbs) + np.uint64(limb)
            labels[word] = max(labels[word], name)


@compiled
def _first_place(low: int, array: int, geometry: Geometry) -> np.uint64:
    """Return the place of the first bit of one array in the slice of a mangled host."""
    part = np.uint64(slice_of(low, geometry)) * np.uint64(geometry.arrays) + np.uint64(array)
    return (part * np.uint64(geometry.columns)) << np.uint64(geometry.column_bits)


@compiled
def _place_in_array(folded: int, pair: int, draw: tuple[int, int], columns: int, geometry: Geometry) -> np.uint64:
    """Return the place of a pair's bit within one array of its slice."""
    low_bits = np.uint64(63)
    column = np.uint64(column_hash(folded, draw, columns))
    words = np.uint64((1 << geometry.column_bits) - 1) & ~low_bits
    turned = (pair & words) ^ np.uint64(row_turn_of(folded, draw, geometry))
    rotated = (pair + np.uint64(rotation_of(folded, draw))) & low_bits
    return (column << np.uint64(geometry.column_bits)) + turned + rotated


@compiled
def _write_giants(start: int, found: int, blindly: bool, work: Work) -> None:
    """Set the bits of those contenders in the first array that giant columns take."""
    (_high, low, folded, pairs, _), (_places, contenders), (bits, zeros, _labels), geometry, key = work
    taken = 0
    for i in range(found):
        contenders[taken] = contenders[i]
        taken += is_for_giants(pairs[start + np.int64(contenders[i])])
    for i in contenders[:taken]:
        j = start + np.int64(i)
        for array in range(geometry.arrays):
            draw = column_draw(array, key)
            column = np.int64(giant_column_of(folded[j], low[j], array, draw, geometry))
            word = np.int64(row_of(pairs[j], geometry) >> np.uint64(6))
            word ^= np.int64(line_turn_of(folded[j], draw, geometry)) * LINE_WORDS
            mask = np.uint64(1) << ((pairs[j] + rotation_of(folded[j], draw)) & np.uint64(63))
            if bits[column, word] & mask == 0:
                bits[column, word] |= mask
                if not blindly:
                    zeros[column] -= 1
