"""What a caller says about tables: their format, which column is what, and which time of a record counts."""

from __future__ import annotations

from dataclasses import dataclass

from superhosts.core.text import setting
from superhosts.errors import UsageError
from superhosts.sources.tables.knownlogs import LOGS
from superhosts.sources.tables.mapping import Mapping

WHICH_TIME = ("record", "start", "end", "export", "received")  # the last two are times of flow exports only
# The names of all formats, as --format takes them; their readers are slow to load.
FORMAT_NAMES = ("parquet", "arrow", "azure", *(log.name for log in LOGS), "jsonl", "csv", "tsv")
EXPORT_FORMATS = ("netflow", "ipfix", "sflow")  # of captures, too: the flows that the packets report, not the packets


@dataclass(frozen=True)
class TableOptions:
    """How tables are read. Inputs that are not tables do not care."""

    format: str | None = None  # a name of tables/formats.py; None: by content
    map: Mapping | None = None  # None: by the usual names
    time: str = "record"  # which time of a record counts, one of WHICH_TIME
    threads: int | None = None  # that may read a table; None: one for each CPU
    details: bool = False  # a run wants protocols, ports and flags, too (`sources.base.Wants`)

    def __post_init__(self) -> None:
        if self.time not in WHICH_TIME:
            raise UsageError(f"{setting('time', self.time)}: must be one of {', '.join(WHICH_TIME)}")

    @property
    def row_time(self) -> str:
        """Which time of a row of a table counts, "start" or "end"."""
        return "end" if self.time == "end" else "start"


DEFAULT = TableOptions()
