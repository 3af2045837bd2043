"""Paths of the project, and of data that is too large or too private to be part of it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
ROOT = TESTS.parent
# Real captures with exact answers, and inputs that once broke the program. Tests skip if they are missing.
DATA = Path(os.environ.get("SUPERHOSTS_DATA", ROOT.parent / "shared" / "data"))
REPRO = Path(os.environ.get("SUPERHOSTS_REPRO", ROOT.parent / "shared" / "repro"))
DOCS = ROOT / "docs"


def load_module(path: Path) -> Any:
    """Return a Python file that is in no package, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fleet_guide() -> str:
    """Return the text of all pages about fleets: guides, sizes and counters."""
    pages = [*sorted((DOCS / "guides" / "fleet").glob("*.md")), DOCS / "guides" / "sizing.md"]
    return "\n".join(page.read_text(encoding="utf-8") for page in (*pages, DOCS / "reference" / "counters.md"))
