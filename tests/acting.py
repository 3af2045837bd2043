"""Runs that act: processes that put in force what a test says is open, and that a test may kill at any moment.

`python acting.py LEDGER ADDRESS…` reads lines of JSON: the hosts with open alerts, or the events of these, each line
with a SIGHUP. It prints what it says.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from superhosts.output.acts import HELD, Act, Ledger
from superhosts.output.delivery import DeliveryOptions
from superhosts.output.destination import RunKind
from superhosts.output.registry import open_destination, withdraw_left_behind
from waiting import DEADLINE, wait_for

ENDLESS = RunKind(endless=True)


def alert(host: str, **fields: Any) -> dict[str, Any]:
    """Return the event of an open alert, as a run hands it on."""
    until = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    given = {"kind": "alert", "event": "open", "text": f"{host} has peers", "alert": f"id-{host}", "rule": "scan"}
    given |= {"host": host, "family": 6 if ":" in host else 4, "direction": "out", "peers": 1500, "act": True}
    return {**given, "since": until, "until": until, **fields}


def alerts(*hosts: str) -> Callable[[], list[dict[str, Any]]]:
    events = [alert(host) for host in hosts]
    return lambda: events


def options(ledger: Path, say: Callable[[str], None] = lambda _: None) -> DeliveryOptions:
    return DeliveryOptions(ledger=ledger, say=say, wait=DEADLINE)


def acts_of(ledger: Path) -> list[Act]:
    opened = Ledger(ledger)
    try:
        return opened.acts()
    finally:
        opened.close()


def held(ledger: Path) -> set[str]:
    return {act.host for act in acts_of(ledger) if act.state in HELD}


class ActingRun:
    """A process of this file."""

    def __init__(self, ledger: Path, *addresses: str, prefix: Sequence[str] = ()) -> None:
        self.ledger = ledger
        self.said: list[str] = []
        command = [*prefix, sys.executable, __file__, str(ledger), *addresses]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.said.extend(iter(self.process.stdout.readline, ""))

    def open(self, *hosts: str | dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(hosts) + "\n")
        self.process.stdin.flush()

    def wait(self, text: str) -> None:
        wait_for(lambda: any(text in line for line in self.said), lambda: f"it says {text}: {self.said}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self._ended()

    def end(self) -> None:
        """End it as a run ends that was told to."""
        assert self._ended() == 0

    def _ended(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        self.process.stdout.close()
        return self.process.returncode


def main(ledger: str, *addresses: str) -> None:
    given = options(Path(ledger), lambda text: print(text, flush=True))
    opened = [open_destination(address, ENDLESS, given) for address in addresses]
    opened += withdraw_left_behind(given, opened)
    print("ready", flush=True)
    for line in sys.stdin:
        events = [alert(each) if isinstance(each, str) else each for each in json.loads(line)]
        for each in opened:
            each.keep_open(lambda events=events: events)  # type: ignore[misc]
            each.reopen()
    for each in opened:
        each.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
