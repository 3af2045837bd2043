"""The union of a window's sketches, made from the files of the store.

Sketches of the window that is waited for are merged as they arrive, while the link is busy with the next; then its
report needs only the last ones. One union is in memory at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from superhosts.detectors.sketch import Sketch, load
from superhosts.errors import MergeError, SketchFileError, SuperhostsError


class RefusedMemberError(SuperhostsError):
    """A sketch of the store that cannot be merged: this disk has damaged it, or the hub has another key now."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name


@dataclass
class _Warm:
    window: str
    sketch: Sketch
    merged: set[str] = field(default_factory=set)


class Uniter:
    """Makes unions of files in a folder."""

    def __init__(self, key: bytes | str | None) -> None:
        self._key = key
        self._warm: _Warm | None = None

    @property
    def window(self) -> str | None:
        """The window whose union is being made."""
        return self._warm.window if self._warm else None

    def begin(self, window: str, union: Path | None, merged: set[str]) -> None:
        """Start the union of a window, with one that lies on disk already."""
        self._warm = None  # its memory first
        self._warm = _Warm(window, Sketch() if union is None else load(union, key=self._key))
        self._warm.merged |= merged

    def missing(self, members: list[str]) -> list[str]:
        """Return the members that are not merged yet."""
        assert self._warm is not None
        return sorted(set(members) - self._warm.merged)

    def add(self, path: Path, *, trusted: bool = False) -> None:
        """Merge one member. Where that fails nothing is known of the union any more, and it is dropped."""
        assert self._warm is not None
        try:
            self._warm.sketch.merge_file(path, key=self._key, trusted=trusted)
            self._warm.merged.add(path.name)
        except (MergeError, SketchFileError) as error:
            self._warm = None
            raise RefusedMemberError(path.name, str(error)) from None

    def take(self) -> Sketch:
        """Return the union, and forget it here."""
        assert self._warm is not None
        sketch, self._warm = self._warm.sketch, None
        return sketch
