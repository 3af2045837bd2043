"""Packets that were lost, and when: rows say of each window how many it lacks."""

from __future__ import annotations

import threading
from collections import deque

MOST_NOTES = 4096


class Losses:
    """Notes of losses. One thread notes, others ask. If there are very many notes, neighbours become one."""

    def __init__(self, most: int = MOST_NOTES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._notes: deque[tuple[int, int]] = deque()  # time, packets

    def add(self, time: int, packets: int) -> None:
        """Note packets that were lost at about this time."""
        with self._lock:
            self._notes.append((time, packets))
            if len(self._notes) > self._most:
                notes = list(self._notes)
                self._notes = deque((b[0], a[1] + b[1]) for a, b in zip(notes[::2], notes[1::2], strict=False))
                self._notes.extend(notes[len(notes) & ~1 :])

    def between(self, start: int, end: int) -> int:
        """Return the packets that were lost from one time on and before another."""
        with self._lock:
            return sum(packets for time, packets in self._notes if start <= time < end)

    def forget(self, before: int) -> None:
        """Forget what was lost before a time: nobody asks for it any more."""
        with self._lock:
            while self._notes and self._notes[0][0] < before:
                self._notes.popleft()
