"""The labelled cube on a GPU: writing a pair and reading the columns of hosts."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

from superhosts.core.hashing import MASK32, fold, pair_hash
from superhosts.detectors.cube.addressing import (
    LINE_WORDS,
    column_of,
    giant_column_of,
    is_for_giants,
    is_sampled,
    label_of,
    label_word,
    limb_of,
    line_turn_of,
    lowest_priority,
    priority_of,
    rotated_back,
    rotation_of,
    row_of,
    ticket_of,
)
from superhosts.detectors.cube.cudasearch import make_list_candidates, make_verify, unpack_rows
from superhosts.detectors.cube.geometry import LINE_BITS, Geometry, Search
from superhosts.detectors.engines.base import Arrays, Counts, Words
from superhosts.detectors.gpu.code import cuda, device_function
from superhosts.detectors.gpu.engine import CudaEngine, on_gpu
from superhosts.detectors.gpu.kernels import U32, U64, Put, draw_of
from superhosts.detectors.gpu.launch import Stream

LIST_BLOCKS, VERIFY_BLOCKS = 64, 32  # blocks per multiprocessor


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
        list_candidates, threads = make_list_candidates(geometry, launch)
        labels = geometry.plain_columns * geometry.labels
        blocks = min(-(-labels // threads), LIST_BLOCKS * launch.multiprocessors)
        named = self.words, self.counts, self.extra, self.limits, self.answer, self.candidates, self.key
        self._start(list_candidates, (blocks, threads), stream, named)
        verify, threads = make_verify(geometry, launch)
        candidates = self.words, self.counts, self.limits, self.candidates, self.answer, self.key
        self._start(verify, (VERIFY_BLOCKS * launch.multiprocessors, threads), stream, candidates)

    def _unpack(self, rows: Words) -> tuple[Words, Counts]:
        return unpack_rows(rows, self.geometry.giants > 0)

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
