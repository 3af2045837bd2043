"""Type checkers of callers: right calls pass, misspelled and wrong ones are found at their lines."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import superhosts as sh

pytestmark = pytest.mark.slow

SOURCE = Path(sh.__file__).parent
RIGHT = """
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import superhosts as sh

hosts: NDArray[np.uint32] = np.zeros(3, np.uint32)
cube = sh.Cube(memory="1MiB", threads=1)
cube.update(hosts, hosts)
found: sh.SuperHosts = cube.super_hosts(threshold=3)
row: sh.SuperHost = next(iter(found))
run: sh.Scan = sh.scan(["a.pcap", Path("b")], inner="private", threshold=1e3, top=5, window="5m", keep_sketch=True)
for window in run:
    sketch: sh.Sketch = window.sketch
    start: int = window.window.start
plan: sh.Plan = sh.plan(flows="5M", error=0.01)
other = sh.Cube(geometry=plan.geometry)
share: float = plan.total
made: list[dict[str, object]] = sh.synth("a.pcap", flows=10, packets=20, family="both").truth
advice: str = sh.calibrate("a.pcap", memory="1MiB", error="1%").advice()
detector: sh.Detector = sh.Exact()
rivals: Sequence[sh.OwnDetector] = [sh.Dcds(), sh.Vbfa(), sh.Gse(), sh.Filter(), sh.SpreadSketch(), sh.Rgs()]
settings = sh.Settings(inner=["10.0.0.0/8"], threshold=10)


class Own:
    def update(self, hosts: NDArray[np.uint32], peers: NDArray[np.uint32]) -> None: ...

    def super_hosts(self, threshold: float) -> dict[str, list[int]]:
        return {"hosts": [], "peers": []}


compared: sh.Comparison = sh.compare(detectors=["cube", Own], quick=True)
rate: float | None = compared["cube"].ftr
"""
WRONG = """
import superhosts as sh

sh.scan("x", thresold=3)
sh.scan("x", threshold="many")
sh.scan(5)
sh.Cube(memroy="1MiB")
sh.Cube(memory=[1])
sh.plan(flow="5M")
sh.synth("a.pcap", family=5)
sh.calibrate("a.pcap", eror=1)
sh.compare(detector=["cube"])
sh.Settings(thresold=1)
sh.compare(detectors=[int])
sh.Exact().super_host(5)
sh.scann("x")
"""


def wrong_lines() -> set[int]:
    return {number for number, line in enumerate(WRONG.splitlines(), 1) if line.startswith("sh.")}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    return tmp_path


def test_types_are_shipped() -> None:
    assert (SOURCE / "py.typed").is_file()


def test_mypy(files: Path) -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--follow-imports=silent"]
    options = ["--cache-dir", str(files / "cache"), "--config-file", os.devnull, "right.py", "wrong.py"]
    environment = {**os.environ, "MYPYPATH": str(SOURCE.parent)}
    environment.pop("PYTHONPATH", None)
    ended = subprocess.run([*command, *options], cwd=files, env=environment, capture_output=True, text=True)
    found = [(file, int(line)) for file, line in re.findall(r"^(\w+\.py):(\d+): error", ended.stdout, re.MULTILINE)]
    assert [line for file, line in found if file == "right.py"] == [], ended.stdout
    assert {line for file, line in found if file == "wrong.py"} == wrong_lines(), ended.stdout


def test_pyright(files: Path) -> None:
    program = shutil.which("pyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")
    if program is None:
        pytest.skip("pyright is not installed")
    if subprocess.run([program, "--version"], capture_output=True, timeout=120).returncode:
        pytest.skip("pyright has to be downloaded first: run `pyright --version` once")
    settings = {"include": ["."], "extraPaths": [str(SOURCE.parent)], "pythonVersion": "3.11"}
    (files / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [program, "--outputjson", "--pythonpath", sys.executable]
    ended = subprocess.run(command, cwd=files, capture_output=True, text=True)
    report = json.loads(ended.stdout)["generalDiagnostics"]
    found = [
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"])
        for each in report
        if each["severity"] == "error"
    ]
    assert [each for each in found if each[0] == "right.py"] == []
    assert {line for file, line, _ in found if file == "wrong.py"} == wrong_lines()
