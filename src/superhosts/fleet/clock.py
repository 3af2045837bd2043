"""How old something is, by this machine's clock."""

from __future__ import annotations

from superhosts.units import SECOND


def age_of(written: float, end: int, now: float) -> float:
    """Return the seconds since something of a window was written; since the window's end (ns) where that is later.

    The end is later where this machine's clock was behind at the time of writing.
    """
    return now - max(written, end / SECOND if end / SECOND <= now else 0.0)
