"""The schema of result rows, the same for every destination.

One row has the same columns in JSON Lines, CSV and Parquet. Rows are sorted by window, then by peers in descending
order. Marks that only some rows have ("partial": true, "revision": 2, "counts": "ports", "filter": "tcp port 443",
"sampling": 1000 of exports, "drops": 5 of live captures, "reason" and "evidence" where that was asked for) appear in
JSON Lines, and only in those rows: the columns of CSV and Parquet do not change. These have "pattern" behind the other
columns if the run keeps evidence, and the names of hosts if the run looks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from superhosts.core.results import COLUMNS as COLUMNS
from superhosts.core.results import plain_host
from superhosts.core.times import iso_time
from superhosts.output.names.annotator import NAME_COLUMNS

if TYPE_CHECKING:
    from superhosts.core.pairs import Window
    from superhosts.core.results import SuperHost
    from superhosts.sketch.evidence.patterns import Judge

Row = dict[str, Any]
# A hub adds the sites that saw the host, the sites that are missing in the window, and the report's revision.
HUB_COLUMNS = (*COLUMNS, "sites", "missing", "revision")
EVIDENCE_COLUMNS = ("pattern",)  # of all that evidence adds to a row, what fits into a column
ADDED_COLUMNS = (*EVIDENCE_COLUMNS, *NAME_COLUMNS)  # which rows have if they are asked for


def columns_with(evidence: bool) -> tuple[str, ...]:
    """Return the columns of rows, with what evidence adds if there is some."""
    return (*COLUMNS, *EVIDENCE_COLUMNS) if evidence else COLUMNS


def known_peers(row: Row) -> int:
    """Return the peers of a row, or the lower bound if the host is saturated: for sorting and comparing."""
    peers: int = row["peers_low"] if row["peers"] is None else row["peers"]
    return peers


def make_rows(
    window: Window | None,
    found: Iterable[SuperHost],
    *,
    partial: bool = False,
    revision: int = 1,
    drops: int | None = None,
    exports: Sequence[dict[str, Any]] = (),
    judge: Judge | None = None,
) -> list[Row]:
    """Return the rows of one window, marked if it was interrupted or is reported again.

    Rows of a live capture say how many packets it has lost in the window. If flow exports were read (`exports` has
    their status), rows have the highest sampling rate of the exporters, null if it is not known. Peers are those that
    were seen: a number of distinct peers cannot be multiplied by it. With a `judge`, rows have a pattern, its
    reason and the evidence.
    """
    start, end = (iso_time(window.start), iso_time(window.end)) if window and window.is_timed else (None, None)
    marks: Row = ({"partial": True} if partial else {}) | ({"revision": revision} if revision > 1 else {})
    marks |= {} if drops is None else {"drops": drops}
    if exports:
        marks["sampling"] = max((each["sampling"] or 0 for each in exports), default=0) or None
    return [
        dict(
            zip(
                COLUMNS,
                (start, end, plain_host(item.host), *item.part.columns, *item[1:6], item.detector),
                strict=True,
            )
        )
        | item.part.marks
        | marks
        | ({} if judge is None else judge.fields(item.host, item.part))
        for item in found
    ]
