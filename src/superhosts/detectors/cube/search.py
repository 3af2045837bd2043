"""Naming super hosts on CPU threads: from labels to candidates, and from candidates to zero counts.

Labels of hot columns name candidates. Most of these are small hosts, so cheap tests come first: a host with enough
peers has a pair of high priority in every array, and enough ones in the first words of the AND of its columns. Each
test rejects a host at the threshold once in fifty thousand times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import Key, column_draw, fold
from superhosts.detectors.cube.addressing import (
    LINE_WORDS,
    column_of,
    giant_column_of,
    holds_limb,
    limb_in,
    limb_of,
    line_turn_of,
    names_host,
    priority_in,
    rotation_of,
)
from superhosts.detectors.cube.geometry import Geometry, Search
from superhosts.detectors.engines.base import Counts, Words
from superhosts.detectors.engines.cpu import ones_of
from superhosts.jit.cache import compiled, jit_disabled
from superhosts.jit.intrinsics import and_line

LABELLED_COLUMNS = 1024  # about as many columns are enough to know how hard it is to win a label
HAS_VECTORS = not jit_disabled()  # Plain Python has none.
STAGES = 4  # tests of the AND: three of its first words, then all of them


class Store(NamedTuple):
    bits: Words  # (columns of all slices and arrays, words)
    zeros: Counts  # (columns,): zero bits of each column
    labels: Words  # (plain columns, labels, limbs)


class Places(NamedTuple):
    """The columns and turns of one host, one of each per array, and memory for the AND of its columns."""

    columns: NDArray[np.int64]
    rotations: Words
    lines: NDArray[np.int64]  # numbers that turn cache lines
    common: Words  # words of the AND


@compiled
def make_places(geometry: Geometry) -> Places:
    arrays, words = geometry.arrays, 1 << (geometry.column_bits - 6)
    integers = np.empty((2, arrays), np.int64)
    return Places(integers[0], np.empty(arrays, np.uint64), integers[1], np.empty(words, np.uint64))


@compiled
def find_places(high: int, low: int, giant: bool, places: Places, geometry: Geometry, key: Key) -> None:
    folded = fold(high, low, key)
    for array in range(geometry.arrays):
        draw = column_draw(array, key)
        if giant:
            places.columns[array] = giant_column_of(folded, low, array, draw, geometry)
        else:
            places.columns[array] = column_of(folded, low, array, draw, geometry)
        places.rotations[array] = rotation_of(folded, draw)
        places.lines[array] = line_turn_of(folded, draw, geometry)


@compiled
def and_ones(bits: Words, places: Places, start: int, stop: int) -> np.int64:
    """Count the ones of the AND of a host's columns, in whole cache lines. This form is one that LLVM vectorizes."""
    columns, rotations, lines, common = places
    words, size = bits.reshape(-1), np.uint64(min(LINE_WORDS, bits.shape[1]))  # A short column is less than a line.
    for array in range(len(columns)):
        first, turn = np.uint64(columns[array] * bits.shape[1]), np.uint64(lines[array] * LINE_WORDS)
        right = rotations[array]
        left = -right & np.uint64(63)
        for line in range(np.uint64(start), np.uint64(stop), size):
            source = first + (line ^ turn)
            if size < LINE_WORDS:
                for w in range(size):
                    word = words[source + w] >> right | words[source + w] << left
                    common[line + w] = word if array == 0 else common[line + w] & word
            elif array == 0:
                for w in range(np.uint64(LINE_WORDS)):
                    common[line + w] = words[source + w] >> right | words[source + w] << left
            else:
                for w in range(np.uint64(LINE_WORDS)):
                    common[line + w] &= words[source + w] >> right | words[source + w] << left
    ones = np.uint64(0)
    for w in range(np.uint64(start), np.uint64(stop)):
        ones += ones_of(common[w])
    return np.int64(ones)


