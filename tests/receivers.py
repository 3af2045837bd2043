"""Receivers for the tests of destinations: real processes that listen on this machine and keep what they get.

    with Receiver(tmp_path, "http", answers="503,200") as receiver:
        ... send to 127.0.0.1, receiver.port ...
        receiver.wait(2)        # two requests
        receiver.got            # what came, as dictionaries

The process writes one line of JSON for each request or message. `gate` names a file for which an HTTP server waits
before it answers: without it, the server hangs.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from waiting import wait_for


class Receiver:
    def __init__(self, folder: Path, kind: str, *, port: int = 0, **options: Any) -> None:
        self.file = folder / f"{kind}-{time.monotonic_ns()}.jsonl"
        self.port = port
        self._kind, self._options = kind, options
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Receiver:
        words = [f"--{name}={value}" for name, value in self._options.items()]
        command = [sys.executable, __file__, self._kind, str(self.file), f"--port={self.port}", *words]
        path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    @property
    def got(self) -> list[Any]:
        text = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def wait(self, count: int) -> list[Any]:
        wait_for(lambda: len(self.got) >= count, lambda: f"{count} messages; got {self.got}")
        return self.got


class Keeper:
    """Appends lines to the file. Threads take turns."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115  # open until the process is killed
        self._lock = threading.Lock()

    def keep(self, content: Any) -> None:
        with self._lock:
            self._file.write(json.dumps(content) + "\n")
            self._file.flush()


def listen(port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    made = socket.socket(socket.AF_INET, kind)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    if kind == socket.SOCK_STREAM:
        made.listen(20)
    print(made.getsockname()[1], flush=True)
    return made


def server_context(cert: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert)
    return context


def run_http(options: argparse.Namespace, keeper: Keeper) -> None:
    answers = [int(each) for each in options.answers.split(",") if each]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            keeper.keep({"path": self.path, "headers": headers, "body": body})
            while options.gate and not Path(options.gate).exists():
                time.sleep(0.01)
            status = answers.pop(0) if len(answers) > 1 else answers[0] if answers else 200
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    if options.cert:
        server.socket = server_context(options.cert).wrap_socket(server.socket, server_side=True)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def run_udp(options: argparse.Namespace, keeper: Keeper) -> None:
    made = listen(options.port, socket.SOCK_DGRAM)
    while True:
        keeper.keep(made.recv(65536).decode())


def run_tcp(options: argparse.Namespace, keeper: Keeper) -> None:
    """Messages behind their lengths (RFC 6587)."""
    made = listen(options.port)
    context = server_context(options.cert) if options.cert else None

    def serve(connection: socket.socket) -> None:
        if context is not None:
            connection = context.wrap_socket(connection, server_side=True)
        file = connection.makefile("rb")
        while True:
            digits = b""
            while (byte := file.read(1)) not in (b" ", b""):
                digits += byte
            if not digits:
                return
            keeper.keep(file.read(int(digits)).decode())

    while True:
        threading.Thread(target=serve, args=(made.accept()[0],), daemon=True).start()


def run_smtp(options: argparse.Namespace, keeper: Keeper) -> None:
    from aiosmtpd.controller import Controller
    from aiosmtpd.smtp import AuthResult

    class Handler:
        async def handle_DATA(self, _server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
            keeper.keep(
                {
                    "from": envelope.mail_from,
                    "to": envelope.rcpt_tos,
                    "mail": envelope.content.decode(),
                    "tls": session.ssl is not None,
                    "user": (session.auth_data.login.decode() if session.auth_data else None),
                }
            )
            return "250 OK"

    def check(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> Any:
        right = (data.login, data.password) == (b"ops", b"geheim")
        return AuthResult(success=right, handled=right, auth_data=data)

    settings: dict[str, Any] = {}
    if options.cert:
        context = server_context(options.cert)
        settings = {"tls_context": context, "require_starttls": True, "authenticator": check, "auth_require_tls": True}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", options.port))
        port = probe.getsockname()[1]
    controller = Controller(Handler(), hostname="127.0.0.1", port=port, **settings)
    controller.start()
    print(port, flush=True)
    threading.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["http", "udp", "tcp", "smtp"])
    parser.add_argument("file")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--cert", default="")
    parser.add_argument("--answers", default="")
    parser.add_argument("--gate", default="")
    options = parser.parse_args()
    socketserver.TCPServer.allow_reuse_address = True
    run = {"http": run_http, "udp": run_udp, "tcp": run_tcp, "smtp": run_smtp}[options.kind]
    run(options, Keeper(options.file))


if __name__ == "__main__":
    main()
