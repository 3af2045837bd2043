"""How long readers of live inputs wait, and by which clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """How long readers of live inputs, and the run that takes their packets, wait: all in seconds."""

    wake: float = 0.2  # after which a waiting thread checks the clock, and whether to stop
    caught_up: float = 1.0  # without a backlog before the clock counts
    held_up: float = 1.0  # after which the last check of the inputs is out of date
    drain: float = 5.0  # after which a stop no longer waits for a reader
    linger: float = 0.2  # a stopped reader of a pipe still reads: Ctrl-C makes the capture program flush its packets
    poll: float = 0.2  # between two checks of a file or a folder
    quiet: float = 1.0  # without growth after which a file of a folder may be finished
    settled: float = 2.0  # after which a file too short for a capture is opened


@dataclass(frozen=True)
class Clocks:
    """This machine's clocks, and a pause."""

    steady: Callable[[], float] = time.monotonic  # in seconds, from any moment on
    wall: Callable[[], int] = time.time_ns  # in nanoseconds since the epoch
    sleep: Callable[[float], None] = time.sleep


PACE = Pace()
CLOCKS = Clocks()
