"""The server of the dashboard: an event loop in a thread of its own, with bounds on all that a client can do.

A client may be slow to send its request or to take the answer, may send too much, or may come too often. Each of these
ends its own connection, and occupies memory that is bounded; whoever counts packets never waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from superhosts.core.units import Place
from superhosts.ui.endpoint import listen
from superhosts.ui.view import View
from superhosts.ui.web.access import Access
from superhosts.ui.web.answers import Answers
from superhosts.ui.web.app import LARGEST_HEAD, Changes, Guard, make_app

MOST_CONNECTIONS = 512
BACKLOG = 128  # connections that wait to be accepted
READING = 10.0  # seconds for a client to send a whole request
WRITING = 30.0  # seconds for a client to take a piece of its answer, and in which some of it must go
SWEEP = 1.0  # seconds between two looks at all connections
CLOSING = 3  # seconds for answers that are on their way at the end


class TlsDoor(socket.socket):
    """A listening socket for TLS. Of clients that do not finish their handshake, the oldest one makes room."""

    def __init__(self, listening: socket.socket) -> None:
        super().__init__(fileno=listening.detach())
        self._begun: dict[int, socket.socket] = {}  # handshakes, the oldest first

    def accept(self) -> tuple[socket.socket, Any]:
        made, address = super().accept()
        self.finish(made.fileno())  # of a connection that is closed
        self._begun[made.fileno()] = made
        if len(self._begun) > MOST_CONNECTIONS:
            with contextlib.suppress(OSError):  # closed already
                self._begun.pop(next(iter(self._begun))).shutdown(socket.SHUT_RDWR)
        return made, address

    def finish(self, number: int) -> None:
        self._begun.pop(number, None)


class Connection(H11Protocol):
    """A connection that knows since when it has waited for its client, and whether that has shown the token."""

    def __init__(self, *arguments: Any, door: TlsDoor | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._door = door

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request. Beyond the limit, the oldest connection without the token makes room."""
        super().connection_made(transport)
        if self._door is not None:
            self._door.finish(transport.get_extra_info("socket").fileno())
        self.made_at = time.monotonic()
        self.waits_since: float | None = self.made_at
        self.unsent, self.sent_at = 0, self.made_at
        self.has_token = False
        connections: list[Any] = [each for each in self.connections if not each.transport.is_closing()]
        if len(connections) > MOST_CONNECTIONS:
            strangers = (each for each in connections if not each.has_token)
            min(strangers, key=lambda each: each.made_at).transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.waits_since is None and self._is_idle:
            self.waits_since = time.monotonic()
        super().data_received(data)
        if not self.has_token and self.scope is not None:
            self.has_token = cast(Guard, self.config.app).has_token(cast(Any, self.scope))
        if not self._is_idle and not self.cycle.more_body:
            self.waits_since = None

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def cut_if_slow(self, now: float, reading: float, writing: float) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent == 0 or unsent < self.unsent:
            self.sent_at = now
        self.unsent = unsent
        is_late = self.waits_since is not None and now - self.waits_since > reading
        if is_late or now - self.sent_at > writing:
            self.transport.abort()


class WebServer:
    """Serves a view from its construction until `close`. Raises OutputError if it cannot listen."""

    def __init__(
        self,
        view: View,
        access: Access,
        say: Callable[[str], None],
        *,
        option: str = "--web",
        reading: float = READING,
        writing: float = WRITING,
    ) -> None:
        self._socket = listen(access.place, option, BACKLOG)
        self.place = Place(access.place.host, self._socket.getsockname()[1])
        self.access = replace(access, place=self.place)
        self._door = None if access.certificate is None else TlsDoor(self._socket)
        self._socket = self._door or self._socket
        self._view, self._limits = view, (reading, writing)
        self._answers, self._changes = Answers(view), Changes(view.state)
        logger = logging.getLogger("uvicorn")  # requests of strangers would fill the log
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
        config = uvicorn.Config(
            make_app(self._answers, self._changes, self.access, say, writing=writing),
            http=cast(Any, partial(Connection, door=self._door)),
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=LARGEST_HEAD,
            timeout_keep_alive=20,
            timeout_graceful_shutdown=CLOSING,
        )
        config.load()
        config.ssl = None if access.certificate is None else access.certificate.context
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="web", daemon=True)
        self._started = threading.Event()
        self._thread.start()
        self._started.wait(30.0)
        view.board.listeners.append(self._changes.wake)

    @property
    def url(self) -> str:
        return f"http{'s' if self._door else ''}://{self.place}/"

    def close(self) -> None:
        self._view.board.listeners.remove(self._changes.wake)
        self._changes.close()
        self._answers.close()
        self._server.should_exit = True
        self._thread.join(CLOSING + 5.0)
        self._socket.close()

    async def _serve(self) -> None:
        self._changes.attach()
        sweeping = asyncio.create_task(self._sweep())
        self._started.set()
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            sweeping.cancel()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP, *self._limits))
            now = time.monotonic()
            connections: list[Any] = list(self._server.server_state.connections)
            for connection in connections:
                connection.cut_if_slow(now, *self._limits)
