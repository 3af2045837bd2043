"""How long to wait before something that failed is tried again."""

from __future__ import annotations

DOUBLINGS = 64  # more would exceed every limit, and eventually the range of a float


def growing_pause(attempts: int, first: float, longest: float) -> float:
    """Return the seconds to wait after so many attempts: `first` after one, then twice as long each, up to a limit."""
    return min(first * 2.0 ** min(max(attempts - 1, 0), DOUBLINGS), longest)
