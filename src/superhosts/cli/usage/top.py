"""Options of `superhosts top`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    ALERTS,
    DEVICE,
    REFRESH,
    EndlessTrafficOptions,
    LiveGrace,
    LocalTime,
    MemoryTotal,
    NamesOptions,
    PairCubeOptions,
    ScanWantedOptions,
    worded,
)
from superhosts.core import defaults


@dataclass(frozen=True)
class SourceOptions:
    """What belongs to a web address or a folder."""

    panel: ClassVar = "Addresses and folders"
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the token that the web address asks for.")
    ] = None
    alerts: Annotated[
        Path | None,
        worded(
            ALERTS,
            "The file of alerts that a run keeps, to show and to mute with a folder. Without it alerts.db or "
            "alerts.sqlite in the folder counts.",
        ),
    ] = None


@dataclass(frozen=True)
class Top:
    """Look at super hosts live in the terminal: of a hub or watch, a folder of sketches, or an interface.

    A table shows the hosts of the newest window with their intervals. Keys sort and filter it, go back to older
    windows, open the past and the evidence of a host, and show alerts and sites; ? lists them. INPUT is the web address
    of a hub or watch, the state folder of a hub or a folder of saved sketches, or what watch takes: then this command
    counts by itself, and a capture file is followed while it grows. Needs the packages of the extra top.

    Examples:
        superhosts top http://127.0.0.1:8105
        superhosts top https://hub.example --token-file token
        superhosts top superhosts-hub
        superhosts top archive --threshold 500
        superhosts top live:eth0 --inner private --window 1m
    """

    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="A web address (http://HOST:PORT), a folder of sketches, live:eth0, a capture that grows, or another "
            "input of watch.",
        ),
    ]
    source: SourceOptions = field(default_factory=SourceOptions)
    traffic: EndlessTrafficOptions = field(default_factory=EndlessTrafficOptions)
    wanted: ScanWantedOptions = field(default_factory=ScanWantedOptions)
    cube: PairCubeOptions = field(default_factory=PairCubeOptions)
    memory_total: MemoryTotal = None
    grace: LiveGrace = defaults.GRACE
    refresh: Annotated[str, REFRESH] = "3s"
    device: Annotated[str, DEVICE] = "auto"
    naming: NamesOptions = field(default_factory=NamesOptions)
    local_time: LocalTime = False
