"""Rivals as detectors of a scan: windows and rows as with a cube, but no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Self

from superhosts.core.pairs import IPV4, Addresses, Batches
from superhosts.core.results import SuperHosts
from superhosts.detectors.base import Detector
from superhosts.detectors.engines.base import Arrays, ArrayShape
from superhosts.detectors.kinds import Kind
from superhosts.detectors.registry import DETECTORS
from superhosts.detectors.storing import Place
from superhosts.errors import UsageError
from superhosts.lab.rivals import RIVALS
from superhosts.lab.rivals.base import Rival


class RivalDetector(Detector):
    """A rival with the interface of detectors. There is a subclass for each (`RIVAL_DETECTORS`)."""

    rival_type: ClassVar[type[Rival]]

    def __init__(self, **arguments: Any) -> None:
        self.rival = self.rival_type(**arguments)
        self.threads, self.format, self.device = self.rival.threads, IPV4, self.rival.device

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self.rival.update_many([(hosts, peers)])

    def _update_many(self, batches: Batches) -> None:
        self.rival.update_many(batches)

    def _merge(self, other: Self) -> None:
        self.rival.merge(other.rival)

    def _copy(self) -> Self:
        return self._twin({**self._state(), "rival": self.rival.copy()})

    def _super_hosts(self, threshold: float) -> SuperHosts:
        return self._read(self.rival.super_hosts(threshold))

    def _top(self, count: int) -> SuperHosts:
        return self._read(self.rival.top(count))

    def _estimate_many(self, hosts: Addresses) -> SuperHosts:
        return self._read(self.rival.estimate_many(hosts))

    def _read(self, found: SuperHosts) -> SuperHosts:
        found.format = self.format  # Hosts may be prefixes.
        return found

    def _least_listed(self) -> float:
        return self.rival.least_listed

    def _flush(self) -> None:
        self.rival.flush()

    def _clear(self) -> None:
        self.rival.clear()

    def _memory(self) -> int:
        return self.rival.memory

    # A rival has no files.

    def header(self) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"{self.name} has no files: only {', '.join(DETECTORS)} can be saved")

    def _arrays(self) -> Arrays:
        return self.rival.arrays()

    def _load_arrays(self, arrays: Arrays) -> None:
        self.header()

    @classmethod
    def make_empty(cls, kind: Kind, secret: bytes, place: Place) -> Self:
        """Not available: no file names a rival."""
        raise NotImplementedError

    @classmethod
    def array_shapes(cls, kind: Kind) -> dict[str, ArrayShape]:
        """Not available."""
        raise NotImplementedError

    @classmethod
    def loaded_memory(cls, kind: Kind, lengths: Mapping[str, Sequence[int]]) -> int:
        """Not available."""
        raise NotImplementedError


def _as_detector(rival: type[Rival]) -> type[Detector]:
    same = ("name", "broken_laws", "runs_on_gpu", "wants_threshold", "geometry_type")
    facts = {each: getattr(rival, each) for each in same}
    return type(rival.__name__, (RivalDetector,), {**facts, "rival_type": rival})


RIVAL_DETECTORS: dict[str, type[Detector]] = {name: _as_detector(rival) for name, rival in RIVALS.items()}
