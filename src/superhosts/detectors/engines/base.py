"""The interface of engines, which store the columns of a sketch and work on them: CPU threads, a GPU or several GPUs.

A `ColumnSketch` knows what columns mean; its engine stores them, sets bits, counts zeros and finds candidates. Engines
return only integers (bits, labels, zero counts), which are identical on every device. All estimation is done on the
CPU, in one place for all devices.
"""

from __future__ import annotations

import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import choose_device, gpus_of, is_cupy
from superhosts.core.hashing import Key
from superhosts.core.pairs import Addresses, Batches, words_to_column
from superhosts.cubefile.container import Take
from superhosts.errors import DeviceWarning, GpuMemoryError

Arrays = dict[str, NDArray[Any]]
Words = NDArray[np.uint64]  # bits of columns, labels, or hosts as rows (high word, low word)
Counts = NDArray[np.int32]


def is_on_gpu(column: Any) -> bool:
    # CuPy takes two microseconds to describe an array.
    return is_cupy(column) or hasattr(column, "__cuda_array_interface__") or getattr(column, "__cuda_ndarray__", False)


def to_host(column: Any) -> Any:
    if not is_on_gpu(column):
        return column
    # It loads the CUDA packages, which are optional and slow to load.
    from superhosts.detectors.gpu.launch import as_device_array

    array = as_device_array(column)
    return array.get() if is_cupy(array) else array.copy_to_host()


class ArrayShape(NamedTuple):
    sides: tuple[int | tuple[int, ...] | None, ...]  # one size, several allowed sizes, or any size
    dtype: str = "<u8"

    def _allowed(self) -> list[tuple[int, ...]]:
        """Return the allowed sizes of each side; none for any size."""
        return [() if side is None else side if isinstance(side, tuple) else (side,) for side in self.sides]

    def fits(self, sides: Sequence[int]) -> bool:
        if len(sides) != len(self.sides):
            return False
        return all(not allowed or side in allowed for side, allowed in zip(sides, self._allowed(), strict=True))

    def __str__(self) -> str:
        return " by ".join(" or ".join(map(str, allowed)) or "any" for allowed in self._allowed())


# Sizes that decide how fast a detector works, how much memory it takes meanwhile and whether it fits a GPU. They never
# change an answer. The defaults are measured. Tests use small sizes, so that a few pairs use the code for millions.


class TransferSizes(NamedTuple):
    """Sizes of the transfer of pairs from pageable (ordinary) memory to a GPU."""

    piece: int = 1 << 24  # pairs per piece: many, because threads are started for each piece
    part_bytes: int = 1 << 22  # bytes that a thread copies at a time; with fewer, threads wait for each other


class GpuTuning(NamedTuple):
    min_tiled_pairs: int = 1 << 22  # pairs per batch; sorting fewer by slice does not pay
    min_tiled_memory: int = 32 << 20  # bytes of a sketch; a smaller one stays in the cache without sorting
    max_tiled_pairs: int = 1 << 27  # pairs sorted at a time: 1 GiB if that is a small part of the GPU's memory
    max_memory: int = 1 << 34  # bytes of columns that 32-bit indexes can address
    rows: int = 1024  # capacity of an answer, in hosts; it is copied as a whole and grows when it is too small
    candidates: int = 1 << 16  # capacity of the list of candidates, which grows when it is too small
    host_slots: int = 1 << 20  # slots of a new set of hosts, 4 MiB; with most traffic, it grows once or never
    transfer: TransferSizes = TransferSizes()


class Tuning(NamedTuple):
    min_pairs_per_thread: int = 8192  # for fewer pairs, waking another thread costs more than it saves
    min_pending: int = 1 << 20  # pending pairs of the exact detector; sorting fewer is not worth the calls
    host_slots: int = 1 << 10  # slots of a new set of hosts in main memory
    gpu: GpuTuning = GpuTuning()


Sums = NDArray[np.int64]
# A search that joins columns to addresses (CBAA, DCDS, VBFA) gives up after this many ANDs of whole columns. For 50 M
# flows in 128 MiB, DCDS needs a quarter of it and CBAA a hundredth; in a full sketch all 2^32 addresses would pass.
MAX_STEPS = 1 << 26
STEPS_PER_HOST = 16  # steps that each host found counts as, which limits the number of hosts too


class CrowdedError(Exception):
    """A search was abandoned because the columns are too full to distinguish hosts at this threshold."""


class Plan(NamedTuple):
    # A NamedTuple of integers or lists of integers, which kernels accept as an argument. Slices consist of `arrays`
    # arrays, these of columns, and a column of `rows` bits in `words` words. `edges` has the first column of each array
    # in a slice, and their number; giant columns, if there are some, follow those of all slices.
    geometry: Any
    key: Key
    threads: int
    tuning: Tuning = Tuning()


