"""What a saved sketch, or a union of several, says about its hosts: the report of one question."""

from __future__ import annotations

from superhosts.core.pairs import Window
from superhosts.core.results import Searchable, Selection, SuperHosts
from superhosts.core.text import counted
from superhosts.output.base import Report
from superhosts.output.rows import make_rows
from superhosts.output.titles import PARTIAL, Outcome, is_incomplete, which_hosts
from superhosts.sketch.evidence.patterns import judge_of
from superhosts.sketch.sketch import Sketch


def answer(
    sketch: Sketch, selection: Selection, window: Window | None = None, searched: Searchable | None = None
) -> Report:
    """Return the hosts of a sketch that are asked for. `searched`: the sketch, with some of its hosts alone."""
    asked, window = sketch if searched is None else searched, window or sketch.window
    found, left_out = selection.search(asked)
    largest = None if found else next(iter(asked.top(1)), None)
    counts = next((part.counts for part in sketch.parts), "hosts")
    outcome = Outcome(len(found), selection.reached(found), largest, sketch.least_listed, left_out, counts)
    return Report(
        rows=make_rows(window, found, partial=sketch.partial, judge=judge_of(sketch.evidence)),
        window=window,
        title=which_hosts(selection, outcome),
        threshold=selection.threshold,
        is_incomplete=is_incomplete(selection, outcome),
        notes=([PARTIAL] if sketch.partial else []) + _unnamed(found),
    )


def _unnamed(found: SuperHosts) -> list[str]:
    """Say how many hosts are shown as hashes, if some are."""
    count = found.unnamed
    shown = counted(count, "host is", "hosts are")
    return [f"{shown} shown as # and a hash: the sketch has not kept the name"] if count else []
