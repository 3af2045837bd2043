"""The engine that stores bit columns in the memory of one GPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from superhosts.core.device import gpu_count
from superhosts.core.pairs import Batches
from superhosts.core.text import setting
from superhosts.core.units import format_size
from superhosts.detectors.engines.base import (
    Arrays,
    Counts,
    Engine,
    Plan,
    Sums,
    Words,
    is_on_gpu,
    sample_batches,
    to_host,
)
from superhosts.detectors.gpu import driver, kernels
from superhosts.detectors.gpu.driver import Stream
from superhosts.detectors.gpu.launch import (
    BoundKernel,
    Kernel,
    Replay,
    as_device_array,
    device_zeros,
    gpu_of,
    has_own_stream,
    launch_of,
    to_device,
)
from superhosts.detectors.gpu.transfer import staging_of
from superhosts.errors import GpuMemoryError

GROUP_BITS = 5  # log2 of the groups by which pairs are sorted: two slices each in the default cube; 4 and 6 are slower
# Blocks per multiprocessor, over all groups: so many that only one or two groups are active at a time.
FILL_BLOCKS = 64
COUNT_BLOCKS = 16  # blocks per multiprocessor, so that each counts 8 columns of a 128 MiB cube
MAX_LAUNCH_PAIRS = 1 << 30  # pairs per launch
Method = TypeVar("Method", bound=Callable[..., Any])


def on_gpu(method: Method) -> Method:
    @wraps(method)
    def run(self: CudaEngine, *arguments: Any) -> Any:
        if gpu_count() == 1:
            driver.enter(self.gpu)
            return method(self, *arguments)
        with driver.inside(self.gpu):
            return method(self, *arguments)

    return cast(Method, run)


class CudaEngine(Engine):
    """Bit columns on one GPU. Subclasses provide device functions and the kernels of the search."""

    make_put: ClassVar[Any]  # makes the device function put(high, low, peer, bits, extra, key), which writes a pair
    search_type: ClassVar[Any]  # a NamedTuple of the limits of a search, one word each
    names: ClassVar[tuple[str, ...]] = ("bits",)  # names of the arrays, in the order of their memory
    candidate_words: ClassVar[int] = 1  # words per candidate
    _listed: list[tuple[Kernel, Any]] | None = None  # launches that are listed instead of made

    def __init__(self, plan: Plan, gpu: int) -> None:
        super().__init__(plan)
        size, most = format_size(plan.geometry.memory), plan.tuning.gpu.max_memory
        if plan.geometry.memory >= most:
            raise GpuMemoryError(f"memory {size}: a sketch on a GPU must be smaller than {format_size(most)}")
        self.gpu, self.launch = gpu, launch_of(gpu)
        try:
            self._allocate()
        except Exception as error:
            if not driver.is_out_of_memory(error):
                raise
            way = f"use less memory or {setting('device', 'cpu')}"
            text = f"memory {size}: GPU {gpu} does not have enough free memory; {way}"
            raise GpuMemoryError(text) from None

    def _start(self, kernel: Kernel, shape: tuple[int, int], stream: Stream, arguments: Any, kinds: Any = ()) -> None:
        """Launch a kernel. `kinds` identifies the types of its arguments if these vary."""
        if self._listed is not None:
            self._listed.append((kernel, arguments))
            return
        if (kernel, kinds) not in self._bound:
            self._bound[kernel, kinds] = BoundKernel(kernel, self.gpu, arguments)
        self._bound[kernel, kinds](shape, stream, arguments)

    @on_gpu
    def is_compiled(self) -> bool:
        return all(kernel.is_on_disk(self.gpu, arguments) for kernel, arguments in self._needed_kernels())

    @on_gpu
    def compile(self) -> None:
        for kernel, arguments in self._needed_kernels():
            kernel.load(self.gpu, arguments)

    def _needed_kernels(self) -> list[tuple[Kernel, Any]]:
        """Return the kernels that write pairs from host memory and find hosts, with arguments of their types."""
        listed: list[tuple[Kernel, Any]] = []
        self._listed = listed
        try:
            for hosts, peers in sample_batches(self.geometry.key_bits):
                self._write_directly(to_device(hosts), to_device(peers), self.stream)
            self._launch_count(self.stream)
            self._launch_search(self.stream)
        finally:
            self._listed = None
        return listed

    @on_gpu
    def _allocate(self) -> None:
        geometry = self.geometry
        self._bound: dict[Any, BoundKernel] = {}
        self.stream = driver.Stream()
        self.staging = staging_of(self.gpu, self.tuning.gpu.transfer)
        bits = geometry.total_columns * geometry.words
        self.memory = device_zeros(bits + self._extra_words(), np.uint64, self.stream)
        self.words, self.halves = self.memory[:bits], self.memory[:bits].view(np.uint32)
        self.extra = self.memory[bits:]  # labels, if the sketch has them
        self.put = self.make_put(self.geometry)
        self.group_bits = min(GROUP_BITS, (self.launch.threads - 1).bit_length() - 1)
        self.counts = to_device(np.full(geometry.total_columns, geometry.rows, np.int32))
        self._backwards = 1  # the direction of the next merge
        self._sums: Sums | None = None  # sums of zeros; None after a change
        self.tiles: Any = None
        self.recent: Any = None  # pairs that were written, by their hash; 0 is an empty place
        self._max_tiled = min(self.tuning.gpu.max_tiled_pairs, driver.free_memory() // 64)
        self._make_answer(self.tuning.gpu.rows, self.tuning.gpu.candidates)
        self.stream.synchronize()

    def _make_answer(self, rows: int, candidates: int) -> None:
        """Allocate memory for the result of a search: counters of hosts and candidates, sums of zeros, then rows.

        A row is a mangled host in two words and its zero counts. The limits of the search precede all of this, so that
        a single copy transfers them and sets the counters and sums to zero.
        """
        limits = self._limit_words()
        self.head, self.width = kernels.answer_shape(self.geometry)
        memory = device_zeros(limits + self.head + rows * self.width, np.uint64, self.stream)
        listed = device_zeros(self.candidate_words * candidates, np.uint64, self.stream)
        asked, asked_host = device_zeros(2 * rows, np.uint64, self.stream), driver.pinned(2 * rows, np.uint64)
        question, answer = (
            driver.pinned(limits + self.head, np.uint64),
            driver.pinned(self.head + rows * self.width, np.uint64),
        )
        question[:] = 0
        # Assign only after every allocation succeeded: if one fails, the old arrays remain consistent.
        self.question, self.limits = memory[: limits + self.head], memory[:limits].view(np.int64)
        self.answer, self.sums = memory[limits:], memory[limits + kernels.COUNTERS : limits + self.head]
        self.question_host, self.answer_host, self.candidates = question, answer, listed
        self.asked, self.asked_host = asked, asked_host
        self.max_rows, self.max_candidates = rows, candidates
        self._find = Replay(self.stream)

    def _extra_words(self) -> int:
        """Return the number of words after the columns in a sketch's memory."""
        return 0

    def _limit_words(self) -> int:
        return len(self.search_type._fields)

    def _limits_of(self, search: Any) -> Any:
        """Return the limits of a search as integers."""
        return search

    @abstractmethod
    def _launch_search(self, stream: Stream) -> None:
        """Launch the kernels that find hosts. They run after zeros have been counted."""

    def _send(self, arrays: Arrays, memory: Any) -> None:
        total, start = sum(arrays[name].size for name in self.names), 0
        if total != len(memory):
            raise ValueError(f"the arrays have {total} words, but the sketch has {len(memory)}")
        for name in self.names:
            words = arrays[name].reshape(-1)
            memory[start : start + len(words)].copy_to_device(words)
            start += len(words)

    # Updates

    @on_gpu
    def update_batches(self, batches: Batches) -> None:
        """Write batches. Arrays on this GPU are not copied."""
        self._sums = None
        if not any(is_on_gpu(column) for columns in batches for column in columns):
            self.staging.send(batches, self._write_directly)
            return
        for hosts, peers in batches:
            if all(is_on_gpu(column) and gpu_of(column) == self.gpu for column in (hosts, peers)):
                self._write(as_device_array(hosts), as_device_array(peers), self.stream)
                if has_own_stream(hosts) or has_own_stream(peers):
                    self.stream.synchronize()  # Later work on the array's stream does not wait for our stream.
            else:
                self.staging.send([(to_host(hosts), to_host(peers))], self._write_directly)

    def _write(self, hosts: Any, peers: Any, stream: Stream) -> None:
        geometry, tuning = self.geometry, self.tuning.gpu
        narrow = hosts.dtype == np.uint32 and peers.dtype == np.uint32
        step, write = MAX_LAUNCH_PAIRS, self._write_directly
        is_large = len(hosts) >= tuning.min_tiled_pairs and geometry.memory >= tuning.min_tiled_memory
        if narrow and geometry.slice_bits and is_large:
            try:
                step, write = self._reserve_tiles(len(hosts)), self._write_tiled
            except Exception as error:
                if not driver.is_out_of_memory(error):
                    raise
                # Continue with unsorted writes, which are slower but need no memory.
        if len(hosts) <= step:  # Slicing costs as much as a launch.
            write(hosts, peers, stream)
            return
        for start in range(0, len(hosts), step):
            write(hosts[start : start + step], peers[start : start + step], stream)

    def _write_directly(self, hosts: Any, peers: Any, stream: Stream) -> None:
        launch = self.launch
        update = kernels.make_update(self.put, self.geometry.key_bits, hosts.ndim, peers.ndim)
        wanted = -(-len(hosts) // launch.threads)
        blocks = min(4 * launch.multiprocessors, wanted)
        arguments = hosts, peers, self.halves, self.extra, self.key
        self._start(update, (blocks, launch.threads), stream, arguments, (hosts.dtype, peers.dtype))

    def _reserve_tiles(self, pairs: int) -> int:
        """Allocate memory for sorted tiles and return the number of pairs that fit."""
        size = self.launch.threads * self.launch.items
        pairs = min(pairs, self._max_tiled)
        if self.tiles is None or len(self.tiles[0]) < pairs:
            self.tiles = None
            if self.recent is None:
                self.recent = device_zeros(1 << self.launch.fill_recent_bits, np.uint64, self.stream)
            tiles = pairs // size + 1
            starts = driver.allocate((tiles, (1 << self.group_bits) + 1), np.int32)
            self.tiles = driver.allocate(tiles * size, np.uint64), starts
        return len(self.tiles[1]) * size

    def _write_tiled(self, hosts: Any, peers: Any, stream: Stream) -> None:
        launch, (pairs, starts) = self.launch, self.tiles
        group_bits = self.group_bits
        sort = kernels.make_tiles(self.geometry.slice_bits, group_bits, launch)
        fill = kernels.make_fill(self.put, group_bits, launch)
        tiles = -(-len(hosts) // (launch.threads * launch.items))
        blocks = min(3 * launch.multiprocessors, tiles)
        self._start(sort, (blocks, launch.threads), stream, (hosts, peers, pairs, starts, self.key))
        blocks = max(1, FILL_BLOCKS * launch.multiprocessors >> group_bits) << group_bits
        arguments = pairs, starts, tiles, self.recent, self.halves, self.extra, self.key
        self._start(fill, (blocks, launch.threads), stream, arguments)

    @on_gpu
    def flush(self) -> None:
        self.staging.synchronize()
        self.stream.synchronize()

    @on_gpu
    def clear(self) -> None:
        self.staging.synchronize()
        self.memory.set_zero(self.stream.handle)
        self._forget_recent()
        self.stream.synchronize()  # The next pairs may arrive on another stream.
        self._sums = None

    # Merging, loading and saving

    @on_gpu
    def merge(self, other: Engine) -> None:
        self.staging.synchronize()
        if isinstance(other, CudaEngine) and other.gpu == self.gpu:
            if other is not self:
                other.flush()
            memory = other.memory
        else:
            memory = driver.allocate(len(self.memory), np.uint64)
            self._send(other.arrays(), memory)
        self._merge_words(self.memory, memory)
        self._sums = None

    def _merge_words(self, into: Any, other: Any) -> None:
        """OR the columns, which come first, keep the maximum of each label, and wait."""
        threads = 2 * self.launch.threads
        blocks = -(-len(into) // (threads * kernels.MERGED_TOGETHER))
        arguments = into, other, len(self.words), self._backwards
        self._backwards = 1 - self._backwards
        self._start(kernels.make_merge(threads), (blocks, threads), self.stream, arguments)
        self.stream.synchronize()

    @on_gpu
    def arrays(self) -> Arrays:
        self.flush()
        bits: Words = self.words.copy_to_host()
        return {"bits": bits.reshape(self.geometry.total_columns, self.geometry.words)}

    @on_gpu
    def load(self, arrays: Arrays) -> None:
        self.flush()
        self._send(arrays, self.memory)
        self._forget_recent()
        self.stream.synchronize()
        self._sums = None

    def _forget_recent(self) -> None:
        """Forget which pairs were written, because they are no longer there."""
        if self.recent is not None:
            self.recent.set_zero(self.stream.handle)

    # Queries

    def _launch_count(self, stream: Stream) -> None:
        launch, geometry = self.launch, self.geometry
        count, threads = kernels.make_count(geometry.words, tuple(geometry.edges), launch)
        blocks = min(-(-len(self.counts) * launch.team // threads), COUNT_BLOCKS * launch.multiprocessors)
        self._start(count, (blocks, threads), stream, (self.words, self.counts, self.sums))

    def _ask(self, search: Any, candidates: int = 0) -> None:
        self.question_host[: len(self.limits)].view(np.int64)[:] = self._limits_of(search)
        self.question_host[len(self.limits) + kernels.CANDIDATES] = candidates

    def _send_question(self, stream: Stream) -> None:
        self.question.copy_to_device(self.question_host, stream=stream.handle)

    def _sequence(self, stream: Stream) -> None:
        self._send_question(stream)
        self._launch_count(stream)
        self._launch_search(stream)
        self.answer.copy_to_host(self.answer_host, stream=stream.handle)

    @on_gpu
    def search(self, search: Any) -> tuple[Words, Counts]:
        """Find hosts in one recorded sequence of launches. If the answer is too small, enlarge it and search again."""
        self.staging.synchronize()
        while True:
            self._ask(search)
            self._find(self._sequence)
            found, candidates, steps = self.answer_host[: kernels.COUNTERS].tolist()
            self._check_steps(steps)
            if found <= self.max_rows and candidates <= self.max_candidates:
                break
            rows, listed = max(self.max_rows, found * 5 // 4), max(self.max_candidates, candidates * 5 // 4)
            self._make_answer(rows, listed)
        self._keep_sums(self.answer_host[kernels.COUNTERS : self.head])
        return self._rows(found)

    def _rows(self, found: int) -> tuple[Words, Counts]:
        return self._unpack(self.answer_host[self.head : self.head + found * self.width].reshape(found, self.width))

    def _unpack(self, rows: Words) -> tuple[Words, Counts]:
        return rows[:, :2].copy(), rows[:, 2:].astype(np.int32)

    def _keep_sums(self, sums: Words) -> None:
        self._sums = sums.astype(np.int64).reshape(-1, self.geometry.arrays)

    def _count(self) -> None:
        if self._sums is None:
            self.staging.synchronize()
            self._send_question(self.stream)
            self._launch_count(self.stream)
            self.stream.synchronize()
            self._keep_sums(self.sums.copy_to_host())

    @on_gpu
    def zero_sums(self) -> Sums:
        self._count()
        assert self._sums is not None
        return self._sums

    @on_gpu
    def zeros(self) -> Counts:
        self._count()
        zeros: Counts = self.counts.copy_to_host()
        return zeros