def sample_batches(key_bits: int) -> Batches:
    """Return a batch of one pair for each type of columns for which there is a kernel."""
    words = np.zeros((1, 2), np.uint64)
    hosts = words_to_column(words, key_bits)
    return [(hosts, hosts)] if key_bits == 32 else [(hosts, words), (hosts, np.zeros(1, np.uint64))]


def pieces_of(batches: Batches, size: int) -> Iterator[list[tuple[Addresses, Addresses]]]:
    """Split large batches and gather small ones of the same types, so that pieces have about `size` pairs, or fewer."""
    piece: list[tuple[Addresses, Addresses]] = []
    rows = 0
    for hosts, peers in batches:
        for start in range(0, len(hosts), size):
            part = hosts[start : start + size], peers[start : start + size]
            if piece and (rows + len(part[0]) > size or _kinds(part) != _kinds(piece[0])):
                yield piece
                piece, rows = [], 0
            piece.append(part)
            rows += len(part[0])
    if piece:
        yield piece


def _kinds(columns: tuple[Addresses, Addresses]) -> list[Any]:
    return [(column.dtype, column.shape[1:]) for column in columns]


class Engine(ABC):
    max_steps = MAX_STEPS
    narrows = False  # it takes integers of 64 bits for hosts of 32 (see `bins.py`), and raises DoesNotFitError

    def __init__(self, plan: Plan) -> None:
        self.geometry, self.key, self.threads, self.tuning = plan

    def _check_steps(self, steps: int) -> None:
        """Raise CrowdedError if a search took too many steps, which are the same on every device."""
        if steps > self.max_steps:
            raise CrowdedError

    @property
    def host_memory(self) -> int:
        """Bytes of a set of hosts stored in addition to the columns; 0 in most engines."""
        return 0

    @property
    def size(self) -> int:
        return int(self.geometry.memory) + self.host_memory

    @abstractmethod
    def update_batches(self, batches: Batches) -> None:
        """Add batches of pairs. The engine may write them later, but the caller may reuse its arrays on return.

        For arrays on a GPU this holds for work on the default stream or on the stream to which the arrays belong.
        """

    def is_compiled(self) -> bool:
        """Return True if the kernels for updates and searches need not be compiled."""
        return True

    def compile(self) -> None:  # noqa: B027
        """Compile the kernels that `is_compiled` looks for, without running them. Engines on the CPU have none."""

    @abstractmethod
    def flush(self) -> None:
        """Write all pending pairs."""

    @abstractmethod
    def clear(self) -> None:
        """Discard all pairs but keep the memory allocated."""

    @abstractmethod
    def merge(self, other: Engine) -> None:
        """Merge the columns of an engine of the same geometry, on any device, into this one."""

    @abstractmethod
    def search(self, search: Any) -> tuple[Words, Counts]:
        """Return the mangled hosts, as (high, low) words, that pass the search, and their zero counts.

        The counts of giant columns may follow; they are 0 where a sketch does not need them.
        Raise CrowdedError if the search takes more than `max_steps` steps.
        """

    @abstractmethod
    def measure(self, mangled: Words) -> Counts:
        """Return the zero counts of mangled hosts: of each column, then of their AND."""

    def measure_giants(self, mangled: Words) -> Counts:
        raise NotImplementedError("this sketch has no giant columns")

    def block_takers(self) -> dict[str, Take] | None:
        """Return a function per array that merges a block of a file; None if files must be loaded to be merged."""
        return None

    @abstractmethod
    def zeros(self) -> Counts:
        """Return the zero bits of every column."""

    @abstractmethod
    def zero_sums(self) -> Sums:
        """Return the zero bits of every array (second axis) in every slice (first axis), without giant columns."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return the whole state as arrays in main memory."""

    def load(self, arrays: Arrays) -> None:
        raise NotImplementedError("sketches of this engine have no files")

    def copy_from(self, other: Engine) -> None:
        """Take over the state of another engine of the same geometry. This one must be new."""
        self.merge(other)

    def unite(self, one: Engine, other: Engine) -> None:
        """Become the union of two engines of the same geometry. This one must be new."""
        self.copy_from(one)
        self.merge(other)


MakeOnGpu = Callable[[Plan, int], Engine]


def make_engine(plan: Plan, device: str, on_cpu: Callable[[Plan], Engine], on_gpu: MakeOnGpu) -> Engine:
    engines = [on_gpu(plan, gpu) for gpu in gpus_of(device)]
    if not engines:
        return on_cpu(plan)
    return engines[0] if len(engines) == 1 else SeveralEngines(plan, engines)


