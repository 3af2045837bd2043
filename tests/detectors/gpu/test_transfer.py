"""The compiled transfer of one thread from host memory to the GPU, with plain copies in place of the driver."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from hostgpu import CONTEXT, HostGpu, host_gpu
from superhosts.detectors.gpu.transfer import Buffer, Piece, _calls, transfer

WAITED = -1
PART_BYTES = 240


def run_transfer(batches, targets, first: int, step: int, context: int = CONTEXT) -> tuple[int, list[int]]:
    """Return the status, and what the driver was asked to do: waits (WAITED, stream) and copies (bytes, stream)."""
    memory = np.zeros(2 * PART_BYTES, np.uint8)
    places = [SimpleNamespace(address=target.ctypes.data) for target in targets]
    parts = Piece(batches, places, PART_BYTES, step).parts
    buffer = Buffer(memory.ctypes.data, PART_BYTES, np.array([5, 6], np.int64))
    with host_gpu() as gpu:
        gpu.log.clear()
        status = transfer(_calls(), context, parts, buffer, first, step)
        asked = {"cuStreamSynchronize": lambda words: (WAITED, *words), "cuMemcpyHtoDAsync_v2": lambda words: words[2:]}
        return status, [word for name, words in gpu.log if name in asked for word in asked[name](words)]


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (1 << 17, 1), ((1 << 17) + 1, 2), (1 << 21, 8), (1 << 23, 16)])
def test_parts_are_one_for_each_thread_unless_they_are_too_small_or_too_large(rows, count):
    half = np.empty(rows // 2, np.uint32), np.empty(rows // 2, np.uint32)
    rest = tuple(np.empty(rows - rows // 2, np.uint32) for _ in range(2))
    piece = Piece([half, rest], (SimpleNamespace(address=0),) * 2, 1 << 22, 8)
    assert piece.count == count
    assert (count - 1) * piece.parts.size < rows <= count * piece.parts.size
    assert 8 * piece.parts.size <= 1 << 22


@pytest.fixture
def columns():
    rng = np.random.default_rng(3)
    return rng.integers(0, 1 << 32, 103, dtype=np.uint32), rng.integers(0, 1 << 63, (103, 2), dtype=np.uint64)


def test_a_half_is_waited_for_before_it_is_filled_again(columns):
    _, log = run_transfer([columns], [np.zeros_like(column) for column in columns], 0, 3)
    part = [WAITED, 5, 48, 5, 192, 5]
    other = [WAITED, 6, 48, 6, 192, 6]
    assert log == [*part, *other, *part, WAITED, 5, WAITED, 6]


def test_the_first_failure_is_told_after_all_has_ended(columns, monkeypatch):
    targets = [np.zeros_like(column) for column in columns]
    monkeypatch.setattr(HostGpu, "_cuCtxSetCurrent", lambda _, context: 0 if context == CONTEXT else 201, raising=False)
    assert run_transfer([columns], targets, 0, 1, context=78)[0] == 201
    second = "_cuMemcpyHtoDAsync", lambda _gpu, _target, _source, size, _stream: 719 if size == 192 else 0
    monkeypatch.setattr(HostGpu, *second)  # the second column of the first part
    status, log = run_transfer([columns], targets, 0, 1)
    assert status == 719
    assert log[-4:] == [WAITED, 5, WAITED, 6]
    assert sum(entry in (48, 192) for entry in log) == 2  # Nothing is sent after the failure.


@pytest.mark.parametrize("threads", [1, 3])
def test_several_batches_arrive_one_behind_the_other(columns, threads):
    edges = [0, 5, 5, 12, 13, 14, 40, 103, 103]
    batches = [tuple(column[a:b] for column in columns) for a, b in itertools.pairwise(edges)]
    targets = [np.zeros_like(column) for column in columns]
    for first in range(threads):
        assert run_transfer(batches, targets, first, threads)[0] == 0
    for column, target in zip(columns, targets, strict=True):
        assert np.array_equal(column, target)
