"""DCDS (Wang, Guan and others, 2011): columns by coprime moduli, addresses by the Chinese remainder theorem.

The number of bit columns of an array is its modulus. A pair sets one bit, in the same row of the host's column in each
array. The search combines hot columns of the reversible arrays; each combination is at most one address, and the
validating arrays and the number of ones in the AND of all columns decide. As published, the AND is attributed entirely
to the host: the noise of other hosts is not removed. The confidence interval is that of linear counting and ignores the
noise too, so it is too high if columns are crowded.

The published setting is H = 2 reversible arrays and one validating array of 2^16 columns of 2^14 rows, 384 MiB. Here
the moduli are the primes just above 2^16: the product of two exceeds 2^32, so a pair of columns is at most one address.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple, Self

import numba
import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel, simulated
from superhosts.core.hashing import MASK32, MAX_ARRAYS, Key, pair_hash
from superhosts.detectors.engines.base import STEPS_PER_HOST, Counts, Plan, Words
from superhosts.detectors.engines.bins import BATCH, BLOCK, Pool, Scratch, Task, entry_width, make_scratch, unpack
from superhosts.detectors.engines.cpu import CpuEngine, ones_of
from superhosts.detectors.formulas import check_limits, prefix_test, zero_limit
from superhosts.detectors.gpu.engine import CudaEngine, on_gpu
from superhosts.detectors.gpu.kernels import FOUND, STEPS, U32, U64, Kernel, Put, answer_shape
from superhosts.detectors.gpu.launch import Launch, Stream, cuda, device_function, kernel, to_device
from superhosts.errors import GeometryError
from superhosts.jit.cache import compiled
from superhosts.lab.rivals.base import ColumnRival, parse_memory

ADDRESSES = 1 << 32
PRIMES = (65537, 65539, 65543)  # just above 2^16: two of them distinguish all addresses
MAX_COLUMNS = 1 << 20  # columns per array


class Geometry(NamedTuple):
    reversible: int = 2  # H: the first arrays, which determine addresses; the others validate (H+)
    moduli: tuple[int, ...] = PRIMES  # m_i: columns of each array
    column_bits: int = 14  # log2 v

    @classmethod
    def for_memory(cls, memory: str | int) -> Self:
        """Return the geometry with the longest columns that `memory` allows.

        The number of columns is fixed, because smaller moduli could not distinguish all addresses. Sizes are computed
        for 3·2^16 columns, which take the published 384 MiB with 2^14 rows; the eleven additional columns of the primes
        (0.006 %) are not counted.
        """
        minimum = (3 << 16) * 64 // 8
        times = parse_memory(memory, minimum, "dcds") // minimum
        return cls(column_bits=min(20, times.bit_length() - 1 + 6)).check()

    def check(self) -> Self:
        check_limits(self, {"reversible": (2, MAX_ARRAYS), "column_bits": (6, 20)})
        moduli = self.moduli
        if not all(type(modulus) is int and 2 <= modulus <= MAX_COLUMNS for modulus in moduli):
            raise GeometryError(f"moduli={moduli}: must be whole numbers from 2 to {MAX_COLUMNS}")
        if not self.reversible <= len(moduli) <= MAX_ARRAYS:
            rule = f"one for each of the {self.reversible} reversible arrays, and at most {MAX_ARRAYS} in total"
            raise GeometryError(f"moduli={moduli}: {rule}")
        for one, other in combinations(moduli, 2):
            if math.gcd(one, other) > 1:
                raise GeometryError(f"moduli={moduli}: {one} and {other} are not coprime")
        product = math.prod(moduli[: self.reversible])
        if product < ADDRESSES:
            rule = f"the product of the {self.reversible} reversible ones must be 2^32 or more to cover all addresses"
            raise GeometryError(f"moduli={moduli}: {rule}")
        if product >= 1 << 62:
            raise GeometryError(f"moduli={moduli}: the product of the reversible ones must be less than 2^62")
        return self

    @property
    def key_bits(self) -> int:
        return 32

    @property
    def slice_bits(self) -> int:
        return 0

    @property
    def arrays(self) -> int:
        return len(self.moduli)

    @property
    def rows(self) -> int:
        return 1 << self.column_bits

    @property
    def words(self) -> int:
        return 1 << (self.column_bits - 6)

    @property
    def edges(self) -> list[int]:
        return [sum(self.moduli[:array]) for array in range(self.arrays + 1)]

    @property
    def total_columns(self) -> int:
        return sum(self.moduli)

    @property
    def memory(self) -> int:
        return self.total_columns * self.rows // 8

    @property
    def steps(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """For each reversible array: the product of the preceding moduli, and its inverse modulo the array's own."""
        before = tuple(math.prod(self.moduli[:array]) for array in range(self.reversible))
        return before, tuple(pow(product, -1, m) for product, m in zip(before, self.moduli, strict=False))


