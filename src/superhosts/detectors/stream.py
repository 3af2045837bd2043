"""The streaming detector, for little memory: counts that grow beside an array of bits.

Below about one bit for each distinct pair, a detector that reads its counts out of bits loses: it must subtract the
noise of all other hosts. Here a host that has a *cell* is counted while its pairs arrive. The bits only say whether a
pair came before. With z the share of zero bits, a new pair finds its bit clear with probability z. So a pair that sets
its bit counts as 1/z pairs, and the count of such a host is right on average, whatever others do later. Its variance is
the sum of 1/z − 1 over the host's pairs, which is small early in the window; to know it, a cell sums up w·(w − 1) with
w = 1/z.

    pair (host, peer): its bit is set → a repeat, or taken for one: nothing happens
                       its host has a cell, or its bucket of eight has a free one → bit, count += w
                       else it takes the smallest count c of the bucket with probability w/(c + w) → bit, count = c + w
                       else nothing happens, so small hosts use no bits

The draw that decides is a hash of the pair, so a pair that comes again draws the same. A host that takes a cell
inherits its count: c is then the mean number of pairs that such a host had before, and also its standard deviation.

What a pair adds depends on the pairs before it. So sketches cannot be merged, and another order gives slightly other
numbers. Batches and threads change nothing: threads hash pairs and drop those whose bits are set, and then write, each
to its own slices of hosts, in the order of the pairs.

As in the cube, the pairs are also a set as long as they fit in half of the memory, and then every number is exact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import MEMORY
from superhosts.core.device import check_cpu_only, run_parallel, split_evenly
from superhosts.core.hashing import (
    MASK32,
    Key,
    column_draw,
    column_hash,
    fingerprint,
    fold,
    make_key,
    mangle32,
    mangle64,
    mangle128,
    mangle_column,
    pair_hash,
    secret_of,
)
from superhosts.core.pairs import Addresses, Batches, as_words, check_width, format_for, words_to_column
from superhosts.core.profile import timed
from superhosts.core.results import UNBOUNDED, SuperHosts
from superhosts.core.text import counted
from superhosts.core.units import exact_size, format_size, parse_size
from superhosts.detectors.arguments import check_key_bits, check_keys, check_no_conflict, check_threads
from superhosts.detectors.columnsketch import warn_caller
from superhosts.detectors.detector import Detector
from superhosts.detectors.engines.base import Arrays, ArrayShape, Words, pieces_of, to_host
from superhosts.detectors.engines.bins import Bins
from superhosts.detectors.engines.cpu import count_zeros
from superhosts.detectors.engines.pairset import PairSet
from superhosts.detectors.estimate import FILLED, MIN_ZEROS, Floats, interval
from superhosts.detectors.exact import HostTable
from superhosts.detectors.formulas import check_limits
from superhosts.detectors.hostnames import names_for
from superhosts.detectors.lock import locked, state_of
from superhosts.detectors.stored import Kind, Read
from superhosts.errors import GeometryError, MergeError
from superhosts.jit.cache import compiled

CELLS = 8  # of a bucket
UNIT = 16  # counts are in sixteenths of a peer; rounding by chance keeps their mean
MOST_COUNT = (1 << 32) - 1
SLICE_BYTES = 512 << 10  # least memory of a slice: one giant must not fill the bits of too many others
MOST_SLICES = 16
CELLS_SHARE = 8  # one in this many bytes is for cells: with more, the bits fill with pairs of small hosts
LEAST_MEMORY, MOST_MEMORY = 4 << 10, 2 << 30
BLOCK = 1 << 16  # pairs that a thread hashes at a time
PIECE = 1 << 18  # pairs that are added to the set at once: when it overflows, the others are left out
WAYS_OUT = "use more memory or shorter windows"
MOST_VARIANCE = 1e18  # of a count that can be
FULL = 0.05  # share of zero bits below which a warning says that the numbers are rough


class Geometry(NamedTuple):
    """The sizes of a streaming detector. A slice has its own bits and cells."""

    key_bits: int
    slice_bits: int  # there are 2^slice_bits slices
    words: int  # of 64 bits, in each slice
    buckets: int  # of eight cells, in each slice

    @classmethod
    def for_memory(cls, memory: str | int, key_bits: int = 32) -> Self:
        size = parse_size(memory)
        if not LEAST_MEMORY <= size <= MOST_MEMORY:
            wrong = f"memory {exact_size(size)} is too {'small' if size < LEAST_MEMORY else 'large'}"
            bounds = f"from {format_size(LEAST_MEMORY)} to {format_size(MOST_MEMORY)}"
            raise GeometryError(f"{wrong}: a stream takes {bounds}")
        check_width(key_bits)
        slices = 1 << max(0, min(MOST_SLICES, size // SLICE_BYTES).bit_length() - 1)
        buckets = max(1, size // CELLS_SHARE // (slices * CELLS * cell_bytes(key_bits)))
        words = (size // slices - buckets * CELLS * cell_bytes(key_bits)) // 8
        return cls(key_bits, slices.bit_length() - 1, words, buckets).check()

    def check(self) -> Self:
        check_width(self.key_bits)
        check_limits(self, {"slice_bits": (0, 8), "words": (1, 1 << 24), "buckets": (1, 1 << 24)})
        return self

    @property
    def slices(self) -> int:
        return 1 << self.slice_bits

    @property
    def bits(self) -> int:
        """Bits of a slice."""
        return 64 * self.words

    @property
    def cells(self) -> int:
        """Cells of all slices."""
        return CELLS * self.buckets << self.slice_bits

    @property
    def memory(self) -> int:
        return self.cells * cell_bytes(self.key_bits) + (8 * self.words << self.slice_bits)

    @property
    def exact_pairs(self) -> int:
        """The most distinct pairs of which there is a set, as in a cube of the same memory."""
        entry = 8 * (1 if self.key_bits == 32 else self.key_bits // 64 + 1)
        return self.memory * 3 // 8 // entry


def cell_bytes(key_bits: int) -> int:
    """Return the bytes of a cell: the mangled host, its count and the variance of that."""
    return key_bits // 8 + 8


class State(NamedTuple):
    bits: Any  # (slices, words)
    zeros: Any  # zero bits of each slice
    hosts: Any  # (cells, words of a mangled host)
    counts: Any  # in sixteenths, 32 bits; 0: the cell is free
    variances: Any  # of the counts, in peers, as floats of 32 bits


class Fresh(NamedTuple):
    """Pairs whose bits were clear, in groups of slices: their mangled hosts and their hashes."""

    high: Words  # (groups, pairs); of no length unless hosts have 128 bits
    low: Words
    pairs: Words
    counts: NDArray[np.int64]  # of each group


@compiled
def place_of(pair: Any, bits: int) -> np.uint64:
    """Return the bit of a pair in its slice."""
    return np.uint64(((pair >> np.uint64(32)) * np.uint64(bits)) >> np.uint64(32))


@compiled
def hash_fresh(
    hosts: NDArray[Any], peers: NDArray[Any], groups: int, state: State, geometry: Geometry, key: Key
) -> Fresh:
    """Hash pairs, given as rows of one or two words, and return those whose bits are clear, for `groups` writers."""
    count, wide = len(hosts), geometry.key_bits == 128
    high = np.empty((groups, count if wide else 0), np.uint64)
    low, pairs = np.empty((groups, count), np.uint64), np.empty((groups, count), np.uint64)
    counts, share = np.zeros(groups, np.int64), np.uint64(groups)
    bits, all_bits, last = state.bits, 64 * geometry.words, np.uint64((1 << geometry.slice_bits) - 1)
    for i in range(count):
        top: Any = np.uint64(0)
        host: Any = np.uint64(hosts[i, hosts.shape[1] - 1])
        if geometry.key_bits == 32:
            host = np.uint64(mangle32(host, key))
        elif not wide:
            host = np.uint64(mangle64(host, key))
        else:
            top = np.uint64(hosts[i, 0])
            top, host = mangle128(top, host, key)
        peer: Any = np.uint64(peers[i, 0])
        if peers.shape[1] == 2:
            peer = fold(peer, peers[i, 1], key)
        pair: Any = np.uint64(pair_hash(fold(top, host, key) if wide else host, peer, key))
        place = place_of(pair, all_bits)
        if bits[host & last, place >> np.uint64(6)] >> (place & np.uint64(63)) & np.uint64(1):
            continue
        group = np.int64((host & last) * share >> np.uint64(geometry.slice_bits))
        fresh = counts[group]
        if wide:
            high[group, fresh] = top
        low[group, fresh], pairs[group, fresh] = host, pair
        counts[group] = fresh + 1
    return Fresh(high, low, pairs, counts)


@compiled
def first_cell(high: Any, low: Any, geometry: Geometry, key: Key) -> int:
    """Return the first cell of the bucket of a mangled host."""
    folded = fold(high, low, key) if geometry.key_bits == 128 else low
    buckets: Any = np.uint64(geometry.buckets)
    slice_ = np.int64(low & np.uint64((1 << geometry.slice_bits) - 1))
    first: Any = CELLS * (slice_ * geometry.buckets + np.int64(column_hash(folded, column_draw(0, key), buckets)))
    return int(first)


@compiled
def find_cell(first: int, high: Any, low: Any, state: State) -> int:
    """Return the cell of a host in its bucket, or the free one, or that of the smallest count."""
    hosts, counts = state.hosts, state.counts
    words, least = hosts.shape[1], first
    for cell in range(first, first + CELLS):
        if counts[cell] == 0:
            return cell  # Cells are filled in order.
        if hosts[cell, words - 1] == low and (words == 1 or hosts[cell, 0] == high):
            return cell
        if counts[cell] < counts[least]:
            least = cell
    return least


@compiled
def is_of(cell: int, high: Any, low: Any, state: State) -> bool:
    """Return True if a cell is that of a host."""
    hosts, words = state.hosts, state.hosts.shape[1]
    return bool(state.counts[cell] > 0 and hosts[cell, words - 1] == low and (words == 1 or hosts[cell, 0] == high))


@compiled
def write(fresh: Fresh, group: int, state: State, geometry: Geometry, key: Key) -> None:
    """Count the pairs of a group, to whose slices no other thread writes."""
    bits, _, hosts, counts, variances = state
    zeros = state.zeros.copy()  # Threads that wrote to one cache line would wait for each other.
    all_bits, last = 64 * geometry.words, np.uint64((1 << geometry.slice_bits) - 1)
    wide = geometry.key_bits == 128
    for i in range(fresh.counts[group]):
        low, pair = fresh.low[group, i], fresh.pairs[group, i]
        slice_ = np.int64(low & last)
        place = place_of(pair, all_bits)
        word, bit = place >> np.uint64(6), np.uint64(1) << (place & np.uint64(63))
        if bits[slice_, word] & bit or zeros[slice_] <= MIN_ZEROS:
            continue
        high = fresh.high[group, i] if wide else np.uint64(0)
        weight = all_bits / zeros[slice_]
        cell = find_cell(first_cell(high, low, geometry, key), high, low, state)
        if not is_of(cell, high, low, state):
            before = counts[cell] / UNIT
            if np.float64(pair & np.uint64(MASK32)) / 2.0**32 * (before + weight) >= weight:
                continue
            hosts[cell, hosts.shape[1] - 1] = low
            if wide:
                hosts[cell, 0] = high
            variances[cell] = before * before
        rounding = np.float64((pair * key.pair[1]) >> np.uint64(40)) / 2.0**24
        grown = np.int64(counts[cell]) + np.int64(weight * UNIT + rounding)
        counts[cell] = min(grown, MOST_COUNT)
        variances[cell] += np.float32(weight * (weight - 1.0))
        bits[slice_, word] |= bit
        zeros[slice_] -= 1
    groups, slices = len(fresh.counts), len(zeros)
    first, end = -(-group * slices // groups), -(-(group + 1) * slices // groups)
    state.zeros[first:end] = zeros[first:end]


@compiled
def look_up(mangled: Words, state: State, geometry: Geometry, key: Key) -> tuple[NDArray[np.int64], Floats]:
    """Return the cell of each mangled host, or −1, and the smallest count of its bucket, 0 if a cell is free."""
    cells, crowds = np.empty(len(mangled), np.int64), np.empty(len(mangled))
    for i in range(len(mangled)):
        high, low = mangled[i, 0], mangled[i, 1]
        first = first_cell(high, low, geometry, key)
        cell = find_cell(first, high, low, state)
        cells[i] = cell if is_of(cell, high, low, state) else -1
        crowds[i] = state.counts[first : first + CELLS].min() / UNIT
    return cells, crowds


class Stream(Detector):
    """Counts of hosts beside an array of bits, on the CPU, for little memory: better than a cube up to some MiB.

    The numbers depend on the order of pairs, a little, and sketches cannot be merged; `Cube` has neither limit.
    Up to `geometry.exact_pairs` distinct pairs, every number is exact.
    """

    name = "stream"
    widths = (32, 64, 128)
    broken_laws: ClassVar[frozenset[str]] = frozenset({"order", "repetition", "merge"})
    geometry_type = Geometry
    geometry: Geometry

    def __init__(
        self,
        memory: str | int | None = None,
        *,
        key_bits: int | None = None,
        key: bytes | str | None = None,
        device: str = "auto",
        threads: int | None = None,
        geometry: Geometry | None = None,
        keys: str | None = None,
    ) -> None:
        generic = check_keys(keys, key_bits)
        if geometry is None:
            bits = check_key_bits(key_bits) if generic is None else generic.key_bits
            geometry = Geometry.for_memory(MEMORY if memory is None else memory, bits)
        else:
            check_no_conflict(geometry, memory=memory, key_bits=key_bits)
            if not isinstance(geometry, Geometry):
                raise GeometryError(
                    f"geometry: a stream has sizes of its own, not those of {type(geometry).__module__}"
                )
        self.check_device(device)
        self.geometry, self.device, self.threads = geometry.check(), "cpu", check_threads(threads)
        self.format, secret = format_for(geometry.key_bits), secret_of(key)
        self.key, self.fingerprint = make_key(secret), fingerprint(secret)
        if generic is not None:
            self._take_keys(generic, secret, names_for(geometry.memory))
        self._clear()

    @classmethod
    def check_device(cls, device: str) -> None:
        check_cpu_only(cls.name, device)

    def _clear(self) -> None:
        geometry = self.geometry
        words, kind = (1, np.uint32) if self.key_bits == 32 else (self.key_bits // 64, np.uint64)
        self.state = State(
            np.zeros((geometry.slices, geometry.words), np.uint64),
            np.full(geometry.slices, geometry.bits, np.int32),
            np.zeros((geometry.cells, words), kind),
            np.zeros(geometry.cells, np.uint32),
            np.zeros(geometry.cells, np.float32),
        )
        self._known: HostTable | None = (
            None  # the numbers of an exact window, by mangled host, from a file or asked for
        )
        self._pairs: PairSet | None = PairSet(self._make_bins(), geometry.exact_pairs)

    def _make_bins(self) -> Bins:
        return Bins(
            self.key,
            key_bits=self.key_bits,
            slice_bits=0,
            memory=self.geometry.memory // 4,
            threads=self.threads,
            min_pairs_per_thread=self.tuning.min_pairs_per_thread,
            grows=True,
        )

    def _memory(self) -> int:
        return self.geometry.memory + (0 if self._pairs is None else self._pairs.memory)

    def _description(self) -> list[str]:
        exact = [f"exact, {counted(self._exact_pairs(), 'pair')}"] if self._is_exact() else []
        return [*super()._description(), *(exact or [f"{1 - self._zeros:.1%} of bits set"])]

    def _exact_pairs(self) -> int:
        known: Any = self._known if self._pairs is None else self._pairs
        return int(known.pairs)

    # Counting

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self._update_many([(hosts, peers)])

    def _update_many(self, batches: Batches) -> None:
        here = [(to_host(hosts), to_host(peers)) for hosts, peers in batches]
        self._known = None
        for piece in pieces_of(here, PIECE):
            if self._pairs is not None:
                self._pairs.bins.add(piece, partial(self._drain, self._pairs.bins))
        for hosts, peers in here:
            self._count(*(_as_rows(column, hosts.dtype == peers.dtype == np.uint32) for column in (hosts, peers)))

    def _drain(self, bins: Bins | None = None) -> None:
        """Insert the pairs in the bins into the set, which is given up when it has too many; then empty `bins`."""
        if self._pairs is not None:
            self._pairs.drain()
            if self._pairs.is_over:
                self._pairs = None
        if self._pairs is None and bins is not None:
            bins.done()

    def _count(self, hosts: NDArray[Any], peers: NDArray[Any]) -> None:
        groups = min(self.threads, self.geometry.slices)
        for start in range(0, len(hosts), BLOCK * self.threads):
            block = slice(start, start + BLOCK * self.threads)
            ours, theirs = hosts[block], peers[block]
            parts = self.threads if len(ours) > self.tuning.min_pairs_per_thread else 1
            spans = split_evenly(len(ours), parts)
            found = run_parallel(self._hash, [(ours[a:b], theirs[a:b], groups) for a, b in spans], self.threads)
            writers = self.threads if parts > 1 else 1
            run_parallel(self._add_fresh, [(found, group) for group in range(groups)], writers)

    @timed("bin", amount=lambda _, stream, hosts, peers, groups: len(hosts))
    def _hash(self, hosts: NDArray[Any], peers: NDArray[Any], groups: int) -> Fresh:
        return hash_fresh(hosts, peers, groups, self.state, self.geometry, self.key)

    @timed("write", amount=lambda _, stream, found, group: sum(int(fresh.counts[group]) for fresh in found))
    def _add_fresh(self, found: list[Fresh], group: int) -> None:
        for fresh in found:
            write(fresh, group, self.state, self.geometry, self.key)

    def _merge(self, other: Self) -> None:
        way = "a pair that both have seen would count twice; take a cube (--detector cube), which merges exactly"
        raise MergeError(f"cannot merge {self.name} sketches: {way}")

    def _copy(self) -> Self:
        self._drain()
        twin = self._with_state({**state_of(self), "state": State(*(array.copy() for array in self.state))})
        if self._pairs is not None:
            twin._pairs = self._pairs.copy(twin._make_bins())
        return twin

    # Answers

    @property
    @locked
    def exact(self) -> bool:
        """True as long as every number of peers is exact."""
        return self._is_exact()

    def _table(self) -> HostTable | None:
        """Return the exact numbers by mangled host; None if they are not known."""
        if self._is_exact() and self._known is None:
            assert self._pairs is not None
            mangled, peers = self._pairs.super_hosts(1)
            self._known = HostTable(words_to_column(mangled, self.key_bits), peers)
        return self._known

    def _is_exact(self) -> bool:
        self._drain()
        return self._pairs is not None or self._known is not None

    @property
    def _zeros(self) -> float:
        """The share of bits that are zero."""
        return float(self.state.zeros.sum()) / (self.geometry.slices * self.geometry.bits)

    def _super_hosts(self, threshold: float) -> SuperHosts:
        known = self._table()
        if known is not None:
            return self._counted(*known.at_least(threshold))
        least = self._least_listed()
        if 1 < least >= threshold:
            chance = f"hosts with up to {counted(least, 'peer')} have a cell by chance, and are not listed"
            warn_caller(f"threshold {threshold:g} is low for this {self.name}: {chance}; {WAYS_OUT}")
        return self._of_cells(np.flatnonzero(self.state.counts >= UNIT * max(threshold, least)))

    def _top(self, count: int) -> SuperHosts:
        known = self._table()
        if known is not None:
            return self._counted(*known.at_least(1)).select(slice(0, count))
        counts = self.state.counts
        least = np.partition(counts, len(counts) - count)[len(counts) - count] if count < len(counts) else 1
        least = max(int(least), UNIT * self._least_listed())
        return self._of_cells(np.flatnonzero(counts >= least)).select(slice(0, count))

    def _least_listed(self) -> int:
        """Return the most peers that a host may have inherited with its cell."""
        crowds = self.state.counts.reshape(-1, CELLS).min(axis=1)
        return 1 if self._is_exact() else max(1, -(-int(crowds.max()) // UNIT))

    def _estimate_many(self, hosts: Addresses) -> SuperHosts:
        mangled = mangle_column(as_words(hosts), self.key_bits, False, self.key)
        known = self._table()
        if known is not None:
            peers = known.peers_of(words_to_column(mangled, self.key_bits))
            return SuperHosts.counted(hosts, peers, self.format, sort=False)
        return self._rows(hosts, mangled, *look_up(mangled, self.state, self.geometry, self.key))

    def _of_cells(self, cells: NDArray[np.int64]) -> SuperHosts:
        if self.state.zeros.min() <= max(MIN_ZEROS, FULL * self.geometry.bits):
            full = f"{1 - self._zeros:.1%} of the bits of this {self.name} are set"
            warn_caller(f"{full}, so that its numbers are rough; {WAYS_OUT}")
        mangled = _as_words(self.state.hosts[cells])
        return self._rows(self._unmangled(mangled), mangled, cells, np.zeros(len(cells)), sort=True)

    def _rows(
        self, hosts: Addresses, mangled: Words, cells: NDArray[np.int64], crowds: Floats, *, sort: bool = False
    ) -> SuperHosts:
        """Return the estimates of hosts in these cells. Those without one (−1) have few peers, as far as is known."""
        zeros = self.state.zeros[mangled[:, 1] & np.uint64(self.geometry.slices - 1)]
        has_cell = cells >= 0
        saturated = (zeros <= MIN_ZEROS) | (has_cell & (self.state.counts[cells] == MOST_COUNT))
        peers = np.where(has_cell, self.state.counts[cells] / UNIT, 0.0)
        found = interval(peers, np.sqrt(np.where(has_cell, self.state.variances[cells], 0.0).astype(np.float64)))
        # Without a cell a host lost every draw, or all of its pairs met bits that others had set.
        met = FILLED / -np.log(np.maximum(1 - zeros / self.geometry.bits, 1e-300))
        high = np.where(has_cell, found.high, np.floor(FILLED * crowds + met)).astype(np.int64)
        result = SuperHosts(
            hosts,
            np.rint(peers).astype(np.int64),
            found.low,
            np.where(saturated, UNBOUNDED, high),
            saturated,
            sort=sort,
        )
        result.format = self.format
        return result

    def _counted(self, mangled: Addresses, peers: NDArray[np.int64]) -> SuperHosts:
        return SuperHosts.counted(self._unmangled(as_words(mangled)), peers, self.format)

    def _unmangled(self, mangled: Words) -> Addresses:
        return words_to_column(mangle_column(mangled, self.key_bits, True, self.key), self.key_bits)

    # Files

    @classmethod
    def _arguments_for(cls, kind: Kind) -> dict[str, Any]:
        return {"geometry": kind.geometry, "keys": kind.format.keys}

    @classmethod
    def _file_shapes(cls, kind: Kind) -> tuple[dict[str, ArrayShape], ...]:
        geometry: Geometry = kind.geometry
        words, dtype = (1, "<u4") if geometry.key_bits == 32 else (geometry.key_bits // 64, "<u8")
        own = {
            "bits": ArrayShape((geometry.slices, geometry.words)),
            "hosts": ArrayShape((geometry.cells, words), dtype),
            "counts": ArrayShape((geometry.cells,), "<u4"),
            "variances": ArrayShape((geometry.cells,), "<u4"),
        }
        return own, {**own, "knownhosts": ArrayShape((None, words), dtype), "knownpeers": ArrayShape((None,), "<u4")}

    @classmethod
    def _loaded_memory(cls, kind: Kind, sides: Mapping[str, Sequence[int]]) -> int:
        return int(kind.geometry.memory) + 64 * max(sides.get("knownhosts", [0])[0], sides.get("knownpeers", [0])[0])

    @classmethod
    def _shown_hosts(cls, kind: Kind, secret: bytes, names: Collection[str], read: Read) -> Words | None:
        mangled = _as_words(read("hosts")[read("counts") > 0])
        return mangle_column(mangled, kind.format.key_bits, True, make_key(secret))[:, 1] if len(mangled) else None

    def _arrays(self) -> Arrays:
        bits, _, hosts, counts, variances = self.state
        return {"bits": bits, "hosts": hosts, "counts": counts, "variances": variances.view(np.uint32)}

    def _file_arrays(self) -> Arrays:
        known = self._table()
        if known is None:
            return self._arrays()
        hosts, peers = known.at_least(1)
        rows = hosts.reshape(-1, self.state.hosts.shape[1]).astype(self.state.hosts.dtype)
        return {**self._arrays(), "knownhosts": rows, "knownpeers": peers.astype(np.uint32)}

    def _buffers(self, sides: Mapping[str, Sequence[int]]) -> Arrays:
        shapes = self._file_shapes(self.kind)[1]
        if sides.get("knownhosts", [0])[0] > self.geometry.exact_pairs:
            raise ValueError("an exact window has more hosts than it can have pairs")
        return {name: np.zeros(tuple(side), shapes[name].dtype) for name, side in sides.items()}

    def _load_arrays(self, arrays: Arrays) -> None:
        variances, used = arrays["variances"].view(np.float32), arrays["hosts"][arrays["counts"] > 0]
        if not ((variances >= 0) & (variances <= MOST_VARIANCE)).all():
            raise ValueError("a variance is negative, not a number, or too large")
        if len(np.unique(used, axis=0)) < len(used):
            raise ValueError("a host has two cells")
        known = None
        if "knownhosts" in arrays:
            hosts, peers = arrays["knownhosts"], arrays["knownpeers"]
            if len(hosts) != len(peers) or len(np.unique(hosts, axis=0)) < len(hosts):
                raise ValueError("the hosts of an exact window are not as many as their numbers, or come twice")
            if (peers == 0).any() or peers.sum(dtype=np.int64) > self.geometry.exact_pairs:
                raise ValueError("the hosts of an exact window have no peers, or more than it can have pairs")
            known = HostTable(hosts if self.key_bits == 128 else hosts[:, 0], peers.astype(np.int64))
        own = {name: array.copy() for name, array in arrays.items()}
        zeros = np.zeros(self.geometry.slices, np.int32)
        count_zeros(own["bits"], zeros, 0, len(zeros))
        if zeros.min() < min(MIN_ZEROS, self.geometry.bits):
            raise ValueError("more bits are set than a stream sets")
        self.state = State(own["bits"], zeros, own["hosts"], own["counts"], own["variances"].view(np.float32))
        self._pairs, self._known = None, known


def _as_words(hosts: NDArray[Any]) -> Words:
    """Return stored hosts as rows of a high and a low word."""
    return as_words(hosts if hosts.shape[1] == 2 else hosts[:, 0])


def _as_rows(column: Addresses, narrow: bool) -> NDArray[Any]:
    """Return addresses as rows of one or two words: of 32 bits if both ends of the pairs are, else of 64."""
    return np.ascontiguousarray(column, np.uint32 if narrow else np.uint64).reshape(len(column), -1)
