"""Receivers for the tests of destinations: servers in threads that listen on this machine and keep what they get.

    with Receiver("http", answers=[503, 200]) as receiver:
        ... send to 127.0.0.1, receiver.port ...
        receiver.wait(2)        # two requests
        receiver.got            # what came

`cert` is a file with which they use TLS. `gate` names a file for which an HTTP server waits before it answers: without
it, the server hangs.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from processes import free_port
from waiting import wait_for


class Receiver:
    def __init__(
        self,
        kind: str,
        *,
        port: int = 0,
        cert: Path | None = None,
        answers: Sequence[int | tuple[int, str]] = (),
        gate: Path | None = None,
    ) -> None:
        self.got: list[Any] = []
        self.answers, self.gate = list(answers), gate
        self.port = port
        self.is_stopped = False
        self._kind, self._context = kind, server_context(cert) if cert is not None else None

    def __enter__(self) -> Receiver:
        if self._kind == "smtp":
            self.port = self.port or free_port()
            self._stop = start_smtp(self, self._context)
            return self
        made = Datagrams(self) if self._kind == "udp" else Connections(self, HANDLERS[self._kind], self._context)
        self.port, self._stop = made.server_address[1], made.stop
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_stopped = True
        self._stop()

    def wait(self, count: int) -> list[Any]:
        wait_for(lambda: len(self.got) >= count, lambda: f"{count} messages; got {self.got}")
        return self.got


def server_context(cert: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert)
    return context


class Lengths(socketserver.StreamRequestHandler):
    """Messages behind their lengths (RFC 6587)."""

    def handle(self) -> None:
        while digits := b"".join(iter(lambda: self.rfile.read(1).strip(), b"")):
            self.server.receiver.got.append(self.rfile.read(int(digits)).decode())  # type: ignore[attr-defined]


class Requests(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver: Receiver = self.server.receiver  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        receiver.got.append({"path": self.path, "headers": headers, "body": body})
        while receiver.gate is not None and not receiver.gate.exists() and not receiver.is_stopped:
            time.sleep(0.01)
        answers = receiver.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0] if answers else 200
        status, said = answer if isinstance(answer, tuple) else (answer, "ok")
        self.send_response(status)
        self.send_header("Content-Length", str(len(said.encode())))
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *_: Any) -> None:
        pass


HANDLERS: dict[str, type[socketserver.StreamRequestHandler]] = {"tcp": Lengths, "http": Requests}


class Connections(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 20

    def __init__(self, receiver: Receiver, handler: type[Any], context: ssl.SSLContext | None) -> None:
        self.receiver, self._context = receiver, context
        self._open: list[socket.socket] = []
        super().__init__(("127.0.0.1", receiver.port), handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True)
        self._open.append(connection)
        return connection, address

    def handle_error(self, *_: Any) -> None:
        """Say nothing: clients may go at any time."""

    def stop(self) -> None:
        """End as a process that is killed: no connection stays open."""
        self.shutdown()
        self.server_close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Datagrams(socketserver.UDPServer):
    max_packet_size = 65536

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        super().__init__(("127.0.0.1", receiver.port), socketserver.BaseRequestHandler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.receiver.got.append(request[0].decode())

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


def start_smtp(receiver: Receiver, context: ssl.SSLContext | None) -> Any:
    """Start a mail server; return what stops it."""
    from aiosmtpd.controller import Controller
    from aiosmtpd.smtp import AuthResult

    class Handler:
        async def handle_DATA(self, _server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
            user = session.auth_data.login.decode() if session.auth_data else None
            sent = {"from": envelope.mail_from, "to": envelope.rcpt_tos, "mail": envelope.content.decode()}
            receiver.got.append({**sent, "tls": session.ssl is not None, "user": user})
            return "250 OK"

    def check(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> Any:
        right = (data.login, data.password) == (b"ops", b"geheim")
        return AuthResult(success=right, handled=right, auth_data=data)

    settings: dict[str, Any] = {}
    if context is not None:
        settings = {"tls_context": context, "require_starttls": True, "authenticator": check, "auth_require_tls": True}
    controller = Controller(Handler(), hostname="127.0.0.1", port=receiver.port, **settings)
    controller.start()
    return controller.stop
