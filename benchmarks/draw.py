"""Draw the figures of a comparison again from its rows: `python benchmarks/draw.py ROWS.csv FOLDER`.

    python benchmarks/draw.py benchmarks/results/compare-x86_64.csv docs/figures --flows 5M

Rows come from `superhosts compare -o ROWS.csv`. They do not have the estimates of single hosts, so the figures of
estimates and coverage are drawn by `superhosts compare --figures` only. Rows of before 2026-11-18 do not say how many
flows a window has: --flows does.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import fields
from pathlib import Path
from typing import Any

from superhosts.core.units import parse_count
from superhosts.lab.experiment import Row
from superhosts.lab.figures import Facts, draw_comparison
from superhosts.lab.sheet import prepare_folder

TEXTS = ("window", "detector")
REALS = ("fnr", "fpr", "ftr", "error", "coverage", "update_rate", "restore_ms")


def read_rows(path: Path, flows: int) -> list[Row]:
    """Return the rows of a file; `flows` is for those that do not say it."""
    with path.open(newline="") as stream:
        return [_row({"flows": str(flows), "memory_given": "", **each}) for each in csv.DictReader(stream)]


def _row(texts: dict[str, str]) -> Row:
    values: dict[str, Any] = {}
    for column in fields(Row):
        text = texts[column.name]
        is_number = column.name not in TEXTS
        values[column.name] = None if is_number and not text else text
        if is_number and text:
            values[column.name] = float(text) if column.name in REALS else int(text)
    return Row(**values)


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--flows", default="0", type=parse_count, help="of a window, where rows do not say it")
    parser.add_argument("--threshold", default=1024.0, type=float)
    parser.add_argument("--key", default="public key", help="the key in words")
    options = parser.parse_args()
    prepare_folder(options.folder)
    facts = Facts(options.threshold, options.key, f"from {options.rows.name}")
    for path in draw_comparison(read_rows(options.rows, options.flows), options.folder, facts):
        print(path)


if __name__ == "__main__":
    main()
