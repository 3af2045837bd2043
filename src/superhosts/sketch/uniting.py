"""The union of several detectors, sketches or files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, overload

from superhosts.detectors.base import Detector
from superhosts.errors import UsageError
from superhosts.sketch.sketch import Sketch

AnyDetector = TypeVar("AnyDetector", bound=Detector)


@overload
def union(members: Iterable[Sketch | str | Path], *, key: bytes | str | None = None) -> Sketch: ...


@overload
def union(members: Iterable[AnyDetector], *, key: bytes | str | None = None) -> AnyDetector: ...


def union(members: Iterable[Any], *, key: bytes | str | None = None) -> Any:
    """Return the union of detectors, or of sketches and .cube files, as a new object. The members do not change.

    Files are merged block by block; `key` is theirs, as for `load`. Raise MergeError if members do not match.
    """
    whole: Any = None
    for member in members:
        is_file = isinstance(member, str | Path)
        if whole is None and not is_file:
            if not isinstance(member, Detector | Sketch):
                raise UsageError(f"union: {type(member).__name__} is no detector, sketch or path of a .cube file")
            whole = member.copy()
            continue
        whole = Sketch() if whole is None else whole
        if is_file and isinstance(whole, Sketch):
            whole.merge_file(member, key=key)
        else:
            whole.merge(member)
    if whole is None:
        raise UsageError("union: there is nothing to unite; pass at least one detector, sketch or path")
    return whole
