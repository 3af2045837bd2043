"""Options of `superhosts hosts`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from superhosts.cli._options import ResultOptions, SketchOptions, TimeOptions, WantedOptions


@dataclass(frozen=True)
class Hosts:
    """Ask saved sketches again: another threshold, a longer window, more sites.

    Example: superhosts hosts 'archive/**/*.cube' --union --threshold 5000
    """

    sketches: SketchOptions
    union: Annotated[bool, typer.Option("--union", help="Merge all files first: a longer window, or more sites.")] = (
        False
    )
    span: TimeOptions = field(default_factory=TimeOptions)
    wanted: WantedOptions = field(default_factory=WantedOptions)
    results: ResultOptions = field(default_factory=ResultOptions)
