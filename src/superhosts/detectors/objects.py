"""What detectors and sketches have in common as objects: union, comparison, bytes, files and pickles.

    a | b · a |= b · a == b · to_bytes · from_bytes · load · pickle

Two are equal if they are of the same kind and key and would be saved with the same content. A file holds the dense form
of a cube, so an exact cube equals a dense one that has seen the same pairs, and what is loaded equals what was saved,
although the one counts and the other estimates. Objects with content that changes have no hash.

A pickle is a .cube file and never holds the key. Unpickling looks for the key where `load` does: in SUPERHOSTS_KEY, or
among the public key and the user's own. What was made with the public key can be unpickled anywhere. What is unpickled
works on the CPU, whatever the device of the original was.
"""

from __future__ import annotations

from abc import abstractmethod
from importlib import import_module
from io import BytesIO
from typing import Any, Self, final

from superhosts.cubefile.container import File
from superhosts.detectors.locking import Guarded, holding


class Mergeable(Guarded):
    """An object that can be merged with others of its kind and saved."""

    __hash__ = None  # type: ignore[assignment]  # Its content changes.

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Add everything that another object of the same kind has seen; return this object."""

    @abstractmethod
    def save(self, file: File) -> None:
        """Write a .cube file, given by its path or as a file object that is open for writing bytes."""

    @classmethod
    @abstractmethod
    def _of_sketch(cls, sketch: Any) -> Self:
        """Return what a file holds as an object of this class. Raise UsageError if it holds something else."""

    @abstractmethod
    def _equals(self, other: Any) -> bool:
        """Return True if another of these objects has the same kind and content. The caller holds both locks."""

    @final
    def copy(self) -> Self:
        """Return an independent object with the same content, on the same device."""
        return self.__copy__()

    @abstractmethod
    def _union(self, other: Self) -> Self:
        """Return the union with another object of the same kind as a new one."""

    @final
    def __or__(self, other: Self) -> Self:
        """Return the union of two objects as a new one."""
        return self._union(other) if isinstance(other, Mergeable) else NotImplemented

    def __ior__(self, other: Self) -> Self:
        return self.merge(other) if isinstance(other, Mergeable) else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Return True if the other is of the same kind and key and would be saved with the same content."""
        if self is other:
            return True
        if not isinstance(other, Mergeable):
            return NotImplemented
        with holding(self, other):
            return self._equals(other)

    # Files

    @final
    def to_bytes(self) -> bytes:
        """Return the content of the .cube file that `save` writes."""
        file = BytesIO()
        self.save(file)
        return file.getvalue()

    @classmethod
    def from_bytes(
        cls,
        data: bytes | bytearray | memoryview,
        *,
        key: bytes | str | None = None,
        device: str = "cpu",
        threads: int | None = None,
        max_memory: str | int | None = None,
    ) -> Self:
        """Return what `to_bytes` returned as an object again. The arguments are those of `load`."""
        return cls.load(BytesIO(data), key=key, device=device, threads=threads, max_memory=max_memory)

    @classmethod
    def load(
        cls,
        file: File,
        *,
        key: bytes | str | None = None,
        device: str = "cpu",
        threads: int | None = None,
        max_memory: str | int | None = None,
    ) -> Self:
        """Load a .cube file, given by its path or as a file object that is open for reading bytes.

        Without `key`, SUPERHOSTS_KEY counts; without both, the public key or the user's own may be that of the file.
        """
        sketch = _files().load(file, key=key, device=device, threads=threads, max_memory=max_memory)
        return cls._of_sketch(sketch)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), self.to_bytes())


def _unpickle(kind: type[Mergeable], data: bytes) -> Mergeable:
    """Return the object of a pickle."""
    return kind._of_sketch(_files().load_pickled(data, kind.__name__))


def _files() -> Any:
    """Return the module that reads files. It stands above detectors, which it makes, so it is imported when called."""
    return import_module("superhosts.sketch.sketch")
