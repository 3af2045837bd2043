"""Options of `superhosts edge`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    DEVICE,
    ENDLESS_OUTPUT,
    INPUTS,
    NATS,
    OUTPUT,
    SITE,
    TO,
    EndlessTrafficOptions,
    Exact,
    FleetCubeOptions,
    LinkOptions,
    LiveGrace,
    MemoryTotal,
    NamesOptions,
    OutputQueueOptions,
    ServiceOptions,
    SpoolCap,
    WantedOptions,
    shown,
    worded,
)
from superhosts.cli._signals import sighup_held
from superhosts.core import defaults

LOCAL = "nats://127.0.0.1:4222"


@dataclass(frozen=True)
class EdgeCubeOptions(FleetCubeOptions):
    """What hosts are counted with, at a site that reads pairs from traffic."""

    exact: Exact = None


@dataclass(frozen=True)
class SiteRowsOptions:
    """Where the rows of this site's own super hosts go."""

    panel: ClassVar = "Results"
    output: Annotated[
        list[str], worded(OUTPUT, f"Also report this site's own super hosts, in FILE: {ENDLESS_OUTPUT}")
    ] = field(default_factory=list)
    queue: OutputQueueOptions = field(default_factory=OutputQueueOptions)
    naming: NamesOptions = field(default_factory=NamesOptions)


@dataclass(frozen=True)
class EdgeLinkOptions(LinkOptions):
    """How an edge reaches its hub and proves who it is."""

    join: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Join a fleet with the token that `superhosts site enroll` printed: it has the hub's address, the "
            "name and key of the site, and the sketch key. A token is a secret: other users see the options of a "
            "command, so write @FILE, or set the variable SUPERHOSTS_EDGE_JOIN. Its parts are kept in the spool, "
            "readable by its owner alone.",
        ),
    ] = None


@dataclass(frozen=True)
class Edge:
    """Watch traffic at one place and send the sketch of every window to a hub.

    Flows never leave the site. With a key of one's own, which only the fleet knows, no address leaves it in the clear;
    with --key-file public anybody can read addresses from the sketches. With --output the site also reports its own
    super hosts, which stay here.

    With --slide, a sketch of every slide is sent, so that each packet travels once. A hub with the same --window and
    --slide makes windows that overlap of them; to any other hub these are windows as long as the slide. The rows of
    --output are those of the windows that overlap. After a restart, the first of them lack what came before it.

    Sketches stay in the spool until the hub has acknowledged them. All edges and the hub must have the same key, memory
    (or geometry) and detector, and all edges the same window. A hub refuses other sketches. They are kept in the spool,
    the last line counts them, and the exit status is 5.

    Examples:
        superhosts edge /var/captures --join @ams.token
        superhosts edge /var/captures --site ams --to /mnt/fleet
        tcpdump -U -w - | superhosts edge - --site ams --nkey ams.nk
        superhosts edge netflow://0.0.0.0:2055 --site ams --to s3://fleet/sketches
    """

    around: ClassVar = (sighup_held,)
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help=f"{INPUTS} A folder is followed: files that a program that captures or logs adds to it are read. "
            "Without any input, only what waits in the spool is sent.",
        ),
    ] = field(default_factory=list)
    site: Annotated[
        str, shown(worded(SITE, "Name of this site, unique in the fleet. It must be given, but for --join."), False)
    ] = ""
    spool: Annotated[
        Path, typer.Option(metavar="DIR", help="Where sketches wait until the hub has acknowledged them.")
    ] = Path("superhosts-spool")
    spool_cap: SpoolCap = "10GiB"
    grace: LiveGrace = defaults.GRACE
    device: Annotated[str, DEVICE] = "auto"
    memory_total: MemoryTotal = None
    to: Annotated[str | None, TO] = None
    nats: Annotated[
        str | None,
        shown(worded(NATS, "Send sketches to this NATS server: the hub's, or your own."), f"{LOCAL}; with --to none"),
    ] = None
    link: EdgeLinkOptions = field(default_factory=EdgeLinkOptions)
    rows: SiteRowsOptions = field(default_factory=SiteRowsOptions)
    wanted: WantedOptions = field(default_factory=WantedOptions)
    traffic: EndlessTrafficOptions = field(default_factory=EndlessTrafficOptions)
    cube: EdgeCubeOptions = field(default_factory=EdgeCubeOptions)
    service: ServiceOptions = field(default_factory=ServiceOptions)
