"""Options of `superhosts calibrate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import (
    DEVICE,
    ERROR,
    INPUTS,
    KEY_FILE,
    MEMORY,
    THRESHOLD,
    Exact,
    Ipv4Prefix,
    Ipv6Prefix,
    JsonObject,
    LocalTime,
    Plot,
    TrafficOptions,
    worded,
)
from superhosts.core import defaults


@dataclass(frozen=True)
class Calibrate:
    """Compare the cube with the exact answer on your own traffic, and say how much memory it needs.

    Cubes with more and with less memory than --memory are tried, too. They count exactly while the pairs of a window
    fit; saved windows and hubs estimate, so calibrate for these with --exact off. The exact answer keeps every pair of
    a window in memory: of very long captures, take a part.

    Examples:
        superhosts calibrate trace.pcap --inner 10.0.0.0/8 --plot est.svg
        superhosts calibrate trace.pcap --threshold 300 --memory 64MiB
        superhosts calibrate trace.pcap --inner private --watch outer
        superhosts calibrate trace.pcap --exact off
    """

    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...", help=INPUTS)]
    traffic: TrafficOptions = field(default_factory=TrafficOptions)
    threshold: Annotated[float, THRESHOLD] = defaults.THRESHOLD
    memory: Annotated[str, worded(MEMORY, "Memory of the cube that is judged.")] = defaults.MEMORY
    error: Annotated[str, ERROR] = "1%"
    exact: Exact = None
    ipv4_prefix: Ipv4Prefix = defaults.IPV4_PREFIX
    ipv6_prefix: Ipv6Prefix = defaults.IPV6_PREFIX
    key_file: Annotated[
        Path | None,
        worded(KEY_FILE, "File with the secret key. Without it SUPERHOSTS_KEY counts, else the public key."),
    ] = None
    device: Annotated[str, DEVICE] = "auto"
    plot: Plot = None
    json: JsonObject = False
    local_time: LocalTime = False
