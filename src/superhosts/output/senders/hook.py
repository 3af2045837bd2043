"""A program of the operator's: `exec:/path/to/hook?timeout=10s`, called once for each record.

The arguments are those of FastNetMon's notify script: HOST DIRECTION (`incoming`, `outgoing` or `any`) NUMBER (peers;
of a saturated host, its lower bound) ACTION (`ban`, or what `action=` says; `unban` when an alert is closed).

Scripts of FastNetMon know no other action, and may take any other for a ban. So of alerts (`--alert-to`) the program is
called when one is opened and when it is closed, if `act` of the record allows it, and never when one has grown. With
`events=all` it is called for the others, too: ACTION is then the event. Rows (`--output`) have no end, so the program
is called with the same action for each of them, in each window.

The record is one line on standard input, of JSON or in another `format`. No shell is involved. The program has a
process group of its own, which is killed at the time limit (`timeout`, 10 seconds), and when the program has ended.
Exit status 0 means done, 75 (EX_TEMPFAIL) to try again later; with any other the record counts as refused. Variables
of the environment that begin with SUPERHOSTS_ may hold keys and are removed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, ClassVar

from superhosts.core.text import printable
from superhosts.output.records import ALERT, CLOSED, OPENED, Batch, Record
from superhosts.output.senders import TIMEOUT, Address, PermanentError, Sender, TemporaryError, reason_of

TRY_LATER = 75  # EX_TEMPFAIL of sysexits.h
KILLED_WITHIN = 5.0  # seconds
DIRECTIONS = {"in": "incoming", "out": "outgoing"}


class Hook(Sender):
    options: ClassVar[tuple[str, ...]] = ("timeout", "action", "events", "format")

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._program = address.path
        if not Path(self._program).is_absolute() or address.netloc:
            raise address.error("name a program by its full path, like exec:/usr/local/bin/notify")
        if not (Path(self._program).is_file() and os.access(self._program, os.X_OK)):
            raise address.error("no such program, or it may not be executed")
        self._timeout = address.seconds("timeout", TIMEOUT)
        self._action = address.options.get("action", "ban")
        self._all = address.choice("events", ("act", "all"), "act") == "all"
        self._child: subprocess.Popen[bytes] | None = None
        self._aborted = False

    def deliver(self, batch: Batch) -> None:
        """Call the program for all records."""
        refused: list[PermanentError] = []
        for _, record in self.remaining(batch, batch.records):
            try:
                if action := self._action_for(record):
                    self._call(record, action)
            except PermanentError as error:
                refused.append(error)
        if refused:
            raise PermanentError(f"{refused[0]} (records of this report that failed: {len(refused)})")

    def abort(self) -> None:
        self._aborted = True
        child = self._child
        if child is not None:
            _kill(child)

    def _action_for(self, record: Record) -> str:
        """Return what the program is to do; empty: it is not called."""
        event = record.get("event")
        if record["kind"] != ALERT:
            return self._action
        if record.get("act") and event in (OPENED, CLOSED):
            return self._action if event == OPENED else "unban"
        return str(event) if self._all else ""

    def _call(self, record: Record, action: str) -> None:
        peers = record.get("peers")
        number = record.get("peers_low") if peers is None else peers
        way = str(record.get("direction") or "any")
        values = (record.get("host", ""), DIRECTIONS.get(way, way), number or 0, action)
        child = self._start([self._program, *map(str, values)])
        said = b""
        try:
            _, said = child.communicate(self.line(record).encode() + b"\n", self._timeout)
        except subprocess.TimeoutExpired:
            if child.poll() is None:
                text = f"the program took longer than {self._timeout:g} s and was killed"
                raise PermanentError(text) from None
            # Otherwise it has ended, and a process that it left behind holds its standard error.
        finally:
            self._child = None
            _kill(child)  # with what it has left in its group
            with contextlib.suppress(subprocess.TimeoutExpired):  # A program of another user cannot be killed.
                child.wait(KILLED_WITHIN)
            for stream in (child.stdin, child.stderr):
                with contextlib.suppress(OSError):
                    assert stream is not None
                    stream.close()
        if child.returncode == 0:
            return
        if self._aborted:
            raise TemporaryError("the program was killed, because the time to wait for it was over")
        last = printable(said.decode("utf-8", "replace").strip().rpartition("\n")[2])
        text = f"the program ended with status {child.returncode}" + (f": {last}" if last else "")
        if child.returncode == TRY_LATER:
            raise TemporaryError(text)
        raise PermanentError(text)

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SUPERHOSTS_")}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        try:
            self._child = subprocess.Popen(command, env=kept, start_new_session=True, cwd="/", **pipes)
        except OSError as error:
            raise TemporaryError(f"the program cannot be started: {reason_of(error)}") from None
        if self._aborted:  # `abort` may have looked before the line above
            _kill(self._child)
        return self._child


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(PermissionError):
        child.kill()
