"""`superhosts plan`: the best geometry for expected traffic, and its predicted error."""

from __future__ import annotations

import json

from superhosts.cli.usage.lab import Plan as Options
from superhosts.core.text import counted
from superhosts.core.units import format_size, parse_size
from superhosts.lab.plan import Plan
from superhosts.lab.plan import plan as make_plan
from superhosts.output.table import OutputConsole, print_table

USUAL = {"giant columns of an array": "none", "pairs that are written": "all"}  # not shown if all plans have them


def plan(options: Options) -> None:
    chosen = make_plan(
        flows=options.flows,
        threshold=options.threshold,
        memory=options.memory,
        error=options.error,
        key_bits=options.key_bits,
    )
    if options.json:
        print(json.dumps(chosen.to_dict()))
    else:
        _print(chosen, planned=options.flows is not None)


def _print(chosen: Plan, *, planned: bool) -> None:
    sizes, expected, memory = chosen.geometry, chosen.expected, chosen.asked
    plans = sorted([chosen, *chosen.alternatives], key=lambda each: each.memory)
    marks = [" (this plan)" if each is chosen and chosen.alternatives else "" for each in plans]
    titles = ["memory", *(format_size(each.memory) + mark for each, mark in zip(plans, marks, strict=True))]
    cells = [_cells(each) for each in plans]
    rows = [(name, *(column[name] for column in cells)) for name in cells[0]]
    console = OutputConsole()
    console.print(
        f"{counted(expected.flows, 'flow')}, threshold {expected.threshold:,g}, keys of {sizes.key_bits} bits: "
        f"about {counted(round(expected.super_hosts), 'super host')}",
        highlight=False,
    )
    console.print()
    print_table(titles, [row for row in rows if {*row[1:]} != {USUAL.get(row[0])}], wraps=True)
    console.print()
    keys = "" if sizes.key_bits == 32 else f", key_bits={sizes.key_bits}"
    wish = f", flows={expected.flows}, threshold={expected.threshold:g}" if planned else ""
    size = format_size(memory).replace(" ", "")
    exact = f'"{size}"' if parse_size(size) == memory else str(memory)
    console.print(f"Python: sh.Cube({exact}{wish}{keys})", highlight=False)
    console.print(
        f'scan, edge, hub, in the file of --config: geometry = "{chosen.option}"', highlight=False, soft_wrap=True
    )
    plain = chosen.total_by_memory_alone
    if not planned:
        console.print("(--memory alone takes sizes that suit most traffic; give --flows to plan for yours)")
    elif plain is not None and plain > 1.1 * expected.total:
        console.print(f"(--memory alone takes sizes that suit most traffic: total false rate here {_rate(plain)})")


def _cells(planned: Plan) -> dict[str, str]:
    sizes, expected = planned.geometry, planned.expected
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
        "counted exactly up to": f"{planned.exact_pairs:,} pairs",
        "mean fill": f"{expected.fill:.1%}",
        "hot columns": f"{expected.hot_columns:,.0f}",
        "candidates to check": f"{expected.candidates:,.0f}",
        "restore, one core, roughly": f"{float(f'{1e3 * expected.restore_seconds:.1g}'):,g} ms",
        "file, about": format_size(planned.file_bytes),
    }


def _rate(share: float) -> str:
    """Format a rate in per cent; a number over 1000 % would mean nothing."""
    return f"{share:.2%}" if share < 10 else "over 1000%"
