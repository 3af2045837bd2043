"""The labelled cube on a GPU: writing a pair and naming super hosts.

After the zeros are counted, a search runs two kernels: `list_candidates` follows the labels of hot columns, one thread
per label, and `verify` ANDs the columns of a candidate, one team of threads per candidate. They apply the same tests as
the CPU and find the same hosts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

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
from superhosts.engines.arrays import Arrays, Counts, Words
from superhosts.engines.gpu.engine import CudaEngine, on_gpu
from superhosts.engines.gpu.kernels import CANDIDATES, FOUND, U32, U64, Kernel, Put, answer_shape, draw_of
from superhosts.engines.gpu.launch import Launch, Stream, cuda, device_function, kernel
from superhosts.hashing import MASK32, fold, pair_hash

PREFIX_BATCH = 8  # words of the pre-check that are read together
# Indexes of the limits of a search
ZEROS, PRIORITY, ELSEWHERE, FIRST_WORDS, FIRST_ONES, SECOND_WORDS, SECOND_ONES, THIRD_WORDS, THIRD_ONES = range(9)


@cache
def make_put(geometry: Geometry) -> Put:
    """Return the device function that writes one pair. It reads the columns before it writes."""
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


@cache
def make_column_of(geometry: Geometry, giant: bool) -> Any:
    """Return the device function that computes a host's plain or giant column in one array."""

    def host_column(high: Any, low: Any, array: int, key: Any) -> int:
        folded, draw = U64(fold(high, low, key)), draw_of(array, key)
        if giant:
            return np.int64(giant_column_of(folded, low, array, draw, geometry))
        return np.int64(column_of(folded, low, array, draw, geometry))

    return device_function(host_column)


@cache
def make_read(geometry: Geometry) -> Any:
    """Return the device function that reads a word of a host's column in one array, with its turn undone."""
    words = geometry.words

    def read(bits: Any, column: int, word: int, high: Any, low: Any, array: int, key: Any) -> Any:
        folded, draw = U64(fold(high, low, key)), draw_of(array, key)
        place = word ^ np.int64(line_turn_of(folded, draw, geometry)) * LINE_WORDS
        return U64(rotated_back(bits[U32(column * words + place)], U64(rotation_of(folded, draw))))

    return device_function(read)


@cache
def make_list_candidates(geometry: Geometry) -> Kernel:
    """Return the kernel that lists the hosts that labels of hot columns name and whose columns are all hot."""
    arrays, labels, limbs, words = geometry.arrays, geometry.labels, geometry.limbs, geometry.words
    plain_columns = geometry.plain_columns

    def list_candidates(bits: Any, zeros: Any, extra: Any, limits: Any, answer: Any, candidates: Any, key: Any) -> None:
        columns = cuda.local.array(arrays, numba.int64)
        rotations = cuda.local.array(arrays, numba.uint32)
        turns = cuda.local.array(arrays, numba.uint32)
        limit, lowest, elsewhere = limits[ZEROS], U64(max(1, limits[PRIORITY])), U64(limits[ELSEWHERE])
        for place in range(cuda.grid(1), plain_columns * labels, cuda.gridsize(1)):
            column, label = place // labels, place % labels
            if zeros[column] > limit:
                continue
            priority = U64(priority_in(extra[place * limbs]))
            if priority < lowest:
                continue
            low, high, named = U64(0), U64(0), True
            for limb in range(limbs):
                word = extra[place * limbs + limb]
                named = named and U64(priority_in(word)) == priority
                part = U64(limb_in(word)) << U64(32 * (limb & 1))
                if limb < 2:
                    low |= part
                else:
                    high |= part
            folded = U64(fold(high, low, key))
            own = column // geometry.columns % arrays
            for array in range(arrays):
                columns[array] = np.int64(column_of(folded, low, array, draw_of(array, key), geometry))
                named = named and zeros[columns[array]] <= limit
            if not named or not names_host(low, U64(label), column, columns[own], geometry):
                continue
            for array in range(arrays):  # Skip a host that an earlier array also names, so that it is listed once.
                place_there = (columns[array] * labels + label) * limbs
                other = U64(priority_in(extra[place_there]))
                same = array < own and other >= lowest
                for limb in range(limbs):
                    same = same and holds_limb(extra[place_there + limb], other, U64(limb_of(high, low, limb)))
                named = named and other >= elsewhere and not same
            if named:  # Cheap pre-check: most candidates are false.
                ones = 0
                for array in range(arrays):
                    rotations[array] = U32(rotation_of(folded, draw_of(array, key)))
                    turns[array] = U32(line_turn_of(folded, draw_of(array, key), geometry) * LINE_WORDS)
                for start in range(0, limits[FIRST_WORDS], PREFIX_BATCH):
                    for ahead in range(PREFIX_BATCH):  # The compiler unrolls this, so that the reads overlap.
                        word = start + ahead
                        if word < limits[FIRST_WORDS]:
                            mine = bits[U32(columns[0] * words + (word ^ np.int64(turns[0])))]
                            common = U64(rotated_back(mine, U64(rotations[0])))
                            for array in range(1, arrays):
                                mine = bits[U32(columns[array] * words + (word ^ np.int64(turns[array])))]
                                common &= U64(rotated_back(mine, U64(rotations[array])))
                            ones += cuda.popc(common)
                named = ones >= limits[FIRST_ONES]
            if named:
                slot = np.int64(cuda.atomic.add(answer, CANDIDATES, U64(1)))
                if slot * 2 + 1 < candidates.shape[0]:
                    candidates[slot * 2], candidates[slot * 2 + 1] = high, low

    return kernel(list_candidates)


