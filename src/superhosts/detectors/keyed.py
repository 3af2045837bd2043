"""What every detector but the exact one has: a key, a geometry, and rules for whom it may be merged with."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from superhosts.detectors.base import Arrays, Detector
from superhosts.detectors.hashing import fingerprint, make_key, secret_of
from superhosts.device import thread_count
from superhosts.errors import MergeError, UsageError
from superhosts.pairs import format_for


class KeyedSketch(Detector):
    """A sketch of some geometry, all of whose hashes are keyed."""

    geometry: Any

    def __init__(self, geometry: Any, *, key: bytes | str | None, threads: int | None) -> None:
        self.geometry = geometry
        self.threads = thread_count() if threads is None else threads
        if self.threads < 1:
            raise UsageError(f"threads={threads}: at least one")
        self.format = format_for(geometry.key_bits)
        secret = secret_of(key)
        self.fingerprint = fingerprint(secret)
        self.key = make_key(secret)

    @abstractmethod
    def load_arrays(self, arrays: Arrays) -> None:
        """Take such arrays as `arrays` gives in place of all that it has seen."""

    def _likeness(self) -> tuple[Any, ...]:
        """What two sketches must have in common to be merged."""
        return self.fingerprint, self.geometry, self.format

    def check_alike(self, other: Detector) -> None:
        """Refuse a sketch that must not be merged into this one, naming both values."""
        if type(other) is not type(self) or not isinstance(other, KeyedSketch):
            raise MergeError(f"cannot merge {other.name} into {self.name}: another detector")
        if self._likeness() == other._likeness():
            return
        if self.fingerprint != other.fingerprint:
            raise MergeError(
                f"cannot merge: key {other.fingerprint} into key {self.fingerprint}; all sites need one key"
            )
        for name in self.geometry._fields:
            mine, theirs = getattr(self.geometry, name), getattr(other.geometry, name)
            if mine != theirs:
                raise MergeError(f"cannot merge: geometry differs, {name} {theirs} into {name} {mine}")
        raise MergeError(f"cannot merge: hosts /{other.format.prefix} into hosts /{self.format.prefix}")

    def header(self) -> dict[str, Any]:
        """Describe this sketch for a file."""
        return {
            "detector": self.name,
            "geometry": dict(self.geometry._asdict()),
            "key": self.fingerprint,
            "format": list(self.format),
        }
