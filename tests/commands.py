"""Run the command line in this process (fixture `run` of conftest.py) or as a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import forking
from superhosts.cli import COMMANDS
from superhosts.cli._program import Command


class Ended(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ended]


@cache
def parsed_commands() -> dict[str, Any]:
    """Return every command with its options, as click parses it, by its full name."""
    return {words: Command(words.split()[-1], entry) for words, entry in COMMANDS.items()}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "superhosts", *map(str, arguments)]


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return forking.start([*map(str, arguments)], **{**pipes, **options})


def process(*arguments: object, given: bytes = b"", **options: Any) -> Ended:
    with start(*arguments, **options) as child:
        out, err = child.communicate(given, timeout=600)
    return Ended(child.returncode, (out or b"").decode(), (err or b"").decode())
