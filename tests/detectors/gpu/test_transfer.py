"""The compiled transfer of one thread from host memory to the GPU, with plain copies in place of the driver."""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from superhosts.detectors.gpu.transfer import Buffer, Calls, Piece, transfer

WORD = ctypes.c_uint64
WAITED = -1
PART_BYTES = 240


class Driver:
    """A driver that copies immediately and logs its calls."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.log: list[int] = []
        self.fails_at = fails_at

    def calls(self) -> Calls:
        self._kept = [  # C functions, which end with this object
            ctypes.CFUNCTYPE(ctypes.c_int, WORD)(lambda context: 0 if context == 77 else 201),
            ctypes.CFUNCTYPE(ctypes.c_int, WORD)(self._wait),
            ctypes.CFUNCTYPE(ctypes.c_int, WORD, WORD, WORD, WORD)(self._send),
            ctypes.CFUNCTYPE(WORD, WORD, WORD, WORD)(ctypes.memmove),
        ]
        return Calls(*(ctypes.cast(function, ctypes.c_void_p).value for function in self._kept))

    def _wait(self, queue: int) -> int:
        self.log += [WAITED, queue]
        return 0

    def _send(self, target: int, source: int, size: int, queue: int) -> int:
        sent = len(self.log)
        self.log += [size, queue]
        if sent == self.fails_at:
            return 719
        ctypes.memmove(target, source, size)
        return 0


def run_transfer(driver: Driver, batches, targets, first: int, step: int, context: int = 77) -> int:
    memory = np.zeros(2 * PART_BYTES, np.uint8)
    places = [SimpleNamespace(address=target.ctypes.data) for target in targets]
    parts = Piece(batches, places, PART_BYTES, step).parts
    buffer = Buffer(memory.ctypes.data, PART_BYTES, np.array([5, 6], np.int64))
    return transfer(driver.calls(), context, parts, buffer, first, step)


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (1 << 17, 1), ((1 << 17) + 1, 2), (1 << 21, 8), (1 << 23, 16)])
def test_parts_are_one_for_each_thread_unless_they_are_too_small_or_too_large(rows, count):
    half = np.empty(rows // 2, np.uint32), np.empty(rows // 2, np.uint32)
    rest = tuple(np.empty(rows - rows // 2, np.uint32) for _ in range(2))
    piece = Piece([half, rest], (None, None), 1 << 22, 8)
    assert piece.count == count
    assert (count - 1) * piece.size < rows <= count * piece.size
    assert 8 * piece.size <= 1 << 22


@pytest.fixture
def columns():
    rng = np.random.default_rng(3)
    return rng.integers(0, 1 << 32, 103, dtype=np.uint32), rng.integers(0, 1 << 63, (103, 2), dtype=np.uint64)


def test_a_half_is_waited_for_before_it_is_filled_again(columns):
    driver = Driver()
    run_transfer(driver, [columns], [np.zeros_like(column) for column in columns], 0, 3)
    part = [WAITED, 5, 48, 5, 192, 5]
    other = [WAITED, 6, 48, 6, 192, 6]
    assert driver.log == [*part, *other, *part, WAITED, 5, WAITED, 6]


def test_the_first_failure_is_told_after_all_has_ended(columns):
    targets = [np.zeros_like(column) for column in columns]
    driver = Driver(fails_at=4)  # the second column of the first part
    assert run_transfer(driver, [columns], targets, 0, 1) == 719
    assert driver.log[-4:] == [WAITED, 5, WAITED, 6]
    assert sum(entry in (48, 192) for entry in driver.log) == 2  # Nothing is sent after the failure.
    assert run_transfer(Driver(), [columns], targets, 0, 1, context=78) == 201


@pytest.mark.parametrize("threads", [1, 3])
def test_several_batches_arrive_one_behind_the_other(columns, threads):
    edges = [0, 5, 5, 12, 13, 14, 40, 103, 103]
    batches = [tuple(column[a:b] for column in columns) for a, b in itertools.pairwise(edges)]
    targets = [np.zeros_like(column) for column in columns]
    for first in range(threads):
        assert run_transfer(Driver(), batches, targets, first, threads) == 0
    for column, target in zip(columns, targets, strict=True):
        assert np.array_equal(column, target)
