"""What SIGHUP reloads besides files: rules, thresholds, lists and destinations, from the files that options name.

The command line is read again, with the configuration file and the environment as they are now. What can be changed
while the service runs is taken over, as a whole: if anything is wrong, all of it stays as it was. No window is lost, as
the main loop does this between two rounds. What cannot be changed is named.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from superhosts.cli._alerting import tell_rules
from superhosts.cli._console import tell
from superhosts.cli._loading import options_now
from superhosts.errors import OutputError
from superhosts.output.alerts.machine import Policy
from superhosts.output.alerts.store import ALERT_COLUMNS, AlertDesk
from superhosts.output.destination import Destination, Destinations, RunKind
from superhosts.output.registry import OutputOptions, open_each

RELOADED = "rules, thresholds and destinations"
CHANGEABLE = {"threshold", "top", "allow", "never_act", "alert_cap", "alert_to", "output", "config"}


@dataclass(frozen=True)
class Reloadable:
    """The destinations of a service that runs: of its rows, and of its alerts if it makes any."""

    outputs: Destinations
    kind: RunKind
    desk: AlertDesk | None = None

    def exchange(self, asked: OutputOptions, alert_to: Sequence[str], policy: Policy) -> None:
        """Take other destinations, rules and lists, or none of them if one is wrong (UsageError, OutputError)."""
        with contextlib.ExitStack() as undo:
            rows = _opened(undo, asked, self.kind, self.outputs.each())
            receivers: list[Destination] = []
            if self.desk is not None:
                wanted = OutputOptions(outputs=alert_to, delivery=asked.delivery)
                receivers = _opened(undo, wanted, RunKind(ALERT_COLUMNS, endless=True), self.desk.receivers())
            undo.pop_all()
        left = self.outputs.exchange(rows)
        if self.desk is not None:
            left += self.desk.exchange(receivers)
            if policy.rules != self.desk.policy.rules:
                tell_rules(policy)
            self.desk.reload(policy)
        _close_later(left)


def _opened(
    undo: contextlib.ExitStack, asked: OutputOptions, kind: RunKind, before: Sequence[Destination]
) -> list[Destination]:
    """Open what is new; `undo` gives it up again."""
    found = open_each(asked, kind, before)
    for each in found:
        if each not in before:
            undo.callback(each.abandon)
    return found


def _close_later(left: Sequence[Destination]) -> None:
    """Close destinations in a thread of its own: one that sends may first wait for its receiver."""

    def close() -> None:
        for each in left:
            try:
                each.close()
            except (OSError, OutputError) as error:
                tell(str(error))

    if left:
        threading.Thread(target=close, name="close", daemon=True).start()


def reload_options(options: Any, take: Callable[[Any], None]) -> Callable[[], None]:
    """Return what a reload calls: `take` gets the options of now. What needs a restart is told, once."""
    told: set[str] = set()

    def reload() -> None:
        now = options_now()
        take(now)
        fixed = {name for name in changed(options, now) if name not in CHANGEABLE}
        if fixed - told:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(fixed))
            tell(f"changed, but only a restart takes it: {names}")
        told.clear()
        told.update(fixed)

    return reload


def changed(before: Any, now: Any) -> Iterator[str]:
    """Yield the names of the options that differ."""
    for each in fields(before):
        old, new = getattr(before, each.name), getattr(now, each.name)
        if is_dataclass(old):
            yield from changed(old, new)
        elif old != new:
            yield each.name
