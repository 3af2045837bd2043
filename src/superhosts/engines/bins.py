"""The road from a batch of pairs to the slices: drop repeats, mangle, sort into bins by slice, wait.

Setting bits at random over a cube of 128 MiB costs a cache miss for each. So pairs are not written when they come.
Each thread takes a run of the batch, drops pairs that it has seen a moment ago (a small direct-mapped cache: most
packets repeat a known pair), mangles the host and appends the rest to bins by slice. When the bins are full, or
an answer is wanted, `drain` hands every bin to one thread: nobody else writes to its slices, so no atomics are
needed and no bit is lost, and a slice stays in that core's cache while thousands of pairs go into it.

Inside a bin repeats stand close together, so a second small cache, on the way out, catches many that the first one
let through. An update depends on a pair only through (host, folded peer). Dropping an exact repeat of these changes
nothing, and both caches stay valid from one drain to the next.

Bins are chains of small chunks out of one pool, so that a flood on one host fills a chain instead of a bin. An
entry is one word for IPv4 (mangled host, peer), else the mangled host in one or two words and the folded peer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.device import run_parallel, split_evenly
from superhosts.hashing import MASK32, Key, fold, mangle32, mangle64, mangle128
from superhosts.pairs import Addresses

Words = NDArray[np.uint64]
Indexes = NDArray[np.int32]
CHUNK = 256  # entries: 2 KiB for IPv4, so that the open chunks of all bins stay in a core's cache
BLOCK = 512  # pairs whose repeats are dropped before any is mangled: the mangling then runs in vector registers
CACHE_BITS = 16  # pairs that a thread remembers on the way into the bins: 512 KiB for IPv4
SEEN_BITS = 16  # and on the way out
MAX_BIN_BITS = 7  # more bins than this, and appending to them misses the cache
FINE_MEMORY = 4 << 20  # bytes of waiting pairs from which on bins are as fine as that
MAX_MEMORY = 1 << 30  # bytes of waiting pairs: enough for any number of threads, and places fit 32 bits
BATCH = 4096  # entries that leave the bins together: passing arrays to a function costs atomic reference counts
PADDING = 32  # cells behind a thread's cursors, so that no two threads write to one cache line
WORTH_A_THREAD = 8192  # pairs: for fewer, waking another thread costs more than it saves
SPREAD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)  # odd; they only spread pairs over the cache


class Pool(NamedTuple):
    """Chunks of entries. A thread appends only where its row of `cursors` points."""

    entries: Words  # (chunks · CHUNK · words of an entry)
    owner: Indexes  # the bin of each chunk
    cursors: Indexes  # (threads, bins + PADDING): where each bin's next entry goes, then the next free chunk


@compiled
def bin_narrow(
    hosts: NDArray[np.uint32], peers: NDArray[np.uint32], thread: int, cache: Words, pool: Pool, key: Key
) -> None:
    """Bin pairs of 32-bit hosts and peers."""
    block = np.empty(BLOCK, np.uint64)
    entries, owner, cursors = pool.entries, pool.owner, pool.cursors[thread]
    free = len(cursors) - PADDING
    last_bin = free - 1  # the number of bins is a power of two
    for start in range(0, len(hosts), BLOCK):
        fresh = 0
        for i in range(start, min(start + BLOCK, len(hosts))):
            pair = np.uint64(hosts[i]) << np.uint64(32) | np.uint64(peers[i])
            place = (pair * np.uint64(SPREAD[0])) >> np.uint64(64 - CACHE_BITS)
            block[fresh] = pair
            fresh += cache[place, 0] != pair
            cache[place, 0] = pair
        for i in range(fresh):
            pair = block[i]
            block[i] = np.uint64(mangle32(pair >> np.uint64(32), key)) << np.uint64(32) | pair & np.uint64(MASK32)
        for i in range(fresh):
            bin_ = np.int64(block[i] >> np.uint64(32)) & last_bin
            slot = cursors[bin_]
            entries[slot] = block[i]
            cursors[bin_] = slot + 1
            if (slot + 1) % CHUNK == 0:  # full: the bin gets the next free chunk
                chunk = cursors[free]
                cursors[free] = chunk + 1
                owner[chunk] = bin_
                cursors[bin_] = chunk * CHUNK


@compiled
def bin_wide(hosts: Words, peers: Words, thread: int, cache: Words, pool: Pool, key: Key, bits: int) -> None:
    """Bin pairs whose host or peer is wider than 32 bits, given as rows of one or two 64-bit words."""
    entries, owner, cursors = pool.entries, pool.owner, pool.cursors[thread]
    free = len(cursors) - PADDING
    last_bin = free - 1
    limbs = hosts.shape[1]
    for i in range(len(hosts)):
        peer = peers[i, 0] if peers.shape[1] == 1 else fold(peers[i, 0], peers[i, 1], key)
        high = hosts[i, 0]
        low = hosts[i, limbs - 1]
        place = high * np.uint64(SPREAD[0]) + low * np.uint64(SPREAD[1]) + peer * np.uint64(SPREAD[2])
        place = place >> np.uint64(64 - CACHE_BITS)
        if cache[place, 0] == high and cache[place, 1] == low and cache[place, 2] == peer:
            continue
        cache[place, 0] = high
        cache[place, 1] = low
        cache[place, 2] = peer
        if bits == 32:
            low = np.uint64(mangle32(low, key))
        elif bits == 64:
            low = mangle64(low, key)
        else:
            high, low = mangle128(high, low, key)
        bin_ = np.int64(low & np.uint64(last_bin))
        slot = cursors[bin_]
        if limbs == 2:
            entries[slot * 3] = high
        entries[slot * (limbs + 1) + limbs - 1] = low
        entries[slot * (limbs + 1) + limbs] = peer
        cursors[bin_] = slot + 1
        if (slot + 1) % CHUNK == 0:
            chunk = cursors[free]
            cursors[free] = chunk + 1
            owner[chunk] = bin_
            cursors[bin_] = chunk * CHUNK


class Task(NamedTuple):
    """The chunks that one thread writes, bin by bin, and how many entries each holds."""

    chunks: Indexes
    sizes: Indexes
    seen: Words  # the thread's cache of pairs that it has just written


class Scratch(NamedTuple):
    """Entries on their way out of the bins, unpacked: columns of BATCH + CHUNK words."""

    high: Words  # of the mangled host; 0 unless keys have 128 bits
    low: Words
    folded: Words  # the mangled host in 64 bits
    peers: Words
    pairs: Words  # the pair's hash


@compiled
def make_scratch() -> Scratch:
    """Return room for a batch of entries."""
    room = np.zeros((5, BATCH + CHUNK), np.uint64)
    return Scratch(room[0], room[1], room[2], room[3], room[4])


@compiled
def unpack(first: int, task: Task, pool: Pool, out: Scratch) -> tuple[int, int]:
    """Unpack a task's chunks from `first` on until a batch or a bin ends, without pairs that were just written.

    Returns the next chunk and the number of entries.
    """
    high, low, peers = out.high, out.low, out.peers
    entries, owner, bin_ = pool.entries, pool.owner, pool.owner[task.chunks[first]]
    seen = task.seen
    width = len(entries) // (len(pool.owner) * CHUNK)
    have, number = 0, first
    while number < len(task.chunks) and have <= BATCH - CHUNK and owner[task.chunks[number]] == bin_:
        start = task.chunks[number] * CHUNK * width
        stop = start + task.sizes[number] * width
        number += 1
        if width == 1:
            for j in range(start, stop):
                pair = entries[j]
                place = (pair * np.uint64(SPREAD[1])) >> np.uint64(64 - SEEN_BITS)
                low[have] = pair >> np.uint64(32)
                peers[have] = pair & np.uint64(MASK32)
                have += seen[place, 0] != pair
                seen[place, 0] = pair
            continue
        for j in range(start, stop, width):
            high[have] = entries[j] if width == 3 else np.uint64(0)
            low[have] = entries[j + width - 2]
            peers[have] = entries[j + width - 1]
            place = low[have] * np.uint64(SPREAD[1]) + peers[have] * np.uint64(SPREAD[2])
            place = place >> np.uint64(64 - SEEN_BITS)
            if seen[place, 0] != low[have] or seen[place, 1] != peers[have] or seen[place, 2] != high[have]:
                seen[place, 0], seen[place, 1], seen[place, 2] = low[have], peers[have], high[have]
                have += 1
    return number, have


class Bins:
    """Pairs on their way into the slices of one sketch."""

    def __init__(self, key: Key, *, key_bits: int, slice_bits: int, memory: int, threads: int) -> None:
        self.key, self.key_bits, self.threads = key, key_bits, threads
        self.slices = 1 << slice_bits
        # Bins are finer than slices where slices are few: what a bin's cache remembers must fit a core's own cache.
        self.bins = 1 << (MAX_BIN_BITS if memory >= FINE_MEMORY else min(slice_bits, MAX_BIN_BITS))
        self.memory = min(memory, MAX_MEMORY)
        self.width = 0  # words of an entry; 0 while nothing has come
        self.waiting = 0  # upper bound on the entries that wait

    def _allocate(self, width: int) -> None:
        self.width = width
        least = 2 * self.bins + 64  # every bin's first chunk, one more for each, and some to work with
        self.chunks = max(self.memory // (8 * width * CHUNK * self.threads), least)  # of one thread
        total = self.chunks * self.threads
        entries = np.empty(total * CHUNK * width, np.uint64)
        self.pool = Pool(entries, np.empty(total, np.int32), np.empty((self.threads, self.bins + PADDING), np.int32))
        words = 1 if width == 1 else 3
        self.cache = np.empty((self.threads, 1 << CACHE_BITS, words), np.uint64)
        self.seen = np.empty((self.threads, 1 << SEEN_BITS, words), np.uint64)
        self._forget()
        self._reset()

    def _forget(self) -> None:
        """Empty the caches. An empty place must not hold a pair that belongs there."""
        self.cache.fill(0)
        self.seen.fill(0)
        self.cache[:, 0], self.seen[:, 0] = 1, 1  # zeros belong to place 0; ones do not

    def _reset(self) -> None:
        for thread in range(self.threads):
            first = thread * self.chunks
            self.pool.owner[first : first + self.bins] = np.arange(self.bins)
            self.pool.cursors[thread, : self.bins] = np.arange(first, first + self.bins) * CHUNK
            self.pool.cursors[thread, self.bins] = first + self.bins

    def free(self) -> int:
        """Entries that the fullest thread can surely still take: each bin may have to open one more chunk."""
        taken = self.pool.cursors[:, self.bins] - np.arange(self.threads) * self.chunks
        return int(self.chunks - taken.max() - self.bins) * CHUNK

    def add(self, hosts: Addresses, peers: Addresses, drain: Callable[[], None]) -> None:
        """Bin a batch; calls `drain` whenever the bins are full."""
        narrow = hosts.dtype == np.uint32 and peers.dtype == np.uint32
        width = 1 if narrow else (1 if hosts.ndim == 1 else hosts.shape[1]) + 1
        if width != self.width:
            if self.width:
                drain()
            self._allocate(width)
        if not narrow:
            hosts = np.ascontiguousarray(hosts, np.uint64).reshape(len(hosts), -1)
            peers = np.ascontiguousarray(peers, np.uint64).reshape(len(peers), -1)
        start = 0
        while start < len(hosts):
            room = self.free()
            if room < max(WORTH_A_THREAD, self.chunks * CHUNK // 16):  # nearly full: many small runs would cost more
                drain()
                room = self.free()
            threads = self.threads if len(hosts) - start > WORTH_A_THREAD else 1
            stop = min(len(hosts), start + room * threads)
            calls = []
            for thread, (a, b) in enumerate(split_evenly(stop - start, threads)):
                common = (
                    hosts[start + a : start + b],
                    peers[start + a : start + b],
                    thread,
                    self.cache[thread],
                    self.pool,
                    self.key,
                )
                calls.append(common if narrow else (*common, self.key_bits))
            self.waiting += stop - start  # before the work: interrupted pairs must not be taken for written ones
            run_parallel(bin_narrow if narrow else bin_wide, calls, threads)
            start = stop

    def take(self) -> list[Task]:
        """Deal the bins out to threads: all bins of a slice to one, the largest slice first, to the least loaded."""
        chunks, sizes = self._waiting_chunks()
        owners = self.pool.owner[chunks]
        groups = owners & (min(self.slices, self.bins) - 1)
        order = np.lexsort((owners, groups))
        chunks, sizes, groups = chunks[order], sizes[order], groups[order]
        count = min(self.slices, self.bins)
        loads = np.bincount(groups, weights=sizes, minlength=count)
        edges = np.searchsorted(groups, np.arange(count + 1))
        busy = [0.0] * self.threads
        mine: list[list[slice]] = [[] for _ in range(self.threads)]
        for group in np.argsort(-loads, kind="stable"):
            thread = busy.index(min(busy))
            busy[thread] += loads[group]
            mine[thread].append(slice(edges[group], edges[group + 1]))
        return [
            Task(
                np.concatenate([chunks[run] for run in runs]),
                np.concatenate([sizes[run] for run in runs]),
                self.seen[thread],
            )
            for thread, runs in enumerate(mine)
            if busy[thread]
        ]

    def _waiting_chunks(self) -> tuple[Indexes, Indexes]:
        """Return every chunk that holds entries, and how many."""
        chunks, sizes = [], []
        for thread in range(self.threads):
            first, free = thread * self.chunks, int(self.pool.cursors[thread, self.bins])
            size = np.full(free - first, CHUNK, np.int32)
            opened, used = np.divmod(self.pool.cursors[thread, : self.bins], CHUNK)
            size[opened - first] = used
            chunks.append(np.arange(first, free, dtype=np.int32)[size > 0])
            sizes.append(size[size > 0])
        return np.concatenate(chunks), np.concatenate(sizes)

    def done(self) -> None:
        """Forget the entries: they have been written."""
        self.waiting = 0
        self._reset()

    def clear(self) -> None:
        """Forget everything, recent pairs included; the memory stays."""
        if self.width:
            self._forget()
            self.done()
