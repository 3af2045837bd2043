"""A second process compiles nothing: inputs, commands and detectors, in the tests that `tests/warming.py` lists."""

from __future__ import annotations

import subprocess

import pytest

import warming
from places import TESTS
from superhosts.jit.compilation import MODE, NEVER


def test_the_files_of_the_warm_up_exist() -> None:
    assert [name for names in warming.SHARES.values() for name in names if not (TESTS / name).exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize("share", ["captures", "tables", "detectors"])
def test_a_second_process_compiles_nothing(share: str) -> None:
    for mode in ("kept", NEVER):
        with warming.start(share, environment={MODE: mode}, stdout=subprocess.PIPE) as process:
            said, _ = process.communicate()
        assert process.returncode == 0, said[-3000:]
