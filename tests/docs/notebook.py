"""Run a notebook of examples/ as Jupyter does, and write it with what its cells show.

    python tests/docs/notebook.py examples/first_notebook.ipynb [OUTPUT]    # without OUTPUT, the notebook itself

The notebook runs in a folder beside the other folders of the project; what it writes stays there. What differs from
run to run is left out: counts of executions, and times of cells.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent.parent


def run(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with what its cells show now. Raise CellExecutionError if one fails."""
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as made:
        for name in ("docs", "tests"):
            (Path(made) / name).symlink_to(ROOT / name)
        folder = Path(made) / "examples"
        folder.mkdir()
        NotebookClient(book, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for number, cell in enumerate((cell for cell in book.cells if cell.cell_type == "code"), 1):
        cell.metadata.pop("execution", None)
        cell.execution_count = number
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
    book.metadata.language_info = {"name": "python"}
    return book


if __name__ == "__main__":
    nbformat.write(run(Path(sys.argv[1])), sys.argv[-1])
