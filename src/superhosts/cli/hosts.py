"""`superhosts hosts`: restore super hosts from saved sketches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from superhosts.cli.output import CsvFlag, Json, KeyFile, Output, Threshold, Top, fail_with, read_key, say

if TYPE_CHECKING:
    from superhosts.detectors.sketch import Sketch


def hosts(
    files: Annotated[list[Path], typer.Argument(metavar="FILE.cube...", help="Saved sketches.")],
    union: Annotated[
        bool, typer.Option("--union", help="Merge all files first: a longer window, or more sites.")
    ] = False,
    threshold: Threshold = None,
    top: Top = None,
    key_file: KeyFile = None,
    json: Json = False,
    csv: CsvFlag = False,
    output: Output = None,
) -> None:
    """Ask saved sketches again: another threshold, a longer window, more sites.

    Example: superhosts hosts sketches/*.cube --union --threshold 5000
    """
    from superhosts.cli.output import Outputs, window_title
    from superhosts.detectors.sketch import load
    from superhosts.errors import MergeError, SuperhostsError, UsageError
    from superhosts.reports.base import make_rows

    if top is not None and top < 1:
        raise UsageError(f"--top {top}: at least 1")
    least = threshold if threshold is not None or top is not None else 1024.0
    key = read_key(key_file)
    errors: list[SuperhostsError] = []
    with Outputs(json=json, csv=csv, output=output, with_part=True) as outputs:

        def report(sketch: Sketch) -> None:
            found = sketch.super_hosts(least) if least is not None else sketch.top(top or 1)
            rows = make_rows(sketch.window, found[:top])
            outputs.write(window_title(sketch.window, least, top, len(rows)), rows)

        whole: Sketch | None = None
        for path in files:
            try:
                sketch = load(path, key=key)
            except MergeError:
                raise
            except SuperhostsError as error:
                errors.append(error)
                say(f"superhosts: {error}")
                continue
            if not union:
                report(sketch)
            elif whole is None:
                whole = sketch
            else:
                merge_named(whole, sketch, path)
        if whole is not None:
            report(whole)
    fail_with(errors)


def merge_named(whole: Sketch, sketch: Sketch, path: Path) -> None:
    """Merge a file's sketch; a refusal names the file."""
    from superhosts.errors import MergeError

    try:
        whole.merge(sketch)
    except MergeError as error:
        raise MergeError(f"{path}: {error}") from None
