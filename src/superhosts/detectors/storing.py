"""What a detector is made of, as arrays: in files, in bytes and pickles, in merges of files.

Files hold the arrays of a detector under names, with their shapes in the header (`cubefile/`). There may be several
forms (`file_shapes`); the form of `array_shapes` is that of `arrays` and `load_arrays`. Detectors of text keys add the
arrays of the names of their hosts (`hostnames.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self, final

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import Addresses, HostFormat, Part
from superhosts.core.results import SuperHosts
from superhosts.cubefile.container import File, Take
from superhosts.cubefile.parts import StoredPart, compose_header, write_parts
from superhosts.detectors import hostnames
from superhosts.detectors.engines.base import Arrays, ArrayShape
from superhosts.detectors.hostnames import HostNames
from superhosts.detectors.kinds import Kind
from superhosts.detectors.objects import Mergeable
from superhosts.errors import UsageError


class Place(NamedTuple):
    """The device and number of threads that a detector uses."""

    device: str = "cpu"
    threads: int | None = None


class StoredHosts(Protocol):
    """Estimates for some hosts of a sketch in a file, computed from the file's blocks one by one."""

    takers: Mapping[str, Take]  # array name → function that takes a block of it

    def answer(self) -> SuperHosts:
        """Return the numbers of peers, in the order in which the caller named the hosts."""


class Storable(Mergeable, ABC):
    """A detector as its arrays. `Detector` has the verbs."""

    name: ClassVar[str]
    format: HostFormat  # how this detector's integers represent hosts
    _names: HostNames | None = None  # the names of hosts; None unless hosts are text

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """The properties that two detectors must have in common to be merged."""

    @abstractmethod
    def header(self) -> dict[str, Any]:
        """Return the description of this detector in a file, from which an empty one like it can be built."""

    @final
    def arrays(self) -> Arrays:
        """Return copies of the arrays that make up the detector's state."""
        with self.lock:
            return {name: array.copy() for name, array in self._arrays().items()} | self._name_arrays()

    @final
    def load_arrays(self, arrays: Arrays) -> None:
        """Replace the detector's state by arrays that `arrays` returned or that a file holds."""
        with self.lock:
            content, names = hostnames.apart(arrays)
            read = None if self._names is None or not names else self._names.read(names)
            self._load_arrays(content)
            if read is not None:
                self._names = read

    @final
    def file_arrays(self) -> Arrays:
        """Return the arrays that a file holds, which are the detector's own if they are in main memory."""
        with self.lock:
            return self._file_arrays() | self._name_arrays()

    @final
    def save(self, file: File) -> None:
        """Write a .cube file with this detector as its only part: to a path, or to a file that is open for writing."""
        with self.lock:
            parts = [StoredPart(Part(self.format.family), self.header(), self.file_arrays())]
            write_parts(file, compose_header(parts), parts)

    @classmethod
    def _of_sketch(cls, sketch: Any) -> Self:
        if len(sketch.parts) != 1:
            held = ", ".join(part.words for part in sketch.parts) or "none"
            raise UsageError(f"{cls.__name__}.load: the file has {len(sketch.parts)} parts ({held}); use sh.load")
        (detector,) = sketch.parts.values()
        if isinstance(detector, cls):
            return detector
        if detector.name != getattr(cls, "name", ""):
            raise UsageError(f"{cls.__name__}.load: the file holds a {type(detector).__name__}; use sh.load")
        made = cls.__new__(cls)  # a class of the caller, derived from that of the detector
        vars(made).update(detector._state())
        return made

    def _equals(self, other: Any) -> bool:
        if not isinstance(other, Storable) or self.kind != other.kind:
            return False
        mine, theirs = self._arrays() | self._name_arrays(), other._arrays() | other._name_arrays()
        return mine.keys() == theirs.keys() and all(np.array_equal(array, theirs[name]) for name, array in mine.items())

    def _name_arrays(self) -> Arrays:
        return {} if self._names is None else self._names.arrays()

    # What is known of a file by its header. These methods need no instance.

    @classmethod
    @abstractmethod
    def make_empty(cls, kind: Kind, secret: bytes, place: Place) -> Self:
        """Return an empty detector of this kind."""

    @classmethod
    @abstractmethod
    def array_shapes(cls, kind: Kind) -> dict[str, ArrayShape]:
        """Return the shapes of the arrays that make up a detector of this kind."""

    @classmethod
    def file_shapes(cls, kind: Kind) -> tuple[dict[str, ArrayShape], ...]:
        """Return the shapes of the arrays in a file, of which there may be other forms than that of `array_shapes`."""
        return (cls.array_shapes(kind),)

    @classmethod
    @abstractmethod
    def loaded_memory(cls, kind: Kind, lengths: Mapping[str, Sequence[int]]) -> int:
        """Return the bytes that a detector takes after loading arrays with these sides."""

    @classmethod
    def shown_hosts(cls, kind: Kind, secret: bytes, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.uint64] | None:
        """Return the last words of the hosts that a file's arrays name; None if they name no host.

        An array is read from the file when it is taken from `arrays`.
        """
        return None

    @classmethod
    def stored_hosts(
        cls, kind: Kind, secret: bytes, hosts: Addresses, sides: Mapping[str, Sequence[int]]
    ) -> StoredHosts | None:
        """Return an object that estimates hosts from a file with arrays of these sides; None if it must be loaded."""
        return None

    # Reading and merging the blocks of a file

    @final
    def block_takers(self) -> dict[str, Take] | None:
        """Return a function per array that merges a block of a file; None if files must be loaded to be merged.

        The caller must keep other threads from using this detector until all blocks are merged.
        """
        with self.lock:
            return self._block_takers()

    @final
    def merger(self, arrays: Arrays) -> Callable[[], None]:
        """Check arrays of a file in another form than `array_shapes`; return a function that merges them."""
        with self.lock:
            return self._merger(hostnames.apart(arrays)[0])

    @final
    def name_merger(self, arrays: Arrays) -> Callable[[], None]:
        """Check the names of a file; return a function that merges them."""
        with self.lock:
            names = self._names
            assert names is not None  # Only files of text keys have names.
            read = names.read(arrays)
            return lambda: names.merge(read)

    @final
    def buffers(self, sides: Mapping[str, Sequence[int]]) -> Arrays:
        """Return arrays with these sides for reading a file; pass them to `load_arrays` when they are filled."""
        with self.lock:
            own, names = hostnames.apart(sides)
            return self._buffers(own) | hostnames.buffers(names)

    # Methods that a detector implements. The caller holds the lock.

    @abstractmethod
    def _arrays(self) -> Arrays:
        """Return the detector's own arrays if they are in main memory, otherwise copies."""

    def _file_arrays(self) -> Arrays:
        """Return the arrays that a file holds, in one of the forms of `file_shapes`."""
        return self._arrays()

    @abstractmethod
    def _load_arrays(self, arrays: Arrays) -> None: ...

    def _block_takers(self) -> dict[str, Take] | None:
        return None

    def _merger(self, arrays: Arrays) -> Callable[[], None]:
        raise NotImplementedError(f"files of {self.name} have one form")

    def _buffers(self, sides: Mapping[str, Sequence[int]]) -> Arrays:
        return {name: np.zeros(sides[name], shape.dtype) for name, shape in self.array_shapes(self.kind).items()}