class Search(NamedTuple):
    zeros: int  # maximum of zeros in a column and in the AND
    prefix_words: int
    prefix_ones: int  # minimum of ones in the first `prefix_words` words of the AND


# Addressing, and the way back from columns to addresses: scalar functions shared by CPU and CUDA. A host's column in
# an array is its mangled address modulo the array's size. With plain addresses, whole prefixes would fall into few
# columns. The sizes are coprime, so by the Chinese remainder theorem one column of each reversible array determines
# exactly one number below the product of their sizes. It is computed array by array with Garner's algorithm.


@compiled
def column_of(mangled: int, modulus: int) -> int:
    """Return the column of a mangled host in an array of `modulus` columns."""
    return np.uint32(mangled) % np.uint32(modulus)


@compiled
def row_of(mangled: int, peer: int, column_bits: int, key: Key) -> int:
    """Return the row of a pair."""
    return pair_hash(mangled, peer, key) & ((1 << column_bits) - 1)


@compiled
def garner_step(number: int, column: int, modulus: int, before: int, inverse: int) -> int:
    """Return the smallest number that is `number` modulo `before` and `column` modulo `modulus`.

    `inverse` is the inverse of `before` modulo `modulus`. The result is never less than `number`: once it exceeds 2^32,
    it stays above.
    """
    digit = (column - number % modulus + modulus) % modulus * inverse % modulus
    return number + before * digit


# The loops on CPU threads. There are no slices that threads could own, but arrays are separate: every thread reads
# all pairs and writes its own arrays. The search has no check bits for looking up matching columns. It combines every
# hot column of the first array with every one of the next, which costs the square of the number of hot columns, and
# drops a combination as soon as its AND leaves more zeros than a super host can; its first words reject most
# combinations after one or two cache lines.


class Store(NamedTuple):
    bits: Words  # (columns of all arrays, words)
    zeros: Counts  # (columns,): zero bits of each column
    edges: NDArray[np.int64]  # index of each array's first column, followed by the number of all columns


@compiled
def fill(task: Task, pool: Pool, share: tuple[int, int], store: Store, geometry: Geometry, key: Key) -> None:
    """Write the chunks of a task to the arrays share[0] to share[1] - 1."""
    scratch = make_scratch(BATCH, entry_width(pool))
    number = 0
    while number < len(task.chunks):
        number, count = unpack(number, len(task.chunks), 0, task, pool, scratch)
        _write(count, scratch, share, store, geometry, key)


@compiled
def _write(count: int, scratch: Scratch, share: tuple[int, int], store: Store, geometry: Geometry, key: Key) -> None:
    """Set the bits of a batch of pairs."""
    low, peers = scratch.low, scratch.peers
    rows, columns = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    bits, zeros = store.bits.reshape(-1), store.zeros
    for begin in range(0, count, BLOCK):
        size = min(BLOCK, count - begin)
        for i in range(size):
            rows[i] = row_of(low[begin + i], peers[begin + i], geometry.column_bits, key)
        for array in range(share[0], share[1]):
            first, modulus = store.edges[array], geometry.moduli[array]
            for i in range(size):
                columns[i] = first + np.int64(column_of(low[begin + i], modulus))
            for i in range(size):
                word = (columns[i] << (geometry.column_bits - 6)) + (rows[i] >> 6)
                bit = np.uint64(1) << np.uint64(rows[i] & 63)
                if bits[word] & bit == 0:
                    bits[word] |= bit
                    zeros[columns[i]] -= 1


