"""The verbs that every detector has, and what a detector answers for itself.

    update(hosts, peers) · merge(other) · super_hosts(threshold) · top(count) · estimate(host) · clear() · save(path)

Laws (tests hold every detector to them): order and repetition of pairs do not matter; merging equals having seen both
streams; merging is commutative and idempotent. A detector that cannot keep a law names it in `broken_laws`.

Any thread may call any verb at any time, and gets the result of some order of the calls. The verbs are defined here:
each takes the detector's lock once and calls the private method of the same name. A detector implements those, and
marks its other public methods as `locked`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, final

import numpy as np
from numpy.typing import NDArray

from superhosts.cubefile.container import Take
from superhosts.cubefile.parts import StoredPart, compose_header, write_parts
from superhosts.detectors.arguments import as_column, bits_of, check_count, check_threads, check_threshold
from superhosts.detectors.kinds import Kind, check_alike
from superhosts.detectors.locking import Guarded, holding
from superhosts.engines.arrays import Arrays
from superhosts.engines.geometry import ArrayShape, Geometry
from superhosts.errors import MergeError, UsageError
from superhosts.hashing import fingerprint, make_key, secret_of
from superhosts.pairs import Addresses, Host, HostFormat, PairBatch, Part, format_for, numbers_to_array
from superhosts.results import SuperHost, SuperHosts

Hosts = SuperHosts | Addresses | Sequence[str | int | Host]
LISTED_HOST = 16  # most bytes that a host of a list takes: a set has up to four slots for each


class Place(NamedTuple):
    """Where a detector works."""

    device: str = "cpu"
    threads: int | None = None


class StoredHosts(Protocol):
    """Some hosts of a sketch in a file: takes the file's blocks one by one, then answers."""

    takers: Mapping[str, Take]  # what takes the blocks of which array

    def answer(self) -> SuperHosts:
        """Return the numbers of peers, in the order in which the hosts were asked for."""


