"""The structure that docs/explanation/design.md describes is the structure of the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import pytest

from places import ROOT

PACKAGE = ROOT / "src" / "superhosts"
DESIGN, DECISIONS = ((ROOT / "docs" / "explanation" / name).read_text() for name in ("design.md", "decisions.md"))
# Files that the path from `update` to a bit and back calls, but that need not be read to follow it: argument checks,
# locks, sizes, the thread pool, columns of addresses, formulas of the planner.
TOOLS = {
    "detectors/arguments.py",
    "detectors/cube/geometry.py",
    "detectors/engines/base.py",
    "detectors/lock.py",
    "jit/cache.py",
    "core/device.py",
    "core/pairs.py",
    "detectors/formulas.py",
    "core/profile.py",
}
TRACE = """
import json, sys
import numpy as np
import superhosts as sh

cube = sh.Cube(geometry=sh.Geometry(32, 2, 3, 8, 5, 1, 0), threads=1, device="cpu", exact=False)
called = set()
sys.setprofile(lambda frame, event, _: event == "call" and called.add(frame.f_code.co_filename))
cube.update(np.full(200, 7, np.uint32), np.arange(200, dtype=np.uint32))
rows = list(cube.super_hosts(100))
sys.setprofile(None)
print(json.dumps([len(rows), sorted(called)]))
"""


@pytest.mark.slow
def test_no_circle_of_imports() -> None:
    """Also none through imports inside functions or for type checkers."""
    graph = pytest.importorskip("grimp").build_graph("superhosts", cache_dir=None)
    arrows = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        list(TopologicalSorter(arrows).static_order())
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


@pytest.mark.slow
def test_the_design_lists_the_files_from_an_update_to_a_bit_and_back() -> None:
    """With numba switched off, so that a profiler sees the loops."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"}
    ended = subprocess.run([sys.executable, "-c", TRACE], env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    count, called = json.loads(ended.stdout)
    assert count == 1
    found = {name.removeprefix(f"{PACKAGE}/") for name in called if name.startswith(f"{PACKAGE}/")}
    table = DESIGN[DESIGN.index("### The files from `sh.Cube.update`") : DESIGN.index("## The life of a sketch")]
    listed = set(re.findall(r"^\| `([\w/]+\.py)`", table, re.MULTILINE))
    assert len(listed) < 14
    assert found - TOOLS == listed


def test_modules_that_pages_name_exist() -> None:
    folders = [ROOT / folder for folder in ("src", "tests", "benchmarks", "docs", "examples")]
    known = {path.name for folder in folders for path in folder.rglob("*.py")} | {"NAME.py", "test_NAME.py"}
    pages = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {(page.name, name) for page in pages for name in re.findall(r"`[\w/]*?(\w+\.py)`", page.read_text())}
    assert len(named) > 100
    assert [each for each in sorted(named) if each[1] not in known] == []


def test_files_that_the_design_names_exist() -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", DESIGN + DECISIONS))
    homes = (ROOT, PACKAGE, PACKAGE / "detectors")
    assert len(named) > 40
    assert not {name for name in named if not any((home / name).exists() for home in homes)}
