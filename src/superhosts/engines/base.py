"""Where the columns of a sketch live and who works on them: threads of the CPU, a GPU, or several GPUs.

A `ColumnSketch` knows what columns mean; its engine holds them, sets bits, counts zeros and finds candidates. Engines
give integers only (bits, labels, zero counts), the same on every device, and all estimating is done in one place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.cubefile.container import Take
from superhosts.engines.arrays import Arrays, Counts, Words
from superhosts.hashing import Key
from superhosts.pairs import Addresses

Sums = NDArray[np.int64]
# A search that joins columns to addresses (CBAA, DCDS, VBFA) gives up after this many columns ANDed whole. DCDS takes a
# quarter of it for 50 M flows in 128 MiB, CBAA a hundredth; in a full sketch every one of the 2^32 addresses passes.
MOST_STEPS = 1 << 26
HOST_STEPS = 16  # what a host found counts as, so that their number is limited, too


class CrowdedError(Exception):
    """A search that was given up: columns are too full to tell hosts of this threshold apart."""


class Plan(NamedTuple):
    """What an engine is built from."""

    geometry: Any  # a ColumnGeometry; engines name the class that they take
    key: Key
    threads: int


class Engine(ABC):
    """The columns of one sketch on one device."""

    most_steps = MOST_STEPS

    def __init__(self, plan: Plan) -> None:
        self.geometry, self.key, self.threads = plan

    def _check_steps(self, steps: int) -> None:
        """Raise CrowdedError for a search that took too many steps.

        The walk from one first column takes the same steps on every device and whatever other threads do, so the
        verdict is the same everywhere, too.
        """
        if steps > self.most_steps:
            raise CrowdedError

    @property
    def host_memory(self) -> int:
        """Bytes of a set of hosts beside the columns; most engines have none."""
        return 0

    @property
    def size(self) -> int:
        """Bytes of all that it holds."""
        return int(self.geometry.memory) + self.host_memory

    @abstractmethod
    def update(self, hosts: Addresses, peers: Addresses) -> None:
        """Take a batch of pairs; it may be written later, but the caller's memory is free on return.

        Of arrays on a GPU that holds for work on the default stream, or on the stream that they belong to.
        """

    @abstractmethod
    def flush(self) -> None:
        """Write the pairs that wait."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all pairs; the memory stays."""

    @abstractmethod
    def merge(self, other: Engine) -> None:
        """Take in the columns of an engine of the same geometry, on whatever device."""

    @abstractmethod
    def search(self, search: Any) -> tuple[Words, Counts]:
        """Return mangled hosts, (high, low) words, that pass the search, and their zero counts.

        Raises CrowdedError where it would take too long.
        """

    @abstractmethod
    def measure(self, mangled: Words) -> Counts:
        """Return the zero counts of mangled hosts: of each column, then of their AND."""

    def block_takers(self) -> dict[str, Take] | None:
        """Return what merges the blocks of a file, by array; None if a file must be loaded for that."""
        return None

    @abstractmethod
    def zeros(self) -> Counts:
        """Return the zero bits of every column."""

    @abstractmethod
    def zero_sums(self) -> Sums:
        """Return the zero bits of every array (second axis) in every slice (first axis)."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return all that it has seen as arrays in the machine's memory."""

    @abstractmethod
    def load(self, arrays: Arrays) -> None:
        """Take such arrays in place of all that it has seen."""


class SeveralEngines(Engine):
    """One engine for each GPU. Batches go to them in turn; before an answer, the first takes in all others."""

    def __init__(self, plan: Plan, engines: Sequence[Engine]) -> None:
        super().__init__(plan)
        self.engines = list(engines)
        self._turn = 0
        self._dealt = False  # whether others than the first have seen pairs

    @property
    def size(self) -> int:
        """Bytes of all that they hold: each has columns of its own."""
        return sum(engine.size for engine in self.engines)

    def _gathered(self) -> Engine:
        first = self.engines[0]
        if self._dealt:
            for engine in self.engines[1:]:
                first.merge(engine)
                engine.clear()
            self._dealt = False
        return first

    def update(self, hosts: Addresses, peers: Addresses) -> None:
        """Give the batch to the engine whose turn it is."""
        engine, self._dealt = self.engines[self._turn], self._dealt or self._turn > 0  # also if it is interrupted
        self._turn = (self._turn + 1) % len(self.engines)
        engine.update(hosts, peers)

    def flush(self) -> None:
        """Write the pairs that wait anywhere."""
        for engine in self.engines:
            engine.flush()

    def clear(self) -> None:
        """Forget all pairs everywhere."""
        for engine in self.engines:
            engine.clear()
        self._dealt = False

    def merge(self, other: Engine) -> None:
        """Take in another engine's columns."""
        self._gathered().merge(other)

    def search(self, search: Any) -> tuple[Words, Counts]:
        """Search the union."""
        return self._gathered().search(search)

    def measure(self, mangled: Words) -> Counts:
        """Measure in the union."""
        return self._gathered().measure(mangled)

    def zeros(self) -> Counts:
        """Return the zero bits of every column of the union."""
        return self._gathered().zeros()

    def zero_sums(self) -> Sums:
        """Return the zero bits of every array in every slice of the union."""
        return self._gathered().zero_sums()

    def arrays(self) -> Arrays:
        """Return the union."""
        return self._gathered().arrays()

    def load(self, arrays: Arrays) -> None:
        """Take such arrays in place of all that they have seen."""
        self.clear()
        self.engines[0].load(arrays)
