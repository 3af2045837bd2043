"""CBAA on a GPU: writing a pair, and the join that recovers addresses from bits alone.

After the zeros are counted, `list_hot` lists the hot columns of the first restoring array, and `join` walks from each
of them through the other arrays, one block per column. The columns that can follow have known low bits, so the threads
of a block test them in parallel: first the zero count, then the first words of the AND. Columns that pass are put into
a list, and the block ANDs each of these in full before it proceeds to the next array.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

from superhosts.core.hashing import MASK32, column_hash
from superhosts.detectors.cbaa.addressing import ADDRESSES, Search, garner_step, remainder, row_of, window_column
from superhosts.detectors.engines.base import STEPS_PER_HOST, Counts, Words
from superhosts.detectors.gpu.driver import Stream
from superhosts.detectors.gpu.engine import CudaEngine, on_gpu
from superhosts.detectors.gpu.kernels import CANDIDATES, FOUND, STEPS, U32, U64, Kernel, Put, answer_shape, draw_of
from superhosts.detectors.gpu.launch import Launch, cuda, device_function, kernel

# Indexes of the limits of a search. From LIMITS on, they are the maximum of zeros in each slice.
PREFIX_WORDS, PREFIX_ONES, MAX_STEPS, LIMITS = range(4)


@cache
def make_column_of(geometry: Any) -> Any:
    layout, slices = geometry.layout(), (1 << geometry.slice_bits) - 1
    edges, offsets, moduli = (tuple(numbers.tolist()) for numbers in (layout.edges, layout.offsets, layout.moduli))
    slice_bits, per_slice, remainders = geometry.slice_bits, edges[-1], any(moduli)

    def column_of(_high: Any, low: Any, array: int, key: Any) -> Any:
        left, size = low >> U64(slice_bits), edges[array + 1] - edges[array]
        first = np.int64(low & U64(slices)) * per_slice + edges[array]
        if remainders:
            return first + np.int64(remainder(left, moduli[array]))
        if offsets[array] >= 0:
            return first + np.int64(window_column(left, offsets[array], size, slice_bits))
        return first + np.int64(column_hash(left, draw_of(array, key), size))

    return device_function(column_of)


@cache
def make_put(geometry: Any) -> Put:
    arrays, column_bits, by_peer = geometry.arrays, geometry.column_bits, geometry.layout().rows_by_peer
    word_shift, column_of = geometry.column_bits - 5, make_column_of(geometry)

    def put(_high: Any, low: Any, peer: Any, bits: Any, _extra: Any, key: Any) -> None:
        places = cuda.local.array(arrays, numba.uint32)
        words = cuda.local.array(arrays, numba.uint32)
        row = U32(row_of(low, peer, by_peer, column_bits, key) & MASK32)
        bit = U32(U32(1) << (row & U32(31)))
        for array in range(arrays):
            places[array] = U32((U32(column_of(U64(0), low, array, key)) << U32(word_shift)) + (row >> U32(5)))
            words[array] = bits[places[array]]
        for array in range(arrays):
            if words[array] & bit == 0:
                cuda.atomic.or_(bits, places[array], bit)

    return device_function(put)


@cache
def make_list_hot(geometry: Any) -> Kernel:
    size, per_slice, slices = geometry.edges[1], geometry.edges[-1], 1 << geometry.slice_bits

    def list_hot(zeros: Any, limits: Any, answer: Any, candidates: Any) -> None:
        for place in range(cuda.grid(1), slices * size, cuda.gridsize(1)):
            slice_, column = place // size, place % size
            if zeros[slice_ * per_slice + column] <= limits[LIMITS + slice_]:
                slot = np.int64(cuda.atomic.add(answer, CANDIDATES, U64(1)))
                if slot < candidates.shape[0]:
                    candidates[slot] = U64(place)

    return kernel(list_hot)


@cache
def make_join(geometry: Any, launch: Launch) -> tuple[Kernel, int]:
    layout, arrays, words, rows = geometry.layout(), geometry.arrays, geometry.words, geometry.rows
    restoring, size, per_slice, slice_bits = len(layout.owns), geometry.edges[1], geometry.edges[-1], layout.slice_bits
    threads, (head, width) = launch.threads // 2, answer_shape(geometry)
    listed, depths, last, remainders = threads * arrays, arrays + 1, restoring - 1, bool(layout.moduli.any())
    edges, owns, offsets, moduli, factors = layout.edges, layout.owns, layout.offsets, layout.moduli, layout.factors
    # Bits of a column that the array before repeats: none if columns are remainders.
    repeated = np.array([0] + [max(0, (size >> int(own)).bit_length() - 1) for own in owns[:-1]], np.int64)
    closing = max(1, int(edges[restoring] - edges[last]) >> int(owns[last])) - 1

    def join(bits: Any, zeros: Any, limits: Any, candidates: Any, answer: Any, key: Any) -> None:
        edge_of, own_of = cuda.const.array_like(edges), cuda.const.array_like(owns)
        offset_of, modulus_of = cuda.const.array_like(offsets), cuda.const.array_like(moduli)
        factor_of, repeated_of = cuda.const.array_like(factors), cuda.const.array_like(repeated)
        chosen = cuda.shared.array(arrays, numba.int64)  # chosen column of each array, as an index into this array
        lists = cuda.shared.array(listed, numba.int64)  # for each array, the columns that passed the pre-check
        passed = cuda.shared.array(arrays, numba.int32)
        ones = cuda.shared.array(1, numba.int32)
        number = cuda.local.array(depths, numba.int64)  # what the columns before each array say about the address
        option = cuda.local.array(arrays, numba.int64)  # for each array, the next column to test
        position = cuda.local.array(arrays, numba.int64)  # for each array, the position in its list
        have = cuda.local.array(arrays, numba.int64)  # for each array, the length of its list
        me, most = cuda.threadIdx.x, limits[MAX_STEPS]
        count = min(np.int64(answer[CANDIDATES]), candidates.shape[0])
        for i in range(cuda.blockIdx.x, count, cuda.gridDim.x):
            steps = 0
            slice_, column = np.int64(candidates[i]) // size, np.int64(candidates[i]) % size
            base, limit = slice_ * per_slice, limits[LIMITS + slice_]
            cuda.syncthreads()
            if me == 0:
                given_up = np.int64(answer[STEPS]) > most
                chosen[0] = -1 if given_up else column
            number[1] = column
            if not remainders:
                number[1] = (column & ((1 << own_of[0]) - 1)) << offset_of[0]
            depth = 1
            option[1], position[1], have[1] = 0, 0, 0
            cuda.syncthreads()
            if chosen[0] < 0:  # All threads of a block leave together: any left behind would wait at a barrier forever.
                break
            while depth > 0:
                first = base + edge_of[depth]
                if position[depth] == have[depth]:
                    # The low bits of the next restoring column are known; a validating column is known entirely.
                    known, shared, options = np.int64(0), np.int64(0), np.int64(1)
                    if depth < restoring:
                        known, shared = chosen[depth - 1] >> own_of[depth - 1], repeated_of[depth]
                        options = (edge_of[depth + 1] - edge_of[depth]) >> shared
                    elif remainders:
                        known = np.int64(remainder(number[depth], modulus_of[depth]))
                    else:
                        hashed = edge_of[depth + 1] - edge_of[depth]
                        known = np.int64(column_hash(U64(number[depth]), draw_of(depth, key), hashed))
                    if option[depth] >= options:
                        depth -= 1
                        continue
                    if me == 0:
                        passed[depth] = 0
                    cuda.syncthreads()
                    if option[depth] + me < options:
                        column = (option[depth] + me) << shared | known
                        good = zeros[first + column] <= limit
                        if depth == last:
                            good = good and column >> own_of[depth] == chosen[0] & closing
                        if good:
                            look = 0
                            for word in range(limits[PREFIX_WORDS]):
                                common = bits[U32((first + column) * words + word)]
                                for array in range(depth):
                                    common &= bits[U32((base + edge_of[array] + chosen[array]) * words + word)]
                                look += cuda.popc(common)
                            good = look >= limits[PREFIX_ONES]
                        if good:
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
                    common = bits[U32((first + column) * words + word)]
                    for array in range(depth):
                        common &= bits[U32((base + edge_of[array] + chosen[array]) * words + word)]
                    found += cuda.popc(common)
                if found > 0:
                    cuda.atomic.add(ones, 0, found)
                cuda.syncthreads()
                if rows - ones[0] > limit:
                    continue
                number[depth + 1] = number[depth]
                if depth < restoring:
                    if remainders:
                        before, inverse = factor_of[0, depth], factor_of[1, depth]
                        address = np.int64(garner_step(number[depth], column, modulus_of[depth], before, inverse))
                        if address >= ADDRESSES:
                            continue
                        number[depth + 1] = address
                    else:
                        number[depth + 1] |= (column & ((1 << own_of[depth]) - 1)) << offset_of[depth]
                if depth < arrays - 1:
                    depth += 1
                    option[depth], position[depth], have[depth] = 0, 0, 0
                    continue
                steps += STEPS_PER_HOST
                if me == 0:
                    place = head + np.int64(cuda.atomic.add(answer, FOUND, U64(1))) * width
                    if place + width <= answer.shape[0]:
                        answer[place] = U64(0)
                        answer[place + 1] = U64(number[arrays] << slice_bits | slice_)
                        for array in range(arrays):
                            answer[place + 2 + array] = U64(zeros[base + edge_of[array] + chosen[array]])
                        answer[place + 2 + arrays] = U64(rows - ones[0])
            if me == 0:
                cuda.atomic.add(answer, STEPS, U64(steps))

    return kernel(join), threads


@cache
def make_measure(geometry: Any) -> Kernel:
    """Return the kernel that computes the zero counts of mangled hosts (two words each), one block per host."""
    arrays, words, rows, column_of = geometry.arrays, geometry.words, geometry.rows, make_column_of(geometry)

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
            common = bits[U32(columns[0] * words + word)]
            for array in range(1, arrays):
                common &= bits[U32(columns[array] * words + word)]
            ones += cuda.popc(common)
        cuda.atomic.add(total, 0, ones)
        cuda.syncthreads()
        if me == 0:
            for array in range(arrays):
                out[i * (arrays + 1) + array] = U64(zeros[columns[array]])
            out[i * (arrays + 1) + arrays] = U64(rows - total[0])

    return kernel(measure)


class CudaCbaa(CudaEngine):
    make_put = staticmethod(make_put)

    def _limit_words(self) -> int:
        return LIMITS + (1 << int(self.geometry.slice_bits))

    def _limits_of(self, search: Search) -> list[int]:
        return [search.prefix_words, search.prefix_ones, self.max_steps, *search.zeros.tolist()]

    def _launch_search(self, stream: Stream) -> None:
        geometry, launch = self.geometry, self.launch
        first = geometry.edges[1] << geometry.slice_bits
        blocks = min(-(-first // launch.threads), 16 * launch.multiprocessors)
        hot = self.counts, self.limits, self.answer, self.candidates
        self._start(make_list_hot(geometry), (blocks, launch.threads), stream, hot)
        join, threads = make_join(geometry, launch)
        candidates = self.words, self.counts, self.limits, self.candidates, self.answer, self.key
        self._start(join, (8 * launch.multiprocessors, threads), stream, candidates)

    @on_gpu
    def measure(self, mangled: Words) -> Counts:
        """Measure in the memory of answers: to allocate other memory would take longer than the rest."""
        self._count()
        geometry, threads = self.geometry, self.launch.threads // 4
        width, step = geometry.arrays + 1, self.max_rows
        found = np.empty((len(mangled), width), np.int32)
        arguments = self.asked, self.words, self.counts, self.answer, self.key
        for start in range(0, len(mangled), step):  # Whole arrays are copied: to slice one on the GPU takes longer.
            hosts = mangled[start : start + step]
            self.asked_host[: 2 * len(hosts)] = hosts.reshape(-1)
            self.asked.copy_to_device(self.asked_host, stream=self.stream.handle)
            self._start(make_measure(geometry), (len(hosts), threads), self.stream, arguments)
            self.answer.copy_to_host(self.answer_host, stream=self.stream.handle)
            self.stream.synchronize()
            counts = self.answer_host[: len(hosts) * width].reshape(len(hosts), width)
            found[start : start + len(hosts)] = counts
        return found
