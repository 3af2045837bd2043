"""Options of `superhosts edge`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import (
    DEVICE,
    GRACE,
    INPUTS,
    NATS,
    SITE,
    TO,
    CubeOptions,
    LinkOptions,
    MemoryTotal,
    Output,
    SpoolCap,
    TrafficOptions,
    WantedOptions,
    shown,
)

LOCAL = "nats://127.0.0.1:4222"


@dataclass(frozen=True)
class Edge:
    """Watch traffic at one place and send the sketch of every window to a hub. No address leaves the site in the clear.

    With --output the site also reports its own super hosts, which stay here.

    What the hub has not acknowledged stays in the spool. Key, window, memory (or geometry) and detector must be the
    hub's.

    Examples: superhosts edge /var/captures --site ams --inner 10.0.0.0/8 --to /mnt/fleet ·
    tcpdump -U -w - | superhosts edge - --site ams --nats tls://hub:4222 --nkey ams.nk
    """

    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help=f"{INPUTS} A folder is followed: a capture program rotates files in it. "
            "Without any input, only what waits in the spool is sent.",
        ),
    ] = field(default_factory=list)
    site: Annotated[str, shown(SITE, "none: it must be given")] = ""
    spool: Annotated[
        Path, typer.Option(metavar="DIR", help="Where sketches wait until the hub has acknowledged them.")
    ] = Path("superhosts-spool")
    spool_cap: SpoolCap = "10GiB"
    grace: Annotated[str, GRACE] = "10s"
    device: Annotated[str, DEVICE] = "auto"
    memory_total: MemoryTotal = None
    to: Annotated[Path | None, TO] = None
    nats: Annotated[str | None, shown(NATS, LOCAL)] = None
    link: LinkOptions = field(default_factory=LinkOptions)
    output: Output = None
    wanted: WantedOptions = field(default_factory=WantedOptions)
    traffic: TrafficOptions = field(default_factory=TrafficOptions)
    cube: CubeOptions = field(default_factory=CubeOptions)
