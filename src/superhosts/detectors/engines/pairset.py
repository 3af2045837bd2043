"""A set of distinct pairs: the exact state of a sketch, as long as it has at most `limit` pairs.

Pairs wait in the bins and are then inserted into one table per bin (`pairtable.py`). A bin belongs to one thread while
it is drained. The set stops inserting as soon as it has more than `limit` pairs; which pairs it then has depends on the
order, but that it has too many does not. The owner then passes all pairs, and those still in the bins, to a sketch of
bits, to which repeats do no harm.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from functools import partial

import numpy as np

from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.profile import timed
from superhosts.detectors.engines.base import Words
from superhosts.detectors.engines.bins import CHUNK, PADDING, Bins, Pool, Portion
from superhosts.detectors.engines.pairtable import (
    HOST_MULTIPLIER,
    LEAST_TALLY,
    TABLE_KEY,
    Flags,
    Numbers,
    Tables,
    compact,
    count_missing,
    count_pairs,
    give_back,
    heavy_hosts,
    insert_narrow,
    insert_wide,
    make_tables,
    map_tables,
    unite,
)

FIRST_SIZE = 32  # slots of a new table
# A full table grows at least by the first factor. It grows by up to the second if so many entries wait that it would
# soon be full again.
GROWTH, MAX_GROWTH = 1.4, 4
SHARED_PAIRS = 1 << 18  # pairs from which on threads share a merge or a search: waking one takes as long as a few
SHARES = 4  # in which each thread's part is cut, as tables differ in size, and a thread that wakes late takes less
MOST_SHARES = 16  # unless there are more threads: between shares, threads wait for each other
TABLES_TOGETHER = 8  # that grow together: their memory is freed together, too
STEPS = 8  # in which new pairs are counted: most sets that go over their limit have done so after the first
EXPECTED_FILL = 0.75  # of a table after the entries that wait, if as many of them are new as before; fewer will be


class _Lease:
    """Exists as long as a set has tables of another set, which then must not change."""

    __slots__ = ("__weakref__",)


class PairSet:
    def __init__(self, bins: Bins, limit: int) -> None:
        self.bins, self.limit = bins, limit
        self._most_slots = -(-(limit + 1) * 4 // 3)  # a table of this size has room for one pair too many
        self.clear()

    def clear(self) -> None:
        self.bins.clear()
        self._places = Tables.of_bins(self.bins.bins)  # where the tables are; a table of no slots does not exist
        self._memory: list[Words | None] = [None] * self.bins.bins  # what each is in, alone or with others
        self._counts: Numbers = np.zeros(self.bins.bins, np.int64)
        self._borrowed = np.zeros(self.bins.bins, bool)  # tables of other sets, which must not change
        self._leases: list[_Lease] = []  # as long as these exist, the owners of such tables do not change them, either
        self._lent: list[weakref.ref[_Lease]] = []  # those of others that have tables of this set,
        self._is_old = np.zeros(self.bins.bins, bool)  # which are these
        self._novelty = 1.0  # the share of entries that were new the last time
        self._overflowed = False  # by a merge, which then inserts nothing
        self._later: PairSet | None = None  # a set to be merged, once more is asked than for super hosts

    @property
    def pairs(self) -> int:
        """The number of distinct pairs, without those in the bins."""
        self._complete()
        return int(self._counts.sum())

    @property
    def is_over(self) -> bool:
        """True if the set has more than `limit` pairs, or would have them after a merge."""
        return self._overflowed or (self._later is None and self.pairs > self.limit)

    @property
    def memory(self) -> int:
        self._complete()
        return 8 * int((self._places.sizes * self._places.widths).sum())

    def drain(self) -> None:
        """Insert the pairs in the bins. If the set goes over its limit, they stay in the bins too."""
        if not self.bins.pending:
            return
        self._complete()
        threads, shares = self._shared(self.bins.pending)
        portions, before = self.bins.take(shares), self._counts.copy()
        width = max(self.bins.width, int(self._places.widths.max()))
        entries = np.zeros(self.bins.bins, np.int64)
        for portion in portions:
            np.add.at(entries, portion.pool.owner[portion.chunks], portion.sizes)
        self._grow(entries, width, threads)
        run_parallel(self._insert, [(portion, width) for portion in portions], threads)
        self._novelty = float((self._counts - before).sum() / max(1, entries.sum()))
        if not self.is_over:
            self.bins.done()

    def _grow(self, entries: Numbers, width: int, threads: int) -> None:
        """Make room for so many entries of each bin, if as many of them are new as the last time.

        Threads wait for each other between compiled calls, so tables are not left to grow one by one.
        """
        bins = np.flatnonzero(entries)
        sizes, most = self._places.sizes[bins], self._most_slots
        expected = np.ceil((self._counts + self._novelty * entries)[bins] / EXPECTED_FILL).astype(np.int64)
        # Most of the first entries are new, and as many more may follow. This takes at most as much memory as all
        # tables may have, because the bins have a quarter of the sketch's memory.
        first = np.maximum(FIRST_SIZE, 2 * entries[bins])
        wanted = np.where(sizes, np.minimum(expected, MAX_GROWTH * sizes), first)
        is_full = (wanted > sizes) & (sizes < most)
        grown = self._sizes_for(np.maximum(wanted, (GROWTH * sizes).astype(np.int64)))
        replaced = is_full | (self._places.widths[bins] < width) | self._in_other_sets()[bins]
        chosen, wanted = bins[replaced], np.where(is_full, grown, sizes)[replaced]
        are_few = self._counts.sum() + entries.sum() < SHARED_PAIRS  # All small tables are made in one call.
        parts, make = (1, make_tables) if are_few else (-(-len(chosen) // TABLES_TOGETHER), map_tables)
        spans = split_evenly(len(chosen), parts) if len(chosen) else []
        run_parallel(self._resize, [(chosen[a:b], wanted[a:b], width, make) for a, b in spans], threads)

    @timed("write", amount=lambda _, pairs, portion, width: int(portion.sizes.sum()))
    def _insert(self, portion: Portion, width: int) -> None:
        """Insert entries into tables of this width, unless the set is over its limit."""
        insert, start = insert_narrow if width == 1 else insert_wide, 0
        while not self.is_over:
            start = insert(start, portion, self._places, self._counts, TABLE_KEY)
            if start == len(portion.chunks):
                return
            bin_ = portion.pool.owner[portion.chunks[start : start + 1]].astype(np.int64)
            self._resize(bin_, self._sizes_for(np.ceil(GROWTH * self._places.sizes[bin_]).astype(np.int64)), width)

    def _sizes_for(self, wanted: Numbers) -> Numbers:
        """Return the sizes of tables of at least `wanted` slots, if they are allowed.

        Up to an equal share of all slots it is this share, its half, its quarter and so on: growing to the share takes
        few steps, and a full set has not more slots than it needs.
        """
        share = -(-self._most_slots // self.bins.bins)
        steps = np.array([share >> shift for shift in range(share.bit_length())][::-1], np.int64)
        sizes = steps[np.minimum(np.searchsorted(steps, wanted), len(steps) - 1)]
        return np.minimum(np.maximum(sizes, wanted), self._most_slots)

    def _resize(
        self, bins: Numbers, sizes: Numbers, width: int, make: Callable[..., tuple[Words, Tables]] = map_tables
    ) -> None:
        """Give bins tables of their own, of another size or width or none yet, with the pairs that they have."""
        words, tables = make(bins, sizes, width)
        old, none = self._places.at(bins), np.zeros(len(bins), np.int64)
        unite(old, Tables(none, none, none, bins), tables, (0, len(bins)), TABLE_KEY, none.copy())
        self._put(tables, words)
        self._borrowed[bins] = False

    def merge(self, other: PairSet) -> None:
        """Insert the pairs of another set with as many bins, unless this set goes over its limit. Both must be drained.

        The pairs of a table are in the order of their hashes. In this order, all of them would crowd at the start of a
        table that is too small for them, and every search would pass the whole crowd. So tables first get the size
        that they need in the end.

        The union of a copy and a small enough set is made only if it is needed: super hosts are found without it.
        """
        self._complete()
        other._complete()
        if self._borrowed.all() and self.pairs + other.pairs <= self.limit:
            self._later = other.copy(self.bins)
            return
        self._merge(other)

    def _complete(self) -> None:
        if self._later is not None:
            other, self._later = self._later, None
            self._merge(other)

    @timed("write", amount=lambda _, pairs, other: other.pairs)
    def _merge(self, other: PairSet) -> None:
        full = other._counts > 0
        fresh, shared = np.flatnonzero(full & (self._counts == 0)), np.flatnonzero(full & (self._counts > 0))
        theirs, counts, added = other._places.at(shared), self._counts[shared], other._counts[shared]
        narrow = shared[self._places.widths[shared] < theirs.widths]
        for width in set(other._places.widths[narrow].tolist()):  # `np.unique` would load numpy.ma first, in 20 ms
            some = narrow[other._places.widths[narrow] == width]
            self._resize(some, self._places.sizes[some], width)
        mine = self._places.at(shared)
        # Of tables that have room for all pairs of both nobody has to know how many of these are the same.
        touched = self.pairs + other.pairs
        may_overflow = touched > self.limit
        asked = np.flatnonzero((counts + added > mine.sizes * 3 // 4) | may_overflow)
        left = self.limit - self.pairs - int(other._counts[fresh].sum())
        for some in np.array_split(asked, STEPS if may_overflow else 1):
            added[some] = self._work(touched, partial(count_missing, mine.at(some), theirs.at(some)), len(some))
            left -= int(added[some].sum())
            if may_overflow and left < 0:
                self._overflowed = True
                return
        kept = self._make_room(shared, counts + added)
        added = self._work(touched, partial(unite, mine, theirs, self._places.at(shared)), len(shared))
        del kept  # the memory of mine, which has been copied
        if not self._borrowed.any():
            self._leases.clear()  # Not before: whoever lent the tables would write to them while they are read.
        self._counts[shared] = counts + added
        for bin_ in fresh.tolist():
            self._memory[bin_] = other._memory[bin_]
        self._note(other._places.at(fresh))
        self._counts[fresh] = other._counts[fresh]
        self._borrowed[fresh] = True
        if len(fresh):
            self._leases += other._lend()

    def _make_room(self, bins: Numbers, wanted: Numbers) -> list[Words | None]:
        """Replace tables that are borrowed or too small by ones without content; return the old memory."""
        places = self._places.at(bins)
        is_full = wanted > places.sizes * 3 // 4
        sizes = np.where(is_full, self._sizes_for(-(-4 * wanted // 3)), places.sizes)
        replaced = is_full | self._in_other_sets()[bins]
        old = [self._memory[bin_] for bin_ in bins[replaced].tolist()]
        for width in set(places.widths[replaced].tolist()):
            chosen = replaced & (places.widths == width)
            words, tables = make_tables(bins[chosen], sizes[chosen], width)
            self._put(tables, words)
        self._borrowed[bins] = False
        return old

    def _put(self, tables: Tables, words: Words) -> None:
        for bin_ in tables.bins.tolist():
            self._memory[bin_] = words
        self._note(tables)

    def _note(self, tables: Tables) -> None:
        self._places.put(tables)
        self._is_old[tables.bins] = False

    def _work(self, pairs: int, work: Callable[..., None], tables: int) -> Numbers:
        """Do compiled work on tables, on several threads if there are many pairs; return a number for each table."""
        numbers = np.zeros(tables, np.int64)
        threads, shares = self._shared(pairs)
        calls = [(span, TABLE_KEY, numbers) for span in split_evenly(tables, shares)]
        run_parallel(work, calls, threads)
        return numbers

    def _shared(self, pairs: int) -> tuple[int, int]:
        """Return on how many threads to work on so many pairs, and in how many shares."""
        threads = self.bins.threads if pairs >= SHARED_PAIRS else 1
        return threads, max(threads, min(threads * SHARES, MOST_SHARES)) if threads > 1 else 1

    def copy(self, bins: Bins) -> PairSet:
        """Return an independent set with the same pairs and other bins. This one must be drained.

        Both have the same tables. The copy makes its own before it changes one, and this set does as long as the copy,
        or a copy of that, has any of them.
        """
        self._complete()
        twin = PairSet(bins, self.limit)
        twin._counts[:] = self._counts
        twin._memory, twin._places = list(self._memory), self._places.copy()
        twin._borrowed[:] = True
        twin._leases = self._lend()
        return twin

    def _lend(self) -> list[_Lease]:
        """Return what another set has to keep as long as it has tables of this set."""
        lease = _Lease()
        self._lent = [*(each for each in self._lent if each() is not None), weakref.ref(lease)]
        self._is_old[:] = True
        return [*self._leases, lease]

    def _in_other_sets(self) -> Flags:
        """Return for each bin whether another set has its table, or whose it is: such tables must not change."""
        return self._borrowed | (self._is_old & any(lease() is not None for lease in self._lent))

    def pass_to(self, take: Callable[[Portion], None], threads: int, *, release: bool = False) -> None:
        """Call take(portion) with the pairs of each slice, on several threads. The pairs of a slice come together.

        With `release`, the memory of their tables is freed as soon as they were taken. A call that was interrupted can
        be repeated.
        """
        self._complete()
        slices, shares = min(self.bins.slices, self.bins.bins), self._in_other_sets()

        def work(slice_: int) -> None:
            bins = [
                bin_ for bin_ in range(slice_, self.bins.bins, slices) if self._counts[bin_] * self._places.sizes[bin_]
            ]
            for width in sorted(set(self._places.widths[bins].tolist())):
                take(self._portion([bin_ for bin_ in bins if self._places.widths[bin_] == width], width))
            if release:
                for bin_ in bins:
                    if not shares[bin_]:
                        give_back(self._places, bin_)
                    self._memory[bin_], self._places.sizes[bin_] = None, 0

        # Those with the most pairs first, so that no thread begins with a large one when the others have ended.
        order = np.argsort(-self._counts.reshape(-1, slices).sum(axis=0), kind="stable")
        run_parallel(work, [(slice_,) for slice_ in order.tolist()], threads)

    def _portion(self, bins: list[int], width: int) -> Portion:
        counts = self._counts[bins]
        chunks = -(-counts // CHUNK)
        ends = np.cumsum(chunks)
        entries = np.empty((int(ends[-1]) * CHUNK + 1) * width, np.uint64)
        sizes = np.full(int(ends[-1]), CHUNK, np.int32)
        sizes[ends - 1] = counts - (chunks - 1) * CHUNK
        for bin_, end, count in zip(bins, ends.tolist(), chunks.tolist(), strict=True):
            compact(self._places, bin_, entries[(end - count) * CHUNK * width :])
        owners = np.repeat(np.array(bins, np.int32), chunks)
        pool = Pool(entries[:-width], owners, np.zeros((1, self.bins.bins + PADDING), np.int32))
        return Portion(np.arange(ends[-1], dtype=np.int32), sizes, pool)

    # Questions. The set must be drained.

    def super_hosts(self, threshold: float) -> tuple[Words, Numbers]:
        minimum, bits = max(1, math.ceil(threshold)), self.bins.bins.bit_length() - 1
        later = None if self._later is None else self._later._places
        counts = self._counts if self._later is None else self._counts + self._later._counts
        bins = np.flatnonzero(counts >= minimum)
        threads, shares = self._shared(int(counts.sum()))
        slots = [LEAST_TALLY]
        parts = []
        for some in (bins[share::shares] for share in range(shares)):
            parts.append((self._places.at(some), None if later is None else later.at(some), minimum, bits, slots))
        found = run_parallel(heavy_hosts, parts, threads)
        return np.concatenate([hosts for hosts, _ in found]), np.concatenate([peers for _, peers in found])

    def top(self, count: int) -> tuple[Words, Numbers]:
        """Return at least the `count` hosts with the most peers, or all hosts if there are fewer."""
        most = int(self._counts.sum()) + (0 if self._later is None else self._later.pairs)
        threshold = max(1, most // count)  # At most `count` hosts can have as many peers.
        found = self.super_hosts(threshold)
        while len(found[1]) < count and threshold > 1:
            threshold = max(1, threshold // 4)
            found = self.super_hosts(threshold)
        return found

    def peers_of(self, mangled: Words) -> Numbers:
        self._complete()
        hosts, places = np.unique(mangled, axis=0, return_inverse=True)
        bins = hosts[:, 1].astype(np.int64) & (self.bins.bins - 1)
        peers = np.zeros(len(hosts), np.int64)

        def ask(bin_: int) -> None:
            asked = bins == bin_
            peers[asked] = count_pairs(hosts[asked], self._places, bin_, HOST_MULTIPLIER)

        run_parallel(ask, [(bin_,) for bin_ in np.unique(bins).tolist()], self.bins.threads)
        numbers: Numbers = peers[places.reshape(-1)]
        return numbers
