"""A small HTTP server for monitoring: a few threads, small requests, time limits.

It answers GET and HEAD for a few paths, one request for each connection. Requests are read up to the end of their
headers, never beyond a few KiB or a few seconds in all, whatever a client sends or withholds. A client that is slow
occupies one of the threads until its time is up, and nothing else: detection never waits for any of them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from superhosts.errors import OutputError
from superhosts.ui.metrics.address import Place

THREADS = 4
BACKLOG = 16  # connections that wait for a thread
LARGEST = 8 << 10  # bytes of a request
READING = 3.0  # seconds for a client to send its request
WRITING = 10.0  # seconds for a client to take the answer
TEXT = "text/plain; charset=utf-8"
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Answer(NamedTuple):
    """What a client gets."""

    status: int
    content: bytes
    kind: str = TEXT


Routes = Mapping[str, Callable[[], Answer]]


class Server:
    """Answers requests from its construction until `close`. Raises OutputError if it cannot listen."""

    def __init__(self, place: Place, routes: Routes, *, reading: float = READING, writing: float = WRITING) -> None:
        self._routes, self._reading, self._writing = routes, reading, writing
        self._closing = False
        family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        try:
            self._socket = socket.create_server((place.host, place.port), family=family, backlog=BACKLOG)
        except OSError as error:
            reason = (error.strerror or str(error)).partition(" (while")[0]  # the place is named already
            raise OutputError(f"--metrics {place}: cannot listen there: {reason}") from None
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
        head = [
            f"HTTP/1.1 {answer.status} {REASONS[answer.status]}",
            f"Content-Type: {answer.kind}",
            f"Content-Length: {len(answer.content)}",
            "Connection: close",
            *(["Allow: GET, HEAD"] if answer.status == 405 else []),
        ]
        content = b"" if method == "HEAD" else answer.content
        connection.settimeout(self._writing)  # of all of it, not of each piece
        connection.sendall("\r\n".join([*head, "", ""]).encode() + content)
        connection.shutdown(socket.SHUT_WR)
        if answer.status != 200:  # Unread data would make the system discard the answer.
            connection.settimeout(self._reading)
            connection.recv(LARGEST)

    def _answer(self, connection: socket.socket) -> tuple[str, Answer]:
        """Return the method of a request, and its answer."""
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
