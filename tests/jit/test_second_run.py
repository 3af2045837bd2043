"""A second process compiles nothing: every kind of input and every command, with the steps of tests/warming.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import warming
from superhosts.jit.compilation import MODE, NEVER


def run_warm(*shares: str) -> None:
    """Run shares in a process that must not compile; if the cache lacks something, first in one that may."""
    ended = run(NEVER, *shares)
    if ended.returncode:
        ended = run("kept", *shares)
        assert ended.returncode == 0, ended.stderr[-3000:]
        ended = run(NEVER, *shares)
    assert ended.returncode == 0, ended.stderr[-3000:]


def run(mode: str, *shares: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), MODE: mode}
    command = [sys.executable, warming.__file__, *shares]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_texts() -> None:
    run_warm("texts")


@pytest.mark.slow
@pytest.mark.parametrize("share", ["captures", "tables", "detectors"])
def test_everything(share: str) -> None:
    run_warm(share)
