"""`superhosts explain`: what a sketch knows of one host."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from superhosts.cli.output import CsvFlag, Json, KeyFile, Output, read_key

if TYPE_CHECKING:
    from superhosts.detectors.base import Detector


def explain(
    file: Annotated[Path, typer.Argument(metavar="FILE.cube", help="A saved sketch.")],
    host: Annotated[str, typer.Argument(metavar="HOST", help="An address, or a prefix where hosts are prefixes.")],
    key_file: KeyFile = None,
    json: Json = False,
    csv: CsvFlag = False,
    output: Output = None,
) -> None:
    """Explain one host: its number of peers with the interval, its columns and how full they are.

    Example: superhosts explain 20261114T120000Z-5m-local.cube 10.1.2.3
    """
    from superhosts.cli.output import Outputs
    from superhosts.detectors.sketch import load
    from superhosts.errors import UsageError
    from superhosts.reports.base import make_rows

    if json and csv:
        raise UsageError("--json and --csv: choose one")
    sketch = load(file, key=read_key(key_file))
    found = sketch.estimate(host)
    if not found:
        families = sorted({part.family for part in sketch.parts})
        raise UsageError(
            f"{host}: {file} holds no hosts of that family (it has IPv{' and IPv'.join(map(str, families)) or ' none'})"
        )
    rows = make_rows(sketch.window, found)
    if json:
        for item, row in zip(found, rows, strict=True):
            print(json_module.dumps({**row, "columns": _columns(sketch.parts[item.part], host)}))
        if output is not None:
            with Outputs(json=True, csv=False, output=output) as outputs:
                outputs.write_file(rows)
        return
    with Outputs(json=False, csv=csv, output=output, with_part=True) as outputs:
        outputs.write(f"{host} in {file}", rows)
    if not csv:
        for item in found:
            _print_columns(sketch.parts[item.part], host)


def _columns(detector: Detector, host: str) -> list[dict[str, Any]]:
    """Return the columns of a host: how full each is, and the mean of its array."""
    from superhosts.detectors.columnsketch import ColumnSketch

    return detector.columns_of(host) if isinstance(detector, ColumnSketch) else []


def _print_columns(detector: Detector, host: str) -> None:
    from rich.table import Table

    from superhosts.reports.terminal import OutputConsole

    columns = _columns(detector, host)
    if not columns:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("column", "fill", "mean fill of its array"):
        table.add_column(title, justify="left" if title == "column" else "right")
    for column in columns:
        mean = "" if column["mean_fill"] is None else f"{column['mean_fill']:.1%}"
        table.add_row(str(column["array"]), f"{column['fill']:.1%}", mean)
    OutputConsole().print(table)