@compiled
def list_candidates(span: tuple[int, int], store: Store, search: Search, geometry: Geometry, key: Key) -> Words:
    """Return the mangled hosts (high, low) that labels of hot columns in `span` name and whose columns are all hot.

    A host that several arrays name is listed once, by the first of them. All is in one loop, because passing arrays to
    a function costs atomic reference counts.
    """
    zeros, labels, limbs = store.zeros, store.labels, store.labels.shape[2]
    lowest, elsewhere = np.uint64(max(1, search.priority)), np.uint64(search.elsewhere)
    hosts = np.empty((64, 2), np.uint64)
    found = 0
    for column in range(span[0], span[1]):
        if zeros[column] > search.zeros:
            continue
        own = column // geometry.columns % geometry.arrays
        for label in range(labels.shape[1]):
            priority = np.uint64(priority_in(labels[column, label, 0]))
            if priority < lowest:
                continue
            low, high, named = np.uint64(0), np.uint64(0), True
            for limb in range(limbs):
                word = labels[column, label, limb]
                named = named and np.uint64(priority_in(word)) == priority
                part = np.uint64(limb_in(word)) << np.uint64(32 * (limb & 1))
                low, high = (low | part, high) if limb < 2 else (low, high | part)
            folded = fold(high, low, key)
            home = column_of(folded, low, own, column_draw(own, key), geometry)
            if not named or not names_host(low, np.uint64(label), column, home, geometry):
                continue
            for array in range(geometry.arrays):
                home = column_of(folded, low, array, column_draw(array, key), geometry)
                other = np.uint64(priority_in(labels[home, label, 0]))
                before = array < own and other >= lowest  # True if that array has listed the host.
                for limb in range(limbs):
                    word = labels[home, label, limb]
                    before = before and holds_limb(word, other, np.uint64(limb_of(high, low, limb)))
                if before or other < elsewhere or zeros[home] > search.zeros:
                    named = False
                    break
            if not named:
                continue
            if found == len(hosts):
                hosts = np.concatenate((hosts, np.empty_like(hosts)))
            hosts[found, 0], hosts[found, 1] = high, low
            found += 1
    return hosts[:found]


@compiled
def labelled_hosts(labels: Words) -> Words:
    """Return the mangled hosts (high, low) of all labels whose words have the same priority."""
    columns, kinds, limbs = labels.shape
    hosts = np.zeros((columns * kinds, 2), np.uint64)
    found = 0
    for place in range(columns * kinds):
        column, label = place // kinds, place % kinds
        priority = np.uint64(priority_in(labels[column, label, 0]))
        whole = priority > 0
        for limb in range(limbs):
            word = labels[column, label, limb]
            whole = whole and np.uint64(priority_in(word)) == priority
            half = 1 if limb < 2 else 0
            if limb & 1 == 0:
                hosts[found, half] = 0  # A previous label that was skipped may have written here.
            hosts[found, half] |= np.uint64(limb_in(word)) << np.uint64(32 * (limb & 1))
        found += whole
    return hosts[:found]


@compiled
def name_hosts(
    span: tuple[int, int], store: Store, search: Search, geometry: Geometry, key: Key
) -> tuple[Words, Counts]:
    """Return the hosts that pass and their zero counts, slice by slice: the columns of a slice stay in the cache."""
    columns = geometry.arrays * geometry.columns
    hosts, counts = np.empty((0, 2), np.uint64), np.empty((0, geometry.arrays + 1), np.int32)
    for slice_ in range(span[0], span[1]):
        labels = (slice_ * columns, (slice_ + 1) * columns)
        listed = list_candidates(labels, store, search, geometry, key)
        found, numbers = verify(listed, store, search, geometry, key)
        hosts, counts = np.concatenate((hosts, found)), np.concatenate((counts, numbers))
    return hosts, counts


@compiled
def verify(hosts: Words, store: Store, search: Search, geometry: Geometry, key: Key) -> tuple[Words, Counts]:
    """Return those of the mangled hosts that pass, and their zero counts. The list of hosts is overwritten."""
    bits, zeros, arrays, words = store.bits, store.zeros, geometry.arrays, store.bits.shape[1]
    counts = np.empty((len(hosts), arrays + 1), np.int32)
    places = make_places(geometry)
    found = 0
    for i in range(len(hosts)):
        find_places(hosts[i, 0], hosts[i, 1], False, places, geometry, key)
        ones, start = np.int64(0), np.int64(0)
        for stage in range(STAGES):  # Each stage ANDs more words, but only if the previous one found enough ones.
            stop, minimum = words, 0
            if stage == 0:
                stop, minimum = search.first_words, search.first_ones
            elif stage == 1:
                stop, minimum = search.second_words, search.second_ones
            elif stage == 2:
                stop, minimum = search.third_words, search.third_ones
            ones += and_ones(bits, places, start, stop)
            if ones < minimum:
                break
            start = stop
        if (1 << geometry.column_bits) - ones > search.zeros:
            continue
        hosts[found, 0], hosts[found, 1] = hosts[i, 0], hosts[i, 1]
        for array in range(arrays):
            counts[found, array] = zeros[places.columns[array]]
        counts[found, arrays] = (1 << geometry.column_bits) - ones
        found += 1
    return hosts[:found], counts[:found]


