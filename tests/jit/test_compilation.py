"""Who is told that loops are compiled."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from processes import free_port
from superhosts.jit import compilation
from terminals import OnTerminal
from waiting import DEADLINE, wait_for

USE = """
import superhosts as sh, numpy as np
for _ in range(2):
    exact = sh.Exact()
    exact.update(np.zeros(5, np.uint32), np.arange(5, dtype=np.uint32))
    assert len(exact.super_hosts(1)) == 1
"""


class Screen(io.StringIO):
    def __init__(self, tty: bool) -> None:
        super().__init__()
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty


@pytest.fixture(autouse=True)
def _as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_waiting", [compilation._tell])
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)


@pytest.mark.parametrize(("tty", "notebook", "told"), [(True, False, 1), (False, True, 1), (False, False, 0)])
def test_who_is_told_once(monkeypatch: pytest.MonkeyPatch, tty: bool, notebook: bool, told: int) -> None:
    if notebook:
        monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    screen = Screen(tty)
    monkeypatch.setattr(sys, "stderr", screen)
    compilation.announce()
    compilation.announce()
    assert screen.getvalue().count(compilation.NOTICE.format(compilation.UNKNOWN)) == told


def test_a_process_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    compilation.announce()


def test_workers_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    import multiprocessing

    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "a parent")
    screen = Screen(True)
    monkeypatch.setattr(sys, "stderr", screen)
    compilation.announce()
    assert screen.getvalue() == ""


def test_somebody_who_wants_it_to_end_waits_for_one_loop() -> None:
    compiled = []
    compilation.before_compiling(lambda _: None)
    with compilation.until_stopped():
        for name in ("one", "two", "three"):
            with compilation.compiling(name):
                compiled.append(name)
            if name == "two":
                compilation.stop_compiling()
    assert compiled == ["one", "two"]
    with compilation.compiling("what was received has still to be counted"):
        compiled.append("three")
    with compilation.until_stopped(), compilation.compiling("asked to end before it began"):
        compiled.append("four")
    compilation.before_compiling(lambda _: None)
    assert compiled == ["one", "two", "three"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        "watch netflow://127.0.0.1:{port} --inner private",
        "edge netflow://127.0.0.1:{port} --site ams --to {folder}/hub --spool {folder}/spool",
        "hub --from {folder}/hub --state {folder}/state",
    ],
)
def test_a_receiver_that_compiles_ends_at_the_first_signal(tmp_path: Path, run: str) -> None:
    (tmp_path / "hub").mkdir()
    words = run.format(port=free_port(), folder=tmp_path).split()
    command = [sys.executable, "-m", "superhosts", *words]
    places = {"NUMBA_CACHE_DIR": str(tmp_path / "code"), "PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(command, env=os.environ | places, stdout=said, stderr=said)
    try:
        wait_for(lambda: any((tmp_path / "code").rglob("*.code")), "machine code")
        process.terminate()
        process.wait(DEADLINE)
    finally:
        process.kill()
    words_said = (tmp_path / "said").read_text()
    assert len(list((tmp_path / "code").rglob("*.code"))) < 12, words_said  # of thirty and more
    assert "ready" not in words_said
    assert "LATE" not in words_said


@pytest.mark.slow
def test_a_first_use_on_a_terminal(tmp_path: Path) -> None:
    places = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    with OnTerminal(sys.executable, "-c", USE, streams=("stderr",), **places) as terminal:
        assert terminal.ends() == 0
        said = compilation.NOTICE.format(compilation.UNKNOWN)
        assert terminal.text.strip() == f"superhosts: {said}"