class Front(Engine):
    """An engine in front of others, of which one answers questions."""

    @abstractmethod
    def _answering(self) -> Engine:
        """Return the engine that has all pairs."""

    def search(self, search: Any) -> tuple[Words, Counts]:
        return self._answering().search(search)

    def measure(self, mangled: Words) -> Counts:
        return self._answering().measure(mangled)

    def measure_giants(self, mangled: Words) -> Counts:
        return self._answering().measure_giants(mangled)

    def zeros(self) -> Counts:
        return self._answering().zeros()

    def zero_sums(self) -> Sums:
        return self._answering().zero_sums()

    def arrays(self) -> Arrays:
        return self._answering().arrays()


class SeveralEngines(Front):
    """One engine per GPU. Batches go to the engines in turn; a query first merges all of them into the first one."""

    def __init__(self, plan: Plan, engines: Sequence[Engine]) -> None:
        super().__init__(plan)
        self.engines = list(engines)
        self._turn = 0
        self._others_used = False  # True if engines other than the first have pairs

    @property
    def size(self) -> int:
        return sum(engine.size for engine in self.engines)

    def _answering(self) -> Engine:
        first = self.engines[0]
        if self._others_used:
            for engine in self.engines[1:]:
                first.merge(engine)
                engine.clear()
            self._others_used = False
        return first

    def update_batches(self, batches: Batches) -> None:
        for batch in batches:
            engine = self.engines[self._turn]
            self._others_used = self._others_used or self._turn > 0  # Set first, so that it holds if interrupted.
            self._turn = (self._turn + 1) % len(self.engines)
            engine.update_batches([batch])

    def flush(self) -> None:
        for engine in self.engines:
            engine.flush()

    def clear(self) -> None:
        for engine in self.engines:
            engine.clear()
        self._others_used = False

    def merge(self, other: Engine) -> None:
        self._answering().merge(other)

    def load(self, arrays: Arrays) -> None:
        self.clear()
        self.engines[0].load(arrays)


# The GPU of device "auto" ("Exact while it fits" in docs/explanation/decisions.md). Work begins on the CPU. What is
# large asks for the GPU, which is then started in a thread, and moves there when it is ready.

NOT_COMPILED = (
    "its kernels are not compiled yet. `superhosts doctor` compiles those of default cubes, "
    "and any command with --device cuda those that it needs; they are kept on disk"
)
said: set[str] = set()  # warnings of this process


def say_once(text: str) -> None:
    """Warn, but never twice with the same words, even if the warning is an error."""
    if text not in said:
        said.add(text)
        warnings.warn(text, DeviceWarning, stacklevel=2)


def find_gpu() -> int | None:
    """Return the GPU that "auto" selects. This asks the driver, which takes a tenth of a second."""
    return next(iter(gpus_of(choose_device("auto"))), None)


class AutoGpu:
    def __init__(self, make: MakeOnGpu, find: Callable[[], int | None] = find_gpu) -> None:
        self._make, self._find = make, find
        self._start_anew()
        os.register_at_fork(after_in_child=self._start_anew)  # CUDA does not survive a fork.

    def _start_anew(self) -> None:
        self._trials: dict[object, Future[int | None]] = {}  # the GPU that can be used, by geometry
        self._lock = threading.Lock()
        # The process does not end before this thread: to end inside the driver would not be safe.
        self._thread = ThreadPoolExecutor(1, "superhosts-gpu")

    def engine(self, plan: Plan) -> tuple[Engine, str] | None:
        """Return an empty engine on the GPU, and the device; None if the GPU is not ready. The first call starts it."""
        with self._lock:
            if plan.geometry not in self._trials:
                self._trials[plan.geometry] = self._thread.submit(self._try, plan)
            trial = self._trials[plan.geometry]
        if not trial.done():
            return None
        try:
            gpu = trial.result()
            return None if gpu is None else (self._make(plan, gpu), f"cuda:{gpu}")
        except Exception as error:
            self.give_up(plan, error)
            return None

    def give_up(self, plan: Plan, error: Exception) -> None:
        """Stay on the CPU from now on, because the GPU failed; say so."""
        failed: Future[int | None] = Future()
        failed.set_result(None)
        with self._lock:
            self._trials[plan.geometry] = failed
        say_once(f"the GPU is not used: {error}")

    def wait(self) -> None:
        """Wait until all that was started in the background has ended."""
        for trial in list(self._trials.values()):
            trial.exception()

    def _try(self, plan: Plan) -> int | None:
        """Start the GPU and send pairs to an engine there, which is discarded: what takes long is done then."""
        gpu = self._find()
        if gpu is None:
            return None
        try:
            engine = self._make(plan, gpu)
            if not engine.is_compiled():
                raise RuntimeError(NOT_COMPILED)
            engine.update_batches(sample_batches(plan.geometry.key_bits))
            engine.flush()
        except GpuMemoryError:
            return None
        return gpu
