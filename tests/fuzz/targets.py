"""What is fuzzed: targets by name."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

MODULES = {  # module → its targets: a process imports only the one that it needs
    "captures": ("captures",),
    "rings": ("rings",),
    "streams": ("streams",),
    "exports": ("netflow", "sflow"),
    "texts": ("delimited", "jsonlines", "details"),
    "windows": ("windows", "scans"),
    "sketches": ("sketches", "commands"),
    "beside": ("beside",),
    "addresses": ("addresses",),
    "lists": ("prefix_lists", "labels", "tokens"),
    "options": ("texts", "written", "command_lines"),
    "states": ("hub_states", "positions", "receipts", "answers", "outputs"),
    "intake": ("intake", "folders", "pieces"),
}
NAMES = [name for names in MODULES.values() for name in names]
TARGETS: dict[str, Target] = {}


@dataclass(frozen=True)
class Target:
    name: str
    cases: st.SearchStrategy[Any]  # of plain literals
    check: Callable[[Any], None]


def target(cases: st.SearchStrategy[Any]) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Make a check a target under its own name."""

    def register(check: Callable[[Any], None]) -> Callable[[Any], None]:
        TARGETS[check.__name__] = Target(check.__name__, cases, check)
        return check

    return register


def load(name: str) -> Target:
    importlib.import_module(next(f"fuzz.{module}" for module, names in MODULES.items() if name in names))
    return TARGETS[name]


@contextmanager
def fresh_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="case-") as name:
        yield Path(name)
