"""Every format of tables, in the order in which they are tried. To add one, add a line here."""

from __future__ import annotations

from superhosts.core.text import setting
from superhosts.errors import UsageError
from superhosts.sources.tables.arrowfile import ARROW
from superhosts.sources.tables.azure import AZURE
from superhosts.sources.tables.base import TableFormat
from superhosts.sources.tables.logs import TEXT_FORMATS
from superhosts.sources.tables.parquet import PARQUET

FORMATS: list[TableFormat] = [PARQUET, ARROW, AZURE, *TEXT_FORMATS]


def table_format(name: str | None, head: bytes) -> TableFormat | None:
    """Return the format by its name (--format), or else the first that recognises the first bytes; None if none does.

    UsageError for a name that no format has.
    """
    if name is None:
        return next((format for format in FORMATS if format.recognises(head)), None)
    check_format(name)
    return next(format for format in FORMATS if format.name == name)


def check_format(name: str) -> None:
    """Raise UsageError for a name that no format has."""
    names = [format.name for format in FORMATS]
    if name not in names:
        raise UsageError(f"{setting('format', name)}: no such format; use {', '.join(names)}")
