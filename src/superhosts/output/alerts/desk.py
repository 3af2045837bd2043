"""A destination that turns the rows of windows into alerts, and hands these on to destinations of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict

from superhosts.core.notices import WARNING, Notice
from superhosts.errors import InputError, OutputError
from superhosts.output.alerts.machine import Policy
from superhosts.output.alerts.store import AlertStore
from superhosts.output.base import Destination, Report

# Of alerts, in formats that have fixed columns; those of `Alert.event`.
ALERT_COLUMNS = (
    *("event", "alert", "rule", "host", "family", "side", "direction", "counts", "threshold", "peers", "peers_low"),
    *("peers_high", "peak", "since", "until", "windows", "reason", "act", "held_back"),
)


class AlertDesk(Destination):
    """Takes reports. A destination of alerts that fails delays neither the run nor the other ones."""

    def __init__(
        self, store: AlertStore, policy: Policy, receivers: Sequence[Destination], say: Callable[[str], None]
    ) -> None:
        super().__init__(f"alerts:{store.path}")
        self._store, self._receivers, self._say = store, receivers, say
        self._machine = store.machine(policy)
        self._trouble = ""
        self._untimed = False
        self._keep_open()

    def _write(self, report: Report) -> None:
        window = report.window
        if window is None or not window.is_timed:
            if not self._untimed:
                self._say(
                    Notice(
                        "NO ALERTS: the rows have no times, and alerts are opened and closed by them",
                        "no-alerts",
                        WARNING,
                    )
                )
            self._untimed = True
            return
        self._store.take(self._machine, window, report.rows)
        self._hand_on()

    @property
    def policy(self) -> Policy:
        """The rules and lists that count now."""
        return self._machine.policy

    def receivers(self) -> list[Destination]:
        """Return the destinations of alerts."""
        return list(self._receivers)

    def states(self) -> dict[str, int]:
        """Return how many alerts are open, and how many were opened, grown, closed and held back; asks no file."""
        return {"open": len(self._machine.alerts), **asdict(self._machine.counters)}

    def exchange(self, receivers: Sequence[Destination]) -> list[Destination]:
        """Hand alerts to these receivers from now on; return those that are left."""
        left = [each for each in self._receivers if each not in receivers]
        self._receivers = list(receivers)
        self._keep_open()
        return left

    def reload(self, policy: Policy) -> None:
        """Take other rules and lists; alerts that they no longer want are closed at once."""
        self._store.reload(self._machine, policy)
        self._hand_on()

    def reopen(self) -> None:
        """Open the receivers' files again."""
        for receiver in self._receivers:
            receiver.reopen()

    def _keep_open(self) -> None:
        """Tell the receivers that forget alerts which ones are open."""
        forgetful = [each for each in self._receivers if each.repeats_alerts]
        if forgetful:
            events = self._machine.open_events()
            for receiver in forgetful:
                receiver.keep_open(events)

    def _hand_on(self) -> None:
        """Hand on all events that wait. They go to every receiver, or wait for the next window."""
        self._keep_open()  # first, so that nobody repeats an alert after it was told that it is closed
        try:
            while waiting := self._store.waiting():
                numbers, events = zip(*waiting, strict=True)
                title = ", ".join(
                    f"{count:,} {kind}" for kind, count in Counter(each["event"] for each in events).items()
                )
                for receiver in self._receivers:
                    receiver.write(Report(rows=events, title=title))
                self._store.handed_on(numbers[-1])
            trouble = self._store.trouble
        except (InputError, OutputError) as error:
            trouble = str(error)
        if trouble and trouble != self._trouble:
            self._say(Notice(f"ALERTS WAIT: {trouble}", "alerts-wait", WARNING))
        self._trouble = trouble

    def close(self) -> None:
        """Close the receivers, then the file."""
        try:
            for receiver in self._receivers:
                receiver.close()
        finally:
            self._store.close()

    def status(self) -> dict[str, int]:
        """Return the counters: reports, and alerts by state."""
        return asdict(self.counters) | self.states() | {"waiting": self._store.count_waiting()}
