"""A small HTTP server that answers for a view by the contract of --web."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from superhosts.errors import SuperhostsError
from superhosts.views.view import View


class WebView:
    """A server that can be stopped, and started again at the same port."""

    def __init__(self, view: View, token: str = "") -> None:
        self.view, self.token = view, token
        self.asked: list[str] = []
        self.streams = 0  # of events that are open
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self._changed = threading.Condition()
        self._stopping = False
        view.board.listeners.append(self._wake)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._stopping = False
        outer = self

        class Handler(_Handler):
            web = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._stopping = True
        self._wake()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def changes(self) -> Iterator[int]:
        """Yield the board's version after each change, until the server stops."""
        known = self.view.board.version
        while not self._stopping:
            with self._changed:
                if self.view.board.version == known and not self._stopping:
                    self._changed.wait()
            if self.view.board.version != known:
                known = self.view.board.version
                yield known


class _Handler(BaseHTTPRequestHandler):
    web: WebView

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.web.asked.append(parts.path)
        if not self._is_allowed():
            return
        if parts.path == "/api/events":
            self._send_events()
            return
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        view = self.web.view
        span = [float(given[name]) if name in given else None for name in ("start", "end")]
        answers = {
            "/api/summary": view.summary,
            "/api/windows": view.windows,
            "/api/window": lambda: view.window(*span),
            "/api/host": lambda: view.host(given["host"], *span),
            "/api/alerts": view.list_alerts,
            "/api/sites": view.list_sites,
        }
        self._answer(answers.get(parts.path))

    def do_POST(self) -> None:
        if not self._is_allowed():
            return
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        view = self.web.view
        answers = {"/api/mute": lambda: view.mute(**given), "/api/unmute": lambda: view.unmute(**given)}
        self._answer(answers.get(self.path))

    def _is_allowed(self) -> bool:
        allowed = not self.web.token or self.headers["Authorization"] == f"Bearer {self.web.token}"
        if not allowed:
            self._write(401, {"error": "a token is needed"})
        return allowed

    def _answer(self, ask: Any) -> None:
        if ask is None:
            self._write(404, {"error": "no such path"})
            return
        try:
            found = ask()
        except SuperhostsError as error:
            self._write(400, {"error": str(error)})
        else:
            self._write(200, found)

    def _write(self, status: int, content: Any) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.web.streams += 1
        try:
            for number in self.web.changes():
                self.wfile.write(f"event: changed\ndata: {json.dumps({'changed': number})}\n\n".encode())
        finally:
            self.web.streams -= 1


@contextmanager
def served(view: View, token: str = "") -> Iterator[WebView]:
    server = WebView(view, token)
    server.start()
    try:
        yield server
    finally:
        server.stop()
