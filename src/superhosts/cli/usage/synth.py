"""Options of `superhosts synth`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import (
    FLOWS,
    FORCE,
    PACKETS,
    SEED,
    SUPER_HOSTS,
    WINDOW,
    WINDOWS,
    Ipv4Prefix,
    Ipv6Prefix,
    worded,
)
from superhosts.cli._values import check_count
from superhosts.core import defaults


@dataclass(frozen=True)
class Synth:
    """Make synthetic backbone traffic, and its exact answer beside it.

    The traffic has hosts with a heavy tail of peers, popular servers, scanners and victims of floods. The inner network
    is 10.0.0.0/8, for IPv6 2001:db8::/32. The answer is written beside OUT, with the ending .truth.jsonl: rows like
    those of scan --json.

    Files that synth wrote before are overwritten. Before it overwrites any other file it asks; without a terminal it
    refuses, unless --force is given.

    Examples:
        superhosts synth day.pcap --super-hosts 50
        superhosts synth day.pcap.zst --flows 5M --packets 50M --windows 3
    """

    out: Annotated[Path, typer.Argument(metavar="OUT", help="Capture to write: .pcap, .pcap.zst or .parquet.")]
    flows: Annotated[str, FLOWS] = "100k"
    packets: Annotated[str, PACKETS] = "1M"
    windows: Annotated[str, WINDOWS] = "1"
    super_hosts: Annotated[str, SUPER_HOSTS] = "20"
    seed: Annotated[int, SEED] = 1
    family: Annotated[
        str, typer.Option("--family", metavar="FAMILY", help="Address family: 4, 6 or both (one third IPv6).")
    ] = "4"
    window: Annotated[str, WINDOW] = defaults.WINDOW
    truth_min: Annotated[
        str,
        typer.Option(
            metavar="COUNT", callback=check_count, help="Hosts of the answer: those with at least this many peers."
        ),
    ] = "100"
    ipv4_prefix: Ipv4Prefix = defaults.IPV4_PREFIX
    ipv6_prefix: Ipv6Prefix = defaults.IPV6_PREFIX
    force: Annotated[bool, worded(FORCE, "Overwrite OUT and its answer, whoever wrote them, without asking.")] = False
