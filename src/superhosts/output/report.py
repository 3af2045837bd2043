"""The report of one window: its rows, and a title that says in words which hosts they are.

JSON Lines, CSV and Parquet have the same columns. Marks that only some rows have (`RowMarks` in schema.py) appear in
JSON Lines, and only in those rows; of them CSV and Parquet have "pattern" if the run keeps evidence, and the names of
hosts if the run looks for them (docs/reference/rows.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from superhosts.core.results import COLUMNS as COLUMNS
from superhosts.core.results import plain_host
from superhosts.core.text import counted, printable
from superhosts.core.times import iso_time, window_span

if TYPE_CHECKING:
    from superhosts.core.pairs import Window
    from superhosts.core.results import Searchable, Selection, SuperHost, SuperHosts
    from superhosts.sketch.evidence.patterns import Judge
    from superhosts.sketch.sketch import Sketch

Row = dict[str, Any]
# A hub adds the sites that saw the host, the sites that are missing in the window, and the report's revision.
HUB_COLUMNS = (*COLUMNS, "sites", "missing", "revision")
GROUP_COLUMNS = ("group",)
EVIDENCE_COLUMNS = ("pattern",)  # of all that evidence adds to a row, what fits into a column
GEO_COLUMNS = ("asn", "as_name", "country")
NAME_COLUMNS = ("label", "name", *GEO_COLUMNS)  # who a host is, where that is known (names.py)
ADDED_COLUMNS = (*GROUP_COLUMNS, *EVIDENCE_COLUMNS, *NAME_COLUMNS)  # which rows have if they are asked for
PARTIAL = "partial: interrupted"  # a note about a window that was interrupted


@dataclass(frozen=True, kw_only=True)
class Report:
    """The rows of one window. Window and revision identify a report: one that is handed in again has the same."""

    rows: Sequence[Row]
    window: Window | None = None
    revision: int = 1  # 2 and more: the window is reported again, with these rows instead of the earlier ones
    title: str = ""  # which hosts the rows are, for people: "5 of 92 hosts with at least 500 peers"
    threshold: float | None = None  # peers of a super host; rows with fewer are the largest others. None: not asked for
    is_incomplete: bool = False  # hosts are left out, or could not be listed, and the title says so
    notes: Sequence[str] = ()  # what else people should know: "partial: interrupted"

    @property
    def warnings(self) -> Sequence[str]:
        """The notes that no other field has: of a window that was reported again, `revision` tells."""
        return [note for note in self.notes if note != f"revision {self.revision}"]

    @property
    def heading(self) -> str:
        """The window, the title and the notes, in one line for people. Alerts have no window."""
        span = "" if self.window is None else f"{window_span(self.window)}: "
        return f"{span}{self.title}" + "".join(f" ({note})" for note in self.notes)


class LazyRows(Sequence[Row]):
    """Rows that are made one by one when they are read: those of a hub are many."""

    def __init__(self, count: int, make: Callable[[int], Row]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(self._count))]
        return self._make(range(self._count)[number])


def columns_with(evidence: bool, group: str | None = None) -> tuple[str, ...]:
    return (*COLUMNS, *(GROUP_COLUMNS if group else ()), *(EVIDENCE_COLUMNS if evidence else ()))


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
        marks["sampling"] = max(each["sampling"] or 0 for each in exports) or None
    rows = []
    for item in found:
        values = start, end, plain_host(item.host), *item.part.columns, *item[1:6], item.detector
        evidence = {} if judge is None else judge.fields(item.host, item.part)
        rows.append(dict(zip(COLUMNS, values, strict=True)) | item.part.marks | marks | evidence)
    return rows


def make_report(
    window: Window | None,
    found: SuperHosts,
    words: Mapping[str, Any],
    sketch: Sketch,
    *,
    partial: bool = False,
    notes: Iterable[str] = (),
    **marks: Any,
) -> Report:
    """Return the report of a window: `words` are those of `search`, `marks` what else `make_rows` takes."""
    rows = make_rows(window, found, partial=partial, judge=sketch.judge(), **marks)
    revision = marks.get("revision", 1)
    every = [PARTIAL] * partial + [f"revision {revision}"] * (revision > 1) + [*notes]
    return Report(rows=rows, window=window, revision=revision, notes=every, **words)


def search(
    sketch: Sketch, selection: Selection, counts: str, searched: Searchable | None = None
) -> tuple[SuperHosts, dict[str, Any]]:
    """Return the hosts of a sketch that are asked for, and the fields of a report that tell which hosts they are.

    `searched`: the sketch, with some of its hosts alone.
    """
    asked = sketch if searched is None else searched
    found, left_out = selection.search(asked)
    largest = None if len(found) else next(iter(asked.top(1)), None)
    return found, words_of(
        selection,
        len(found),
        reached=selection.reached(found),
        largest=largest,
        least_listed=sketch.least_listed,
        left_out=left_out,
        counts=counts,
    )


def counted_peers(count: float, counts: str) -> str:
    """Return a number of peers with its noun; `counts` says what peers are (pairs.COUNTS)."""
    return counted(count, {"hosts": "peer", "ports": "port"}.get(counts, "host-port"))


def words_of(
    selection: Selection,
    count: int,
    *,
    reached: int | None = None,
    largest: SuperHost | None = None,
    least_listed: float = 1,
    left_out: int = 0,
    counts: str = "hosts",
) -> dict[str, Any]:
    """Return the fields of a report that tell which hosts its `count` rows are.

    `reached`: rows of hosts with as many peers as asked for; None: all. `largest`: the host with the most peers, if no
    host has enough of them. `least_listed`: peers below which hosts are not listed, however few were found.
    `left_out`: hosts with as many peers as asked for that are not among the rows. `counts`: what peers are.
    """
    threshold, hosts = selection.threshold, counted(count, "host")
    enough = "" if threshold is None else f"with at least {counted_peers(threshold, counts)}"
    if not count:
        least = least_listed if threshold is None or selection.either else threshold
        title = _none(counted_peers(least, counts) if largest is not None or least > 1 else "", largest)
    elif threshold is None:
        title = f"top {hosts}"
    elif reached is not None and reached < count:
        title = f"top {hosts}, {f'{reached:,}' if reached else 'none'} {enough}"
    elif left_out:
        title = f"{count:,} of {counted(count + left_out, 'host')} {enough}"
    else:
        title = f"{hosts} {enough}"
    asked_less_deep = threshold is not None and not selection.either and threshold >= least_listed
    ends_early = least_listed > 1 and selection.top is not None and count < selection.top and not asked_less_deep
    if ends_early:
        title += (
            f"; hosts with fewer than {counted_peers(least_listed, counts)} cannot be listed: the window is estimated"
        )
    return {"title": title, "threshold": threshold, "is_incomplete": left_out > 0 or ends_early}


def _none(least: str, largest: SuperHost | None) -> str:
    """Return the title of a report without hosts; `least`: the peers that are asked for, if they are more than one."""
    if largest is None:
        return f"none with {least} or more" if least else "no hosts"
    about = "" if largest.exact else "about "
    return f"none with {least} or more; largest: {printable(largest.host)} with {about}{largest.known_peers:,}"
