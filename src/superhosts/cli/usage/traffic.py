"""Options of the commands that read traffic: `scan`, `watch`, `top` and `rows`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    ALERTS,
    DEVICE,
    GRACE,
    INPUTS,
    REFRESH,
    SAVE,
    SITE,
    VERBOSE,
    WINDOW_OR_ALL,
    ConfigFile,
    Counters,
    DashboardOptions,
    EndlessResultOptions,
    EndlessTrafficOptions,
    FailOnFind,
    LiveGrace,
    LocalTime,
    MemoryTotal,
    NamesOptions,
    PairCubeOptions,
    Quiet,
    ScanResultOptions,
    ScanTrafficOptions,
    ScanWantedOptions,
    ServiceOptions,
    TableInputOptions,
    TrafficOptions,
    worded,
)
from superhosts.cli._signals import sighup_held
from superhosts.cli._values import split_commas
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


@dataclass(frozen=True)
class RowOptions:
    """What the rows are, and which rows are written."""

    panel: ClassVar = "Rows"
    schema: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Names and types of the columns that are read, where the format does not say them: "
            "'src IPv4, dst IPv4, time DateTime'.",
        ),
    ] = ""
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="NAME",
            help="Format of the rows that are written, one of those of --format except ArrowStream.",
            show_default="as --format; JSONEachRow for ArrowStream",
        ),
    ] = None
    columns: Annotated[
        list[str],
        typer.Option(
            metavar="LIST",
            callback=split_commas,
            help="Columns that are written, in this order, like host,peers.",
            show_default="all",
        ),
    ] = field(default_factory=list)
    chunks: Annotated[
        bool,
        typer.Option(
            "--chunks",
            help="A line with the number of rows is before each chunk of them (send_chunk_header of ClickHouse); the "
            "answer to a chunk is written before the next is read. Only for columns that are arrays.",
        ),
    ] = False


@dataclass(frozen=True)
class RowInputOptions(TableInputOptions):
    """Columns and format of the rows that are read."""

    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="ROWS",
            help="Format of the rows that are read: RowBinary, RowBinaryWithNamesAndTypes, JSONEachRow, CSV, "
            "CSVWithNames, TabSeparated, TabSeparatedWithNames or ArrowStream.",
            show_default="RowBinary with --schema, else by the first bytes",
        ),
    ] = None


@dataclass(frozen=True)
class RowTrafficOptions(TrafficOptions):
    """The same as for a scan, with all rows as one window."""

    window: Annotated[str, WINDOW_OR_ALL] = "all"
    tables: RowInputOptions = field(default_factory=RowInputOptions)


@dataclass(frozen=True)
class Rows:
    """Read rows from standard input and write super hosts as rows: for ClickHouse and for pipes.

    Every row that is read is a packet or a flow record. The answer is written at the end of the input, or of each
    window: the rows of superhosts scan. What is wrong goes to standard error, and then nothing is written.

    If src and dst are arrays (Array(IPv6)), every row is a window of its own: one value is written for it, an array of
    tuples of --columns. So an executable function of ClickHouse answers for each group of a query.

    Examples:
        superhosts rows --schema 'src IPv4, dst IPv4' --out CSV < pairs.bin
        superhosts rows --map src=a,dst=b --columns host,peers < rows.json
    """

    rows: RowOptions = field(default_factory=RowOptions)
    traffic: RowTrafficOptions = field(default_factory=RowTrafficOptions)
    wanted: ScanWantedOptions = field(default_factory=ScanWantedOptions)
    cube: PairCubeOptions = field(default_factory=PairCubeOptions)
    memory_total: MemoryTotal = None
    device: Annotated[str, DEVICE] = "auto"
