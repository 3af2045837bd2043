"""Options of `superhosts batch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    DETECTOR,
    EXACT,
    FILES,
    MERGED_BY_BATCH,
    SAVE,
    SITE,
    TRACEBACKS,
    VERBOSE,
    Counters,
    PairCubeOptions,
    Quiet,
    ResultOptions,
    TrafficOptions,
    WantedOptions,
    shown,
    worded,
)
from superhosts.cli._values import check_size, parse_at_least_one


@dataclass(frozen=True)
class PlaceOptions:
    """Where the work is done, and in pieces of what size."""

    panel: ClassVar = "Cluster"
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The cluster's scheduler, like tcp://host:8786.")
    ] = None
    local: Annotated[bool, typer.Option("--local", help="Start worker processes on this machine instead.")] = False
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT",
            parser=parse_at_least_one,
            help="Worker processes of --local.",
            show_default="one for each core",
        ),
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
        typer.Option(
            metavar="SIZE",
            callback=check_size,
            help="Size of the captures that one task reads, like 1GiB.",
            show_default="by the number of workers",
        ),
    ] = None


@dataclass(frozen=True)
class MergedCubeOptions(PairCubeOptions):
    """What hosts are counted with: a detector whose sketches merge, on the CPUs of the workers."""

    detector: Annotated[str, worded(DETECTOR, f"{MERGED_BY_BATCH}.")] = "cube"
    exact: Annotated[str | None, shown(EXACT, "on")] = None


@dataclass(frozen=True)
class Batch:
    """Find the super hosts of many captures on a Dask cluster: the same sketches as one scan over all of them.

    The workers read the captures, so these must be in a shared folder or behind URLs. A run that was interrupted
    resumes when the same command is given again. The key is sent to the workers: use Dask's TLS if others can listen.

    Examples:
        superhosts batch 'day/**/*.pcap.gz' --local --save sketches
        superhosts batch s3://captures --scheduler tcp://head:8786 --save /shared
    """

    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help=f"{FILES}, or URLs (s3://…)."),
    ]
    save: Annotated[Path, SAVE]
    place: PlaceOptions = field(default_factory=PlaceOptions)
    traffic: TrafficOptions = field(default_factory=TrafficOptions)
    wanted: WantedOptions = field(default_factory=WantedOptions)
    results: ResultOptions = field(default_factory=ResultOptions)
    cube: MergedCubeOptions = field(default_factory=MergedCubeOptions)
    site: Annotated[str, SITE] = "local"
    counters: Counters = None
    quiet: Quiet = False
    verbose: Annotated[bool, worded(VERBOSE, TRACEBACKS)] = False