def cube_answer_shape(geometry: Geometry) -> tuple[int, int]:
    """Return the shape of an answer in which the counts of giant columns follow those of plain ones, if there are any.

    They are part of the answer because a second question would take longer than the whole search.
    """
    head, width = answer_shape(geometry)
    return head, width + (geometry.arrays + 1 if geometry.giants else 0)


@cache
def make_verify(geometry: Geometry, launch: Launch) -> Kernel:
    """Return the kernel that ANDs the columns of candidates and appends those that pass to the answer.

    A block is one team, whose threads share the words of a candidate's columns.
    """
    arrays, words, rows, giants = geometry.arrays, geometry.words, geometry.rows, geometry.giants > 0
    team, (head, width), giant_zeros = launch.team, cube_answer_shape(geometry), geometry.giant_zeros

    def verify(bits: Any, zeros: Any, limits: Any, candidates: Any, answer: Any, key: Any) -> None:
        ones = cuda.shared.array(1, numba.int32)
        columns = cuda.local.array(arrays, numba.int64)
        giant_columns = cuda.local.array(arrays, numba.int64)
        turns = cuda.local.array(arrays, numba.int64)
        rotations = cuda.local.array(arrays, numba.uint64)
        me = cuda.threadIdx.x
        count = min(np.int64(answer[CANDIDATES]), candidates.shape[0] // 2)
        for i in range(cuda.blockIdx.x, count, cuda.gridDim.x):
            high, low = candidates[2 * i], candidates[2 * i + 1]
            folded = U64(fold(high, low, key))
            if me == 0:
                ones[0] = 0
            cuda.syncthreads()
            for array in range(arrays):
                columns[array] = np.int64(column_of(folded, low, array, draw_of(array, key), geometry)) * words
                rotations[array] = U64(rotation_of(folded, draw_of(array, key)))
                turns[array] = np.int64(line_turn_of(folded, draw_of(array, key), geometry)) * LINE_WORDS
            start, stop, stage = 0, limits[SECOND_WORDS], SECOND_WORDS
            while start < words:  # AND some words, then more only if these have enough ones.
                found = 0
                for word in range(start + me, stop, team):
                    common = U64(rotated_back(bits[U32(columns[0] + (word ^ turns[0]))], rotations[0]))
                    for array in range(1, arrays):
                        mine = bits[U32(columns[array] + (word ^ turns[array]))]
                        common &= U64(rotated_back(mine, rotations[array]))
                    found += cuda.popc(common)
                cuda.atomic.add(ones, 0, found)
                cuda.syncthreads()
                minimum = limits[stage + 1] if stage <= THIRD_WORDS else 0
                start = stop if ones[0] >= minimum else words
                stage += 2
                stop = limits[stage] if stage <= THIRD_WORDS else words
                cuda.syncthreads()
            left = rows - ones[0]
            passes = left <= limits[ZEROS]
            cuda.syncthreads()
            if giants and passes and left < giant_zeros:
                if me == 0:
                    ones[0] = 0
                cuda.syncthreads()
                for array in range(arrays):
                    giant = giant_column_of(folded, low, array, draw_of(array, key), geometry)
                    giant_columns[array] = np.int64(giant) * words
                found = 0
                for word in range(me, words, team):
                    common = U64(rotated_back(bits[U32(giant_columns[0] + (word ^ turns[0]))], rotations[0]))
                    for array in range(1, arrays):
                        mine = bits[U32(giant_columns[array] + (word ^ turns[array]))]
                        common &= U64(rotated_back(mine, rotations[array]))
                    found += cuda.popc(common)
                cuda.atomic.add(ones, 0, found)
                cuda.syncthreads()
            if me == 0 and passes:
                slot = np.int64(cuda.atomic.add(answer, FOUND, U64(1)))
                place = head + slot * width
                if place + width <= answer.shape[0]:
                    answer[place], answer[place + 1] = high, low
                    for array in range(arrays):
                        answer[place + 2 + array] = U64(zeros[columns[array] // words])
                    answer[place + 2 + arrays] = U64(left)
                    if giants:
                        reads = left < giant_zeros
                        for array in range(arrays):
                            number = zeros[giant_columns[array] // words] if reads else 0
                            answer[place + 3 + arrays + array] = U64(number)
                        answer[place + 3 + 2 * arrays] = U64(rows - ones[0] if reads else 0)
            cuda.syncthreads()

    return kernel(verify)


class CudaCube(CudaEngine):
    """A labelled cube on one GPU."""

    geometry: Geometry
    names = ("bits", "labels")

    def _make_put(self) -> Put:
        return make_put(self.geometry)

    def _extra_words(self) -> int:
        return self.geometry.plain_columns * self.geometry.labels * self.geometry.limbs

    def _candidate_words(self) -> int:
        return 2

    def _limit_words(self) -> int:
        return len(Search._fields)

    def _limits_of(self, search: Search) -> Search:
        return search

    def _launch_search(self, stream: Stream) -> None:
        geometry, launch = self.geometry, self.launch
        labels = geometry.plain_columns * geometry.labels
        threads = launch.threads // 4  # The kernel uses many registers; smaller blocks leave fewer of them unused.
        blocks = min(-(-labels // threads), 64 * launch.multiprocessors)
        named = self.words, self.counts, self.extra, self.limits, self.answer, self.candidates, self.key
        self._start(make_list_candidates(geometry), (blocks, threads), stream, named)
        candidates = self.words, self.counts, self.limits, self.candidates, self.answer, self.key
        self._start(make_verify(geometry, launch), (32 * launch.multiprocessors, launch.team), stream, candidates)

    def _answer_shape(self) -> tuple[int, int]:
        return cube_answer_shape(self.geometry)

    def _make_column_of(self) -> Any:
        return make_column_of(self.geometry, False)

    def _make_read(self) -> Any:
        return make_read(self.geometry)

    @on_gpu
    def measure_giants(self, mangled: Words) -> Counts:
        """Return the zero counts of mangled hosts in their giant columns: of each, then of their AND."""
        return self._measure(mangled, make_column_of(self.geometry, True))

    @on_gpu
    def arrays(self) -> Arrays:
        """Return copies of the columns and labels."""
        geometry, arrays = self.geometry, super().arrays()
        labels: Words = self.extra.copy_to_host()
        arrays["labels"] = labels.reshape(geometry.plain_columns, geometry.labels, geometry.limbs)
        return arrays
