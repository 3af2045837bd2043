"""Makes the manual pages when a package is built: they follow from the help of the commands, which needs only click."""

import runpy
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualPages(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        sys.path.insert(0, str(root / "src"))
        runpy.run_path(str(root / "docs" / "manual.py"))["write_manual"](root / "build" / "man")
