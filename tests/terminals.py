"""A command on a pseudo-terminal: what it shows so far, and how it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from typing import Any, Self

from waiting import DEADLINE, wait_for

COMMAND = (sys.executable, "-m", "superhosts")


class OnTerminal:
    def __init__(
        self,
        *command: object,
        lines: int = 24,
        columns: int = 80,
        streams: tuple[str, ...] = ("stdin", "stdout", "stderr"),
        **environment: str,
    ) -> None:
        self.main, self.other = pty.openpty()
        fcntl.ioctl(self.other, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        given = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, **dict.fromkeys(streams, self.other)}
        self.process = subprocess.Popen(
            [*map(str, command)], env={**given, "TERM": "xterm", **environment}, start_new_session=True, **options
        )
        os.set_blocking(self.main, False)
        self.sent = b""

    @property
    def text(self) -> str:
        """Everything that was shown so far."""
        try:
            while more := os.read(self.main, 65_536):
                self.sent += more
        except OSError:  # nothing to read
            pass
        return self.sent.decode(errors="replace")

    def until(self, *words: str) -> None:
        def met() -> bool:
            shown = self.text
            assert self.process.poll() is None or all(word in shown for word in words), shown[-2000:]
            return all(word in shown for word in words)

        wait_for(met, lambda: self.text[-2000:])

    def ends(self) -> int:
        wait_for(lambda: (self.text, self.process.poll() is not None)[1], lambda: self.text[-2000:])
        self.text  # noqa: B018  the last words
        return self.process.wait(DEADLINE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.main)
        os.close(self.other)


def run_on_terminal(*arguments: object, **environment: str) -> tuple[int, str]:
    """Run a command whose output and errors go to a terminal; return its status and what the terminal has shown."""
    with OnTerminal(*COMMAND, *arguments, streams=("stdout", "stderr"), **environment) as terminal:
        return terminal.ends(), terminal.text
