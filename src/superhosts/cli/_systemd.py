"""Tells a service manager (systemd, `Type=notify`) how a service is: ready, reloading, stopping, alive.

The protocol is one datagram for each message, to the socket that NOTIFY_SOCKET names. Without that variable, or if the
socket cannot be reached, nothing happens: no message is worth a delay.

The watchdog is fed by the main loop, between two rounds of its work. A thread of its own would go on feeding it while
the loop hangs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, MutableMapping

FEEDS = 4  # messages within the time that the watchdog allows
SHOWN = 5.0  # seconds between two status texts


class ServiceManager:
    """The service manager that started this process; one that hears nothing if there is none."""

    def __init__(
        self,
        environment: MutableMapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the variables, and remove them: programs that this one starts are not the service."""
        address = environment.pop("NOTIFY_SOCKET", "")
        limit, owner = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._clock = clock
        self._is_ready = False
        self._pause: float | None = None  # seconds between two feeds of the watchdog
        self._fed = self._shown = 0.0
        if limit.isdigit() and int(limit) and owner in ("", str(os.getpid())):
            self._pause = int(limit) / 1e6 / FEEDS

    def beat(self, status: Callable[[], str]) -> None:
        """Take note that the main loop moves. The first time, the service is ready; `status` says how it is."""
        if not self._address:
            return
        now = self._clock()
        if not self._is_ready:
            self._is_ready = True
            self._fed = self._shown = now
            self._send("READY=1", f"STATUS={status()}")
            return
        if self._pause is not None and now - self._fed >= self._pause:
            self._fed = now
            self._send("WATCHDOG=1")
        if now - self._shown >= SHOWN:
            self._shown = now
            self._send(f"STATUS={status()}")

    def reloading(self) -> None:
        """Tell that the service reads its configuration again."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        """Tell that it has."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Tell that the service ends. Safe in a signal handler."""
        self._send("STOPPING=1")
        self._address = ""  # nothing else is worth telling

    def _send(self, *lines: str) -> None:
        if self._address:
            text = "\n".join(line.replace("\n", " ") for line in lines)
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
                made.setblocking(False)
                made.sendto(text.encode(errors="replace"), self._address)
