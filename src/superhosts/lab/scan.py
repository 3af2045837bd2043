"""`superhosts.scan`, which may name a rival, too: the pipeline knows none.

Windows and rows are as with a cube. Rivals have no files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, Self

from superhosts.core.device import check_cpu_only, check_device
from superhosts.core.pairs import IPV4, Addresses, Batches, Part
from superhosts.core.results import SuperHosts
from superhosts.core.text import setting
from superhosts.detectors.detector import Detector
from superhosts.detectors.engines.base import Arrays
from superhosts.detectors.lock import state_of
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import UsageError
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.scan import scan as scan_inputs

if TYPE_CHECKING:
    from superhosts.lab.rivals.base import Rival

Arguments = ParamSpec("Arguments")


def detector_of(name: str) -> str | type[Detector]:
    """Return what the settings of a scan take for a detector: a name of the registry, or the class of a rival."""
    if name in DETECTORS:
        return name
    # Imported here: a scan with a cube does not wait for the rivals, which take 50 ms.
    from superhosts.lab.rivals import RIVALS

    if name not in RIVALS:
        raise UsageError(f"{setting('detector', name)}: one of {', '.join([*DETECTORS, *RIVALS])}")
    rival = RIVALS[name]
    same = ("name", "broken_laws", "geometry_type")
    facts = {each: getattr(rival, each) for each in same}
    return type(rival.__name__, (RivalDetector,), {**facts, "rival_type": rival})


def _with_rivals(scan: Callable[Arguments, Scan]) -> Callable[Arguments, Scan]:
    @wraps(scan)
    def run(*inputs: Arguments.args, **options: Arguments.kwargs) -> Scan:
        named: dict[str, Any] = options
        if isinstance(named.get("detector"), str):
            named["detector"] = detector_of(named["detector"])
        return scan(*inputs, **options)

    return run


scan = _with_rivals(scan_inputs)


class RivalDetector(Detector):
    """A rival with the interface of detectors. `detector_of` makes a subclass for each."""

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
