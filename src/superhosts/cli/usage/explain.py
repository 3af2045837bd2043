"""Options of `superhosts explain`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from superhosts.cli._options import LocalTime, Plot, ResultOptions, SketchOptions, TimeOptions


@dataclass(frozen=True)
class Explain:
    """Explain one host: its number of peers with the interval, its columns and how full they are.

    With several files: the host over time and sites, and its number in the union of them all. --plot draws the columns,
    or the host over time.

    Examples:
        superhosts explain 20261114T120000Z-5m-local.cube 10.1.2.3
        superhosts explain archive 10.1.2.3 --since 1d --plot host.svg
    """

    sketches: SketchOptions
    host: Annotated[str, typer.Argument(metavar="HOST", help="An address, or a prefix where hosts are prefixes.")]
    span: TimeOptions = field(default_factory=TimeOptions)
    results: ResultOptions = field(default_factory=ResultOptions)
    plot: Plot = None
    local_time: LocalTime = False
