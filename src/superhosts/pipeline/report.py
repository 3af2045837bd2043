"""From the result of a window to its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from superhosts.core.text import counted
from superhosts.output.report import PARTIAL, Outcome, Report, is_incomplete, make_rows, which_hosts
from superhosts.pipeline.builder import WindowResult
from superhosts.pipeline.settings import Settings
from superhosts.sketch.evidence.patterns import judge_of


def report_of(result: WindowResult, settings: Settings, exports: Sequence[dict[str, Any]] = ()) -> Report:
    """Return the report of a window, with what people should know about it; `exports`: the status of flow exports."""
    selection, found = settings.selection, result.found
    least = result.sketch.least_listed
    outcome = Outcome(len(found), selection.reached(found), result.largest, least, result.left_out, settings.count)
    notes = {
        PARTIAL: result.partial,
        f"revision {result.revision}": result.revision > 1,
        counted(result.drops or 0, "packet dropped", "packets dropped"): bool(result.drops),
    }
    return Report(
        rows=make_rows(
            result.window,
            result.found,
            partial=result.partial,
            revision=result.revision,
            drops=result.drops,
            exports=exports,
            judge=judge_of(result.sketch.evidence),
        ),
        window=result.window,
        revision=result.revision,
        title=which_hosts(selection, outcome),
        threshold=selection.threshold,
        is_incomplete=is_incomplete(selection, outcome),
        notes=[note for note, holds in notes.items() if holds],
    )
