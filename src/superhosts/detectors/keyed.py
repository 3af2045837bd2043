"""What every detector but the exact one has: a key, a geometry, and rules for whom it may be merged with."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar, final

from superhosts.detectors.base import Arrays, Detector, check_threads
from superhosts.detectors.kinds import Kind
from superhosts.errors import UsageError
from superhosts.hashing import fingerprint, make_key, secret_of
from superhosts.pairs import format_for

Sized = TypeVar("Sized", bound=Any)
MEMORY = "128MiB"  # of a sketch whose memory is not given


def alone(geometry: Sized, **others: Any) -> Sized:
    """Return a checked geometry; refuse other sizes beside it, unless they are the geometry's own.

    A geometry decides all sizes: whoever gives others too is mistaken about one of them.
    """
    checked: Sized = geometry.check()
    for name, value in others.items():
        own = getattr(checked, name, None)
        if value is not None and value != own:
            says = f" of {name}={own}" if isinstance(own, int) else ""
            raise UsageError(f"{name}={value} beside a geometry{says}: give one or the other")
    return checked


class KeyedSketch(Detector):
    """A sketch of some geometry, all of whose hashes are keyed."""

    geometry: Any

    def __init__(self, geometry: Any, *, key: bytes | str | None, threads: int | None) -> None:
        self.geometry = geometry
        self.threads = check_threads(threads)
        self.format = format_for(geometry.key_bits)
        secret = secret_of(key)
        self.fingerprint = fingerprint(secret)
        self.key = make_key(secret)

    @final
    def load_arrays(self, arrays: Arrays) -> None:
        """Take such arrays as `arrays` gives in place of all that it has seen."""
        with self._lock:
            self._load_arrays(arrays)

    @abstractmethod
    def _load_arrays(self, arrays: Arrays) -> None: ...

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
