"""Options of the commands that read saved sketches: `hosts`, `web`, `explain` and `merge`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    ALERTS,
    DIRECTION,
    WINDOW,
    FailOnFind,
    LocalTime,
    LogFormat,
    NamesOptions,
    Plot,
    ResultOptions,
    ScanWantedOptions,
    SketchKeyFile,
    SketchOptions,
    TimeOptions,
    WantedOptions,
    WebTokenFile,
    WebTrustProxy,
    worded,
)
from superhosts.cli._values import check_place, split_commas


@dataclass(frozen=True)
class OnlyOptions:
    """Which sketches and hosts are asked for."""

    panel: ClassVar = "Filters"
    site: Annotated[
        list[str],
        typer.Option(metavar="LIST", callback=split_commas, help="Only sketches of these sites, like ams,fra."),
    ] = field(default_factory=list)
    prefix: Annotated[
        list[str],
        typer.Option(metavar="LIST", help="Only hosts in these prefixes, or in those of @FILE."),
    ] = field(default_factory=list)
    side: Annotated[
        list[str], typer.Option(metavar="LIST", callback=split_commas, help="Only hosts of this side: inner or outer.")
    ] = field(default_factory=list)
    direction: Annotated[
        list[str],
        worded(
            DIRECTION,
            "Only numbers of these packets: any, out (sent by the host) or in; or of contacts: opened, answered, "
            "unanswered, and with -in at the end those that the peer opened.",
        ),
    ] = field(default_factory=list)


@dataclass(frozen=True)
class Hosts:
    """Ask saved sketches again: another threshold, a longer window, more sites.

    Rows say of which site and window they are. With --window 1h the sketches of an hour are merged, for each site; with
    --union, too, for all sites together; with --union alone everything is one answer.

    Examples:
        superhosts hosts archive --since 1h --threshold 500
        superhosts hosts archive --window 1h --site ams,fra --top 10
        superhosts hosts 'archive/**/*.cube' --union --threshold 5000
        superhosts hosts archive --union --top 20 --plot hosts.pdf
    """

    sketches: SketchOptions
    union: Annotated[bool, typer.Option("--union", help="Merge all files first: a longer window, or more sites.")] = (
        False
    )
    window: Annotated[
        str | None,
        worded(WINDOW, "Merge the sketches within windows of this length: 1h, 30d; not shorter than theirs."),
    ] = None
    span: TimeOptions = field(default_factory=TimeOptions)
    only: OnlyOptions = field(default_factory=OnlyOptions)
    wanted: WantedOptions = field(default_factory=WantedOptions)
    results: ResultOptions = field(default_factory=ResultOptions)
    plot: Plot = None
    fail_on_find: FailOnFind = False
    local_time: LocalTime = False


@dataclass(frozen=True)
class Web:
    """Show a folder of saved sketches in the browser: super hosts over time, one host's past, other thresholds.

    The folder is that of --save, or a hub's archive; nothing in it is changed, and new sketches appear as they come.
    Of a hub's own folder (--state), the sites are shown, too. A program that runs shows itself: superhosts hub --web,
    superhosts watch --web. Ctrl-C ends it.

    Examples:
        superhosts web archive
        superhosts web archive --threshold 500 --labels hosts.csv
        superhosts web archive --listen 0.0.0.0:8105 --web-token-file token
    """

    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of saved sketches, with all folders in it.")]
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            callback=check_place,
            help="Where browsers find it. At an address that others reach, like 0.0.0.0:8105, a token is asked for.",
        ),
    ] = "127.0.0.1:8105"
    web_token_file: WebTokenFile = None
    web_trust_proxy: WebTrustProxy = field(default_factory=list)
    wanted: ScanWantedOptions = field(default_factory=ScanWantedOptions)
    naming: NamesOptions = field(default_factory=NamesOptions)
    alerts: Annotated[
        Path | None,
        worded(
            ALERTS,
            "The file of alerts that a run keeps, to show and to mute hosts. Without it alerts.db or alerts.sqlite in "
            "the folder counts.",
        ),
    ] = None
    key_file: SketchKeyFile = None
    log_format: LogFormat = "auto"


@dataclass(frozen=True)
class Explain:
    """Explain one host: its number of peers with the interval, its columns and how full they are.

    With several files: the host over time and sites, and its number in the union of them all. --plot draws the columns,
    or the host over time.

    Examples:
        superhosts explain 20261114T120000Z-5m-local.cube 10.1.2.3
        superhosts explain archive 10.1.2.3 --since 1d --plot host.svg
    """

    sketches: SketchOptions
    host: Annotated[str, typer.Argument(metavar="HOST", help="An address, or a prefix where hosts are prefixes.")]
    span: TimeOptions = field(default_factory=TimeOptions)
    results: ResultOptions = field(default_factory=ResultOptions)
    plot: Plot = None
    local_time: LocalTime = False


@dataclass(frozen=True)
class Merge:
    """Merge sketches exactly: the result is that of one stream of all their traffic, repeats counted once.

    The sketches are of other sites or windows; key and geometry must be the same. If any file cannot be merged, nothing
    is written, and every such file is named.

    Example: superhosts merge ams.cube fra.cube -o all.cube
    """

    sketches: SketchOptions
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Write the union to this .cube file.")]
