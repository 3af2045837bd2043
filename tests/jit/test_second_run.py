"""A second process compiles nothing: every kind of input and every command, with the steps of tests/warming.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import recording
import warming
from superhosts.jit.compilation import MODE, NEVER


def run_warm(program: str, *shares: str) -> None:
    """Run shares in a process that must not compile; if the cache lacks something, first in one that may."""
    ended = run(NEVER, program, *shares)
    if ended.returncode:
        ended = run("kept", program, *shares)
        assert ended.returncode == 0, ended.stderr[-3000:]
        ended = run(NEVER, program, *shares)
    assert ended.returncode == 0, ended.stderr[-3000:]


def run(mode: str, program: str, *shares: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), MODE: mode}
    environment.pop("NUMBA_ENABLE_CUDASIM", None)  # users have none
    command = [sys.executable, program, *shares]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_texts() -> None:
    run_warm(warming.__file__, "texts")


@pytest.mark.slow
@pytest.mark.parametrize("share", recording.RECORDED)
def test_everything_uses_loops_of_the_record(share: str) -> None:
    """Wheels contain these, and first runs compile them on all cores."""
    run_warm(recording.__file__, share)
