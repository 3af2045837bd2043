"""Options of `superhosts watch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    DEVICE,
    INPUTS,
    REFRESH,
    SAVE,
    SITE,
    Counters,
    DashboardOptions,
    EndlessResultOptions,
    EndlessTrafficOptions,
    LiveGrace,
    MemoryTotal,
    PairCubeOptions,
    Quiet,
    ScanWantedOptions,
    ServiceOptions,
)
from superhosts.cli._signals import sighup_held
from superhosts.core import defaults


@dataclass(frozen=True)
class Watch:
    """Watch a network interface on this machine: super hosts of the open window and of the last ones, live.

    On a terminal a table shows the hosts of the open window so far, the last windows, the packets per second, packets
    that were dropped, and how full the ring is. Elsewhere every window is written once, when it closes. No hub is
    needed. To capture needs rights: docs/guides/live.md says how to give them.

    Ctrl-C and SIGTERM stop it in an orderly way: the open window is reported and saved, marked as partial. A second
    signal, at least half a second later, ends it at once. SIGHUP reloads rules, lists, --threshold, --top and
    destinations, and opens the files of --output again.

    Examples:
        superhosts watch live:eth0 --inner private
        superhosts watch live:any --window 1m --top 20
        superhosts watch live:eth0 --window 5m --slide 10s
        superhosts watch live:eth0,eth1 --filter 'tcp port 22' --json
        superhosts watch live:eth0 --inner private --save sketches --web :8105
    """

    around: ClassVar = (sighup_held,)
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT...", help=f"{INPUTS} A folder is followed, as new files come.")
    ]
    traffic: EndlessTrafficOptions = field(default_factory=EndlessTrafficOptions)
    wanted: ScanWantedOptions = field(default_factory=ScanWantedOptions)
    results: EndlessResultOptions = field(default_factory=EndlessResultOptions)
    cube: PairCubeOptions = field(default_factory=PairCubeOptions)
    memory_total: MemoryTotal = None
    grace: LiveGrace = defaults.GRACE
    refresh: Annotated[str, REFRESH] = "3s"
    device: Annotated[str, DEVICE] = "auto"
    site: Annotated[str, SITE] = "local"
    save: Annotated[Path | None, SAVE] = None
    dashboard: DashboardOptions = field(default_factory=DashboardOptions)
    service: ServiceOptions = field(default_factory=ServiceOptions)
    counters: Counters = None
    quiet: Quiet = False
