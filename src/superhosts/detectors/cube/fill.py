"""Writing pending pairs to the slices of a labelled cube on CPU threads.

`fill` takes pairs out of the bins in blocks, which a core's first caches hold: it hashes them, lets them compete for
labels and writes giant columns. It compares the label for every pair of high priority, even if all bits were already
set: another pair may have set them, and skipping the label would make the result depend on the order of pairs.

Of the pairs of a slice it keeps what their bits depend on, and writes these array by array: one array of a slice is a
few hundred KiB, which stays in a core's own cache while tens of thousands of bits are set.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import MASK32, Key, column_draw, column_hash, fold, pair_hash
from superhosts.detectors.cube.addressing import (
    LINE_WORDS,
    TICKET_ARRAYS,
    contender_marks,
    giant_column_of,
    is_for_giants,
    is_sampled,
    label_of,
    label_word,
    limb_of,
    line_turn_of,
    lowest_priority,
    place_in_array,
    priority_of,
    rotation_of,
    row_of,
    slice_of,
    ticket_of,
)
from superhosts.detectors.cube.geometry import LINE_BITS, Geometry
from superhosts.detectors.cube.search import Store
from superhosts.detectors.engines.base import Words
from superhosts.detectors.engines.bins import BATCH, CHUNK, PADDING, Portion, Scratch, entry_width, make_scratch, unpack
from superhosts.detectors.engines.cpu import count_zeros, ones_of
from superhosts.jit.cache import compiled, jit_disabled
from superhosts.jit.intrinsics import LANES, store_places

Indexes = NDArray[np.uint32]
SPAN = 1 << 16  # most pairs that are written to one array before the next: 512 KiB of memory for each thread
BLOCK = 1024  # pairs whose addresses are computed before bits are tested
AHEAD = 64  # pairs whose addresses are computed before bits are set; a power of two
IN_LANES = not jit_disabled()  # Plain Python has no vector instructions.
MAX_CACHED_LINES = (16 << 20) // 64  # cache lines of the largest slice that stays in a shared cache during a fill


class Block(NamedTuple):
    high: Words  # high word of the mangled host; of no length unless hosts have 128 bits
    low: Words
    folded: Words  # the mangled host folded into 64 bits
    pairs: Words  # hash of the pair
    tickets: Words
    marks: Words  # of the pairs that compete for labels: bits of 16 pairs in each of four arrays
    contenders: Indexes  # those that compete in one array


class Span(NamedTuple):
    """What the bits of up to SPAN pairs depend on, as arrays of equal length; of no length if it is not used."""

    hosts: Indexes  # mangled hosts of 32 bits
    folded: Words  # wider hosts
    rows: Indexes  # low bits of the pair's hash
    slices: Indexes  # if a bin has pairs of several slices
    places: Indexes  # of up to BLOCK pairs in one array of their slice, as lanes give them


class Work(NamedTuple):
    block: Block
    span: Span
    store: Store
    geometry: Geometry
    key: Key


@compiled
def fill(portion: Portion, store: Store, geometry: Geometry, key: Key) -> int:
    """Write the pairs of one thread, slice by slice. The result only keeps the compiler from dropping `fetch`.

    If many pairs belong to one slice, `fill` reads its labels and then each array sequentially, sets bits without
    testing them, and counts the zeros of the array afterwards.
    """
    slices = (1 << geometry.slice_bits) - 1
    whole = portion.pool.cursors.shape[1] - PADDING > slices  # False if a bin has pairs of several slices
    columns, giants = geometry.arrays * geometry.columns, geometry.arrays * geometry.giants
    first_giant = columns << geometry.slice_bits
    lines = columns * store.bits.shape[1] // LINE_WORDS
    room = min(SPAN, int(portion.sizes.sum())) + BATCH
    work = _make_work(room, whole, entry_width(portion.pool), store, geometry, key)
    scratch = Scratch(work.block.high, work.block.low, work.block.pairs)
    labels = store.labels.reshape(len(store.labels), -1)
    number, fetched, none = np.int64(0), np.int64(0), np.int64(0)  # numba would compile callees for a literal 0, too.
    while number < len(portion.chunks):
        slice_ = portion.pool.owner[portion.chunks[number]] & slices
        end, entries = number, 0
        while end < len(portion.chunks) and portion.pool.owner[portion.chunks[end]] & slices == slice_:
            entries += portion.sizes[end]
            end += 1
        many = whole and 2 * entries > lines and lines <= MAX_CACHED_LINES
        if many:
            fetched += fetch(labels, slice_ * columns, (slice_ + 1) * columns)
            fetched += fetch(store.bits, first_giant + slice_ * giants, first_giant + (slice_ + 1) * giants)
        while number < end:
            count = none
            while number < end and count <= room - BATCH:
                number, taken = unpack(number, end, none, portion, scratch)
                count = _take(taken, count, many, work)
            for array in range(geometry.arrays):
                first = slice_ * columns + array * geometry.columns
                if many and 2 * count > lines:
                    fetched += fetch(store.bits, first, first + geometry.columns)
                if len(work.span.hosts):
                    _write(work.span.hosts, array, slice_, count, many, work)
                else:
                    _write(work.span.folded, array, slice_, count, many, work)
                if many and number == end:
                    count_zeros(store.bits, store.zeros, first, first + geometry.columns)
        if many:
            start = first_giant + slice_ * giants
            count_zeros(store.bits, store.zeros, start, start + giants)
    return fetched


@compiled
def _make_work(room: int, whole: bool, width: int, store: Store, geometry: Geometry, key: Key) -> Work:
    """Allocate memory for `room` pairs, and for some more whose addresses are computed in vain."""
    narrow = geometry.key_bits == 32
    high, low, pairs = make_scratch(BATCH + CHUNK, 3 if geometry.key_bits == 128 else width)
    folded = low if geometry.key_bits < 128 else np.empty_like(low)
    size = room + 2 * AHEAD
    span = Span(
        np.empty(size if narrow else 0, np.uint32),
        np.empty(0 if narrow else size, np.uint64),
        np.empty(size, np.uint32),
        np.empty(0 if whole else size, np.uint32),
        np.empty(BLOCK, np.uint32),
    )
    marks = np.empty(len(low) // 16, np.uint64)
    block = Block(high, low, folded, pairs, np.empty_like(low), marks, np.empty(len(low), np.uint32))
    return Work(block, span, store, geometry, key)


@compiled
def _take(taken: int, count: int, blindly: bool, work: Work) -> int:
    """Hash the pairs of the block, write labels and giant columns, append them to the span; return its new size."""
    block, span, geometry = work.block, work.span, work.geometry
    size = _hash(taken, work)
    same = TICKET_ARRAYS + geometry.turned_lines  # arrays whose tickets are equal
    for array in range(geometry.arrays):
        if array % same == 0:
            _mark_contenders(array, size, work)
        found = _list_contenders(array, size, work)
        _compete(array, found, work)
        if array == 0 and geometry.giants:
            _write_giants(found, blindly, work)
    end = count + size
    if len(span.hosts):
        _copy(block.low[:size], span.hosts[count:end])
    else:
        for j in range(size):
            span.folded[count + j] = block.folded[j]
    _copy(block.pairs[:size], span.rows[count:end])
    if len(span.slices):
        for j in range(size):
            span.slices[count + j] = slice_of(block.low[j], geometry)
    return end


@compiled
def _copy(words: Words, halves: Indexes) -> None:
    for i in range(len(words)):
        halves[i] = np.uint32(words[i])


@compiled
def fetch(bits: Words, start: int, stop: int) -> int:
    """Read a word of every cache line of some columns: sequential reads are several times faster than random misses."""
    fetched = 0
    for column in range(start, stop):
        for word in range(0, bits.shape[1], LINE_WORDS):
            fetched ^= np.int64(bits[column, word])
    return fetched


@compiled
def _hash(size: int, work: Work) -> int:
    """Replace peers by the hashes of pairs and drop pairs that are not sampled; return the number that remain."""
    (high, low, folded, pairs, _tickets, _marks, _), geometry, key = work.block, work.geometry, work.key
    if geometry.key_bits == 128:
        for j in range(size):
            folded[j] = fold(high[j], low[j], key)
    for j in range(np.uint64(size)):
        pairs[j] = pair_hash(folded[j], pairs[j], key)
    if geometry.sample_bits == 0:
        return size
    kept = 0
    for j in range(size):
        low[kept], folded[kept], pairs[kept] = low[j], folded[j], pairs[j]
        if geometry.key_bits == 128:
            high[kept] = high[j]
        kept += is_sampled(pairs[kept], geometry)
    return kept


@compiled
def _mark_contenders(array: int, size: int, work: Work) -> None:
    """Draw the tickets of some arrays, from `array` on, and mark the pairs that may compete for labels there.

    A word has the marks of 16 pairs, those of the first in the places that `contender_marks` gives them.
    """
    (_high, _low, _folded, pairs, tickets, marks, _), geometry, key = work.block, work.geometry, work.key
    for start in range(np.uint64(0), np.uint64(size), np.uint64(16)):
        found = np.uint64(0)
        for i in range(np.uint64(16)):  # also what is behind the last pair
            ticket = np.uint64(ticket_of(pairs[start + i], array, geometry, key))
            tickets[start + i] = ticket
            found |= contender_marks(ticket, geometry.share_bits) >> i
        marks[start >> np.uint64(4)] = found
    for word in range(size // 16, size // 16 + 4):
        pairs_there = max(0, size - 16 * word)
        marks[word] &= np.uint64((0xFFFF << (16 - pairs_there)) & 0xFFFF) * np.uint64(0x0001000100010001)


@compiled
def _list_contenders(array: int, size: int, work: Work) -> int:
    marks, contenders = work.block.marks, work.block.contenders
    shift = np.uint64(48 - 16 * (array % (TICKET_ARRAYS + work.geometry.turned_lines)))
    low, found = np.uint64(0xFFFF), np.uint64(0)
    for start in range(np.uint64(0), np.uint64(size), np.uint64(64)):
        word, marked = start >> np.uint64(4), np.uint64(0)
        for i in range(np.uint64(4)):
            marked |= ((marks[word + i] >> shift) & low) << (np.uint64(16) * i)
        while marked:
            contenders[found] = start + (ones_of(~marked & (marked - np.uint64(1))) ^ np.uint64(15))
            found += np.uint64(1)
            marked &= marked - np.uint64(1)
    return np.int64(found)


@compiled
def _write(hosts: Any, array: int, slice_: int, count: int, blindly: bool, work: Work) -> None:
    """Set the bits of pairs in one array. If `blindly`, the caller counts zeros later."""
    # Lanes have places of 32 bits. An array of a slice is larger than that only in the largest cubes.
    in_lanes = IN_LANES and work.geometry.columns << work.geometry.column_bits <= MASK32
    if blindly and in_lanes:
        _set_bits(hosts, array, slice_, count, work)
    else:
        _test_bits(hosts, array, slice_, count, in_lanes, work)


# Addresses of several pairs at once, in vector registers.
#
# A processor has few units for 64-bit products and, on ARM, none that works on vectors of them. The product of a 32-bit
# host takes two products of 32 bits, that of a folded one three, and vector registers compute four of these at a time.
# LLVM finds none of this itself in a loop that also writes bits, so the instructions are given here; it translates them
# for every processor.


class Lane(NamedTuple):
    multiplier: np.uint64
    addend: np.uint64
    bits: np.uint64  # of the array in one slice; fewer than 2^32
    rows: np.uint64  # mask of a row
    turns: np.uint64  # mask of the row's turn


@compiled
def make_lane(draw: tuple[int, int], geometry: Geometry) -> Lane:
    turned = max(0, geometry.column_bits - LINE_BITS) * geometry.turned_lines
    return Lane(
        np.uint64(draw[0]),
        np.uint64(draw[1]),
        np.uint64(geometry.columns << geometry.column_bits),
        np.uint64((1 << geometry.column_bits) - 1),
        np.uint64(((1 << turned) - 1) << LINE_BITS),
    )


@compiled
def _set_bits(hosts: Any, array: int, slice_: int, count: int, work: Work) -> None:
    """Set bits without testing them. Addresses are computed AHEAD pairs before: the core does both at once."""
    rows, places = work.span.rows, work.span.places
    first = _first_column(slice_, array, work.geometry)
    part = work.store.bits[first : first + np.uint64(work.geometry.columns)].reshape(-1)
    lane = make_lane(column_draw(array, work.key), work.geometry)
    one, six, low_bits, last = np.uint64(1), np.uint64(6), np.uint64(63), np.uint64(2 * AHEAD - 1)
    lanes, ahead = np.uint64(LANES), np.uint64(AHEAD)
    hosts[count : count + LANES], rows[count : count + LANES] = hosts[count - 1], rows[count - 1]  # to write it again
    for i in range(np.uint64(0), ahead, lanes):
        store_places(hosts, rows, i, places, i, lane)
    for i in range(np.uint64(0), np.uint64(count), lanes):
        store_places(hosts, rows, i + ahead, places, (i + ahead) & last, lane)
        for k in range(lanes):
            place = np.uint64(places[(i & last) + k])
            part[place >> six] |= one << (place & low_bits)


@compiled
def _test_bits(hosts: Any, array: int, slice_: int, count: int, in_lanes: bool, work: Work) -> None:
    rows, slices, near, geometry = work.span.rows, work.span.slices, work.span.places, work.geometry
    bits, zeros = work.store.bits.reshape(-1), work.store.zeros
    six, one, low_bits, shift = np.uint64(6), np.uint64(1), np.uint64(63), np.uint64(geometry.column_bits)
    draw = column_draw(array, work.key)
    lane, places = make_lane(draw, geometry), np.empty(BLOCK, np.uint64)
    begin = _first_column(slice_, array, geometry) << shift
    for start in range(np.uint64(0), np.uint64(count), np.uint64(BLOCK)):
        size = min(np.uint64(BLOCK), np.uint64(count) - start)
        if in_lanes:
            for i in range(np.uint64(0), size, np.uint64(LANES)):
                store_places(hosts, rows, start + i, near, i, lane)
            for i in range(size):
                places[i] = near[i]
        else:
            _locate(hosts[start : start + size], rows[start : start + size], draw, geometry, places)
        for i in range(size):
            places[i] += _first_column(slices[start + i], array, geometry) << shift if len(slices) else begin
        for i in range(size):
            mask = one << (places[i] & low_bits)
            if bits[places[i] >> six] & mask == 0:
                bits[places[i] >> six] |= mask
                zeros[places[i] >> shift] -= 1


@compiled
def _locate(hosts: Any, rows: Indexes, draw: tuple[int, int], geometry: Geometry, places: Words) -> None:
    """Compute places in one array. Between tests of bits that would be in vain where one is mispredicted."""
    # The compiler must know that this number has 32 bits: multiplying it takes a third of the time.
    columns = np.uint64(np.uint32(geometry.columns))
    for i in range(len(hosts)):
        places[i] = place_in_array(np.uint64(hosts[i]), np.uint64(rows[i]), draw, columns, geometry)


@compiled
def _compete(array: int, found: int, work: Work) -> None:
    (high, low, folded, _pairs, tickets, _, contenders), store, geometry = work.block, work.store, work.geometry
    labels, limbs = store.labels.reshape(-1), store.labels.shape[2]
    lowest, draw = np.uint64(lowest_priority(geometry.share_bits)), column_draw(array, work.key)
    columns, whole = np.uint64(np.uint32(geometry.columns)), len(work.span.slices) == 0
    first = _first_column(slice_of(low[0], geometry), array, geometry)
    for i in range(np.uint64(found)):
        j = np.uint64(contenders[i])  # A signed index is tested for negative values.
        priority = np.uint64(priority_of(tickets[j], array, geometry))
        if priority < lowest:
            continue
        if not whole:
            first = _first_column(slice_of(low[j], geometry), array, geometry)
        column = first + np.uint64(column_hash(folded[j], draw, columns))
        label = (column << np.uint64(geometry.label_bits)) + np.uint64(label_of(low[j], geometry))
        if limbs == 1:
            labels[label] = max(labels[label], np.uint64(label_word(priority, low[j])))
            continue
        word = label * np.uint64(limbs)
        _name(labels, word, priority, low[j])
        if limbs == 4:
            _name(labels, word + np.uint64(2), priority, high[j])


@compiled
def _name(labels: Words, word: np.uint64, priority: np.uint64, host: np.uint64) -> None:
    """Let two limbs of a host compete for the words of a label from index `word` on."""
    for limb in range(np.uint64(2)):
        name = np.uint64(label_word(priority, limb_of(host, host, limb)))
        labels[word + limb] = max(labels[word + limb], name)


@compiled
def _first_column(slice_: int, array: int, geometry: Geometry) -> np.uint64:
    return (np.uint64(slice_) * np.uint64(geometry.arrays) + np.uint64(array)) * np.uint64(geometry.columns)


@compiled
def _write_giants(found: int, blindly: bool, work: Work) -> None:
    """Set the bits of those contenders in the first array that giant columns take."""
    (_high, low, folded, pairs, _tickets, _marks, contenders), geometry, key = work.block, work.geometry, work.key
    bits, zeros = work.store.bits, work.store.zeros
    taken = np.uint64(0)
    for i in range(np.uint64(found)):
        contenders[taken] = contenders[i]
        taken += np.uint64(is_for_giants(pairs[np.uint64(contenders[i])]))
    for i in contenders[:taken]:
        j = np.uint64(i)
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
