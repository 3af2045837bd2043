"""The one grammar of `--output`, for all commands, and the list of destinations.

| address | destination |
|---|---|
| `rows.jsonl`, `rows.csv`, `rows.parquet` | a file; its ending selects the format |
| `rows` | a folder of Parquet files, one per window, if the run has no planned end (`hub`) |
| `-` | standard output: JSON Lines instead of the table, or CSV with `--csv` |
| `scheme:…`, `scheme://…` | the destination of that scheme |

A file is replaced by a run that ends, and appended to by one that does not.

To add a destination, write its class in a file of its own (`base.py` has the interface) and add the class to
`DESTINATIONS`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from superhosts.errors import OutputError, UsageError
from superhosts.reports import files
from superhosts.reports.base import RUN_THAT_ENDS, Destination, RunKind
from superhosts.reports.fanout import Destinations
from superhosts.reports.files import ReplacedFile
from superhosts.reports.growing import AppendedFile, ParquetFolder
from superhosts.reports.queued import Queued
from superhosts.reports.stdout import Format, StandardOutput
from superhosts.reports.streams import ClosedOutput, raw_stream

DESTINATIONS: list[type[Destination]] = [
    ReplacedFile,
    AppendedFile,
    ParquetFolder,
]


@dataclass(frozen=True)
class OutputOptions:
    """What a user asked for with `--json`, `--csv` and `--output`."""

    json: bool = False
    csv: bool = False
    output: str | None = None

    def __post_init__(self) -> None:
        if self.json and self.csv:
            raise UsageError("--json and --csv: choose one")

    @property
    def format(self) -> Format:
        """The format on standard output."""
        return "csv" if self.csv else "json" if self.json or self.output == "-" else "table"

    @property
    def address(self) -> str | None:
        """The destination besides standard output."""
        return None if self.output == "-" else self.output


def open_destination(address: str, run: RunKind) -> Destination:
    """Open the destination that an address names."""
    with_scheme = [kind for kind in DESTINATIONS if kind.scheme]
    for kind in with_scheme:  # before the others, since almost anything can be a path
        if kind.recognises(address, run):
            return kind(address, run)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", address):
        known = ", ".join(sorted(f"{kind.scheme}:" for kind in with_scheme)) or "none yet; name a file"
        raise UsageError(f"--output {address}: unknown scheme; known schemes: {known}")
    for kind in DESTINATIONS:
        if kind.recognises(address, run):
            return kind(address, run)
    if run.endless and Path(address).suffix.lower() == ".parquet":
        way = "name a folder, which gets a file per window"
        raise UsageError(f"--output {address}: Parquet cannot be appended to; {way}")
    if run.endless:
        raise UsageError(f"--output {address}: the name must end in .jsonl or .csv, or be a folder (Parquet)")
    *most, last = files.ENDINGS
    raise UsageError(f"--output {address}: the name must end in {', '.join(most)} or {last}")


def open_destinations(
    options: OutputOptions,
    run: RunKind = RUN_THAT_ENDS,
    *,
    table: bool = True,
    say: Callable[[str], None] | None = None,
) -> Destinations:
    """Open everything that a user asked for.

    Without `table` standard output gets rows only in the formats for programs. With `say`, which gets warnings,
    standard output is written in the background and never blocks the run.
    """
    opened: list[Destination] = []
    wanted = table or options.format != "table"
    if wanted and isinstance(sys.stdout, ClosedOutput):
        if options.address is None:
            raise OutputError("standard output is closed; write results to a file with --output")
        wanted = False
    if options.address is not None:
        opened.append(open_destination(options.address, run))
    if wanted and say is None:
        stdout = StandardOutput(options.format, run)
        stdout.outlives_reader |= bool(opened)
        opened.append(stdout)
    elif wanted:
        assert say is not None
        stream = raw_stream(sys.stdout)
        opened.append(Queued(StandardOutput(options.format, run, stream=stream, say=say), say))
    return Destinations(opened)
