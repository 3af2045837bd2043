"""Rivals as detectors of a scan: windows and rows as with a cube, but no files."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self

from superhosts.core.device import check_cpu_only, check_device
from superhosts.core.pairs import IPV4, Addresses, Batches, Part
from superhosts.core.results import SuperHosts
from superhosts.detectors.detector import Detector
from superhosts.detectors.engines.base import Arrays
from superhosts.detectors.lock import state_of
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import UsageError
from superhosts.lab.rivals import RIVALS
from superhosts.lab.rivals.base import Rival


class RivalDetector(Detector):
    """A rival with the interface of detectors. There is a subclass for each (`RIVAL_DETECTORS`)."""

    rival_type: ClassVar[type[Rival]]

    def __init__(self, **arguments: Any) -> None:
        self.rival = self.rival_type(**arguments)
        self.threads, self.format, self.device = self.rival.threads, IPV4, self.rival.device

    @classmethod
    def for_scan(cls, threshold: float, **arguments: Any) -> Self:
        """Return a detector for a scan. Some rivals need the threshold before the first pair."""
        return cls(**arguments, **({"threshold": threshold} if cls.rival_type.wants_threshold else {}))

    @classmethod
    def check_device(cls, device: str) -> None:
        """Raise UsageError if this rival cannot run on a device."""
        check_device(device) if cls.rival_type.runs_on_gpu else check_cpu_only(cls.name, device)

    def _update(self, hosts: Addresses, peers: Addresses) -> None:
        self.rival.update_many([(hosts, peers)])

    def _update_many(self, batches: Batches) -> None:
        self.rival.update_many(batches)

    def _merge(self, other: Self) -> None:
        self.rival.merge(other.rival)

    def _copy(self) -> Self:
        return self._with_state({**state_of(self), "rival": self.rival.copy()})

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

    def _arrays(self) -> Arrays:
        return self.rival.arrays()

    def _written(self, part: Part) -> NoReturn:
        raise UsageError(f"{self.name} has no files: only {', '.join(DETECTORS)} can be saved")


def _as_detector(rival: type[Rival]) -> type[Detector]:
    same = ("name", "broken_laws", "geometry_type")
    facts = {each: getattr(rival, each) for each in same}
    return type(rival.__name__, (RivalDetector,), {**facts, "rival_type": rival})


RIVAL_DETECTORS: dict[str, type[Detector]] = {name: _as_detector(rival) for name, rival in RIVALS.items()}
