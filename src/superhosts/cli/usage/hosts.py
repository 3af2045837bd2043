"""Options of `superhosts hosts`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    DIRECTION,
    WINDOW,
    FailOnFind,
    LocalTime,
    Plot,
    ResultOptions,
    SketchOptions,
    TimeOptions,
    WantedOptions,
    worded,
)
from superhosts.cli._values import split_commas


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
