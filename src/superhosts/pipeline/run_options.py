"""How a run treats time and its end. What it looks for is in `settings.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from superhosts.core import defaults
from superhosts.core.units import SECOND, parse_duration
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.windows.held import LIMITS, Limits
from superhosts.sources.ahead import Clock
from superhosts.sources.base import Source
from superhosts.sources.pace import PACE, Pace

GRACE = parse_duration(defaults.GRACE) / SECOND


@dataclass(frozen=True)
class RunOptions:
    """How a run treats time and its end; what it looks for is in `Settings`.

    With a grace a window may also come twice: files open windows again as with `reopens`, and live inputs do after a
    clock was set back, which `Scan.on_jump` reports. With `clock_only` neither happens: the clock closes windows of
    live inputs, none of them empty, and inputs wait for each other for the grace.
    """

    grace: float | None = None  # seconds after which the clock closes windows of live inputs
    clock_only: bool = False  # not a sensor that runs for months: packets in order of time matter more than speed
    resume_from: int | None = None  # windows that end at or before this time are done
    find: bool = True  # look for super hosts in each window; without it only sketches are made
    reopens: bool = False  # late packets open their window again, which then comes twice: its sketches are to be merged
    revises: bool = False  # windows that lack late packets are read again in the end and yielded whole (files only)
    joins_short: bool = False  # inputs that end, and are together shorter than a window, are one window
    keeps_sketches: bool = True  # or a window's sketch is freed when the next window comes
    leaves_open: bool = True  # a stop leaves open windows to the next run if all inputs can be read again
    clock: Clock = time.monotonic  # any steady one, in seconds
    wall: Callable[[], int] = time.time_ns  # this machine's time, in nanoseconds since the epoch
    pace: Pace = PACE
    limits: Limits = LIMITS

    @property
    def is_sensor(self) -> bool:
        """True for a sensor: it yields empty windows, too, and follows the packets' clock when that is set."""
        return self.grace is not None and not self.clock_only


def scan_options(
    sources: Sequence[Source],
    settings: Settings,
    *,
    joins_short: bool,
    grace: float = GRACE,
    keeps_sketches: bool = True,
) -> RunOptions:
    """Return the options of a scan: a clock closes windows of pipes; files are read twice if need be, or joined.

    Short inputs are not joined under a limit of memory, because that takes the sketches of two windows at once, nor if
    it matters who opened, because that is decided window by window.
    """
    live = any(source.live for source in sources)
    can_join = "merge" not in settings.kind.broken_laws and settings.memory_total is None
    can_join = can_join and not settings.has_contacts
    return RunOptions(
        grace=grace if live and settings.window != "all" else None,
        clock_only=True,
        revises=True,
        keeps_sketches=keeps_sketches,
        joins_short=joins_short and can_join and not live and settings.window != "all",
    )
