"""The union of a window's sketches, made from the files of the store.

Sketches of the window that is waited for are merged as they arrive, while the link is busy with the next; then its
report needs only the last ones. One union is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from superhosts.detectors.header import Stored, read_header
from superhosts.detectors.sketch import Sketch
from superhosts.errors import HalfReadError, MergeError, SketchFileError, SuperhostsError, UnreadableError


class RefusedMemberError(SuperhostsError):
    """A sketch of the store that cannot be merged: this disk has damaged it, or the hub has another key or geometry."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name


@dataclass
class _Warm:
    window: str
    sketch: Sketch
    merged: set[str] = field(default_factory=set)


class Uniter:
    """Makes unions of files in a folder. `check` refuses (MergeError) what does not fit the hub as it is now.

    A file that cannot be read now (UnreadableError) is nobody's fault: the caller tries again.
    """

    def __init__(self, key: bytes | str | None, check: Callable[[Stored], None]) -> None:
        self._key = key
        self._check = check
        self._warm: _Warm | None = None

    @property
    def window(self) -> str | None:
        """The window whose union is being made."""
        return self._warm.window if self._warm else None

    def begin(self, window: str, union: Path | None, merged: set[str]) -> None:
        """Start the union of a window, with one that lies on disk already."""
        self._warm = None  # its memory first
        sketch = Sketch()
        if union is not None:
            self._check(read_header(union))
            sketch.merge_file(union, key=self._key, trusted=True)
        self._warm = _Warm(window, sketch, set(merged))

    def missing(self, members: list[str]) -> list[str]:
        """Return the members that are not merged yet."""
        assert self._warm is not None
        return sorted(set(members) - self._warm.merged)

    def add(self, path: Path, *, trusted: bool = False) -> None:
        """Merge one member (`trusted`: checked a moment ago). Where it fails half way the union is dropped."""
        assert self._warm is not None
        try:
            if not trusted:
                self._check(read_header(path))
            self._warm.sketch.merge_file(path, key=self._key, trusted=True)
            self._warm.merged.add(path.name)
        except HalfReadError:
            self._warm = None
            raise
        except UnreadableError:
            raise
        except (MergeError, SketchFileError) as error:
            self._warm = None
            raise RefusedMemberError(path.name, str(error)) from None

    def take(self) -> Sketch:
        """Return the union, and forget it here."""
        assert self._warm is not None
        sketch, self._warm = self._warm.sketch, None
        return sketch