class Detector(Guarded, ABC):
    """A detector of super hosts over one set of pairs. It uses threads by itself, and any thread may call it."""

    name: ClassVar[str]
    broken_laws: ClassVar[frozenset[str]] = frozenset()
    takes_ipv6: ClassVar[bool] = False  # hosts of 64 and 128 bits
    runs_on_gpu: ClassVar[bool] = True
    geometry_type: ClassVar[Any] = None  # the class of its geometries; None: it has none
    takes_blocks: ClassVar[bool] = False  # the blocks of a file can be merged into it one by one
    wants_threshold: ClassVar[bool] = False  # it must know the threshold before the first pair
    grows_with_traffic: ClassVar[bool] = False  # its memory follows the traffic, and cannot be given
    format: HostFormat  # how this detector's numbers read as hosts
    threads: int

    # What never changes, and needs no lock.

    @property
    def key_bits(self) -> int:
        """Bits of a host's number."""
        return self.format.key_bits

    @property
    def kind(self) -> Kind:
        """What another detector must have in common with this one to be merged."""
        return Kind(self.name, None, None, self.format, "merge" not in self.broken_laws)

    def check_alike(self, other: Detector) -> None:
        """Raise MergeError, naming both values, if another detector must not be merged into this one."""
        check_detector(other, self.name)
        check_alike(self.kind, other.kind)

    @abstractmethod
    def header(self) -> dict[str, Any]:
        """Describe this detector for a file: what is needed to build an empty one like it."""

    # The verbs.

    @final
    def update(self, hosts: Addresses | PairBatch, peers: Addresses | None = None) -> None:
        """Take a batch of pairs: two columns, or one PairBatch."""
        if isinstance(hosts, PairBatch):
            return self.update(hosts.hosts, hosts.peers)
        if peers is None:
            raise UsageError("update takes hosts and peers, or one PairBatch")
        left, right = as_column(hosts, "hosts"), as_column(peers, "peers")
        if len(left) != len(right):
            raise UsageError(f"update: {len(left)} hosts but {len(right)} peers")
        if bits_of(left) != self.key_bits:
            raise UsageError(
                f"update: hosts have {bits_of(left)} bits, this {self.name} takes {self.key_bits}-bit keys"
            )
        if len(left):
            with self._lock:
                self._update(left, right)
        return None

    @final
    def merge(self, other: Self) -> None:
        """Take in everything that another detector of the same kind has seen."""
        self.check_alike(other)
        with holding(self, other):
            self._merge(other)

    @final
    def super_hosts(self, threshold: float) -> SuperHosts:
        """Return the hosts of at least `threshold` peers, most peers first."""
        least = check_threshold(threshold)
        with self._lock:
            return self._super_hosts(least)

    @final
    def top(self, count: int) -> SuperHosts:
        """Return the `count` hosts with most peers; some detectors look no further down than a few peers."""
        most = check_count(count)
        with self._lock:
            return self._top(most)

    @final
    def estimate(self, host: str | int | Host) -> SuperHost:
        """Return the number of peers of any host, with its interval."""
        return next(iter(self.estimate_many([host])))

    @final
    def estimate_many(self, hosts: Hosts) -> SuperHosts:
        """Return the numbers of peers of any hosts, in the order given: a column, a result, or addresses."""
        column = host_column(hosts, self.format)
        with self._lock:
            return self._estimate_many(column).as_asked()

    @final
    def columns_of(self, host: str | int | Host) -> list[dict[str, Any]]:
        """Return how full the columns of a host are; nothing for a detector that has none."""
        with self._lock:
            return self._columns_of(host)

    @final
    def flush(self) -> None:
        """Write the pairs that wait. Every question does this by itself."""
        with self._lock:
            self._flush()

    @final
    def clear(self) -> None:
        """Forget all pairs."""
        with self._lock:
            self._clear()

    @final
    @property
    def memory(self) -> int:
        """Bytes that the detector's data takes, on all of its devices together."""
        with self._lock:
            return self._memory()

    @final
    def arrays(self) -> Arrays:
        """Return copies of the arrays that hold everything it has seen."""
        with self._lock:
            return {name: array.copy() for name, array in self._arrays().items()}

    @final
    def load_arrays(self, arrays: Arrays) -> None:
        """Replace everything it has seen by such arrays as `arrays` returns."""
        with self._lock:
            self._load_arrays(arrays)

    @final
    def copy(self) -> Self:
        """Return a separate detector with the same content, on the same device."""
        return self.__copy__()

    @final
    def save(self, path: str | Path) -> None:
        """Write a .cube file that holds this detector alone."""
        with self._lock:
            parts = [StoredPart(Part(self.format.family), self.header(), self._arrays())]
            write_parts(path, compose_header(parts), parts)

    # What files ask of a detector. Most of it needs no detector to be built.

    @classmethod
    @abstractmethod
    def make_empty(cls, kind: Kind, secret: bytes, place: Place) -> Self:
        """Return a detector of this kind that has seen nothing."""

    @classmethod
    @abstractmethod
    def array_shapes(cls, kind: Kind) -> dict[str, ArrayShape]:
        """Return the arrays of a detector of this kind, as a file holds them."""

    @classmethod
    @abstractmethod
    def loaded_memory(cls, kind: Kind, lengths: Mapping[str, Sequence[int]]) -> int:
        """Return the bytes that a detector takes once it is loaded from arrays of these sides."""

    @classmethod
    def shown_hosts(cls, kind: Kind, secret: bytes, read: Callable[[str], NDArray[Any]]) -> NDArray[np.uint64] | None:
        """Return the last words of the hosts that a file's arrays show; None if its arrays show no host.

        `read` returns a stored array by its name.
        """
        return None

    @classmethod
    def stored_hosts(cls, kind: Kind, secret: bytes, hosts: Addresses) -> StoredHosts | None:
        """Return what estimates some hosts from a file, block by block; None if the file must be loaded for that."""
        return None

    @final
    def block_takers(self) -> dict[str, Take] | None:
        """Return what merges the blocks of a file, by array; None if a file must be loaded for that.

        Whoever uses them keeps other threads off this detector until all blocks are merged.
        """
        with self._lock:
            return self._block_takers()

    @final
    def buffers(self, sides: Mapping[str, Sequence[int]]) -> Arrays:
        """Return arrays into which stored ones of these sides can be read, to be given to `load_arrays`."""
        with self._lock:
            return self._buffers(sides)

    # What a detector implements. All of it runs under the lock.

    @abstractmethod
    def _update(self, hosts: Addresses, peers: Addresses) -> None: ...

    @abstractmethod
    def _merge(self, other: Self) -> None:
        """Take in a detector of the same kind, which is locked, too."""

    @abstractmethod
    def _super_hosts(self, threshold: float) -> SuperHosts: ...

    @abstractmethod
    def _top(self, count: int) -> SuperHosts: ...

    @abstractmethod
    def _estimate_many(self, hosts: Addresses) -> SuperHosts: ...

    def _flush(self) -> None:
        """Write the pairs that wait; most detectors have none."""

    @abstractmethod
    def _clear(self) -> None: ...

    @abstractmethod
    def _memory(self) -> int: ...

    @abstractmethod
    def _arrays(self) -> Arrays:
        """Return the arrays themselves if they are in the machine's memory, otherwise copies."""

    @abstractmethod
    def _load_arrays(self, arrays: Arrays) -> None: ...

    def _columns_of(self, host: str | int | Host) -> list[dict[str, Any]]:
        return []

    def _block_takers(self) -> dict[str, Take] | None:
        return None

    def _buffers(self, sides: Mapping[str, Sequence[int]]) -> Arrays:
        return {name: np.zeros(sides[name], shape.dtype) for name, shape in self.array_shapes(self.kind).items()}


