"""Options of `superhosts merge`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import SketchOptions


@dataclass(frozen=True)
class Merge:
    """Merge sketches exactly: the result is that of one stream of all their traffic, repeats counted once.

    The sketches are of other sites or windows; key and geometry must be the same. If any file cannot be merged, nothing
    is written, and every such file is named.

    Example: superhosts merge ams.cube fra.cube -o all.cube
    """

    sketches: SketchOptions
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Write the union to this .cube file.")]
