"""What every detector but the exact one has: a key, a geometry, and rules for whom it may be merged with."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from superhosts.detectors.base import Arrays, Detector
from superhosts.detectors.hashing import fingerprint, make_key, secret_of
from superhosts.detectors.kinds import Kind, check_alike
from superhosts.device import thread_count
from superhosts.errors import UsageError
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

    @property
    def kind(self) -> Kind:
        """What another sketch must have in common with this one to be merged."""
        return super().kind._replace(key=self.fingerprint, geometry=self.geometry)

    def check_alike(self, other: Detector) -> None:
        """Refuse a sketch that must not be merged into this one, naming both values."""
        check_alike(self.kind, other.kind)

    def header(self) -> dict[str, Any]:
        """Describe this sketch for a file."""
        return {
            "detector": self.name,
            "geometry": dict(self.geometry._asdict()),
            "key": self.fingerprint,
            "format": list(self.format),
        }
