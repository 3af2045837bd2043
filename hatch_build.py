"""Makes the manual pages when a package is built, and a wheel with machine code when one is asked for.

The pages follow from the help of the commands, which needs only click. SUPERHOSTS_CODE names a folder that `make
wheel` has filled: a folder of machine code for each level of processors, one of code for GPUs, and `requires.txt` with
the version of numba that made them. Without that variable the wheel is pure Python, and fits everywhere.
"""

import os
import platform
import runpy
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Package(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        sys.path.insert(0, str(root / "src"))
        runpy.run_path(str(root / "docs" / "manual.py"))["write_manual"](root / "build" / "man")
        if (code := os.environ.get("SUPERHOSTS_CODE")) and self.target_name == "wheel" and version == "standard":
            _take_code((root / code).resolve(), build_data)


def _take_code(folder: Path, build_data: dict[str, Any]) -> None:
    """Put machine code into the wheel, and say where it fits.

    The wheel has no shared library: numba links the code in memory. The code depends on three things. Its stamps
    contain bytecode of Python, so it is for one minor version. They contain the version of numba, so this wheel, and no
    other, requires exactly that version. And it calls functions of glibc by name (memcpy, log and others), all of which
    glibc 2.17 has; machines with another C library take the pure wheel.
    """
    if not any(folder.glob("*/*.code")):
        raise FileNotFoundError(f"{folder}: no folder in it has machine code")
    folders = [each for each in folder.iterdir() if each.is_dir()]
    build_data["force_include"].update({str(each): f"superhosts/code/{each.name}" for each in folders})
    build_data["dependencies"] += (folder / "requires.txt").read_text("utf-8").split()
    build_data["pure_python"] = False
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    build_data["tag"] = f"{python}-{python}-manylinux_2_17_{platform.machine()}"
