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

With `contract` the program acts, with the manners of `acts.py`: it is called when an act is put in force and when it is
withdrawn, perhaps more than once, and `unban` perhaps without `ban`.

* `contract=1`: arguments ACTION (`ban` or `unban`) and HOST; SUPERHOSTS_CONTRACT=1 in the environment; on standard
  input a line of JSON, a `Call`.
* `contract=fastnetmon`: ADDRESS, `incoming` or `outgoing`, NUMBER, `ban` or `unban`, as FastNetMon calls its scripts.
  Standard input has text about the host with `ban`, and nothing with `unban`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict

from superhosts.core.text import printable
from superhosts.output.acts import Act, Actor
from superhosts.output.alerts.machine import AlertEvent
from superhosts.output.records import ALERT, CLOSED, OPENED, Batch, Record
from superhosts.output.senders import TIMEOUT, Address, PermanentError, Sender, TemporaryError, reason_of

TRY_LATER = 75  # EX_TEMPFAIL of sysexits.h
KILLED_WITHIN = 5.0  # seconds
DIRECTIONS = {"in": "incoming", "out": "outgoing"}


class Hook(Sender):
    options: ClassVar[tuple[str, ...]] = ("timeout", "action", "events", "format", "contract", *Actor.manners)

    @classmethod
    def open(cls, text: str, *, private: bool = False) -> Sender:
        opened = super().open(text, private=private)
        given = opened.address.options
        if "contract" in given:
            return Program(opened.address)
        for name in Actor.manners:
            if name in given:
                raise opened.address.error(f"{name} needs contract=1 or contract=fastnetmon: otherwise nothing acts")
        return opened

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
        way = str(record.get("direction") or "any")
        values = (record.get("host", ""), DIRECTIONS.get(way, way), _number(record), action)
        self.call(list(map(str, values)), self.line(record) + "\n")

    def call(self, values: list[str], text: str, **environment: str) -> None:
        """Call the program with arguments, and with text on its standard input."""
        child = self._start([self._program, *values], environment)
        said = b""
        try:
            _, said = child.communicate(text.encode(), self._timeout)
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

    def _start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SUPERHOSTS_")} | environment
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


def _number(record: Record) -> int:
    peers = record.get("peers")
    return int((record.get("peers_low") if peers is None else peers) or 0)


class Call(TypedDict):
    """What a program gets on standard input with contract=1."""

    contract: Literal[1]
    action: Literal["ban", "unban"]
    host: str  # an address or a prefix
    family: int
    expires: str  # when it is withdrawn, at the latest
    why: str  # of unban
    alert: AlertEvent  # as it was when the act began


class Program(Actor):
    """A program that acts, and that may be called again for what it has done already."""

    options: ClassVar[tuple[str, ...]] = Hook.options
    repeats = False

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._hook = Hook(address)
        self._is_foreign = address.choice("contract", ("1", "fastnetmon"), "1") == "fastnetmon"
        for name in ("action", "events"):
            if name in address.options:
                raise address.error(f"{name} is for a program without contract")

    def put(self, acts: Sequence[Act]) -> None:
        for act in acts:
            self._call(act, "ban")

    def withdraw(self, act: Act) -> None:
        self._call(act, "unban")

    def abort(self) -> None:
        self._hook.abort()

    def _call(self, act: Act, action: Literal["ban", "unban"]) -> None:
        if not self._is_foreign:
            about = {"host": act.host, "family": act.network.version, "expires": act.listed()["expires"]}
            why = act.why if action == "unban" else ""
            call = {"contract": 1, "action": action, **about, "why": why, "alert": act.record}
            self._hook.call([action, act.host], json.dumps(call) + "\n", SUPERHOSTS_CONTRACT="1")
            return
        if act.network.num_addresses > 1:
            if action == "unban":
                return  # nothing was banned
            raise PermanentError("FastNetMon's scripts know addresses, no prefixes")
        way = str(act.record.get("direction") or "any")
        incoming = way == "in" or way.endswith("-in")  # Peers have come to the host.
        values = (str(act.network.network_address), "incoming" if incoming else "outgoing", _number(act.record), action)
        self._hook.call(list(map(str, values)), _details(act) if action == "ban" else "")


def _details(act: Act) -> str:
    """Return what is known of a host as lines of text."""
    shown = {name: value for name, value in act.record.items() if isinstance(value, str | int | float) and value != ""}
    return "".join(f"{name}: {printable(value)}\n" for name, value in {"IP": act.host, **shown}.items())
