"""The result row that every destination takes.

One row has the same columns in JSON Lines, CSV and Parquet; rows are sorted by window, then by peers, most first.
Marks that few rows have ("partial": true, "revision": 2) appear in JSON Lines, and only in those rows: the columns of
CSV and Parquet do not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from superhosts.pairs import Window
from superhosts.sketches.bundle import Found
from superhosts.units import format_duration

Row = dict[str, Any]
COLUMNS = (
    "window_start",
    "window_end",
    "host",
    "family",
    "side",
    "direction",
    "peers",
    "peers_low",
    "peers_high",
    "saturated",
    "detector",
)

HUB_COLUMNS = (*COLUMNS, "sites", "missing", "revision")  # who saw the host, who was not in, which report of the window


def iso_time(nanoseconds: int) -> str:
    """Write a time as ISO 8601, UTC, with a fraction only where there is one."""
    seconds, fraction = divmod(nanoseconds, 10**9)
    try:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a stray time that no calendar holds
        return f"{nanoseconds / 1e9:.3f}"
    return f"{text}.{fraction:09d}".rstrip("0") + "Z" if fraction else text + "Z"


def compact_time(nanoseconds: int) -> str:
    """Write a time as it stands in names of files: 20261114T120000Z."""
    return iso_time(nanoseconds).replace("-", "").replace(":", "")


def window_name(window: Window) -> str:
    """Write a window as it stands in names of files: START-LENGTH."""
    return f"{compact_time(window.start)}-{format_duration(window.end - window.start)}"


def make_rows(window: Window | None, found: Iterable[Found], *, partial: bool = False, revision: int = 1) -> list[Row]:
    """Return the rows of one window, marked if it was interrupted, or if it was reported before."""
    start, end = (iso_time(window.start), iso_time(window.end)) if window else (None, None)
    marks: Row = ({"partial": True} if partial else {}) | ({"revision": revision} if revision > 1 else {})
    return [
        dict(
            zip(
                COLUMNS,
                (start, end, str(item.row.host), *item.part, *item.row[1:], item.detector),
                strict=True,
            )
        )
        | marks
        for item in found
    ]
