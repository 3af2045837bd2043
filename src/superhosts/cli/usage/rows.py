"""Options of `superhosts rows`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    DEVICE,
    WINDOW_OR_ALL,
    MemoryTotal,
    PairCubeOptions,
    ScanWantedOptions,
    TrafficOptions,
)
from superhosts.cli._tables import TableInputOptions
from superhosts.cli._values import split_commas


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
