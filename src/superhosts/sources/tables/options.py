"""What a caller says about tables: their format, which column is what, and which time of a record counts."""

from __future__ import annotations

from dataclasses import dataclass

from superhosts.errors import UsageError
from superhosts.sources.tables.mapping import Mapping
from superhosts.text import setting

WHICH_TIME = ("start", "end")
# The names of all formats, as --format takes them, written out because the formats are slow to load.
FORMAT_NAMES = (
    *("parquet", "arrow", "azure", "zeek", "eve", "goflow2", "pmacct", "nfdump", "silk", "argus", "aws", "gcp"),
    *("ntopng", "rita", "jsonl", "csv", "tsv"),
)


@dataclass(frozen=True)
class TableOptions:
    """How tables are read. Inputs that are no tables do not care."""

    format: str | None = None  # a name of tables/formats.py; None: by content
    map: Mapping | None = None  # None: by the usual names
    time: str = "start"  # which time of a record counts, one of WHICH_TIME
    threads: int | None = None  # that may read a table; None: one for each CPU
    details: bool = False  # a run wants protocols, ports and flags, too (`sources.base.Wants`)

    def __post_init__(self) -> None:
        if self.time not in WHICH_TIME:
            raise UsageError(f"{setting('time', self.time)}: must be {' or '.join(WHICH_TIME)}")


DEFAULT = TableOptions()
