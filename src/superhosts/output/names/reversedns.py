"""Names by reverse DNS, looked up by a few threads in the background.

A row gets the name that is known when it is written. A report waits for the names of its new hosts, up to a second. All
reports together wait for no more than five seconds and a tenth of the time that passes: a name server that is slow or
dead slows nobody down by more, and a service that runs for days still waits for the names of each report. Names and
failures are kept for an hour, the last 65,536 of them.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Final

from superhosts.core.pairs import Network

THREADS: Final = 8
KEPT: Final = 1 << 16  # names
KEPT_SECONDS: Final = 3600.0
WAIT: Final = 1.0  # seconds for the hosts of one report
PATIENCE: Final = 5.0  # seconds for several reports in a row
REGAINED: Final = 0.1  # seconds of patience that come back in a second
MOST_NAME: Final = 253  # characters

Look = Callable[[str], str | None]


def look_up(address: str) -> str | None:
    """Return the name of an address by the system's resolver; None if it has none."""
    try:
        name = socket.gethostbyaddr(address)[0]
    except (OSError, UnicodeError):
        return None
    return name[:MOST_NAME] if name != address else None


class ReverseNames:
    """Names of addresses. Any thread may ask."""

    def __init__(self, look: Look = look_up, clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._clock = look, clock
        self._known: OrderedDict[str, tuple[float, Future[str | None]]] = OrderedDict()
        self._asked: SimpleQueue[tuple[str, Future[str | None]]] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._patience, self._counted = PATIENCE, clock()  # seconds, and when they were counted

    def expect(self, hosts: list[Network]) -> None:
        """Begin to look for the names of hosts, and wait for them for a moment."""
        fresh = [future for host in hosts if (future := self._begin(host)) is not None]
        now = self._clock()
        self._patience = min(self._patience + REGAINED * (now - self._counted), PATIENCE)
        self._counted = now
        patience = min(WAIT, self._patience)
        if not fresh or patience <= 0:
            return
        wait(fresh, timeout=patience)
        self._counted = self._clock()
        self._patience -= self._counted - now

    def name(self, host: Network) -> str | None:
        """Return the name of a host if it is known by now. A prefix has none."""
        if host.num_addresses != 1:
            return None
        with self._lock:  # or it may be forgotten meanwhile
            known = self._known.get(str(host.network_address))
            return known[1].result() if known is not None and known[1].done() else None

    def _begin(self, host: Network) -> Future[str | None] | None:
        """Begin to look for the name of a host; return None if that was done before."""
        address = str(host.network_address)
        with self._lock:
            known = self._known.get(address)
            if host.num_addresses != 1 or (known is not None and self._clock() - known[0] < KEPT_SECONDS):
                return None
            future: Future[str | None] = Future()
            self._known[address] = self._clock(), future
            self._known.move_to_end(address)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)[1][1].cancel()
            self._asked.put((address, future))
            if len(self._threads) < THREADS:  # daemons: the process does not wait for a dead name server when it ends
                self._threads.append(threading.Thread(target=self._answer, name="reverse dns", daemon=True))
                self._threads[-1].start()
            return future

    def _answer(self) -> None:
        """Look for names, one after the other."""
        while True:
            address, future = self._asked.get()
            if future.set_running_or_notify_cancel():
                future.set_result(self._look(address))
