"""`superhosts hosts`: restore super hosts from saved sketches."""

from __future__ import annotations

from superhosts.cli._console import fail_with, say
from superhosts.cli._keys import given_key
from superhosts.cli._outputs import output_options
from superhosts.cli._progress import with_progress
from superhosts.cli._sketches import find_sketches, merge_named
from superhosts.cli.usage.hosts import Hosts
from superhosts.detectors.arguments import check_threshold
from superhosts.errors import HalfMergedError, InputError
from superhosts.reports.base import Report
from superhosts.reports.opening import open_destinations
from superhosts.reports.rows import make_rows
from superhosts.reports.titles import PARTIAL, Outcome, window_title
from superhosts.results import Selection
from superhosts.sketches.bundle import Sketch, load


def hosts(options: Hosts) -> None:
    """Write the super hosts of every sketch, or of their union."""
    selection = Selection.of(options.wanted.threshold, options.wanted.top)
    if selection.threshold is not None:
        check_threshold(selection.threshold, "--threshold")
    key, memory = given_key(options.sketches.key_file), options.sketches.memory_total
    errors: list[InputError] = []
    with open_destinations(output_options(options.results), with_part=True) as outputs:

        def report(sketch: Sketch) -> None:
            found = selection.find(sketch)
            rows = make_rows(sketch.window, found, partial=sketch.partial)
            note = f" ({PARTIAL})" if sketch.partial else ""
            outcome = Outcome(len(rows), least_listed=sketch.least_listed)
            title = window_title(sketch.window, selection, outcome) + note
            outputs.write(Report(rows=rows, window=sketch.window, title=title))

        whole, merged = Sketch(), 0
        for path in with_progress(find_sketches(options.sketches.files, errors, options.span)):
            try:
                if options.union:
                    merge_named(whole, path, key, memory)
                    merged += 1
                else:
                    report(load(path, key=key, max_memory=memory))
            except HalfMergedError:
                raise  # the union holds part of this file
            except InputError as error:
                errors.append(error)
                say(f"superhosts: {error}")
        if merged:
            report(whole)
    fail_with(errors)
