"""What all sketches have in common: a geometry and keyed hash functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from superhosts.core.hashing import fingerprint, make_key, secret_of
from superhosts.core.pairs import TEXT, HostFormat, format_for
from superhosts.core.textkeys import bound, text_key
from superhosts.detectors.arguments import check_threads
from superhosts.detectors.base import Detector
from superhosts.detectors.engines.base import Arrays, ArrayShape, Geometry
from superhosts.detectors.hostnames import HostNames
from superhosts.detectors.kinds import Kind
from superhosts.detectors.storing import Place

BYTES_PER_LISTED_HOST = 16  # upper bound: a set has up to four slots per host


class KeyedSketch(Detector):
    """A sketch with a geometry and keyed hash functions: every detector except the exact one."""

    geometry: Geometry

    def __init__(self, geometry: Geometry, *, key: bytes | str | None, threads: int | None) -> None:
        self.geometry = geometry
        self.threads = check_threads(threads)
        self.format = format_for(geometry.key_bits)
        secret = secret_of(key)
        self.fingerprint = fingerprint(secret)
        self.key = make_key(secret)

    def _take_keys(self, format: HostFormat, secret: bytes) -> None:
        """Take generic keys of this format as hosts."""
        self._text_key = text_key(secret)
        self.format = bound(format, self._text_key)
        if format == TEXT:
            self._names = HostNames.for_memory(self.geometry.memory, self.key, self._text_key)

    @property
    def kind(self) -> Kind:
        """The properties that two sketches must have in common to be merged."""
        return super().kind._replace(key=self.fingerprint, geometry=self.geometry)

    def header(self) -> dict[str, Any]:
        """Return the description of this sketch in a file."""
        return {
            "detector": self.name,
            "geometry": dict(self.geometry._asdict()),
            "key": self.fingerprint,
            "format": self.format.fields,
        }

    @classmethod
    def make_empty(cls, kind: Kind, secret: bytes, place: Place) -> Self:
        """Return an empty sketch of this kind."""
        make: Any = cls  # All subclasses' constructors accept these arguments.
        sketch: Self = make(geometry=kind.geometry, key=secret, device=place.device, threads=place.threads)
        sketch.format = kind.format
        return sketch

    @classmethod
    def array_shapes(cls, kind: Kind) -> dict[str, ArrayShape]:
        """Return the array shapes of the geometry."""
        assert kind.geometry is not None
        return kind.geometry.array_shapes()

    @classmethod
    def loaded_memory(cls, kind: Kind, lengths: Mapping[str, Sequence[int]]) -> int:
        """Return the bytes of the geometry and of the lists of hosts, which grow with the traffic."""
        assert kind.geometry is not None
        listed = sum(lengths[name][0] for name, shape in cls.array_shapes(kind).items() if shape.follows_traffic)
        return kind.geometry.memory + BYTES_PER_LISTED_HOST * listed

    def _buffers(self, sides: Mapping[str, Sequence[int]]) -> Arrays:
        """Return the sketch's own arrays, to be filled in place, and new ones where the size depends on the traffic."""
        own, shapes = self._arrays(), self.array_shapes(self.kind)
        return {
            name: np.zeros(sides[name], shape.dtype) if shape.follows_traffic else own[name]
            for name, shape in shapes.items()
        }
