"""The embedded broker's process: a server that outlived its hub, and what its log says."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from superhosts.fleet.receipts import Say

GRACE = 10.0  # seconds for an orderly end


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


def last_words(errors: Path, log: Path, log_start: int) -> str:
    """Return why a server did not start, from its own messages."""
    said = [line for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    if lines := _lines_since(log, log_start):
        said += [line.partition("[FTL] ")[2] or line.partition("[ERR] ")[2] for line in lines]
    return "; ".join([line for line in said if line][-3:]) or f"nothing was said; see {log}"


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
