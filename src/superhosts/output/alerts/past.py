"""The hosts' own past: how many peers each usually has, in bounded memory.

Of every host that was in the rows of the last windows its peers are kept, and a window without it counts as none. Of
hosts beyond the bound, those that were seen longest ago are forgotten: they are new when they come again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from statistics import median

WINDOWS = 12  # of which the median is taken
LEARNING = 6  # windows before anything is known of anybody
MOST_HOSTS = 65_536


class Past:
    """Peers of hosts in the last windows, by a key that names rule and host."""

    def __init__(self, *, hosts: int = MOST_HOSTS, windows: int = 0) -> None:
        self.windows = windows  # taken so far
        self.changed: set[str] = set()  # keys whose values are to be stored
        self.forgotten: set[str] = set()
        self._most = hosts
        self._values: OrderedDict[str, list[tuple[int, int]]] = OrderedDict()  # (number of the window, peers)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def knows(self) -> bool:
        """False as long as nothing can be called usual."""
        return self.windows >= LEARNING

    def usual(self, key: str) -> float:
        """Return the median of a host's peers in the last windows."""
        known = min(self.windows, WINDOWS)
        values = [peers for number, peers in self._values.get(key, ()) if number >= self.windows - known]
        return float(median([*values, *[0] * (known - len(values))])) if known else 0.0

    def note(self, key: str, peers: int) -> None:
        """Take the peers of a host in the window that is being taken."""
        values = [each for each in self._values.pop(key, []) if each[0] > self.windows - WINDOWS]
        self._values[key] = [*(each for each in values if each[0] != self.windows), (self.windows, peers)]
        self.changed.add(key)
        self.forgotten.discard(key)
        while len(self._values) > self._most:
            oldest, _ = self._values.popitem(last=False)
            self.changed.discard(oldest)
            self.forgotten.add(oldest)

    def next_window(self) -> None:
        """End a window."""
        self.windows += 1

    def stored(self, key: str) -> str:
        """Return a host's values as text."""
        return json.dumps(self._values[key])

    def restore(self, rows: Iterable[tuple[str, str]]) -> None:
        """Take stored values, those that were seen longest ago first."""
        read = [(key, [(int(number), int(peers)) for number, peers in json.loads(text)]) for key, text in rows]
        for key, values in sorted(read, key=lambda each: max((number for number, _ in each[1]), default=0)):
            self._values[key] = values
