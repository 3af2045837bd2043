"""Bins collect pairs by slice before they are written: drop repeats, mangle hosts, sort into bins.

Setting bits at random positions in a cube of 128 MiB costs a cache miss per bit, so pairs are not written immediately.
Each thread takes a run of the batch, drops pairs that it saw recently (a small direct-mapped cache; most packets
repeat a known pair), mangles the hosts and appends the remaining pairs to bins by slice. When the bins are full, or a
query needs the result, `drain` passes every bin to one thread. No other thread writes to the slices of that bin, so
no atomics are needed and no bit is lost, and a slice stays in that core's cache while thousands of pairs are written.

Pairs often come in both directions: two batches, of which the second has the columns of the first, swapped. These are
binned in one pass that asks a cache of its own once for both. A pair and its reverse have one place there.

Repeats are close together within a bin, so a second small cache, applied when a bin is drained, catches many that the
first one missed. An update depends on a pair only through (host, folded peer). Dropping an exact repeat therefore
changes nothing, and both caches stay valid from one drain to the next.

Bins are chains of small chunks from one pool, so that a flood of pairs of one host extends a chain instead of filling
a bin of fixed size. An entry is one word for IPv4 (mangled host, peer); otherwise it is the mangled host in one or two
words and the folded peer.

Hosts and peers that are both uint64, where hosts have 32 bits, are integers that nobody has looked at (the int64 of
data frames). They are narrowed on the way into the bins, because a pass of its own over all of them costs a third of
the rest. If one does not fit, `DoesNotFitError` says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import groupby, pairwise
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.hosts import narrow_into, narrowed
from superhosts.core.device import run_parallel
from superhosts.core.hashing import MASK32, Key, fold, mangle32, mangle64, mangle128
from superhosts.core.pairs import Addresses, Batches
from superhosts.core.profile import timed
from superhosts.detectors.engines.base import Tuning
from superhosts.jit.cache import compiled

Words = NDArray[np.uint64]
Narrow = NDArray[np.uint32]
Indexes = NDArray[np.int32]
Runs = deque[tuple[Addresses, Addresses, int]]  # the last: 2 if every pair comes in both directions, else 1
CHUNK = 256  # entries of a chunk: 2 KiB for IPv4, so that the open chunks of all bins stay in a core's cache
NARROWED = 1 << 14  # integers that are made uint32 at a time, so that they stay in a core's cache
BLOCK = 512  # pairs deduplicated before any is mangled, so that mangling runs in vector registers
CACHE_BITS = 16  # log2 of the most pairs in a thread's cache before the bins: 512 KiB for IPv4
SEEN_BITS = 16  # log2 of the pairs in a thread's cache after the bins
MAX_BIN_BITS = 7  # log2 of the most bins; with more, appending misses the cache
FINE_BINS_MEMORY = 2 << 20  # least memory, in bytes, for which the number of bins is the maximum
MAX_RUN = 1 << 18  # pairs that a thread appends at a time
GROWTH = 4  # factor by which a growing pool becomes larger when it was full
MAX_MEMORY = 1 << 30  # bytes of pending pairs: enough for any number of threads, and slot numbers fit 32 bits
BATCH = 4096  # entries that leave the bins together; passing arrays to a function costs atomic reference counts
PADDING = 32  # cells after a thread's cursors, so that no two threads write to the same cache line
# Odd multipliers that only distribute pairs over a cache.
CACHE_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
NARROW_MULTIPLIERS = (0x9E3779B9, 0xC2B2AE3D)


class DoesNotFitError(Exception):
    """Integers that were to be 32 bits wide are not. Pairs before them may be in the bins."""


class Pool(NamedTuple):
    """Chunks of entries. A thread writes only to the slots in its own row of `cursors`."""

    entries: Words  # length: chunks · CHUNK · words of an entry
    owner: Indexes  # the bin of each chunk
    cursors: Indexes  # (threads, bins + PADDING): slot of each bin's next entry, then the next free chunk


@compiled
def cache_shift(places: int) -> np.uint64:
    """Return the shift to the right from a 64-bit product to a place in a table, whose size must be a power of two."""
    shift = 64
    while places > 1:
        places >>= 1
        shift -= 1
    return np.uint64(shift)


@compiled
def mangle_narrow(x: Any, key: Key) -> Any:
    """Do what `mangle32` does, in 32-bit products, of which vector registers compute twice as many at once."""
    words = key.mangle32
    x = np.uint32(x ^ np.uint32(words[0]))
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(words[1]))
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(15))) * np.uint32(words[2]))
    x = np.uint32(np.uint32(x ^ (x >> np.uint32(16))) * np.uint32(words[3]))
    return np.uint32(x ^ (x >> np.uint32(15)))


@compiled
def bin_narrow(hosts: Narrow, peers: Narrow, ways: int, thread: int, cache: Words, pool: Pool, key: Key) -> None:
    """Append pairs, if `ways` is 2 in both directions, to bins."""
    block, places, old = np.empty(2 * BLOCK, np.uint64), np.empty(2 * BLOCK, np.uint32), np.empty(BLOCK, np.uint64)
    entries, owner, cursors = pool.entries, pool.owner, pool.cursors[thread]
    recent = cache.reshape(-1)
    free = len(cursors) - PADDING
    last_bin = np.uint64(free - 1)  # also the mask of a bin number: the number of bins is a power of two
    shift = np.uint32(cache_shift(len(recent)) - np.uint64(32))
    one = np.uint64(1)
    for start in range(0, len(hosts), BLOCK):
        ours, theirs = hosts[start : start + BLOCK], peers[start : start + BLOCK]
        if ways == 2:
            for i in range(len(ours)):
                block[i] = np.uint64(max(ours[i], theirs[i])) << np.uint64(32) | np.uint64(min(ours[i], theirs[i]))
        else:
            for i in range(len(ours)):
                block[i] = np.uint64(ours[i]) << np.uint64(32) | np.uint64(theirs[i])
        for i in range(len(ours)):  # 32-bit products, because vector registers have no 64-bit ones
            mixed = np.uint32(np.uint32(block[i] >> np.uint64(32)) * np.uint32(NARROW_MULTIPLIERS[0]))
            other = np.uint32(np.uint32(block[i] & np.uint64(MASK32)) * np.uint32(NARROW_MULTIPLIERS[1]))
            places[i] = np.uint32(mixed + other) >> shift
        # A core reads ahead past a write only if it knows where that goes. So no loop that reads the cache or the
        # cursors writes to a place that depends on what it reads.
        for i in range(len(ours)):
            old[i] = recent[places[i]]
            recent[places[i]] = block[i]
        fresh = np.uint64(0)  # Indexes are unsigned: a signed one is tested for negative values.
        for i in range(len(ours)):
            pair = block[i]
            block[fresh] = pair
            fresh += np.uint64(old[i] != pair)
        for i in range(fresh if ways == 2 else np.uint64(0)):
            block[fresh + i] = block[i] << np.uint64(32) | block[i] >> np.uint64(32)
        for i in range(fresh * np.uint64(ways)):
            pair = block[i]
            host = mangle_narrow(np.uint32(pair >> np.uint64(32)), key)
            block[i] = np.uint64(host) << np.uint64(32) | pair & np.uint64(MASK32)
        for i in range(fresh * np.uint64(ways)):
            bin_ = block[i] >> np.uint64(32) & last_bin
            slot = np.uint64(np.uint32(cursors[bin_]))
            places[i] = slot
            cursors[bin_] = slot + one
            if (slot + one) % np.uint64(CHUNK) == 0:  # The chunk is full, so the bin takes the next free one.
                chunk = cursors[free]
                cursors[free] = chunk + 1
                owner[chunk] = bin_
                cursors[bin_] = chunk * CHUNK
        for i in range(fresh * np.uint64(ways)):
            entries[places[i]] = block[i]


@compiled
def bin_integers(hosts: Words, peers: Words, thread: int, cache: Words, pool: Pool, key: Key) -> bool:
    """Append pairs of integers that fit in 32 bits, block by block; return False before the first block with others."""
    ours, theirs = np.empty(NARROWED, np.uint32), np.empty(NARROWED, np.uint32)
    for start in range(0, len(hosts), NARROWED):
        some, others = hosts[start : start + NARROWED], peers[start : start + NARROWED]
        if (narrow_into(some, ours) | narrow_into(others, theirs)) >> np.uint64(32):
            return False
        bin_narrow(ours[: len(some)], theirs[: len(some)], 1, thread, cache, pool, key)
    return True


@compiled
def bin_wide(hosts: Words, peers: Words, thread: int, cache: Words, pool: Pool, key: Key, bits: int) -> None:
    """Append pairs with a host or peer wider than 32 bits, given as rows of one or two 64-bit words, to bins."""
    entries, owner, cursors = pool.entries, pool.owner, pool.cursors[thread]
    free = len(cursors) - PADDING
    last_bin = free - 1
    shift = cache_shift(len(cache))
    limbs = hosts.shape[1]
    for i in range(len(hosts)):
        peer = peers[i, 0] if peers.shape[1] == 1 else fold(peers[i, 0], peers[i, 1], key)
        high = hosts[i, 0]
        low = hosts[i, limbs - 1]
        place = (
            high * np.uint64(CACHE_MULTIPLIERS[0])
            + low * np.uint64(CACHE_MULTIPLIERS[1])
            + peer * np.uint64(CACHE_MULTIPLIERS[2])
        )
        place = place >> shift
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


UNSEEN = np.empty((0, 1), np.uint64)


class Portion(NamedTuple):
    """Some entries of one bin, or of several, as chunks of a pool."""

    chunks: Indexes
    sizes: Indexes  # entries of each chunk
    pool: Pool
    seen: Words = UNSEEN  # a thread's cache of recently written pairs; without places if no pair comes twice

    @property
    def width(self) -> int:
        # As plain Python: a compiled call that takes a moment costs another one, in which other threads get the lock.
        return len(self.pool.entries) // (len(self.pool.owner) * CHUNK)


class Scratch(NamedTuple):
    high: Words  # high word of the mangled host; of no length unless hosts have 128 bits
    low: Words
    peers: Words


@compiled
def entry_width(pool: Pool) -> int:
    return len(pool.entries) // (len(pool.owner) * CHUNK)


@compiled
def make_scratch(entries: int, width: int) -> Scratch:
    """Allocate memory for `entries` entries of `width` words. It must be more than a chunk."""
    return Scratch(
        np.empty(entries if width == 3 else 0, np.uint64), np.empty(entries, np.uint64), np.empty(entries, np.uint64)
    )


@compiled
def unpack(first: int, end: int, have: int, portion: Portion, out: Scratch) -> tuple[int, int]:
    """Append about BATCH entries to the `have` entries in `out`, as long as there is room; skip recently written pairs.

    They are from chunks `first` to `end` − 1 of a portion. Return the index of the next one and the number of entries.
    """
    high, low, peers, old = out.high, out.low, out.peers, np.empty(CHUNK, np.uint64)
    entries, chunks, sizes, seen = portion.pool.entries, portion.chunks, portion.sizes, portion.seen
    width, number = entry_width(portion.pool), first
    last = min(len(low), have + BATCH) - CHUNK  # number of entries with which another chunk fits
    while number < end and have <= last:
        start = chunks[number] * CHUNK * width
        stop = start + sizes[number] * width
        number += 1
        if width == 1:
            packed, at = entries[start:stop], np.uint64(have)  # A signed index is tested for negative values.
            if len(seen):
                for i in range(len(packed)):  # as in `bin_narrow`
                    place = (packed[i] * np.uint64(CACHE_MULTIPLIERS[1])) >> np.uint64(64 - SEEN_BITS)
                    old[i] = seen[place, 0]
                    seen[place, 0] = packed[i]
                for i in range(len(packed)):
                    pair = packed[i]
                    low[at] = pair >> np.uint64(32)
                    peers[at] = pair & np.uint64(MASK32)
                    at += np.uint64(old[i] != pair)
                have = np.int64(at)  # type: ignore[assignment]
                continue
            for i in range(len(packed)):
                low[at + np.uint64(i)] = packed[i] >> np.uint64(32)
                peers[at + np.uint64(i)] = packed[i] & np.uint64(MASK32)
            have += len(packed)
            continue
        for j in range(start, stop, width):
            top, host, peer = entries[j] if width == 3 else np.uint64(0), entries[j + width - 2], entries[j + width - 1]
            if len(high):
                high[have] = top
            low[have] = host
            peers[have] = peer
            if len(seen) == 0:
                have += 1
                continue
            place = host * np.uint64(CACHE_MULTIPLIERS[1]) + peer * np.uint64(CACHE_MULTIPLIERS[2])
            place = place >> np.uint64(64 - SEEN_BITS)
            if seen[place, 0] != host or seen[place, 1] != peer or seen[place, 2] != top:
                seen[place, 0], seen[place, 1], seen[place, 2] = host, peer, top
                have += 1
    return number, have


@compiled
def unpack_all(portion: Portion) -> tuple[Words, Words]:
    """Return the mangled hosts (high, low) and the peers of all entries."""
    zero: Any = np.int64(0)  # numba would compile `unpack` for a literal 0, too.
    number, have, end = zero, zero, len(portion.chunks)
    out = make_scratch(portion.sizes.sum() + CHUNK, entry_width(portion.pool))
    while number < end:
        number, have = unpack(number, end, have, portion, out)
    hosts = np.zeros((have, 2), np.uint64)
    hosts[:, 1] = out.low[:have]
    if len(out.high):
        hosts[:, 0] = out.high[:have]
    return hosts, out.peers[:have]


@compiled
def deal_chunks(pool: Pool, chunks: int, slices: int, parts: int) -> tuple[Indexes, Indexes, Indexes]:
    """Deal the chunks that have entries into parts; return them, the entries of each, and where parts begin and end.

    The slice with the most entries goes first, each to the part with the fewest. Chunks of a bin follow each other.
    """
    owner, bins = pool.owner, pool.cursors.shape[1] - PADDING
    size = np.full(len(owner), CHUNK, np.int32)
    numbers, loads, places = np.zeros(bins, np.int64), np.zeros(slices, np.int64), np.zeros(bins, np.int64)
    for thread in range(len(pool.cursors)):
        for bin_ in range(bins):
            slot = pool.cursors[thread, bin_]
            size[slot // CHUNK] = slot % CHUNK
        for chunk in range(thread * chunks, pool.cursors[thread, bins]):
            numbers[owner[chunk]] += size[chunk] > 0
            loads[owner[chunk] % slices] += size[chunk]
    assigned, part_of, order = np.zeros(parts, np.int64), np.empty(slices, np.int64), np.argsort(-loads)
    for slice_ in order:
        part_of[slice_] = np.argmin(assigned)
        assigned[part_of[slice_]] += loads[slice_]
    edges, total = np.zeros(parts + 1, np.int32), 0
    for part in range(parts):
        for slice_ in order:
            if part_of[slice_] == part:
                for bin_ in range(slice_, bins, slices):
                    places[bin_] = total
                    total += numbers[bin_]
        edges[part + 1] = total
    dealt, sizes = np.empty(total, np.int32), np.empty(total, np.int32)
    for thread in range(len(pool.cursors)):
        for chunk in range(thread * chunks, pool.cursors[thread, bins]):
            if size[chunk]:
                dealt[places[owner[chunk]]], sizes[places[owner[chunk]]] = chunk, size[chunk]
                places[owner[chunk]] += 1
    return dealt, sizes, edges


def make_cache(threads: int, bits: int, width: int) -> Words:
    """Return an empty cache of 2^bits entries of `width` words for each thread. No memory is used before it is written.

    The value of an empty place must not be a pair that maps to this place: a pair of zeros maps to place 0, a pair of
    ones does not.
    """
    cache = np.zeros((threads, 1 << bits, 1 if width == 1 else 3), np.uint64)
    cache[:, 0] = 1
    return cache


def _open_first_chunks(pool: Pool, chunks: int) -> None:
    """Empty a pool, of which every thread has `chunks` chunks: open one for each bin."""
    threads, bins = pool.cursors.shape[0], pool.cursors.shape[1] - PADDING
    for thread in range(threads):
        first = thread * chunks
        pool.owner[first : first + bins] = np.arange(bins)
        pool.cursors[thread, :bins] = np.arange(first, first + bins) * CHUNK
        pool.cursors[thread, bins] = first + bins


def are_integers(hosts: Addresses, key_bits: int) -> bool:
    """Return True for integers that nobody has looked at: otherwise hosts of 32 bits never come as uint64."""
    return key_bits == 32 and hosts.dtype == np.uint64 and hosts.ndim == 1


def narrow_batches(batches: Batches, key_bits: int) -> Batches:
    found: list[tuple[Addresses, Addresses]] = []
    for hosts, peers in batches:
        if are_integers(hosts, key_bits):
            ours, theirs = narrowed(cast(Words, hosts)), narrowed(cast(Words, peers))
            if ours is None or theirs is None:
                raise DoesNotFitError
            found.append((ours, theirs))
        else:
            found.append((hosts, peers))
    return found


def _in_ways(batches: Batches) -> Runs:
    """Join every two batches of 32-bit pairs of which the second is the first, swapped."""
    runs: Runs = deque()
    for hosts, peers in batches:
        ours, theirs, ways = runs[-1] if runs else (peers, hosts, 2)
        if ways == 1 and hosts.dtype == np.uint32 and _are_one(hosts, theirs) and _are_one(peers, ours):
            runs[-1] = ours, theirs, 2
        else:
            runs.append((hosts, peers, 1))
    return runs


def _are_one(column: Addresses, other: Addresses) -> bool:
    return bool(column.__array_interface__ == other.__array_interface__)


def _as_rows(column: Addresses) -> Words:
    return np.ascontiguousarray(column, np.uint64).reshape(len(column), -1)


class Bins:
    """Pairs that are not yet written. If `grows`, pool and caches start small and grow with the traffic."""

    def __init__(
        self,
        key: Key,
        *,
        key_bits: int,
        slice_bits: int,
        memory: int,
        threads: int,
        min_pairs_per_thread: int = Tuning().min_pairs_per_thread,
        grows: bool = False,
    ) -> None:
        self.key, self.key_bits, self.threads = key, key_bits, threads
        self.min_pairs_per_thread = min_pairs_per_thread
        self.slices = 1 << slice_bits
        # With few slices, there are several bins per slice: the pairs cached for a bin must fit a core's own cache.
        # There are at least two bins, so that for each some words are never one of its hosts (see `pairtable`).
        self.bins = 1 << (MAX_BIN_BITS if memory >= FINE_BINS_MEMORY else max(1, min(slice_bits, MAX_BIN_BITS)))
        self.memory, self.grows = min(memory, MAX_MEMORY), grows
        self.width = 0  # words of an entry; 0 before the first batch
        self.chunks = self.most_chunks = 0  # chunks of each thread, and the most that it may have
        self.pool: Pool
        self.cache: Words
        self.mutual: Words  # the cache of pairs in both directions
        self.seen: Words
        self.pending = 0  # upper bound on the number of pending entries

    def _allocate(self, width: int, chunks: int = 0) -> None:
        """Allocate an empty pool of at least `chunks` chunks for each thread, if the memory allows, and the caches.

        All of it is assigned at once: if an allocation fails or is interrupted, the bins stay as they are.
        """
        minimum = 2 * self.bins + 64  # a first and a second chunk per bin, and some to work with
        most = max(self.memory // (8 * width * CHUNK * self.threads), minimum)
        # Growing from more than half of the most would make all of it anew for little.
        chunks = max(chunks, minimum) if self.grows and 2 * chunks < most else most
        total = chunks * self.threads
        entries = np.empty(total * CHUNK * width, np.uint64)
        pool = Pool(entries, np.empty(total, np.int32), np.empty((self.threads, self.bins + PADDING), np.int32))
        _open_first_chunks(pool, chunks)
        caches = self._make_caches(width, chunks, most)
        vars(self).update(width=width, chunks=chunks, most_chunks=most, pool=pool, **caches)

    def _make_caches(self, width: int, chunks: int, most: int) -> dict[str, Words]:
        bits = CACHE_BITS if chunks == most else min(CACHE_BITS, (chunks * CHUNK).bit_length() - 5)
        sizes = {"cache": bits, "mutual": bits, "seen": SEEN_BITS}
        return {name: make_cache(self.threads, size, width) for name, size in sizes.items()}

    def free(self, thread: int) -> int:
        """Return the entries that a thread can take, since each bin may open one more chunk."""
        taken = self.pool.cursors[thread, self.bins] - thread * self.chunks
        return int(self.chunks - taken - self.bins) * CHUNK

    def add(self, batches: Batches, drain: Callable[[], None]) -> None:
        for width, group in groupby(batches, self._words_of_pair):
            self._add(width, list(group), drain)

    def _words_of_pair(self, batch: tuple[Addresses, Addresses]) -> int:
        hosts, peers = batch
        if (hosts.dtype == np.uint32 and peers.dtype == np.uint32) or are_integers(hosts, self.key_bits):
            return 1
        return (1 if hosts.ndim == 1 else hosts.shape[1]) + 1

    def _add(self, width: int, batches: Batches, drain: Callable[[], None]) -> None:
        left = sum(len(hosts) for hosts, _ in batches)
        if width != self.width:
            if self.width:
                drain()
            self._allocate(width, left // (CHUNK * self.threads))
        runs = self._split(batches, left)
        while runs:
            # Draining bins that are nearly full costs less than filling them on few threads, in many small runs.
            least = max(self.min_pairs_per_thread, self.chunks * CHUNK // 16)
            emptiest = sorted(range(self.threads), key=self.free, reverse=True)
            if self.free(emptiest[self.threads // 2]) < least:
                drain()
                if self.chunks < self.most_chunks:
                    self._allocate(width, GROWTH * self.chunks)
            left = sum(ways * len(hosts) for hosts, _, ways in runs)
            threads = self.threads if left > self.min_pairs_per_thread else 1
            # The count grows before the work starts, so that pairs of an interrupted call do not count as written.
            self.pending += left
            run_parallel(self._append_next, [(thread, runs, least) for thread in emptiest[:threads]], threads)

    def _split(self, batches: Batches, pairs: int) -> Runs:
        """Split batches into runs that threads take in turn, so that none waits for a thread with more work."""
        length = min(max(-(-pairs // self.threads), self.min_pairs_per_thread, 1), MAX_RUN)
        return deque(
            (hosts[start : start + length], peers[start : start + length], ways)
            for hosts, peers, ways in _in_ways(batches)
            for start in range(0, len(hosts), length)
        )

    def _append_next(self, thread: int, runs: Runs, least: int) -> None:
        """Append runs until none is left or this thread's part of the pool has less than `least` free entries."""
        while runs and (free := self.free(thread)) >= least:
            try:
                hosts, peers, ways = runs.popleft()
            except IndexError:  # Another thread has taken the last one.
                return
            if len(hosts) > free // ways:
                runs.appendleft((hosts[free // ways :], peers[free // ways :], ways))
                hosts, peers = hosts[: free // ways], peers[: free // ways]
            self._append(thread, hosts, peers, ways)

    @timed("bin", amount=lambda _, bins, thread, hosts, peers, ways: ways * len(hosts))
    def _append(self, thread: int, hosts: Addresses, peers: Addresses, ways: int) -> None:
        common = thread, (self.cache if ways == 1 else self.mutual)[thread], self.pool, self.key
        if are_integers(hosts, self.key_bits):
            if not bin_integers(cast(Words, hosts), cast(Words, peers), *common):
                raise DoesNotFitError
        elif self.width == 1:
            bin_narrow(cast(Narrow, hosts), cast(Narrow, peers), ways, *common)
        else:
            bin_wide(_as_rows(hosts), _as_rows(peers), *common, self.key_bits)

    def take(self, parts: int = 0) -> list[Portion]:
        """Return a portion for each thread, or so many parts, which have no caches because any thread may take them.

        The bins of a slice are in one portion.
        """
        count = parts or self.threads
        chunks, sizes, edges = deal_chunks(self.pool, self.chunks, min(self.slices, self.bins), count)
        spans = [slice(*edge) for edge in pairwise(edges.tolist())]
        seen = [UNSEEN] * count if parts else self.seen
        return [
            Portion(chunks[span], sizes[span], self.pool, cache)
            for span, cache in zip(spans, seen, strict=True)
            if span.start < span.stop
        ]

    def done(self) -> None:
        self.pending = 0
        _open_first_chunks(self.pool, self.chunks)

    def clear(self) -> None:
        """Empty the bins and the caches; keep the pool allocated."""
        if self.width:
            vars(self).update(self._make_caches(self.width, self.chunks, self.most_chunks))
            self.done()
