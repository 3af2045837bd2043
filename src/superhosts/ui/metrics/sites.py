"""Which sites of a hub took part in its last window, and when a sketch of each was accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from superhosts.core.pairs import Window


class Sites:
    """The sites of the window that ended last. One thread notes; any thread reads."""

    def __init__(self, taken: Callable[[], Mapping[str, float]], expected: Sequence[str] = ()) -> None:
        """`taken` returns when a sketch of each site was accepted last. `expected`: the sites that were named."""
        self.reporting: Sequence[str] = ()
        self.missing: Sequence[str] = tuple(expected)
        self._taken = taken
        self._end = 0

    def note(self, window: Window | None, reporting: Sequence[str], missing: Sequence[str]) -> None:
        """Note a report. One of an earlier window changes nothing."""
        end = 0 if window is None else window.end
        if end >= self._end:
            self._end, self.reporting, self.missing = end, tuple(reporting), tuple(missing)

    def present(self) -> list[tuple[str, bool]]:
        """Return each site, and whether it was in the last window; the missing ones first."""
        return [(site, False) for site in sorted(self.missing)] + [(site, True) for site in sorted(self.reporting)]

    def seen(self) -> list[tuple[str, float]]:
        """Return each site of which a sketch was accepted, and when, the last one first."""
        return sorted(self._taken().items(), key=lambda item: -item[1])
