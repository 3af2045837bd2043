"""Options of `superhosts scan`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import (
    DEVICE,
    GRACE,
    INPUTS,
    SAVE,
    SITE,
    VERBOSE,
    ConfigFile,
    Counters,
    FailOnFind,
    LocalTime,
    MemoryTotal,
    PairCubeOptions,
    Quiet,
    ScanResultOptions,
    ScanTrafficOptions,
    ScanWantedOptions,
    worded,
)
from superhosts.core import defaults


@dataclass(frozen=True)
class Scan:
    """Find the super hosts of captures and tables: hosts that talk to many distinct peers within a window.

    Numbers are exact while the pairs of a window fit in half of the memory. Beyond that they are estimates, each with a
    95 % interval.

    With --slide, windows overlap: one ends with every slide, from the first that has packets to the last, and has the
    rows of a scan of its packets alone. A window with exactly the packets of the one before, as over a gap, is skipped
    and counted in the last line; of live input every window comes. Its first windows begin before the first packet.
    --save keeps a sketch of every slide; superhosts hosts --union makes a window of any length of them. With --peers it
    is decided within each slide who opened.

    Ctrl-C and SIGTERM stop it in an orderly way: the open window is reported and saved, marked as partial. A second
    signal, at least half a second later, ends it at once.

    If a sketch cannot be saved (a file of its name is damaged, or was made with other options), the file stays as it
    is, the scan goes on, and the exit status is 4.

    Examples:
        superhosts scan trace.pcap --inner 10.0.0.0/8
        tcpdump -w - | superhosts scan - --json
        superhosts scan day/*.pcap.gz --window 1h --top 20 --save sketches
        superhosts scan day/*.pcap --window 5m --slide 30s --json
        superhosts scan flows.parquet --map src=sip,dst=dip,time=begin:ms
        zcat conn.log.gz | superhosts scan - --window all
        superhosts scan netflow://0.0.0.0:2055 --inner 10.0.0.0/8
    """

    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...", help=INPUTS)]
    traffic: ScanTrafficOptions = field(default_factory=ScanTrafficOptions)
    wanted: ScanWantedOptions = field(default_factory=ScanWantedOptions)
    results: ScanResultOptions = field(default_factory=ScanResultOptions)
    cube: PairCubeOptions = field(default_factory=PairCubeOptions)
    memory_total: MemoryTotal = None
    grace: Annotated[
        str,
        worded(GRACE, "How long after its end a window of a pipe stays open for packets that are late."),
    ] = defaults.GRACE
    device: Annotated[str, DEVICE] = "auto"
    site: Annotated[str, SITE] = "local"
    save: Annotated[Path | None, SAVE] = None
    fail_on_find: FailOnFind = False
    config: ConfigFile = None
    local_time: LocalTime = False
    counters: Counters = None
    quiet: Quiet = False
    verbose: Annotated[bool, VERBOSE] = False
