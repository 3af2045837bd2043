"""Options of `superhosts compare`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    DEVICE,
    FLOWS,
    INPUTS,
    PACKETS,
    SEED,
    SUPER_HOSTS,
    THRESHOLD,
    WINDOWS,
    Inner,
    ResultOptions,
    Special,
    Window,
    shown,
    worded,
)
from superhosts.cli._tables import ENDS, MAP, PLACES, TableInputOptions
from superhosts.cli._values import check_size, split_commas
from superhosts.core import defaults
from superhosts.lab.lineup import ENTRANTS


def _split_sizes(values: list[str] | None) -> list[str]:
    """Return several sizes, each checked."""
    sizes = split_commas(values)
    for size in sizes:
        check_size(size)
    return sizes


MEMORIES = typer.Option(
    "--memory",
    "-m",
    metavar="SIZE",
    callback=_split_sizes,
    help="Memory of each detector. Several, as in 1MiB,4MiB,16MiB, compare them at each.",
)


@dataclass(frozen=True)
class SyntheticOptions:
    """The traffic that is made if no captures are given."""

    panel: ClassVar = "Synthetic traffic"
    windows: Annotated[str | None, shown(WINDOWS, "12; with --quick 2")] = None
    flows: Annotated[str | None, shown(FLOWS, "5M; with --quick 500k")] = None
    packets: Annotated[str | None, shown(PACKETS, "twice the flows")] = None
    super_hosts: Annotated[str | None, shown(SUPER_HOSTS, "600; with --quick 60")] = None
    seed: Annotated[int, SEED] = 1
    quick: Annotated[bool, typer.Option("--quick", help="Two small windows, in about a minute.")] = False


@dataclass(frozen=True)
class PairTableOptions(TableInputOptions):
    """The same for a command that looks at addresses and times alone."""

    map: Annotated[str | None, worded(MAP, f"{ENDS} {PLACES}")] = None


@dataclass(frozen=True)
class CaptureOptions:
    """Which hosts of captures are compared, in which windows."""

    panel: ClassVar = "Captures"
    inner: Inner = field(default_factory=list)
    special: Special = defaults.SPECIAL
    window: Window = defaults.WINDOW
    tables: PairTableOptions = field(default_factory=PairTableOptions)


@dataclass(frozen=True)
class Compare:
    """Run every detector over the same traffic and score it against the exact answer.

    The default is the experiment of the paper: 12 windows, 5 M flows and 600 super hosts each; it takes some minutes.
    Some detectors run on the CPU only.

    Examples:
        superhosts compare --quick
        superhosts compare --figures figures -o comparison.csv
        superhosts compare --memory 1MiB,8MiB,64MiB,512MiB --figures figures
        superhosts compare day.pcap --inner 10.0.0.0/8 --detector cube,gse
    """

    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help=f"{INPUTS} Without any, the traffic of the paper's experiment."),
    ] = field(default_factory=list)
    detector: Annotated[
        list[str],
        typer.Option(
            metavar="LIST",
            callback=split_commas,
            help=f"Only these, of {', '.join(ENTRANTS)}. A class of your own: module:Class.",
            show_default="all",
        ),
    ] = field(default_factory=list)
    threshold: Annotated[float, THRESHOLD] = defaults.THRESHOLD
    memory: Annotated[list[str], shown(MEMORIES, "as each paper sets it")] = field(default_factory=list)
    device: Annotated[str, DEVICE] = "cpu"
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw figures (PDF, SVG) into DIR.")] = None
    synthetic: SyntheticOptions = field(default_factory=SyntheticOptions)
    captures: CaptureOptions = field(default_factory=CaptureOptions)
    results: ResultOptions = field(default_factory=ResultOptions)
