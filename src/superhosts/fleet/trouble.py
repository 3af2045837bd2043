"""Work that fails is logged once and retried, without delaying other work for long.

A full disk affects everything: no other work would succeed either. A problem of one window alone (an invalid file, an
output path that is taken by something else, a union that is too large) puts that window on hold, longer each time.
"""

from __future__ import annotations

import errno
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from superhosts.core.notices import Notice
from superhosts.core.text import printable
from superhosts.errors import OutputError, SuperhostsError, UnreadableError, internal_error
from superhosts.fleet.pauses import growing_pause
from superhosts.fleet.receipts import MAX_SAID, Say

LONGEST_REST = 300.0  # seconds between two attempts at a window that cannot be reported because of its content
EVERYONES = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
}  # these do not concern one window alone


@dataclass
class _Rest:
    attempts: int = 0
    until: float = 0.0  # by the monotonic clock


class Troubles:
    """Runs work and remembers what failed. `on_wait` is called for each failed attempt."""

    def __init__(self, say: Say, on_wait: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.open: dict[str, str] = {}  # what failed at the last attempt, and why
        self._say = say
        self._on_wait = on_wait
        self._clock = clock
        self._rests: defaultdict[str, _Rest] = defaultdict(_Rest)

    def is_resting(self, window: str) -> bool:
        """Return True if a window is on hold."""
        return window in self._rests and self._clock() < self._rests[window].until

    def attempt(self, what: Notice, work: Callable[[], None], window: str | None = None) -> bool:
        """Run some work, on a window or on something else; `what` is logged if it fails.

        Return False if no other work could succeed now.
        """
        try:
            work()
        except UnreadableError as error:  # it may be readable a moment later
            self._note(what, error)
            return True
        except Exception as error:  # no input may stop the hub
            self._note(what, error if isinstance(error, OSError | SuperhostsError) else internal_error(error))
            if _system_code(error) in EVERYONES:
                return False
        else:
            for over in {what: None, **dict.fromkeys(self._all_of(window))}:
                if self.open.pop(over, None) is not None:
                    self._say(Notice(f"{over}: works again", "recovered"))
            if window is not None:
                self._rests.pop(window, None)
            return True
        if window is not None:
            rest = self._rests[window]
            rest.attempts += 1
            rest.until = self._clock() + growing_pause(rest.attempts, 1.0, LONGEST_REST)
        return True

    def _note(self, what: Notice, error: object) -> None:
        self._on_wait()
        if what not in self.open:
            text = f"{what}: {printable(error, MAX_SAID)}; retrying until it works"
            self._say(Notice(text, what.event, what.level))
        self.open[what] = printable(error)

    def forget(self, window: str) -> None:
        """Drop everything about a window that is no longer kept."""
        self._rests.pop(window, None)
        for what in self._all_of(window):
            del self.open[what]

    def _all_of(self, window: str | None) -> list[str]:
        """Return all failed work of a window."""
        return [] if window is None else [what for what in self.open if what.endswith(f": {window}")]


def _system_code(error: BaseException | None) -> int | None:
    """Return the errno of an operating system error, or of the cause of an OutputError."""
    if isinstance(error, OutputError):
        error = error.__cause__
    return error.errno if isinstance(error, OSError) else None
