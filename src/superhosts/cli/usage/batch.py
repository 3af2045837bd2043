"""Options of `superhosts batch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    INPUTS,
    SAVE,
    SITE,
    CubeOptions,
    Quiet,
    ResultOptions,
    TrafficOptions,
    WantedOptions,
)


@dataclass(frozen=True)
class PlaceOptions:
    """Where the work is done, and in pieces of what size."""

    panel: ClassVar = "Cluster"
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The cluster's scheduler, like tcp://host:8786.")
    ] = None
    local: Annotated[bool, typer.Option("--local", help="Start worker processes on this machine instead.")] = False
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes of --local.", show_default="one for each core")
    ] = None
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for intermediate results; all workers must see it.", show_default="SAVE.work"
        ),
    ] = None
    keep_work: Annotated[bool, typer.Option("--keep-work", help="Keep the intermediate results.")] = False
    task_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Captures of one task, like 1GiB.", show_default="by the number of workers"),
    ] = None


@dataclass(frozen=True)
class Batch:
    """Find the super hosts of many captures on a Dask cluster: the same sketches as one scan over all of them.

    The workers read the captures, so these must be in a shared folder or behind URLs. A run that was interrupted
    resumes when the same command is given again. The key is sent to the workers: use Dask's TLS if others can listen.

    Examples: superhosts batch 'day/**/*.pcap.gz' --local --save sketches · superhosts batch s3://captures/2026-11-14
    --scheduler tcp://head:8786 --save /shared/sketches
    """

    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help=f"{INPUTS} Batch takes files only: not - or synth:…"),
    ]
    save: Annotated[Path, SAVE]
    place: PlaceOptions = field(default_factory=PlaceOptions)
    traffic: TrafficOptions = field(default_factory=TrafficOptions)
    wanted: WantedOptions = field(default_factory=WantedOptions)
    results: ResultOptions = field(default_factory=ResultOptions)
    cube: CubeOptions = field(default_factory=CubeOptions)
    site: Annotated[str, SITE] = "local"
    quiet: Quiet = False
