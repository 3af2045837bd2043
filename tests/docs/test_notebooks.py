"""The notebooks of examples/ run from top to bottom, and show what is stored in them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT, TESTS

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
MOST_BYTES = 80 * 1024  # of a notebook with its plots


def shown(path: Path) -> list[list[str]]:
    """Return the text that each cell shows, and the kinds of its pictures."""
    cells = []
    for cell in json.loads(path.read_text())["cells"]:
        texts = []
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":  # A first start says that it compiles.
                continue
            data = output.get("data", {})
            texts += ["".join(output.get("text", [])), "".join(data.get("text/plain", []))]
            texts += sorted(kind for kind in data if kind.startswith("image/"))
        cells.append(texts)
    return cells


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_shows_what_is_stored_in_it(path, tmp_path):
    for package in ("nbclient", "ipykernel", "matplotlib", "pandas"):
        pytest.importorskip(package)
    command = [sys.executable, str(TESTS / "docs" / "notebook.py"), str(path), str(tmp_path / "again.ipynb")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert shown(tmp_path / "again.ipynb") == shown(path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_small_and_has_no_errors_and_warnings_in_it(path):
    assert path.stat().st_size < MOST_BYTES
    outputs = [output for cell in json.loads(path.read_text())["cells"] for output in cell.get("outputs", [])]
    assert outputs
    assert {output["output_type"] for output in outputs} <= {"execute_result", "display_data", "stream"}
    assert not [output for output in outputs if output.get("name") == "stderr"]


def test_the_examples_are_listed():
    page = (ROOT / "examples" / "README.md").read_text()
    names = {path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".ipynb", ".sql", ".sh")}
    assert names
    assert not {name for name in names if f"]({name})" not in page}
