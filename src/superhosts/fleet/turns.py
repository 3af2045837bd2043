"""Which window a hub reports next: sites take turns.

One site may have thousands of windows to report: it was offline for a week, or it makes them up. A report serves every
site whose sketches are new in it. The next report goes to the site whose last turn is longest ago, oldest window first.
So a window of one site waits for at most one window of each other site, and every window is reported eventually.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping


class Turns:
    """Remembers when each site was last served."""

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[str, int] = {}  # site → number of its last turn

    def take(self, sites: Iterable[str]) -> None:
        """Note that a report serves these sites."""
        self._count += 1
        self._last.update(dict.fromkeys(sites, self._count))

    def order(self, windows: Mapping[str, Collection[str]]) -> list[str]:
        """Return the windows in the order to report them: the first of every site, then the second of every site …

        `windows` maps each window, oldest first, to the sites that it serves.
        """
        given: defaultdict[str, int] = defaultdict(int)
        places: dict[str, tuple[int, int, str]] = {}
        for window, sites in windows.items():
            for site in sites or ("",):
                place = (given[site], self._last.get(site, 0), site)
                given[site] += 1
                places[window] = min(place, places.get(window, place))
        return sorted(places, key=places.__getitem__)
