"""The labelled cube on a GPU: writing a pair, reading the columns of hosts, and naming super hosts.

The kernels of a search apply the tests of the CPU and find its hosts. They run after the zeros are counted.
`list_candidates` follows the labels of hot columns, one thread per label, and ANDs the first words of the columns of a
named host, a few threads per host, because most named hosts are false. `verify` ANDs the whole columns of those that
are left, one block per host.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from superhosts.core.hashing import MASK32, MASK64, fold, pair_hash
from superhosts.detectors.cube.addressing import (
    LINE_WORDS,
    column_of,
    giant_column_of,
    holds_limb,
    is_for_giants,
    is_sampled,
    label_of,
    label_word,
    limb_in,
    limb_of,
    line_turn_of,
    lowest_priority,
    names_host,
    priority_in,
    priority_of,
    rotated_back,
    rotation_of,
    row_of,
    ticket_of,
)
from superhosts.detectors.cube.geometry import LINE_BITS, Geometry, Search
from superhosts.detectors.engines.base import Arrays, Counts, Words
from superhosts.detectors.gpu.driver import DeviceArray, Stream
from superhosts.detectors.gpu.engine import CudaEngine, on_gpu
from superhosts.detectors.gpu.kernels import (
    CANDIDATES,
    FOUND,
    U32,
    U64,
    Kernel,
    Put,
    answer_shape,
    draw_of,
    make_team_sum,
)
from superhosts.detectors.gpu.launch import Launch, cuda, device_function, kernel
from superhosts.jit.cache import compiled

# Indexes of the limits of a search
ZEROS, PRIORITY, ELSEWHERE, FIRST_WORDS, FIRST_ONES, SECOND_WORDS, SECOND_ONES, THIRD_WORDS, THIRD_ONES = range(9)


@compiled
def pack_place(first: int, turn: int, rotation: int) -> int:
    """Return where a host's column is in one word: its first word, the turn of its words and its rotation.

    Word i of a column is stored as i XOR its turn.
    """
    return (first << 32 | turn << 8 | rotation) & MASK64


@cache
def make_place_of(geometry: Geometry) -> Any:
    words = geometry.words

    def place_of(column: Any, folded: Any, draw: Any, first_draw: Any) -> Any:
        """Return a place whose rotation is that of the host in the first array: its AND has as many ones."""
        turn = U64(line_turn_of(folded, draw, geometry)) * U64(LINE_WORDS)
        rotation = (U64(rotation_of(folded, draw)) + U64(64) - U64(rotation_of(folded, first_draw))) & U64(63)
        return U64(pack_place(U64(column) * U64(words), turn, rotation))

    return device_function(place_of)


@cache
def make_common_ones(arrays: int) -> Any:
    """Return the device function that counts the ones of the AND of columns, in every `step`-th word."""

    def common_ones(bits: Any, places: Any, first: int, words: Any, step: int) -> Any:
        start, stop = words
        ones = numba.int32(0)
        for word in range(start, stop, step):
            common = U64(MASK64)
            for array in range(arrays):
                place = places[first + array]
                stored = bits[U32(U32(place >> U64(32)) + (U32(word) ^ U32(place >> U64(8) & U64(0xFFFFFF))))]
                common &= stored if array == 0 else U64(rotated_back(stored, place & U64(63)))
            ones += numba.int32(cuda.popc(common))
        return ones

    return device_function(common_ones)


LABELS_TOGETHER = 2  # labels of each column that a block follows
MOST_QUEUED = 1 << 10  # labels that a block follows before it tests the hosts that they name


@cache
def make_list_candidates(geometry: Geometry, launch: Launch) -> tuple[Kernel, int, int]:
    """Return the kernel that lists hosts which labels of hot columns name and which pass two tests.

    Its numbers of blocks and of threads follow. A block has the same few labels of all columns of a slice, which its
    cache keeps: a host competes for no others. The first step queues the hosts that these labels name if all their
    columns are hot. In the second step, teams of threads test the first words of their columns, and queue the few that
    pass for the second test, so that no thread waits for those.
    """
    arrays, labels, limbs = geometry.arrays, geometry.labels, geometry.limbs
    wide, columns = geometry.key_bits == 128, geometry.arrays * geometry.columns
    together = min(labels, LABELS_TOGETHER)
    size, groups = columns * together, labels // together
    units, batch = groups << geometry.slice_bits, min(size, MOST_QUEUED)
    threads, lanes = launch.threads // 2, launch.lanes
    teams = threads // lanes
    high_size, most_places, drawn = batch if wide else 1, threads * arrays, 2 * arrays
    place_of, common_ones, team_sum = make_place_of(geometry), make_common_ones(arrays), make_team_sum(lanes)

    def list_candidates(bits: Any, zeros: Any, extra: Any, limits: Any, answer: Any, candidates: Any, key: Any) -> None:
        lows = cuda.shared.array(batch, numba.uint64)
        highs = cuda.shared.array(high_size, numba.uint64)
        places = cuda.shared.array(most_places, numba.uint64)
        draws = cuda.shared.array(drawn, numba.uint64)
        queued = cuda.shared.array(2, numba.int32)  # named, and of those with places the ones that pass the first test
        passed = cuda.shared.array(threads, numba.int32)
        counted = cuda.shared.array(threads, numba.int32)
        inside = cuda.local.array(arrays, numba.uint32)
        there = cuda.local.array(arrays, numba.uint64)
        limit, lowest, elsewhere = limits[ZEROS], U64(max(1, limits[PRIORITY])), U64(limits[ELSEWHERE])
        me = cuda.threadIdx.x
        team, lane = me // lanes, me % lanes
        for array in range(arrays):
            if me == array % threads:
                draws[2 * array], draws[2 * array + 1] = draw_of(array, key)
        unit = units - 1 - cuda.blockIdx.x  # The slices that were counted last come first: the GPU's cache has them.
        first_column, first_label = unit // groups * columns, unit % groups * together
        for begin in range(0, size, batch):
            if me == 0:
                queued[0] = 0
            cuda.syncthreads()
            for i in range(begin + me, min(size, begin + batch), threads):
                own, label = i // together, first_label + i % together
                place = (first_column + own) * labels + label
                low = extra[place * limbs]
                priority, low, high = U64(priority_in(low)), U64(limb_in(low)), U64(0)
                named = priority >= lowest and zeros[first_column + own] <= limit
                if named:
                    for limb in range(1, limbs):
                        word = extra[place * limbs + limb]
                        named = named and U64(priority_in(word)) == priority
                        part = U64(limb_in(word)) << U64(32 * (limb & 1))
                        if limb < 2:
                            low |= part
                        else:
                            high |= part
                    folded, home = U64(fold(high, low, key)), np.int64(-1)
                    for array in range(arrays):
                        column = np.int64(
                            column_of(folded, low, array, (draws[2 * array], draws[2 * array + 1]), geometry)
                        )
                        inside[array] = U32(column - first_column)
                        if array == own // geometry.columns:
                            home = column
                    # A host that belongs here has all its columns in this slice.
                    named = names_host(low, U64(label), first_column + own, home, geometry) and named
                if named:
                    is_hot, same = True, False
                    for array in range(arrays):
                        is_hot = is_hot and zeros[first_column + inside[array]] <= limit
                        there[array] = extra[((first_column + inside[array]) * labels + label) * limbs]
                    for array in range(arrays):  # Skip a host that an earlier array also names: it is listed once.
                        other = U64(priority_in(there[array]))
                        is_host = (
                            array < own // geometry.columns
                            and other >= lowest
                            and holds_limb(there[array], other, U64(limb_of(high, low, 0)))
                        )
                        for limb in range(1, limbs):
                            if is_host:
                                word = extra[((first_column + inside[array]) * labels + label) * limbs + limb]
                                is_host = holds_limb(word, other, U64(limb_of(high, low, limb)))
                        same, is_hot = same or is_host, is_hot and other >= elsewhere
                    if is_hot and not same:
                        slot = cuda.atomic.add(queued, 0, 1)
                        lows[slot] = low
                        if wide:
                            highs[slot] = high
            cuda.syncthreads()
            count = queued[0]
            for first in range(0, count, threads):
                hosts = min(threads, count - first)
                if me == 0:
                    queued[1] = 0
                for item in range(me, hosts * arrays, threads):
                    array, low = item % arrays, lows[first + item // arrays]
                    folded = U64(fold(highs[first + item // arrays] if wide else U64(0), low, key))
                    draw = draws[2 * array], draws[2 * array + 1]
                    column = column_of(folded, low, array, draw, geometry)
                    places[item] = place_of(column, folded, draw, (draws[0], draws[1]))
                cuda.syncthreads()
                for i in range(team, -(-hosts // teams) * teams, teams):
                    ones = numba.int32(0)
                    if i < hosts:
                        ones = common_ones(bits, places, i * arrays, (lane, limits[FIRST_WORDS]), lanes)
                    ones = team_sum(ones)
                    if lane == 0 and i < hosts and ones >= limits[FIRST_ONES]:
                        slot = cuda.atomic.add(queued, 1, 1)
                        passed[slot], counted[slot] = i, ones
                cuda.syncthreads()
                left = queued[1]
                for j in range(team, -(-left // teams) * teams, teams):
                    ones = numba.int32(0)
                    if j < left:
                        words = limits[FIRST_WORDS] + lane, limits[SECOND_WORDS]
                        ones = common_ones(bits, places, passed[j] * arrays, words, lanes)
                    ones = team_sum(ones)
                    if lane == 0 and j < left and counted[j] + ones >= limits[SECOND_ONES]:
                        slot = np.int64(cuda.atomic.add(answer, CANDIDATES, U64(1)))
                        if slot * 2 + 1 < candidates.shape[0]:
                            candidates[slot * 2] = highs[first + passed[j]] if wide else U64(0)
                            candidates[slot * 2 + 1] = lows[first + passed[j]]
                cuda.syncthreads()

    return kernel(list_candidates), units, threads


@cache
def make_verify(geometry: Geometry, launch: Launch) -> tuple[Kernel, int]:
    """Return the kernel that ANDs the columns of candidates and appends hosts to the answer, and its threads.

    If the plain columns of a host are nearly full, the kernel also ANDs its giant columns. The zero counts of these are
    in the upper halves of the words that have those of the plain ones: a second question for them would take longer
    than the whole search.
    """
    arrays, words, rows, giants = geometry.arrays, geometry.words, geometry.rows, geometry.giants > 0
    (head, width), giant_zeros = answer_shape(geometry), geometry.giant_zeros
    threads = launch.threads // 4
    team, kinds = min(launch.team, threads), 2 if giants else 1  # plain columns, then giant ones
    place_of, common_ones, team_sum = make_place_of(geometry), make_common_ones(arrays), make_team_sum(team)
    size, drawn = kinds * arrays, 2 * arrays

    def verify(bits: Any, zeros: Any, limits: Any, candidates: Any, answer: Any, key: Any) -> None:
        ones = cuda.shared.array(3, numba.int32)  # of the third test, of the rest, of the giant columns
        places = cuda.shared.array(size, numba.uint64)
        draws = cuda.shared.array(drawn, numba.uint64)
        me = cuda.threadIdx.x
        for array in range(arrays):
            if me == array % threads:
                draws[2 * array], draws[2 * array + 1] = draw_of(array, key)
        cuda.syncthreads()
        count = min(np.int64(answer[CANDIDATES]), candidates.shape[0] // 2)
        for i in range(cuda.blockIdx.x, count, cuda.gridDim.x):
            high, low = candidates[2 * (count - 1 - i)], candidates[2 * (count - 1 - i) + 1]
            if me == 0:
                ones[0], ones[1], ones[2] = 0, 0, 0
            folded = U64(fold(high, low, key))
            for item in range(me, size, threads):
                array = item % arrays
                draw = draws[2 * array], draws[2 * array + 1]
                column = column_of(folded, low, array, draw, geometry)
                if item >= arrays:
                    column = giant_column_of(folded, low, array, draw, geometry)
                places[item] = place_of(column, folded, draw, (draws[0], draws[1]))
            cuda.syncthreads()
            found = team_sum(common_ones(bits, places, 0, (me, limits[THIRD_WORDS]), threads))
            if me % team == 0:
                cuda.atomic.add(ones, 0, found)
            cuda.syncthreads()
            passes = ones[0] >= limits[THIRD_ONES]
            if passes:
                found = common_ones(bits, places, 0, (limits[THIRD_WORDS] + me, words), threads)
                found = team_sum(found)
                if me % team == 0:
                    cuda.atomic.add(ones, 1, found)
                cuda.syncthreads()
            left = rows - ones[0] - ones[1]
            passes = passes and left <= limits[ZEROS]
            is_big = giants and passes and left < giant_zeros
            if is_big:
                found = team_sum(common_ones(bits, places, arrays, (me, words), threads))
                if me % team == 0:
                    cuda.atomic.add(ones, 2, found)
                cuda.syncthreads()
            if passes and me == 0:
                slot = np.int64(cuda.atomic.add(answer, FOUND, U64(1)))
                row = head + slot * width
                if row + width <= answer.shape[0]:
                    answer[row], answer[row + 1] = high, low
                    for array in range(arrays + 1):
                        plain, giant = left, rows - ones[2]
                        if array < arrays:
                            plain = zeros[(places[array] >> U64(32)) // U64(words)]
                            giant = zeros[(places[(kinds - 1) * arrays + array] >> U64(32)) // U64(words)]
                        answer[row + 2 + array] = U64(plain) | U64(giant if is_big else 0) << U64(32)
            cuda.syncthreads()

    return kernel(verify), threads


@compiled
def unpack_rows(rows: NDArray[np.uint64], giants: bool) -> tuple[Words, Counts]:
    """Return the mangled hosts in the rows of an answer, and their zero counts, those of giant columns last.

    In one pass: with NumPy, 3,700 hosts take 0.1 ms more, a third of a restore.
    """
    count, numbers = rows.shape[0], rows.shape[1] - 2
    hosts, counts = np.empty((count, 2), np.uint64), np.empty((count, numbers * (1 + giants)), np.int32)
    for row in range(count):
        hosts[row, 0], hosts[row, 1] = rows[row, 0], rows[row, 1]
        for i in range(numbers):
            counts[row, i] = np.int32(rows[row, 2 + i] & np.uint64(0xFFFFFFFF))
            if giants:
                counts[row, numbers + i] = np.int32(rows[row, 2 + i] >> np.uint64(32))
    return hosts, counts


VERIFY_BLOCKS = 32  # blocks per multiprocessor


@cache
def make_put(geometry: Geometry) -> Put:
    arrays, labels, limbs = geometry.arrays, geometry.labels, geometry.limbs
    word_shift, above = geometry.column_bits - 5, geometry.rows - 64
    lowest = int(lowest_priority(geometry.share_bits))
    wide, sampled, giants = geometry.key_bits == 128, geometry.sample_bits > 0, geometry.giants > 0

    def put(high: Any, low: Any, peer: Any, bits: Any, extra: Any, key: Any) -> None:
        places = cuda.local.array(arrays, numba.uint32)  # indexes of 32-bit half-words
        marks = cuda.local.array(arrays, numba.uint32)
        words = cuda.local.array(arrays, numba.uint32)
        folded = U64(fold(high, low, key)) if wide else low
        pair = U64(pair_hash(folded, peer, key))
        if sampled and not is_sampled(pair, geometry):
            return
        row = U32(row_of(pair, geometry) & MASK32)
        for array in range(arrays):
            draw = draw_of(array, key)
            column = U32(column_of(folded, low, array, draw, geometry))
            rotated = U32(row & U32(above) | (row + U32(rotation_of(folded, draw))) & U32(63))
            turned = U32(rotated ^ U32(line_turn_of(folded, draw, geometry) << LINE_BITS))
            places[array] = U32((column << U32(word_shift)) + (turned >> U32(5)))
            marks[array] = U32(U32(1) << (turned & U32(31)))
        is_new = bits[places[0]] & marks[0] == 0
        for array in range(arrays):  # Nearly all bits of a new pair are clear, so they are set without a look.
            words[array] = U32(0)
            if not is_new:
                words[array] = bits[places[array]]
        for array in range(arrays):
            if words[array] & marks[array] == 0:
                cuda.atomic.or_(bits, places[array], marks[array])
            priority = U32(priority_of(U64(ticket_of(pair, array, geometry, key)), array, geometry))
            if priority >= U32(lowest):
                column = U32(places[array] >> U32(word_shift))
                label = U32(column * U32(labels) + U32(label_of(low, geometry) & MASK32))
                for limb in range(limbs):
                    place = U32(label * U32(limbs) + U32(limb))
                    word = U64(label_word(U64(priority), U64(limb_of(high, low, limb))))
                    if word > extra[place]:
                        cuda.atomic.max(extra, place, word)
        if giants and is_for_giants(pair):
            for array in range(arrays):
                column = U32(giant_column_of(folded, low, array, draw_of(array, key), geometry))
                half = U32((column << U32(word_shift)) + (places[array] & U32((1 << word_shift) - 1)))
                if bits[half] & marks[array] == 0:
                    cuda.atomic.or_(bits, half, marks[array])

    return device_function(put)


class CudaCube(CudaEngine):
    geometry: Geometry
    names = ("bits", "labels")
    candidate_words = 2
    make_put, search_type = staticmethod(make_put), Search

    def _extra_words(self) -> int:
        return self.geometry.plain_columns * self.geometry.labels * self.geometry.limbs

    def _launch_search(self, stream: Stream) -> None:
        list_candidates, blocks, threads = make_list_candidates(self.geometry, self.launch)
        named = self.words, self.counts, self.extra, self.limits, self.answer, self.candidates, self.key
        self._start(list_candidates, (blocks, threads), stream, named)
        self._launch_verify(self.candidates, stream)

    def _launch_verify(self, candidates: DeviceArray, stream: Stream) -> None:
        verify, threads = make_verify(self.geometry, self.launch)
        arguments = self.words, self.counts, self.limits, candidates, self.answer, self.key
        self._start(verify, (VERIFY_BLOCKS * self.launch.multiprocessors, threads), stream, arguments)

    def _unpack(self, rows: Words) -> tuple[Words, Counts]:
        return unpack_rows(rows, self.geometry.giants > 0)

    @on_gpu
    def measure(self, mangled: Words) -> Counts:
        """Verify hosts as candidates that pass every test. Counts of giant columns follow, as those of a search do."""
        self._count()
        measured = np.empty((len(mangled), (self.geometry.arrays + 1) * (1 + (self.geometry.giants > 0))), np.int32)
        for start in range(0, len(mangled), self.max_rows):
            hosts = mangled[start : start + self.max_rows]
            self._ask(Search(self.geometry.rows, *[0] * (THIRD_ONES - ZEROS)), len(hosts))
            self._send_question(self.stream)
            self.asked_host[: hosts.size] = hosts.reshape(-1)
            self.asked.copy_to_device(self.asked_host, stream=self.stream.handle)
            self._launch_verify(self.asked, self.stream)
            self.answer.copy_to_host(self.answer_host, stream=self.stream.handle)
            self.stream.synchronize()
            found, counts = self._rows(len(hosts))
            measured[start + np.lexsort(hosts.T)] = counts[np.lexsort(found.T)]  # Blocks answer in any order.
        return measured

    @on_gpu
    def arrays(self) -> Arrays:
        geometry, arrays = self.geometry, super().arrays()
        labels: Words = self.extra.copy_to_host()
        arrays["labels"] = labels.reshape(geometry.plain_columns, geometry.labels, geometry.limbs)
        return arrays
