"""DCDS on a GPU: writing a pair, and the search through all combinations of hot columns.

After the zeros are counted, `list_hot` lists the hot columns of every reversible array, and `combine` walks from each
hot column of the first array through the lists of the others, one block per column. Each thread of a block tests the
first words of one combination; columns that pass are put into a list, and the block ANDs each of these in full before
it proceeds to the next array. The search finds the same hosts as on the CPU.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

from superhosts.core.device import simulated
from superhosts.core.hashing import MASK32
from superhosts.detectors.engines.base import STEPS_PER_HOST
from superhosts.detectors.gpu.engine import CudaEngine, on_gpu
from superhosts.detectors.gpu.kernels import FOUND, STEPS, U32, U64, Kernel, Put, answer_shape
from superhosts.detectors.gpu.launch import Launch, Stream, cuda, device_function, kernel, to_device
from superhosts.lab.rivals.dcds import ADDRESSES, Geometry, Search, column_of, garner_step, row_of

ZEROS, PREFIX_WORDS, PREFIX_ONES, MAX_STEPS = range(4)  # indexes of the limits of a search


@cache
def make_column_of(geometry: Geometry) -> Any:
    """Return the device function that computes a host's column in one array, as an index into the whole sketch."""
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
    """A DCDS sketch on one GPU."""

    geometry: Geometry

    @on_gpu
    def _allocate(self) -> None:
        super()._allocate()
        reversible = self.geometry.reversible
        self.hot = to_device(np.zeros(self.geometry.edges[reversible], np.int32))  # lists that fit all columns
        self.hot_counts = to_device(np.zeros(reversible, np.int32))

    def _make_put(self) -> Put:
        return make_put(self.geometry)

    def _extra_words(self) -> int:
        return 0

    def _candidate_words(self) -> int:
        return 0  # Hot columns have their own lists, which cannot overflow.

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
