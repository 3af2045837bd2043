"""`superhosts.scan`, which may name a rival, too: the pipeline knows none.

Windows and rows are as with a cube. Rivals have no files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from superhosts.core.text import setting
from superhosts.detectors.detector import Detector
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import UsageError
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.scan import scan as scan_inputs
from superhosts.pipeline.settings import AUTO

Arguments = ParamSpec("Arguments")


def detector_of(name: str) -> str | type[Detector]:
    """Return what the settings of a scan take for a detector: a name of the registry, or the class of a rival."""
    if name in (AUTO, *DETECTORS):
        return name
    # Imported here: a scan with a cube does not wait for the rivals, which take 50 ms.
    from superhosts.lab.rivals import RIVALS

    if name not in RIVALS:
        raise UsageError(f"{setting('detector', name)}: one of {', '.join([AUTO, *DETECTORS, *RIVALS])}")
    return RIVALS[name]


def _with_rivals(scan: Callable[Arguments, Scan]) -> Callable[Arguments, Scan]:
    @wraps(scan)
    def run(*inputs: Arguments.args, **options: Arguments.kwargs) -> Scan:
        named: dict[str, Any] = options
        if isinstance(named.get("detector"), str):
            named["detector"] = detector_of(named["detector"])
        return scan(*inputs, **options)

    return run


scan = _with_rivals(scan_inputs)
