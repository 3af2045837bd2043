"""Wait for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

DEADLINE = 600.0  # seconds; enough for a busy machine with an empty compile cache
LONGEST = 0.05  # seconds between two looks


def wait_for(condition: Callable[[], Any], what: str | Callable[[], Any], deadline: float = DEADLINE) -> Any:
    """Wait until a condition holds, and return its value. `what` says what did not happen."""
    until, pause = time.monotonic() + deadline, 0.001
    while not (value := condition()):
        assert time.monotonic() < until, f"did not happen in {deadline:g} s: {what() if callable(what) else what}"
        time.sleep(pause)
        pause = min(2 * pause, LONGEST)
    return value
