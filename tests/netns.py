"""Network namespaces of tests: interfaces of their own, frames that arrive there, commands that capture them.

They need root and a kernel with namespaces and veth pairs. Where these are missing tests are skipped, unless
SUPERHOSTS_NEED_NETNS is set.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from processes import rows as complete_rows
from traffic import Frames, write
from waiting import DEADLINE, wait_for

SEND = """
import socket, struct, sys
data, at, own = open(sys.argv[2], "rb").read(), 24, socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
own.bind((sys.argv[1], 0))
while at < len(data):
    size = struct.unpack_from("<I", data, at + 8)[0]
    own.send(data[at + 16 : at + 16 + size])
    at += 16 + size
"""


@cache
def missing() -> str:
    """Return what is missing for namespaces; "" if they work."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need root on Linux"
    absent = [tool for tool in ("unshare", "nsenter", "ip", "setpriv") if shutil.which(tool) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    tried = subprocess.run(
        ["unshare", "-n", "ip", "link", "add", "one0", "type", "veth", "peer", "name", "one1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return "" if tried.returncode == 0 else f"no veth pairs in a namespace: {tried.stderr.strip()}"


def need_namespaces() -> None:
    why = missing()
    if why and os.environ.get("SUPERHOSTS_NEED_NETNS"):
        pytest.fail(why)
    if why:
        pytest.skip(why)


class Capture:
    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process, self.folder = process, folder

    def ready(self, rings: int = 1) -> Capture:
        """Wait until it has mapped its rings: it does that last."""

        def is_ready() -> bool:
            assert self.process.poll() is None, self.err
            return Path(f"/proc/{self.process.pid}/maps").read_text().count("socket:") == rings

        wait_for(is_ready, lambda: self.err)
        return self

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return complete_rows(self.folder / "out")

    @property
    def counters(self) -> dict[str, Any]:
        return json.loads((self.folder / "counters.json").read_text())  # type: ignore[no-any-return]

    @property
    def found(self) -> dict[str, int]:
        return {row["host"]: row["peers"] for row in self.rows}

    def end(self, number: int = signal.SIGINT) -> Capture:
        self.process.send_signal(number)
        self.process.wait(DEADLINE)
        return self


class Namespace:
    """A network namespace, which lives as long as one process in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        own, other = Path("/proc/self/ns/net"), Path(f"/proc/{self._holder.pid}/ns/net")
        wait_for(lambda: other.readlink() != own.readlink(), "a namespace is made")
        self.inside = ("nsenter", "-t", str(self._holder.pid), "-n")
        self._captures: list[Capture] = []
        self._sent = 0
        self.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *command: str, **options: Any) -> str:
        done = subprocess.run([*self.inside, *command], capture_output=True, text=True, timeout=DEADLINE, **options)
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def pair(self, near: str = "near0", far: str = "far0") -> None:
        """Make two interfaces: what is sent into one arrives at the other."""
        self.run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        for each in (near, far):
            self.run("ip", "link", "set", each, "up")

    def send(self, frames: Frames, interface: str = "far0") -> None:
        self._sent += 1
        path = write(self.folder / f"sent-{self._sent}.pcap", frames)
        self.run(sys.executable, "-c", SEND, interface, str(path))

    def command(self, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        command = [*self.inside, *prefix, sys.executable, "-m", "superhosts", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)

    def start(self, *arguments: str) -> Capture:
        """Start a command that captures, with its rows as JSON Lines and its counters in a file."""
        folder = self.folder / f"capture-{len(self._captures)}"
        folder.mkdir()
        command = [*self.inside, sys.executable, "-m", "superhosts", *arguments]
        if arguments[0] == "scan":
            command += ["--json", "--counters", str(folder / "counters.json")]
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        self._captures.append(Capture(process, folder))
        return self._captures[-1]

    def close(self) -> None:
        for each in self._captures:
            if each.process.poll() is None:
                each.process.kill()
                each.process.wait()
        self._holder.kill()
        self._holder.wait()


@contextmanager
def namespace(folder: Path) -> Iterator[Namespace]:
    need_namespaces()
    made = Namespace(folder)
    try:
        made.pair()
        yield made
    finally:
        made.close()