@compiled
def columns_of(hosts: Words, giant: bool, geometry: Geometry, key: Key) -> NDArray[np.int64]:
    columns = np.empty((len(hosts), geometry.arrays), np.int64)
    places = make_places(geometry)
    for i in range(len(hosts)):
        find_places(hosts[i, 0], hosts[i, 1], giant, places, geometry, key)
        columns[i, :] = places.columns
    return columns


@compiled
def all_ones(bits: Words, places: Places, left: Words) -> np.int64:
    """Count the ones of the AND of a host's whole columns, which are whole cache lines, as `and_ones` does.

    For any host, not a candidate, most of the AND is empty after two or three arrays, and its lines need not be read in
    the others. `left` is memory for the lines that are not empty yet.
    """
    columns, rotations, lines, common = places
    base, into = np.uint64(bits.ctypes.data), np.uint64(common.ctypes.data)
    size, column = np.uint64(8 * LINE_WORDS), np.uint64(8 * bits.shape[1])  # in bytes
    first, second = base + np.uint64(columns[0]) * column, base + np.uint64(columns[1]) * column
    turn, other_turn = np.uint64(lines[0]) * size, np.uint64(lines[1]) * size
    right, other_right = rotations[0], rotations[1]
    count = np.uint64(0)
    for line in range(np.uint64(0), column, size):
        and_line(into + line, first + (line ^ turn), right, ~np.uint64(0))
        seen = and_line(into + line, second + (line ^ other_turn), other_right, np.uint64(0))
        left[count] = line
        count += np.uint64(seen != np.uint64(0))
    for array in range(2, len(columns)):
        source, turn = base + np.uint64(columns[array]) * column, np.uint64(lines[array]) * size
        right, kept = rotations[array], np.uint64(0)
        for i in range(count):
            line = left[i]
            seen = and_line(into + line, source + (line ^ turn), right, np.uint64(0))
            left[kept] = line
            kept += np.uint64(seen != np.uint64(0))
        count = kept
    ones = np.uint64(0)
    for i in range(count):
        for w in range(np.uint64(LINE_WORDS)):
            ones += ones_of(common[left[i] // np.uint64(8) + w])
    return np.int64(ones)


@compiled
def common_zeros(hosts: Words, chosen: NDArray[np.int64], bits: Words, geometry: Geometry, key: Key) -> Counts:
    """Return the zeros of the AND of each mangled host's columns; `chosen` has their row indexes in `bits`."""
    zeros = np.empty(len(hosts), np.int32)
    places = make_places(geometry)
    left = np.empty(bits.shape[1] // LINE_WORDS + 1, np.uint64)
    for i in range(len(hosts)):
        find_places(hosts[i, 0], hosts[i, 1], False, places, geometry, key)
        places.columns[:] = chosen[i]
        if HAS_VECTORS and geometry.arrays > 1 and bits.shape[1] >= LINE_WORDS:
            ones = all_ones(bits, places, left)
        else:
            ones = and_ones(bits, places, 0, bits.shape[1])
        zeros[i] = (1 << geometry.column_bits) - ones
    return zeros


def unnamed_share(labels: Words, pairs: float, geometry: Geometry) -> float:
    """Return the share of hosts with this many written pairs that no label names, given the labels of a cube.

    Such a host wins a label of priority x with probability 1 − x^n: one of its n pairs must have a higher one. Hosts
    are hashed into labels, so what a host meets in its own is distributed like the content of all.
    """
    # All arrays are alike. In some, though, the bits by which pairs are sampled are part of the priority.
    first = labels.reshape(1 << geometry.slice_bits, -1, *labels.shape[1:])[:, : geometry.columns, :, 0]
    step = max(1, (geometry.columns << geometry.slice_bits) // LABELLED_COLUMNS)
    highest = (first[:, ::step] >> np.uint64(32)) / 2.0**32
    lost = np.maximum(highest, 1 - 2.0**-geometry.share_bits) ** pairs
    return float(lost.mean()) ** geometry.arrays