@compiled
def hot_columns(store: Store, limit: int, reversible: int) -> tuple[Counts, NDArray[np.int64]]:
    """Return the hot columns of the reversible arrays, array by array, and the start of each array in this list."""
    columns = np.empty(store.edges[reversible], np.int32)
    begins = np.zeros(reversible + 1, np.int64)
    count = 0
    for array in range(reversible):
        for place in range(store.edges[array], store.edges[array + 1]):
            if store.zeros[place] <= limit:
                columns[count] = place - store.edges[array]
                count += 1
        begins[array + 1] = count
    return columns[:count], begins


Factors = tuple[tuple[int, ...], tuple[int, ...]]  # `before` and `inverse` of `garner_step` for each reversible array


@compiled
def combine(
    share: tuple[int, int],
    steps: NDArray[np.int64],
    max_steps: int,
    store: Store,
    search: Search,
    geometry: Geometry,
    factors: Factors,
) -> tuple[Words, Counts]:
    """Return the hosts, and their zero counts, that start in every share[1]-th hot column from share[0] on.

    Every call counts its steps (ANDs of whole columns) in its own element of `steps` and gives up if the total of all
    calls exceeds `max_steps`.
    """
    reversible, arrays = geometry.reversible, len(geometry.moduli)
    before, inverses = factors
    bits, words, rows = store.bits, store.bits.shape[1], 1 << geometry.column_bits
    columns, begins = hot_columns(store, search.zeros, reversible)
    ands = np.empty((arrays + 1, words), np.uint64)  # AND of the chosen columns in the arrays before each array
    ands[0, :] = ~np.uint64(0)
    numbers = np.zeros(arrays + 1, np.int64)  # the address modulo the product of the preceding moduli
    places = np.empty(arrays, np.int64)  # chosen column of each array, as an index into the whole sketch
    next_, stop = np.zeros(arrays, np.int64), np.zeros(arrays, np.int64)  # position in each array's list, and its end
    hosts = np.empty((16, 2), np.uint64)
    counts = np.empty((16, arrays + 1), np.int32)
    found, depth = 0, 0
    next_[0], stop[0] = share[0], begins[1]
    while depth >= 0 and steps[share[0]] <= max_steps:
        if next_[depth] >= stop[depth]:
            depth -= 1
            continue
        if depth < reversible:
            if depth == 0 and steps.sum() > max_steps:
                break
            column = np.int64(columns[next_[depth]])
            next_[depth] += share[1] if depth == 0 else 1
        else:
            column = np.int64(column_of(numbers[depth], geometry.moduli[depth]))
            next_[depth] += 1
        place = store.edges[depth] + column
        ones, start, end = np.uint64(0), 0, search.prefix_words
        while start < words:  # AND the first words, then the others only if these have enough ones.
            for w in range(start, end):
                common = ands[depth, w] & bits[place, w]
                ands[depth + 1, w] = common
                ones += ones_of(common)
            if start == 0 and depth > 0 and np.int64(ones) >= search.prefix_ones:
                steps[share[0]] += 1
            start, end = end if np.int64(ones) >= search.prefix_ones else words, words
        if rows - np.int64(ones) > search.zeros:
            continue
        number = numbers[depth]
        if depth < reversible:
            number = garner_step(number, column, geometry.moduli[depth], before[depth], inverses[depth])
            if number >= ADDRESSES:
                continue
        places[depth], numbers[depth + 1] = place, number
        if depth < arrays - 1:
            depth += 1
            if depth < reversible:
                next_[depth], stop[depth] = begins[depth], begins[depth + 1]
            else:
                next_[depth], stop[depth] = 0, 1  # A validating array has a single column per address.
            continue
        if found == len(hosts):
            hosts = np.concatenate((hosts, np.empty_like(hosts)))
            counts = np.concatenate((counts, np.empty_like(counts)))
        hosts[found, 0], hosts[found, 1] = 0, np.uint64(number)
        for array in range(arrays):
            counts[found, array] = store.zeros[places[array]]
        counts[found, arrays] = rows - np.int64(ones)
        found += 1
        steps[share[0]] += STEPS_PER_HOST
    return hosts[:found], counts[:found]