class KeyedSketch(Detector):
    """A sketch of some geometry, all of whose hashes are keyed: every detector but the exact one."""

    geometry: Any  # a Geometry; subclasses name their own class

    def __init__(self, geometry: Geometry, *, key: bytes | str | None, threads: int | None) -> None:
        self.geometry = geometry
        self.threads = check_threads(threads)
        self.format = format_for(geometry.key_bits)
        secret = secret_of(key)
        self.fingerprint = fingerprint(secret)
        self.key = make_key(secret)

    @property
    def kind(self) -> Kind:
        """What another sketch must have in common with this one to be merged."""
        return super().kind._replace(key=self.fingerprint, geometry=self.geometry)

    def header(self) -> dict[str, Any]:
        """Describe this sketch for a file."""
        return {
            "detector": self.name,
            "geometry": dict(self.geometry._asdict()),
            "key": self.fingerprint,
            "format": list(self.format),
        }

    @classmethod
    def make_empty(cls, kind: Kind, secret: bytes, place: Place) -> Self:
        """Return a sketch of this kind that has seen nothing."""
        make: Any = cls  # its constructor takes what every sketch's takes
        sketch: Self = make(geometry=kind.geometry, key=secret, device=place.device, threads=place.threads)
        sketch.format = kind.format
        return sketch

    @classmethod
    def array_shapes(cls, kind: Kind) -> dict[str, ArrayShape]:
        """Return the arrays that the geometry names."""
        assert kind.geometry is not None
        return kind.geometry.array_shapes()

    @classmethod
    def loaded_memory(cls, kind: Kind, lengths: Mapping[str, Sequence[int]]) -> int:
        """Return the bytes of the geometry, and of the hosts in lists that follow the traffic."""
        assert kind.geometry is not None
        listed = sum(lengths[name][0] for name, shape in cls.array_shapes(kind).items() if shape.follows_traffic)
        return kind.geometry.memory + LISTED_HOST * listed

    def _buffers(self, sides: Mapping[str, Sequence[int]]) -> Arrays:
        """Return the sketch's own arrays, which are filled in place, and new ones for what follows the traffic."""
        own, shapes = self._arrays(), self.array_shapes(self.kind)
        return {
            name: np.zeros(sides[name], shape.dtype) if shape.follows_traffic else own[name]
            for name, shape in shapes.items()
        }


def host_column(hosts: Hosts, format: HostFormat) -> Addresses:
    """Return hosts as a column of numbers that read as hosts of this format."""
    if isinstance(hosts, SuperHosts):
        if hosts.format != format:
            raise UsageError(f"hosts are /{hosts.format.prefix}, those of the sketch are /{format.prefix}")
        return hosts.hosts
    if not isinstance(hosts, np.ndarray):
        return numbers_to_array([format.to_number(host) for host in hosts], format.key_bits)
    column = as_column(hosts, "hosts")
    if bits_of(column) != format.key_bits:
        raise UsageError(f"hosts have {bits_of(column)} bits, those of the sketch {format.key_bits}")
    return column


def check_detector(other: Any, name: str) -> None:
    """Raise MergeError for something that is not a detector."""
    if isinstance(other, Detector):
        return
    if hasattr(other, "parts"):
        way = f"take one of its parts, like {name}.merge(sketch.part(sh.Part(4)))"
        raise MergeError(f"cannot merge a whole sketch into one {name}; {way}")
    raise MergeError(f"cannot merge {type(other).__name__} into {name}: not a detector")
