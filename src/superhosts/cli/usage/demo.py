"""Options of `superhosts demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import EXACT, FLOWS, PACKETS, SUPER_HOSTS, shown


@dataclass(frozen=True)
class Demo:
    """See it work: write a synthetic capture with known super hosts, scan it, show the result beside the truth.

    With --fleet: start a hub and three edges, and show that their union is exact.

    Examples:
        superhosts demo /tmp/demo
        superhosts demo /tmp/demo --fleet
    """

    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the capture and its truth are written.")] = Path(
        "demo"
    )
    flows: Annotated[str | None, shown(FLOWS, "500k; with --fleet 200k")] = None
    packets: Annotated[str | None, shown(PACKETS, "5M; with --fleet 1M")] = None
    super_hosts: Annotated[str, SUPER_HOSTS] = "30"
    exact: Annotated[str | None, shown(EXACT, "on")] = None
    fleet: Annotated[
        bool, typer.Option("--fleet", help="A hub and three edges that see overlapping traffic, instead of a scan.")
    ] = False