@compiled
def columns_of(hosts: Words, geometry: Geometry, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the columns of mangled hosts, one per array."""
    columns = np.empty((len(hosts), len(geometry.moduli)), np.int64)
    for i in range(len(hosts)):
        for array in range(columns.shape[1]):
            columns[i, array] = edges[array] + np.int64(column_of(hosts[i, 1], geometry.moduli[array]))
    return columns


class CpuDcds(CpuEngine):
    geometry: Geometry

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.store = Store(self.bits, self.counts, np.array(self.geometry.edges, np.int64))

    @staticmethod
    def columns_of(mangled: Words, geometry: Geometry, key: Key) -> NDArray[np.int64]:
        return columns_of(mangled, geometry, np.array(geometry.edges, np.int64))

    def write(self, task: Task) -> None:
        self._write_by_array(fill, task, self.store)

    def search(self, search: Search) -> tuple[Words, Counts]:
        self.flush()
        shares = 4 * self.threads if self.threads > 1 else 1  # enough calls to keep every thread busy
        steps = np.zeros(shares, np.int64)
        common = steps, self.max_steps, self.store, search, self.geometry, self.geometry.steps
        calls = [((share, shares), *common) for share in range(shares)]
        hosts, counts = zip(*run_parallel(combine, calls, self.threads), strict=True)
        self._check_steps(int(steps.sum()))
        return np.concatenate(hosts), np.concatenate(counts)


# On a GPU, after the zeros are counted, `list_hot` lists the hot columns of every reversible array, and `combine`
# walks from each hot column of the first array through the lists of the others, one block per column. Each thread of
# a block tests the first words of one combination; columns that pass are put into a list, and the block ANDs each of
# these in full before it proceeds to the next array. The search finds the same hosts as on the CPU.


ZEROS, PREFIX_WORDS, PREFIX_ONES, MAX_STEPS = range(4)  # indexes of the limits of a search


@cache
def make_column_of(geometry: Geometry) -> Any:
    moduli, edges = geometry.moduli, tuple(geometry.edges)

    def host_column(_high: Any, low: Any, array: int, _key: Any) -> int:
        return np.int64(edges[array]) + np.int64(column_of(low, moduli[array]))

    return device_function(host_column)


@cache
def make_put(geometry: Geometry) -> Put:
    """Return the device function that writes one pair. It reads all columns before it writes."""
    arrays, column_bits = geometry.arrays, geometry.column_bits
    host_column = make_column_of(geometry)

    def put(_high: Any, low: Any, peer: Any, bits: Any, _extra: Any, key: Any) -> None:
        places = cuda.local.array(arrays, numba.uint32)
        words = cuda.local.array(arrays, numba.uint32)
        row = U32(row_of(low, peer, column_bits, key) & MASK32)
        bit = U32(U32(1) << (row & U32(31)))
        for array in range(arrays):
            column = U32(host_column(U64(0), low, array, key))
            places[array] = U32((column << U32(column_bits - 5)) + (row >> U32(5)))
            words[array] = bits[places[array]]
        for array in range(arrays):
            if words[array] & bit == 0:
                cuda.atomic.or_(bits, places[array], bit)

    return device_function(put)


@kernel
def clear_hot_counts(counts: Any) -> None:
    """Empty the lists of hot columns."""
    for array in range(cuda.grid(1), counts.shape[0], cuda.gridsize(1)):
        counts[array] = 0


@cache
def make_list_hot(geometry: Geometry) -> Kernel:
    """Return the kernel that lists the hot columns of each reversible array, starting at the array's first index."""
    reversible, edges = geometry.reversible, np.array(geometry.edges, np.int64)

    def list_hot(zeros: Any, limits: Any, hot: Any, counts: Any) -> None:
        edge_of = cuda.const.array_like(edges)
        for place in range(cuda.grid(1), hot.shape[0], cuda.gridsize(1)):
            if zeros[place] <= limits[ZEROS]:
                array = 0
                while array < reversible - 1 and edge_of[array + 1] <= place:
                    array += 1
                slot = edge_of[array] + cuda.atomic.add(counts, array, 1)
                hot[slot] = place - edge_of[array]

    return kernel(list_hot)


@cache
def make_combine(geometry: Geometry, launch: Launch) -> tuple[Kernel, int]:
    """Return the kernel that walks from hot columns to addresses, and its threads per block."""
    reversible, arrays, words, rows = geometry.reversible, geometry.arrays, geometry.words, geometry.rows
    threads, (head, width) = 8 * launch.team if not simulated() else launch.team, answer_shape(geometry)
    listed, depths = threads * arrays, arrays + 1
    edges, moduli = np.array(geometry.edges, np.int64), np.array(geometry.moduli, np.int64)
    before, inverses = (np.array(numbers, np.int64) for numbers in geometry.steps)

    def combine(bits: Any, zeros: Any, limits: Any, hot: Any, counts: Any, answer: Any) -> None:
        edge_of, modulus_of = cuda.const.array_like(edges), cuda.const.array_like(moduli)
        before_of, inverse_of = cuda.const.array_like(before), cuda.const.array_like(inverses)
        chosen = cuda.shared.array(arrays, numba.int64)  # chosen column of each array, indexed over the whole sketch
        lists = cuda.shared.array(listed, numba.int64)  # for each array, the columns that passed the pre-check
        passed = cuda.shared.array(arrays, numba.int32)
        ones = cuda.shared.array(1, numba.int32)
        number = cuda.local.array(depths, numba.int64)  # the address modulo the product of the preceding moduli
        option = cuda.local.array(arrays, numba.int64)  # for each array, the next hot column to test
        position = cuda.local.array(arrays, numba.int64)  # for each array, the position in its list
        have = cuda.local.array(arrays, numba.int64)  # for each array, the length of its list
        me, limit, most = cuda.threadIdx.x, limits[ZEROS], limits[MAX_STEPS]
        for i in range(cuda.blockIdx.x, counts[0], cuda.gridDim.x):
            steps = 0
            cuda.syncthreads()
            if me == 0:
                given_up = np.int64(answer[STEPS]) > most
                chosen[0] = -1 if given_up else hot[i]
            number[1] = hot[i]
            depth = 1
            option[1], position[1], have[1] = 0, 0, 0
            cuda.syncthreads()
            if chosen[0] < 0:  # All threads of a block leave together: any left behind would wait at a barrier forever.
                break
            while depth > 0:
                if position[depth] == have[depth]:
                    # A reversible array has a list of columns, a validating array a single column per address.
                    options = np.int64(1)
                    if depth < reversible:
                        options = np.int64(counts[depth])
                    if option[depth] >= options:
                        depth -= 1
                        continue
                    if me == 0:
                        passed[depth] = 0
                    cuda.syncthreads()
                    if option[depth] + me < options:
                        column = edge_of[depth]
                        if depth < reversible:
                            column += np.int64(hot[edge_of[depth] + option[depth] + me])
                        else:
                            column += np.int64(column_of(number[depth], modulus_of[depth]))
                        look = 0
                        for word in range(limits[PREFIX_WORDS]):
                            common = bits[U32(column * words + word)]
                            for array in range(depth):
                                common &= bits[U32(chosen[array] * words + word)]
                            look += cuda.popc(common)
                        if look >= limits[PREFIX_ONES]:
                            lists[depth * threads + cuda.atomic.add(passed, depth, 1)] = column
                    cuda.syncthreads()
                    option[depth] += threads
                    position[depth], have[depth] = 0, passed[depth]
                    steps += have[depth]
                    if steps > most:  # The count is the same in all threads, so they leave together.
                        depth = 0
                    continue
                column = lists[depth * threads + position[depth]]
                position[depth] += 1
                cuda.syncthreads()
                if me == 0:
                    ones[0] = 0
                    chosen[depth] = column
                cuda.syncthreads()
                found = 0
                for word in range(me, words, threads):
                    common = bits[U32(column * words + word)]
                    for array in range(depth):
                        common &= bits[U32(chosen[array] * words + word)]
                    found += cuda.popc(common)
                if found > 0:
                    cuda.atomic.add(ones, 0, found)
                cuda.syncthreads()
                if rows - ones[0] > limit:
                    continue
                number[depth + 1] = number[depth]
                if depth < reversible:
                    modulus, own = modulus_of[depth], column - edge_of[depth]
                    number[depth + 1] = np.int64(
                        garner_step(number[depth], own, modulus, before_of[depth], inverse_of[depth])
                    )
                    if number[depth + 1] >= ADDRESSES:
                        continue
                if depth < arrays - 1:
                    depth += 1
                    option[depth], position[depth], have[depth] = 0, 0, 0
                    continue
                steps += STEPS_PER_HOST
                if me == 0:
                    place = head + np.int64(cuda.atomic.add(answer, FOUND, U64(1))) * width
                    if place + width <= answer.shape[0]:
                        answer[place] = U64(0)
                        answer[place + 1] = U64(number[arrays])
                        for array in range(arrays):
                            answer[place + 2 + array] = U64(zeros[chosen[array]])
                        answer[place + 2 + arrays] = U64(rows - ones[0])
            if me == 0:
                cuda.atomic.add(answer, STEPS, U64(steps))

    return kernel(combine), threads


class CudaDcds(CudaEngine):
    geometry: Geometry
    candidate_words = 0  # Hot columns have their own lists, which cannot overflow.

    @on_gpu
    def _allocate(self) -> None:
        super()._allocate()
        reversible = self.geometry.reversible
        self.hot = to_device(np.zeros(self.geometry.edges[reversible], np.int32))  # lists that fit all columns
        self.hot_counts = to_device(np.zeros(reversible, np.int32))

    def _make_put(self) -> Put:
        return make_put(self.geometry)

    def _limit_words(self) -> int:
        return len(Search._fields) + 1

    def _limits_of(self, search: Search) -> list[int]:
        return [*search, self.max_steps]

    def _launch_search(self, stream: Stream) -> None:
        geometry, launch = self.geometry, self.launch
        self._start(clear_hot_counts, (1, geometry.reversible), stream, (self.hot_counts,))
        blocks = min(-(-len(self.hot) // launch.threads), 16 * launch.multiprocessors)
        hot = self.hot, self.hot_counts
        self._start(make_list_hot(geometry), (blocks, launch.threads), stream, (self.counts, self.limits, *hot))
        combine, threads = make_combine(geometry, launch)
        arguments = self.words, self.counts, self.limits, *hot, self.answer
        self._start(combine, (8 * launch.multiprocessors, threads), stream, arguments)

    def _make_column_of(self) -> Any:
        return make_column_of(self.geometry)


class Dcds(ColumnRival):
    """Columns by coprime moduli for 32-bit hosts, of the published 384 MiB by default."""

    name = "dcds"
    geometry_type = Geometry
    cpu_engine, gpu_engine = CpuDcds, CudaDcds
    geometry: Geometry
    default_memory = "384MiB"

    def search_for(self, threshold: float) -> Search:
        bits = self.geometry.column_bits
        return Search(zero_limit(bits, threshold), *prefix_test(bits, threshold))

    def _noise(self) -> float:
        return 0.0  # n = v·ln(v/Z), as if no other host shared a column
