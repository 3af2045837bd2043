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
MERGED_TOGETHER, COUNTED_TOGETHER, FILLED_TOGETHER = 4, 16, 2
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
            for j in range(items):  # All reads begin before one is used.
                i = U32(tile * U32(size) + U32(j * threads) + me)
                pairs[j] = U64(0)
                if i < count:
                    pairs[j] = U64(hosts[i]) << U64(32) | U64(peers[i])
            for j in range(items):
                host, peer = U32(pairs[j] >> U64(32)), U32(pairs[j])
                ranks[j] = -1
                # In a train of packets, a pair equals that of the thread before in the same warp.
                host_before = cuda.shfl_up_sync(0xFFFFFFFF, numba.int32(host), 1)
                peer_before = cuda.shfl_up_sync(0xFFFFFFFF, numba.int32(peer), 1)
                repeats = host_before == numba.int32(host) and peer_before == numba.int32(peer)
                is_pair = tile * U32(size) + U32(j * threads) + me < count
                if is_pair and not (repeats and me % U32(team) > U32(0)):
                    place = U32(recent_place(host, peer, recent_bits))
                    if recent[place] != pairs[j]:
                        recent[place] = pairs[j]
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
    write a pair one for each array. The few pairs that are not in it wait until there is one for every thread of a
    team: otherwise most threads would wait for those that write.
    """
    groups, size, team, together = 1 << group_bits, launch.threads * launch.items, launch.team, FILLED_TOGETHER
    recent_bits, room = launch.fill_recent_bits, launch.team * (together + 1)
    waiting_size = room * launch.threads // team

    def fill(pairs: Any, starts: Any, tiles: int, recent: Any, bits: Any, extra: Any, key: Any) -> None:
        queue = cuda.shared.array(waiting_size, numba.uint64)
        read, known = cuda.local.array(together, numba.uint64), cuda.local.array(together, numba.uint64)
        blocks, teams = cuda.gridDim.x // groups, cuda.blockDim.x // team
        group, mine = U32(cuda.blockIdx.x // blocks), cuda.threadIdx.x // team
        tile, step = U32((cuda.blockIdx.x % blocks) * teams + mine), U32(blocks * teams)
        member, first = U32(cuda.threadIdx.x % team), U32(mine * room)
        waiting, enough = U32(0), U32(team)
        while tile < U32(tiles) or waiting > U32(0):
            begin, end = U32(0), U32(0)
            if tile < U32(tiles):
                begin = U32(tile * U32(size) + U32(starts[tile, group]))
                end = U32(tile * U32(size) + U32(starts[tile, U32(group + U32(1))]))
                tile = U32(tile + step)
            else:
                enough = U32(1)  # No others come.
            while begin < end or waiting >= enough:
                for j in range(together):
                    i = U32(begin + U32(j * team) + member)
                    read[j] = pairs[i if i < end else begin]
                for j in range(together):
                    known[j] = recent[U32(recent_place(U32(read[j] >> U64(32)), U32(read[j]), recent_bits))]
                for j in range(together):
                    pair = read[j]
                    is_new = begin + U32(j * team) + member < end and (pair == U64(0) or known[j] != pair)
                    new = U32(cuda.ballot_sync(MASK32, is_new))
                    if is_new:  # An empty place of the table is 0.
                        recent[U32(recent_place(U32(pair >> U64(32)), U32(pair), recent_bits))] = pair
                        queue[U32(first + waiting + U32(cuda.popc(new & U32((1 << member) - 1))))] = pair
                    waiting = U32(waiting + U32(cuda.popc(new)))
                begin = U32(begin + U32(together * team))
                cuda.syncwarp()
                while waiting >= enough:
                    count = min(waiting, U32(team))
                    waiting = U32(waiting - count)
                    if member < count:
                        pair = queue[U32(first + waiting + member)]
                        put(U64(0), pair >> U64(32), pair & U64(MASK32), bits, extra, key)

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
def make_count(words: int, edges: tuple[int, ...], launch: Launch) -> tuple[Kernel, int]:
    """Return the kernel that counts the zeros of columns, and adds them up by slice and array, and its threads.

    The sums are 0 before. Giant columns, which follow those of all slices, have none. A block adds up its own columns
    first, because additions to one place of the GPU's memory wait for each other.
    """
    team, rows, threads, teams = launch.team, 64 * words, launch.threads // 2, launch.threads // (2 * launch.team)
    arrays, ends, per_slice = len(edges) - 1, edges[1:], edges[-1]
    each = -(-words // team)
    batch, fits = min(each, COUNTED_TOGETHER), words % (team * min(each, COUNTED_TOGETHER)) == 0
    team_sum = make_team_sum(team)

    @device_function
    def sum_of(column: Any) -> Any:
        place = column // U32(per_slice) * U32(arrays)
        for end in ends:
            place += U32(column % U32(per_slice) >= U32(end))
        return U32(place)

    def count(bits: Any, zeros: Any, sums: Any) -> None:
        read = cuda.local.array(batch, numba.uint64)
        own = cuda.shared.array(teams, numba.int32)  # sums of this block's columns, from the place of the first one on
        me, mine, member = cuda.threadIdx.x, cuda.threadIdx.x // team, U32(cuda.threadIdx.x % team)
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
            if me < teams:
                own[me] = 0
            cuda.syncthreads()
            if member == U32(0) and column < total:
                zeros[column] = rows - found
                cuda.atomic.add(own, sum_of(column) - sum_of(first), numba.int32(rows - found))
            cuda.syncthreads()
            if me < teams and own[me] > 0 and sum_of(first) + U32(me) < U32(sums.shape[0]):
                cuda.atomic.add(sums, sum_of(first) + U32(me), U64(own[me]))
            first = U32(first + U32(cuda.gridDim.x * teams))

    return kernel(count), threads


@cache
def make_merge(threads: int) -> Kernel:
    """Return the kernel that ORs the first `words` words and keeps the maximum of all others, which are labels.

    It goes `backwards` through both or not: what the GPU's cache has of the target are its last words, or its first
    after such a merge.
    """
    items = MERGED_TOGETHER
    size = threads * items

    def merge(into: Any, other: Any, words: int, backwards: int) -> None:
        mine, theirs = cuda.local.array(items, numba.uint64), cuda.local.array(items, numba.uint64)
        count, split, tile = U32(into.shape[0]), U32(words), U32(cuda.blockIdx.x)
        if backwards:
            tile = U32(U32(cuda.gridDim.x) - U32(1) - tile)
        start, end = U32(tile * U32(size)), U32(tile * U32(size) + U32(size))
        first = U32(start + U32(cuda.threadIdx.x))
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

    return kernel(merge)
