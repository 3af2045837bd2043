"""Kernels that every column sketch needs: update, count zeros, merge.

An update reads before it writes: atomics act only on bits that the read found clear, and the result does not depend on
their order.

Large batches take two steps, because a cube is larger than the GPU's cache (60 MB on an H200): `make_tiles` sorts tiles
of a few thousand pairs by group of hosts, slice by slice; `make_fill` then writes one group after the other from all
tiles, while the columns of its slice stay in the cache. Both steps drop repeats of recent pairs, which does not change
the result: the first those of its block, the second those in a table that serves one or two groups at a time.

Indexes are deliberately unsigned 32-bit integers: numba then omits the checks for negative values, and address
arithmetic takes half the instructions. Arithmetic that wraps around is in compiled scalar functions, because tests
run everything else as plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np

from superhosts.core.hashing import MASK32, fold, mangle32, mangle64, mangle128
from superhosts.detectors.gpu.launch import Launch, cuda, device_function, kernel
from superhosts.jit.cache import compiled

U32, U64 = np.uint32, np.uint64
Kernel = Any
Put = Callable[..., None]
# Reads that a thread has in flight; a single one would leave the memory idle.
MERGED_TOGETHER, COUNTED_TOGETHER = 4, 16
WIDE = 2  # dimensions of an array of 128-bit addresses, which are rows of two words; others have one dimension
# Indexes of the counters at the start of an answer: hosts found, candidates examined, ANDs of whole columns.
FOUND, CANDIDATES, STEPS = 0, 1, 2
COUNTERS = 3


def answer_shape(geometry: Any) -> tuple[int, int]:
    """Return the words of an answer before its rows, and of a row: host (2), zeros of its columns and of their AND."""
    return COUNTERS + (geometry.arrays << geometry.slice_bits), 3 + geometry.arrays


@compiled
def recent_place(first: int, second: int, bits: int) -> int:
    return ((first * 0x9E3779B1 ^ second * 0x85EBCA77) & MASK32) >> (32 - bits)


@device_function
def draw_of(array: int, key: Any) -> Any:
    """Return the multiplier and addend of one array. In the simulator, `column_draw` would return plain integers."""
    return key.columns[2 * array], key.columns[2 * array + 1]


@cache
def make_update(put: Put, key_bits: int, host_dimensions: int, peer_dimensions: int) -> Kernel:
    def update(hosts: Any, peers: Any, bits: Any, extra: Any, key: Any) -> None:
        i, step, count = U32(cuda.grid(1)), U32(cuda.gridsize(1)), U32(hosts.shape[0])
        while i < count:
            high = U64(0)
            if host_dimensions == WIDE:
                high, low = U64(hosts[i, U32(0)]), U64(hosts[i, U32(1)])
            else:
                low = U64(hosts[i])
            if peer_dimensions == WIDE:
                peer = U64(fold(peers[i, U32(0)], peers[i, U32(1)], key))
            else:
                peer = U64(peers[i])
            if key_bits == 32:
                low = U64(mangle32(low, key))
            elif key_bits == 64:
                low = U64(mangle64(low, key))
            else:
                high, low = mangle128(high, low, key)
            put(U64(high), U64(low), peer, bits, extra, key)
            i = U32(i + step)

    return kernel(update)


@compiled
def group_of(low: int, slice_bits: int, group_bits: int) -> int:
    """Return the group of a mangled host: adjacent slices, or part of a slice if there are more groups than slices."""
    slice_ = low & ((1 << slice_bits) - 1)
    if group_bits <= slice_bits:
        return slice_ >> (slice_bits - group_bits)
    part_bits = group_bits - slice_bits
    return slice_ << part_bits | (low >> slice_bits) & ((1 << part_bits) - 1)


@cache
def make_tiles(slice_bits: int, group_bits: int, launch: Launch) -> Kernel:
    """Return the kernel that sorts tiles of pairs of 32-bit addresses by group of hosts.

    The kernel writes (mangled host, peer) as one word per pair to `out`, tile by tile, and the start of each group in
    each tile to `starts`.
    """
    groups, ends = 1 << group_bits, (1 << group_bits) + 1  # fewer than the threads of a block
    threads, items = launch.threads, launch.items
    size = threads * items
    recent_bits, remembered = launch.tile_recent_bits, 1 << launch.tile_recent_bits
    team = launch.team

    def tiles(hosts: Any, peers: Any, out: Any, starts: Any, key: Any) -> None:
        recent = cuda.shared.array(remembered, numba.uint64)
        stage = cuda.shared.array(size, numba.uint64)
        counts = cuda.shared.array(groups, numba.int32)
        begins = cuda.shared.array(ends, numba.int32)
        pairs = cuda.local.array(items, numba.uint64)
        ranks = cuda.local.array(items, numba.int32)  # rank of a pair within its group, or -1 if it is dropped
        me, count = U32(cuda.threadIdx.x), U32(hosts.shape[0])
        for empty in range(cuda.threadIdx.x, remembered, threads):
            recent[empty] = U64(empty == 0)  # The initial value is a pair that does not map to this place.
        tile = U32(cuda.blockIdx.x)
        while tile * U32(size) < count:
            if me < U32(groups):  # A loop here would cost registers and thus half of the resident blocks.
                counts[me] = 0
            cuda.syncthreads()
            for j in range(items):
                i = U32(tile * U32(size) + U32(j * threads) + me)
                ranks[j] = -1
                host, peer = U32(0), U32(0)
                if i < count:
                    host, peer = hosts[i], peers[i]
                # In a train of packets, a pair equals that of the thread before in the same warp.
                host_before = cuda.shfl_up_sync(0xFFFFFFFF, numba.int32(host), 1)
                peer_before = cuda.shfl_up_sync(0xFFFFFFFF, numba.int32(peer), 1)
                repeats = host_before == numba.int32(host) and peer_before == numba.int32(peer)
                if i < count and not (repeats and me % U32(team) > U32(0)):
                    pair = U64(host) << U64(32) | U64(peer)
                    place = U32(recent_place(host, peer, recent_bits))
                    if recent[place] != pair:
                        recent[place] = pair
                        ranks[j] = 0
                    pairs[j] = U64(mangle32(U64(host), key)) << U64(32) | U64(peer)
            for j in range(items):
                if ranks[j] >= 0:
                    group = U32(group_of(pairs[j] >> U64(32), slice_bits, group_bits))
                    ranks[j] = cuda.atomic.add(counts, group, 1)
            cuda.syncthreads()
            if me < U32(ends):
                total = 0
                for other in range(groups):
                    if U32(other) < me:
                        total += counts[other]
                begins[me] = total
                starts[tile, me] = total
            cuda.syncthreads()
            for j in range(items):
                if ranks[j] >= 0:
                    group = U32(group_of(pairs[j] >> U64(32), slice_bits, group_bits))
                    stage[U32(begins[group] + ranks[j])] = pairs[j]
            cuda.syncthreads()
            slot, end = me, U32(begins[groups])
            while slot < end:
                out[U32(tile * U32(size) + slot)] = stage[slot]
                slot = U32(slot + U32(threads))
            tile = U32(tile + U32(cuda.gridDim.x))

    return kernel(tiles)


@cache
def make_fill(put: Put, group_bits: int, launch: Launch) -> Kernel:
    """Return the kernel that writes sorted tiles, one group after the other.

    Blocks are numbered group by group and start in that order, so that only one or two groups are active at a time.
    They share a table of the pairs written before, in the GPU's memory: to read it costs one access to the cache, to
    write a pair one for each array.
    """
    groups, size, team = 1 << group_bits, launch.threads * launch.items, launch.team
    recent_bits = launch.fill_recent_bits

    def fill(pairs: Any, starts: Any, tiles: int, recent: Any, bits: Any, extra: Any, key: Any) -> None:
        blocks, teams = cuda.gridDim.x // groups, cuda.blockDim.x // team
        group = U32(cuda.blockIdx.x // blocks)
        tile = U32((cuda.blockIdx.x % blocks) * teams + cuda.threadIdx.x // team)
        member, step = U32(cuda.threadIdx.x % team), U32(blocks * teams)
        while tile < U32(tiles):
            i = U32(tile * U32(size) + U32(starts[tile, group]) + member)
            end = U32(tile * U32(size) + U32(starts[tile, U32(group + U32(1))]))
            while i < end:
                pair = pairs[i]
                low, peer = pair >> U64(32), pair & U64(MASK32)
                place = U32(recent_place(U32(low), U32(peer), recent_bits))
                if pair == U64(0) or recent[place] != pair:  # An empty place is 0.
                    recent[place] = pair
                    put(U64(0), low, peer, bits, extra, key)
                i = U32(i + U32(team))
            tile = U32(tile + step)

    return kernel(fill)


@cache
def make_team_sum(lanes: int) -> Any:
    """Return the device function that adds up the numbers of `lanes` adjacent threads. All of a block must call it.

    Every thread receives the sum.
    """
    steps = tuple(1 << bit for bit in range((lanes - 1).bit_length()))

    def add_up(number: Any) -> Any:
        for step in steps:
            number += cuda.shfl_xor_sync(0xFFFFFFFF, number, step)
        return number

    return device_function(add_up)


@cache
def make_count(words: int, launch: Launch) -> tuple[Kernel, int]:
    team, rows, threads, teams = launch.team, 64 * words, launch.threads // 2, launch.threads // (2 * launch.team)
    each = -(-words // team)
    batch, fits = min(each, COUNTED_TOGETHER), words % (team * min(each, COUNTED_TOGETHER)) == 0
    team_sum = make_team_sum(team)

    def count(bits: Any, zeros: Any) -> None:
        read = cuda.local.array(batch, numba.uint64)
        mine, member = cuda.threadIdx.x // team, U32(cuda.threadIdx.x % team)
        first, total = U32(cuda.blockIdx.x * teams), U32(zeros.shape[0])
        while first < total:
            column = U32(first + U32(mine))
            found = numba.int32(0)
            if column < total:
                for start in range(0, each, batch):
                    for ahead in range(batch):
                        word = U32(U32((start + ahead) * team) + member)
                        read[ahead] = U64(0)
                        if fits or word < U32(words):
                            read[ahead] = bits[U32(column * U32(words) + word)]
                    for ahead in range(batch):
                        found += numba.int32(cuda.popc(read[ahead]))
            found = team_sum(found)
            if member == U32(0) and column < total:
                zeros[column] = rows - found
            first = U32(first + U32(cuda.gridDim.x * teams))

    return kernel(count), threads


@cache
def make_sum_zeros(edges: tuple[int, ...], launch: Launch) -> tuple[Kernel, int]:
    """Return the kernel that sums zeros, one block per array and slice, and its threads: atomics are serialized."""
    arrays, team = len(edges) - 1, launch.team
    widest = max(end - start for start, end in pairwise(edges))
    threads = min(launch.threads, -(-widest // team) * team)
    team_sum = make_team_sum(team)

    def sum_zeros(zeros: Any, sums: Any) -> None:
        total = cuda.shared.array(1, numba.int64)
        first = cuda.blockIdx.x // arrays * edges[arrays]
        array, me = cuda.blockIdx.x % arrays, cuda.threadIdx.x
        if me == 0:
            total[0] = 0
        cuda.syncthreads()
        mine = np.int64(0)
        for column in range(first + edges[array] + me, first + edges[array + 1], threads):
            mine += zeros[column]
        mine = team_sum(mine)
        if me % team == 0:
            cuda.atomic.add(total, 0, mine)
        cuda.syncthreads()
        if me == 0:
            sums[cuda.blockIdx.x] = U64(total[0])

    return kernel(sum_zeros), threads


@cache
def make_read(words: int) -> Any:
    def read(bits: Any, column: int, word: int, _high: Any, _low: Any, _array: int, _key: Any) -> Any:
        return bits[U32(column * words + word)]

    return device_function(read)


@cache
def make_measure(column_of: Any, read: Any, arrays: int, words: int) -> Kernel:
    """Return the kernel that computes the zero counts of mangled hosts (two words each), one block per host."""
    rows = 64 * words

    def measure(hosts: Any, bits: Any, zeros: Any, out: Any, key: Any) -> None:
        total = cuda.shared.array(1, numba.int32)
        columns = cuda.local.array(arrays, numba.int64)
        i, me = cuda.blockIdx.x, cuda.threadIdx.x
        high, low = hosts[2 * i], hosts[2 * i + 1]
        if me == 0:
            total[0] = 0
        cuda.syncthreads()
        for array in range(arrays):
            columns[array] = column_of(high, low, array, key)
        ones = 0
        for word in range(me, words, cuda.blockDim.x):
            common = read(bits, columns[0], word, high, low, 0, key)
            for array in range(1, arrays):
                common &= read(bits, columns[array], word, high, low, array, key)
            ones += cuda.popc(common)
        cuda.atomic.add(total, 0, ones)
        cuda.syncthreads()
        if me == 0:
            for array in range(arrays):
                out[i * (arrays + 1) + array] = U64(zeros[columns[array]])
            out[i * (arrays + 1) + arrays] = U64(rows - total[0])

    return kernel(measure)


@cache
def make_merge(threads: int) -> Kernel:
    """Return the kernel that ORs the first `words` words and keeps the maximum of all others, which are labels."""
    items = MERGED_TOGETHER
    size = threads * items

    def merge(into: Any, other: Any, words: int) -> None:
        mine, theirs = cuda.local.array(items, numba.uint64), cuda.local.array(items, numba.uint64)
        count, split = U32(into.shape[0]), U32(words)
        start = U32(cuda.blockIdx.x * size)
        while start < count:
            first, end = U32(start + U32(cuda.threadIdx.x)), U32(start + U32(size))
            if end <= split or (start >= split and end <= count):  # The whole tile is columns or labels.
                for j in range(items):
                    i = U32(first + U32(j * threads))
                    mine[j], theirs[j] = into[i], other[i]
                for j in range(items):
                    merged = mine[j] | theirs[j] if start < split else max(mine[j], theirs[j])
                    if merged != mine[j]:
                        into[U32(first + U32(j * threads))] = merged
            else:
                for j in range(items):
                    i = U32(first + U32(j * threads))
                    if i < count:
                        into[i] = into[i] | other[i] if i < split else max(into[i], other[i])
            start = U32(start + U32(cuda.gridDim.x * size))

    return kernel(merge)
