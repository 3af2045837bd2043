"""The endpoint for monitoring of the programs that run on (`edge`, `hub`, `watch`): /metrics, /healthz and /readyz.

A small HTTP server with a few threads answers GET and HEAD, one request for each connection. Requests are read up to
the end of their headers, never beyond a few KiB or a few seconds in all, whatever a client sends or withholds. A client
that is slow occupies one of the threads until its time is up, and nothing else: detection never waits for any of them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from superhosts.core.units import Place
from superhosts.errors import OutputError, import_extra

STALLED = 120.0  # seconds between two beats: the largest windows take less
STARTING = 600.0  # seconds until the first: a slow machine compiles for minutes
THREADS = 4
BACKLOG = 16  # connections that wait for a thread
LARGEST = 8 << 10  # bytes of a request
READING = 3.0  # seconds for a client to send its request
WRITING = 10.0  # seconds for a client to take the answer
TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"  # that all versions of Prometheus read


def open_endpoint(place: Place, health: Health, readings: Sequence[Callable[[], Iterator[Any]]]) -> Server:
    """Listen, and answer from then on. Raise OutputError or MissingExtraError if that is not possible.

    Readings yield families of prometheus_client (`monitor.py`). Metrics of the process (process_…) are added.
    """
    import_extra("--metrics", "metrics", "prometheus_client")
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    class Collector:
        def collect(self) -> Iterator[Any]:
            for read in readings:
                yield from read()

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(Collector())
    routes = {
        "/metrics": lambda: Answer(200, generate_latest(registry), METRICS),
        "/healthz": lambda: _judged([why] if (why := health.why_dead()) else []),
        "/readyz": lambda: _judged(health.why_not_ready()),
    }
    return Server(place, routes)


def _judged(problems: Sequence[str]) -> Answer:
    return Answer(503 if problems else 200, "".join(f"{each}\n" for each in problems or ["ok"]).encode())


class Health:
    """Liveness and readiness of a program. Any thread may ask.

    It lives as long as its main loop moves: the loop itself beats, once for each round, so a loop that hangs is noticed
    although other threads still run. It is ready if no reason says otherwise.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, stalled: float = STALLED) -> None:
        self._clock, self._stalled = clock, stalled
        self._last = clock()
        self._has_begun = False
        self._reasons: list[Callable[[], str]] = []

    def beat(self) -> None:
        """Note that the main loop moves. It does this very often, so it must cost nothing."""
        self._last = self._clock()
        self._has_begun = True

    def look_at(self, reason: Callable[[], str]) -> None:
        """Ask this for readiness, too: why the program is not ready; empty if it is."""
        self._reasons.append(reason)

    def why_dead(self) -> str:
        silent, allowed = self._clock() - self._last, self._stalled if self._has_begun else STARTING
        return f"the main loop has not moved for {silent:.0f} s" if silent > allowed else ""

    def why_not_ready(self) -> list[str]:
        if not self._has_begun:
            return ["starting"]
        found = [self.why_dead(), *(reason() for reason in self._reasons)]
        return [each for each in found if each]


def listen(place: Place, option: str, backlog: int) -> socket.socket:
    """Return a listening socket. Raise OutputError, which names the option, if that is not possible."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    try:
        return socket.create_server((place.host, place.port), family=family, backlog=backlog)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # the place is named already
        raise OutputError(f"{option} {place}: cannot listen there: {reason}") from None


class Answer(NamedTuple):
    status: int
    content: bytes
    kind: str = TEXT


class Server:
    """Answers requests from its construction until `close`. Raises OutputError if it cannot listen."""

    def __init__(
        self,
        place: Place,
        routes: Mapping[str, Callable[[], Answer]],
        *,
        reading: float = READING,
        writing: float = WRITING,
    ) -> None:
        self._routes, self._reading, self._writing = routes, reading, writing
        self._closing = False
        self._socket = listen(place, "--metrics", BACKLOG)
        self.place = Place(place.host, self._socket.getsockname()[1])
        self._threads = [
            threading.Thread(target=self._serve, name=f"metrics {number}", daemon=True) for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Listen no longer. Answers that are on their way are still given."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the threads that wait for a connection
        self._socket.close()

    def _serve(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if not self._closing:
                    time.sleep(0.1)  # too many open files, or a client that has gone already
                continue
            with connection, contextlib.suppress(OSError):  # The client has gone, or does not read.
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        method, answer = self._answer(connection)
        head = f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\nContent-Type: {answer.kind}\r\n"
        head += f"Content-Length: {len(answer.content)}\r\nConnection: close\r\n"
        head += "Allow: GET, HEAD\r\n\r\n" if answer.status == 405 else "\r\n"
        connection.settimeout(self._writing)  # of all of it, not of each piece
        connection.sendall(head.encode() + (b"" if method == "HEAD" else answer.content))
        connection.shutdown(socket.SHUT_WR)
        if answer.status != 200:  # Unread data would make the system discard the answer.
            connection.settimeout(self._reading)
            connection.recv(LARGEST)

    def _answer(self, connection: socket.socket) -> tuple[str, Answer]:
        request = self._read(connection)
        if isinstance(request, Answer):
            return "", request
        words = request.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "", _text(400, "not a request of HTTP/1")
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return method, _text(405, "only GET and HEAD")
        if path not in self._routes:
            return method, _text(404, f"there is {', '.join(self._routes)}")
        try:
            return method, self._routes[path]()
        except Exception as error:  # The next request may succeed, and the program must go on anyway.
            return method, _text(500, f"{type(error).__name__}: {error}")

    def _read(self, connection: socket.socket) -> bytes | Answer:
        """Return a request up to the end of its headers, or the answer to one that is too long or too slow."""
        until, data = time.monotonic() + self._reading, b""
        while b"\r\n\r\n" not in data:
            left = until - time.monotonic()
            if left <= 0:
                return _text(408, "too slow")
            if len(data) > LARGEST:
                return _text(431, "too long")
            connection.settimeout(left)
            try:
                more = connection.recv(LARGEST)
            except TimeoutError:
                continue
            if not more:
                return _text(400, "not a whole request")
            data += more
        return data


def _text(status: int, text: str) -> Answer:
    return Answer(status, f"{text}\n".encode())
