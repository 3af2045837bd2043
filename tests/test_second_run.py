"""A second process compiles nothing: every kind of input and every command, with the steps of tests/warming.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import warming
from superhosts.jit.compiling import MODE, NEVER


def run_twice(*shares: str) -> None:
    """Run shares in a process that may compile, then in one that may not."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for mode in ("kept", NEVER):
        command = [sys.executable, warming.__file__, *shares]
        ended = subprocess.run(command, env={**environment, MODE: mode}, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr[-3000:]


def test_texts() -> None:
    run_twice("texts")


@pytest.mark.slow
@pytest.mark.parametrize("share", ["inputs", "detectors"])
def test_everything(share: str) -> None:
    run_twice(share)
