"""`superhosts.scan`, which may name a rival, too: the pipeline knows none.

Windows and rows are as with a cube. Rivals have no files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, Self

from superhosts.core.pairs import IPV4, Addresses, Batches
from superhosts.core.results import SuperHosts
from superhosts.core.text import setting
from superhosts.detectors.base import Detector
from superhosts.detectors.engines.base import Arrays, ArrayShape
from superhosts.detectors.kinds import Kind
from superhosts.detectors.registry import DETECTORS
from superhosts.detectors.storing import Place
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
    same = ("name", "broken_laws", "runs_on_gpu", "wants_threshold", "geometry_type")
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
