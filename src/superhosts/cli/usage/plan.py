"""Options of `superhosts plan`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from superhosts.cli._options import ERROR, FLOWS, MEMORY, THRESHOLD, JsonObject, shown, worded
from superhosts.cli._values import parse_whole
from superhosts.core import defaults


@dataclass(frozen=True)
class Plan:
    """Plan a cube: the best geometry for a memory, or the least memory for an error, and what to expect of it.

    False rates are shares of the true super hosts. They are predicted for hosts with a heavy tail of peers: exponent
    1.05, one host in 10,000 flows with 1024 peers or more. A memory with a false rate above 20 % is refused. Windows
    that are counted exactly have no false hosts. Without --flows nothing is planned: the table shows the sizes that
    --memory alone gives, and what to expect of them with 5 M flows. Give the plan to scan, edge, hub and batch with
    --geometry; in Python: sh.Cube("128MiB", flows="20M", threshold=1024).

    Examples:
        superhosts plan --flows 20M --threshold 1024 --memory 128MiB
        superhosts plan --flows 20M --error 1%
    """

    flows: Annotated[str | None, shown(FLOWS, "5M, and the sizes that suit --memory alone")] = None
    threshold: Annotated[float, THRESHOLD] = defaults.THRESHOLD
    memory: Annotated[
        str | None,
        shown(worded(MEMORY, "Memory of one cube."), f"{defaults.MEMORY}; with --error the least that suffices"),
    ] = None
    error: Annotated[str | None, ERROR] = None
    key_bits: Annotated[
        int, typer.Option(metavar="BITS", parser=parse_whole, help="Bits of a host: 32, 64 or 128.")
    ] = 32
    json: JsonObject = False
