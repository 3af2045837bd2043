"""`superhosts plan`: the best geometry for expected traffic, and its predicted error."""

from __future__ import annotations

import json
from typing import Any

from rich.table import Table

from superhosts import defaults
from superhosts.cli._values import parse_share
from superhosts.cli.usage.plan import Plan
from superhosts.detectors.arguments import check_threshold
from superhosts.detectors.cube.geometry import Geometry
from superhosts.errors import GeometryError, UsageError
from superhosts.pairs import check_width
from superhosts.planning import Prediction, Sizes, best_sizes, check_suffices, least_memory, predict
from superhosts.reports.terminal import OutputConsole
from superhosts.text import counted
from superhosts.units import format_size, parse_count, parse_size

Planned = tuple[Sizes, Prediction]
USUAL = {"giant columns of an array": "none", "pairs that are written": "all"}  # not shown if all plans have them


def plan(options: Plan) -> None:
    """Print the plan, and those for half and for twice the memory."""
    pairs, key_bits = parse_count(options.flows), options.key_bits
    check_width(key_bits, "--key-bits ")
    least = round(check_threshold(options.threshold, "--threshold"))
    wanted = None if options.error is None else parse_share(options.error)
    size = parse_size(defaults.MEMORY if options.memory is None else options.memory)
    if wanted is not None:
        enough = least_memory(wanted, pairs, least, key_bits)
        size = enough if options.memory is None else size
    chosen = _planned(size, pairs, least, key_bits)
    check_suffices(chosen[0], pairs, least, size if options.memory is None else options.memory)
    if wanted is not None and chosen[1].total > wanted:
        raise UsageError(
            f"--memory {options.memory}: a total false rate of {chosen[1].total:.2%} is expected, "
            f"not {options.error}; {format_size(enough)} would achieve it"
        )
    others = []
    for other in (size // 2, size * 2):
        try:
            others.append(_planned(other, pairs, least, key_bits))
        except GeometryError:  # half of it is too little for any cube
            continue
    if options.json:
        plain = {"total_by_memory_alone": _unplanned(size, chosen)}
        print(json.dumps({**_facts(chosen), **plain, "alternatives": [_facts(each) for each in others]}))
    else:
        _print(size, chosen, others)


def _planned(memory: int, flows: int, threshold: float, key_bits: int) -> Planned:
    """Return the best sizes for a memory and what to expect of them."""
    sizes = best_sizes(memory, flows, threshold, key_bits)
    return sizes, predict(sizes, flows, threshold)


def _spelled(sizes: Sizes) -> str:
    return Geometry(*sizes).spelled


def _unplanned(memory: int, chosen: Planned) -> float | None:
    """Return the total false rate of the geometry that --memory alone gives; None if it is too little for that one."""
    sizes, expected = chosen
    try:
        plain = Geometry.for_memory(memory, sizes.key_bits)
    except GeometryError:
        return None
    return predict(Sizes(*plain), expected.flows, expected.threshold).total


def _facts(planned: Planned) -> dict[str, Any]:
    """Return a plan as plain numbers by name; rates are shares of the true super hosts."""
    sizes, expected = planned
    return {
        "flows": expected.flows,
        "threshold": expected.threshold,
        "memory": expected.memory,
        "geometry": sizes._asdict(),
        "geometry_option": _spelled(sizes),
        "super_hosts": round(expected.super_hosts, 1),
        "standard_error": expected.standard_error,
        "fnr": expected.fnr,
        "fpr": expected.fpr,
        "total": expected.total,
        "unnamed": expected.missed_unnamed,
        "phantoms": 0,
        "saturation": expected.saturation,
        "exact_pairs": Geometry(*sizes).exact_pairs,
        "fill": expected.fill,
        "hot_columns": round(expected.hot_columns),
        "candidates": round(expected.candidates),
        "restore_seconds": expected.restore_seconds,
        "wire_bytes": round(_file_bytes(sizes, expected)),
    }


def _print(memory: int, chosen: Planned, others: list[Planned]) -> None:

    sizes, expected = chosen
    plans = sorted([chosen, *others], key=lambda planned: planned[1].memory)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("memory")
    for each in plans:
        mark = " (this plan)" if each is chosen and others else ""
        table.add_column(format_size(each[1].memory) + mark, justify="right", no_wrap=True)
    cells = [_cells(each) for each in plans]
    for name in cells[0]:
        numbers = [column[name] for column in cells]
        if any(number != USUAL.get(name) for number in numbers):
            table.add_row(name, *numbers)
    console = OutputConsole()
    console.print(
        f"{counted(expected.flows, 'flow')}, threshold {expected.threshold:,g}, keys of {sizes.key_bits} bits: "
        f"about {counted(round(expected.super_hosts), 'super host')}",
        highlight=False,
    )
    console.print()
    console.print(table, highlight=False)
    console.print()
    keys = "" if sizes.key_bits == 32 else f", key_bits={sizes.key_bits}"
    wish = f"flows={expected.flows}, threshold={expected.threshold:g}{keys}"
    size = format_size(memory).replace(" ", "")
    exact = f'"{size}"' if parse_size(size) == memory else str(memory)
    console.print(f"Python: sh.Cube({exact}, {wish})", highlight=False)
    console.print(f"scan, edge, hub, batch: --geometry {_spelled(sizes)}", highlight=False, soft_wrap=True)
    plain = _unplanned(memory, chosen)
    if plain is not None and plain > 1.1 * expected.total:
        console.print(f"(--memory alone takes sizes that suit most traffic: total false rate here {_rate(plain)})")


def _cells(planned: Planned) -> dict[str, str]:
    """Return the cells of a plan's column in the table, by the names of the rows."""
    sizes, expected = planned
    return {
        "slices": f"{1 << sizes.slice_bits:,}",
        "arrays": str(sizes.arrays),
        "columns of an array": f"{sizes.columns:,}",
        "rows of a column": f"{1 << sizes.column_bits:,}",
        "labels of a column": str(1 << sizes.label_bits),
        "pairs that compete for a label": f"1 in {1 << sizes.share_bits}",
        "giant columns of an array": f"{sizes.giants:,}" if sizes.giants else "none",
        "pairs that are written": f"1 in {1 << sizes.sample_bits}" if sizes.sample_bits else "all",
        "standard error at threshold": _rate(expected.standard_error),
        "missed (FNR)": _rate(expected.fnr),
        "  of these unnamed": _rate(expected.missed_unnamed),
        "false (FPR)": _rate(expected.fpr),
        "total false rate": _rate(expected.total),
        "phantoms (hosts never seen)": "none",
        "saturated beyond": f"{expected.saturation:,} peers",
        "counted exactly up to": f"{Geometry(*sizes).exact_pairs:,} pairs",
        "mean fill": f"{expected.fill:.1%}",
        "hot columns": f"{expected.hot_columns:,.0f}",
        "candidates to check": f"{expected.candidates:,.0f}",
        "restore, one core, roughly": f"{float(f'{1e3 * expected.restore_seconds:.1g}'):,g} ms",
        "file, about": format_size(_file_bytes(sizes, expected)),
    }


def _file_bytes(sizes: Sizes, expected: Prediction) -> float:
    """Return the bytes of the window's file, which lists rows of hosts if the window is counted exactly."""
    is_exact = expected.flows <= Geometry(*sizes).exact_pairs
    return min(expected.rows_bytes, expected.wire_bytes) if is_exact else expected.wire_bytes


def _rate(share: float) -> str:
    """Format a rate in per cent; a number over 1000 % would mean nothing."""
    return f"{share:.2%}" if share < 10 else "over 1000%"
