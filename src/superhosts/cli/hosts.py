"""`superhosts hosts`: restore super hosts from saved sketches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from superhosts.cli._outputs import (
    CsvFlag,
    Json,
    KeyFile,
    MemoryTotal,
    Output,
    Threshold,
    Top,
    fail_with,
    read_key,
    say,
)
from superhosts.cli._sketches import FILES, Since, Until, find_sketches, merge_named, told

if TYPE_CHECKING:
    from superhosts.sketches.bundle import Sketch


def hosts(
    files: Annotated[list[str], typer.Argument(metavar="FILE.cube...", help=FILES)],
    union: Annotated[
        bool, typer.Option("--union", help="Merge all files first: a longer window, or more sites.")
    ] = False,
    threshold: Threshold = None,
    top: Top = None,
    since: Since = None,
    until: Until = None,
    memory_total: MemoryTotal = None,
    key_file: KeyFile = None,
    json: Json = False,
    csv: CsvFlag = False,
    output: Output = None,
) -> None:
    """Ask saved sketches again: another threshold, a longer window, more sites.

    Example: superhosts hosts 'archive/**/*.cube' --union --threshold 5000
    """
    from superhosts.errors import HalfMergedError, InputError, UsageError
    from superhosts.reports.base import Report
    from superhosts.reports.opening import OutputOptions, open_destinations
    from superhosts.reports.rows import make_rows
    from superhosts.reports.titles import PARTIAL, window_title
    from superhosts.sketches.bundle import Sketch, load

    if top is not None and top < 1:
        raise UsageError(f"--top {top}: at least 1")
    least = threshold if threshold is not None or top is not None else 1024.0
    key = read_key(key_file)
    errors: list[InputError] = []
    with open_destinations(OutputOptions(json, csv, output), with_part=True) as outputs:

        def report(sketch: Sketch) -> None:
            found = sketch.super_hosts(least) if least is not None else sketch.top(top or 1)
            rows = make_rows(sketch.window, found[:top], partial=sketch.partial)
            note = f" ({PARTIAL})" if sketch.partial else ""
            title = window_title(sketch.window, least, top, len(rows)) + note
            outputs.write(Report(rows=rows, window=sketch.window, title=title))

        whole, merged = Sketch(), 0
        for path in told(find_sketches(files, errors, since=since, until=until)):
            try:
                if union:
                    merge_named(whole, path, key, memory_total)
                    merged += 1
                else:
                    report(load(path, key=key, max_memory=memory_total))
            except HalfMergedError:
                raise  # the union is spoilt
            except InputError as error:
                errors.append(error)
                say(f"superhosts: {error}")
        if merged:
            report(whole)
    fail_with(errors)
