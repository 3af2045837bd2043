"""A command says on a terminal that it compiles."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import atexit
from superhosts.cli import main
from superhosts.compiling import announce

atexit.register(announce)  # as the first compiled function does that is not on disk
main()
"""


def test_compiling_is_announced_on_a_terminal_and_nowhere_else():
    ours, theirs = os.openpty()
    subprocess.run([sys.executable, "-c", PROGRAM, "--version"], stderr=theirs, stdout=subprocess.DEVNULL, check=True)
    os.close(theirs)
    assert b"compiling for this machine" in os.read(ours, 1 << 16)
    os.close(ours)
    ended = subprocess.run([sys.executable, "-c", PROGRAM, "--version"], capture_output=True, check=True)
    assert ended.stderr == b""
