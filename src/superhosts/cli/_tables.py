"""Options of tables and logs, for every command that reads inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from superhosts.cli._values import checked
from superhosts.errors import UsageError
from superhosts.sources.tables.mapping import parse_map
from superhosts.sources.tables.options import EXPORT_FORMATS, FORMAT_NAMES, WHICH_TIME, TableOptions

_EXPORTS = " or ".join((", ".join(EXPORT_FORMATS[:-1]), EXPORT_FORMATS[-1]))


def _format(text: str) -> None:
    if text not in (*FORMAT_NAMES, *EXPORT_FORMATS):
        raise UsageError(f"{text!r} is no format; use {', '.join((*FORMAT_NAMES, *EXPORT_FORMATS))}")


def _which_time(text: str) -> None:
    if text not in WHICH_TIME:
        raise UsageError(f"{text!r} is no time; use {', '.join(WHICH_TIME)}")


def _map(text: str) -> None:
    try:
        parse_map(text)
    except UsageError as error:  # It begins with the option, which is added again.
        raise UsageError(str(error).partition(": ")[2]) from None


check_format, check_map, check_which_time = checked(_format), checked(_map), checked(_which_time)

ENDS = "Columns of a table: src=COLUMN,dst=COLUMN,time=COLUMN, also time_end, duration."
PLACES = "A number is a place, from 1. Times may name their unit: time=start:ms (s, ms, us, ns)."
MAP = typer.Option(
    metavar="LIST",
    callback=check_map,
    help=f"{ENDS} For --peers, --count, --by, --proto and --port: proto, sport, dport, flags (of TCP), and of tables "
    f"of whole conversations state (as Zeek or Argus write it) or replies (packets that came back). {PLACES}",
    show_default="usual names of columns are found",
)


@dataclass(frozen=True)
class TableInputOptions:
    """Inputs that are tables or logs."""

    panel: ClassVar = "Tables and logs"
    map: Annotated[str | None, MAP] = None
    format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            callback=check_format,
            help=f"Format of all inputs that are no captures: {', '.join(FORMAT_NAMES)}. With {_EXPORTS} also captures "
            "of exports are read: the flows that they report.",
            show_default="by content",
        ),
    ] = None
    time: Annotated[
        str,
        typer.Option(
            metavar="|".join(WHICH_TIME),
            callback=check_which_time,
            help="Which time of a record counts: its start or end, of flow exports also export or received. With "
            "record it is the start, and for exports from the network the time at which they are received.",
        ),
    ] = "record"

    def read(self) -> TableOptions:
        """Return what the sources take."""
        return TableOptions(self.format, None if self.map is None else parse_map(self.map), self.time)
