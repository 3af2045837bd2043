"""Start `superhosts` as a process of its own within milliseconds: forked from one that has loaded everything.

Hundreds of tests start real processes, and most of their time would be spent on loading the same modules and machine
code. Here every test worker has one server, which loads them once, has no other threads, and forks for every command.
A command gets its own streams, environment, working folder and exit status; it can be killed and signalled like any
other. Commands whose interpreter itself needs another environment (`env=`), a prefix or a set-up start as new
interpreters, and so do all commands where there is no `os.fork`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import inspect
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import superhosts as sh
from traffic import three_windows, write

IMPORTED = ["cli.scan", "cli.edge", "cli.hub", "cli.hosts", "pipeline.scan", "output.table", "fleet.nats.receive"]
NUMBER = struct.Struct("i")
PLAIN = {"stdin", "stdout", "stderr", "cwd"}  # arguments of Popen that a forked command understands


def start(arguments: list[str], **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "superhosts", *arguments]
    if set(options) <= PLAIN and hasattr(os, "fork"):
        return Forked(command, **options)
    return subprocess.Popen(command, **options)


class Forked(subprocess.Popen[bytes]):
    def _execute_child(self, args: list[str], *rest: Any) -> None:
        bound = inspect.signature(subprocess.Popen._execute_child).bind(self, args, *rest).arguments  # type: ignore[attr-defined]
        self._link, theirs = socket.socketpair()
        streams = [bound["p2cread"], bound["c2pwrite"], bound["errwrite"]]  # -1: that of this process
        given = [number if stream == -1 else stream for number, stream in enumerate(streams)]
        place = {"folder": str(bound["cwd"] or Path.cwd()), "environment": dict(os.environ)}
        request = json.dumps({"arguments": args[3:], **place}).encode()
        with theirs:
            socket.send_fds(_server(), [request], [*given, theirs.fileno()])
        self.pid = self._receive()
        self._child_created = True
        ends = zip(streams, (bound["p2cwrite"], bound["c2pread"], bound["errread"]), strict=True)
        for stream in {theirs for theirs, ours in ends if ours != -1} | {getattr(self, "_devnull", -1)} - {-1}:
            os.close(stream)  # the ends of pipes that belong to the command alone
        self._closed_child_pipe_fds = True

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        status = self._ended(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def _ended(self, timeout: float | None) -> int | None:
        """Return the exit status when the server has sent it; None after the timeout."""
        if not self._waitpid_lock.acquire(blocking=timeout != 0):
            return None  # Another thread is waiting for the end.
        try:
            if self.returncode is None and _is_readable(self._link, timeout):
                self.returncode = self._receive()
                self._link.close()
        finally:
            self._waitpid_lock.release()
        return self.returncode

    def _receive(self) -> int:
        data = self._link.recv(NUMBER.size, socket.MSG_WAITALL)
        assert data, "the server that forks commands has ended; its error is in the output of the tests"
        return int(NUMBER.unpack(data)[0])


def _is_readable(link: socket.socket, timeout: float | None) -> bool:
    poll = select.poll()  # unlike `select`, it takes any number of a descriptor
    poll.register(link, select.POLLIN)
    return bool(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))


@cache
def _server() -> socket.socket:
    """Return the connection to this worker's server. The server ends when the worker does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # threads of a library would not survive a fork
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            start_new_session=True,
        )
    atexit.register(_stop, ours, process)
    return ours


def _stop(connection: socket.socket, server: subprocess.Popen[bytes]) -> None:
    connection.close()
    server.wait()


def serve(control: socket.socket) -> dict[str, Any]:
    """Fork for every request and report exit statuses. Only a forked process returns from this, with its request."""
    wake, waker = socket.socketpair()
    for end in (wake, waker):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    while True:
        ready = select.select([control, wake], [], [])[0]
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                wake.recv(4096)
            _report(running)
        if control not in ready:
            continue
        request, fds, _, _ = socket.recv_fds(control, 1 << 20, 4)
        if not request:
            sys.exit()
        link = socket.socket(fileno=fds[3])
        pid = os.fork()
        if not pid:
            for end in (control, wake, waker, link, *running.values()):
                end.close()
            return {**json.loads(request), "streams": fds[:3]}
        link.sendall(NUMBER.pack(pid))
        running[pid] = link
        for stream in fds[:3]:
            os.close(stream)


def _report(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as link, contextlib.suppress(OSError):
            link.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def become(request: dict[str, Any]) -> None:
    """Make this process what a new interpreter would be: streams, working folder, arguments, signals."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(request["streams"]):
        os.dup2(stream, number)
        if stream > 2:
            os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["superhosts", *request["arguments"]]


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
    for name in IMPORTED:
        importlib.import_module(f"superhosts.{name}")
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, SUPERHOSTS_THREADS="1"):
        _use_cube(Path(folder))
    assert _thread_count() == 1  # A thread would not survive a fork, nor release the locks that it holds.
    gc.freeze()  # A forked process neither collects what is loaded nor copies it to do so.
    become(serve(socket.socket(fileno=int(sys.argv[1]))))
    from superhosts.cli import main as run

    run()


def _use_cube(folder: Path) -> None:
    """Load the machine code of the default detector, too: scan, save, load, merge and query."""
    union, capture = sh.Sketch(), write(folder / "a.pcap", three_windows())
    for result in sh.scan(capture, inner="10.0.0.0/8", device="cpu"):
        result.sketch.save(folder / "a.cube")
        sh.load(folder / "a.cube").estimate("10.0.0.7")
        union.merge_file(folder / "a.cube")
    union.super_hosts(1024)


def _thread_count() -> int:
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()


if __name__ == "__main__":
    main()
