"""`superhosts calibrate`: the cube against the exact answer on the user's own traffic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from superhosts.cli.output import KeyFile, command_line, fail_with, parse_share, read_key, say, tell_packets

if TYPE_CHECKING:
    from superhosts.errors import SuperhostsError
    from superhosts.evaluation.calibration import Calibration, Trial


def calibrate(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...", help="Captures; - is standard input.")],
    inner: Annotated[
        list[str] | None,
        typer.Option(help="Monitored prefix, or @FILE of prefixes; repeatable. Without it every address is a host."),
    ] = None,
    threshold: Annotated[float, typer.Option("--threshold", "-t", help="Least number of distinct peers.")] = 1024,
    window: Annotated[str, typer.Option("--window", "-w", help="Length of a window: 90s, 5m, 1h, 30d, or all.")] = "5m",
    memory: Annotated[str, typer.Option("--memory", "-m", help="Memory to judge; others around it are tried.")] = (
        "128MiB"
    ),
    error: Annotated[str, typer.Option(help="Wrong answers to allow, as a share of the super hosts.")] = "1%",
    ipv6_prefix: Annotated[int, typer.Option(help="Bits of an IPv6 host.")] = 64,
    key_file: KeyFile = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot estimates against the truth (FILE.png and FILE.svg).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result as one line of JSON on standard output.")] = False,
) -> None:
    """Hold the cube against the exact answer on your own traffic, and say what memory it needs.

    The exact answer keeps every pair of a window: for very long captures take a piece of them.

    Examples: superhosts calibrate trace.pcap --inner 10.0.0.0/8 --figure estimates.png ·
    superhosts calibrate trace.pcap --threshold 300 --memory 64MiB
    """
    from superhosts.evaluation.calibration import calibrate as run
    from superhosts.evaluation.calibration import cubes_around
    from superhosts.evaluation.experiment import PanelSettings
    from superhosts.pipeline import open_inputs
    from superhosts.units import parse_size

    if figure is not None:
        from superhosts.evaluation.figures import draw_estimates, prepare

        prepare(figure.parent)
    errors: list[SuperhostsError] = []

    def on_error(problem: SuperhostsError) -> None:
        errors.append(problem)
        say(f"superhosts: {problem}")

    size, key = parse_size(memory), read_key(key_file)
    settings = PanelSettings(
        inner=inner or [],
        threshold=threshold,
        window=window,
        memory=size,
        ipv6_prefix=ipv6_prefix,
        key=key,
        device=device,
        makers=cubes_around(size, key=key, device=device),
        families=(4, 6),
    )
    others = [least for least in (threshold / 8, threshold / 4, threshold / 2) if least >= 16]
    sources = open_inputs(inputs, on_error)
    hooks = {"on_error": on_error, "on_progress": tell_packets()}
    result = run(sources, settings, error=parse_share("error", error), thresholds=others, **hooks)
    if not result.windows:
        say("superhosts: nothing to judge: no packet has a monitored end")
        fail_with(errors)
        return
    if json:
        import json as json_module

        print(json_module.dumps(_facts(result)))
    else:
        _print(result)
    if figure is not None:
        for path in draw_estimates(result.asked.all_estimates(), figure, command_line(sys.argv), threshold):
            say(str(path))
    fail_with(errors)


def _trial_facts(trial: Trial, threshold: float) -> dict[str, Any]:
    score, estimates, fill = trial.scores[threshold], trial.all_estimates(), trial.fill
    assert fill is not None
    assert trial.expected is not None
    return {
        "memory": trial.memory,
        "missed": score.missed,
        "false": score.false,
        "fnr": score.fnr,
        "fpr": score.fpr,
        "expected_ftr": trial.expected.total,
        "error": estimates.mean_error,
        "coverage": estimates.coverage,
        "saturated_hosts": int(estimates.saturated.sum()),
        "fill": fill.mean,
        "fullest_column": fill.fullest,
        "ftr_by_threshold": {f"{least:g}": score.ftr for least, score in sorted(trial.scores.items())},
    }


def _facts(result: Calibration) -> dict[str, Any]:
    return {
        "threshold": result.threshold,
        "windows": result.windows,
        "most_flows": result.most_flows,
        "super_hosts": result.asked.scores[result.threshold].true,
        "trials": [_trial_facts(trial, result.threshold) for trial in result.trials],
        "advice": result.advice(),
    }


def _print(result: Calibration) -> None:
    from rich.table import Table

    from superhosts.reports.terminal import OutputConsole
    from superhosts.units import format_size

    true = result.asked.scores[result.threshold].true
    windows = "1 window" if result.windows == 1 else f"{result.windows} windows"
    title = f"{windows}, {true:,} super hosts of {result.threshold:,g} peers, up to {result.most_flows:,} flows"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    names = ("memory", "missed", "false", "FTR %", "predicted", "error %", "held %", "saturated", "fill %")
    for name in names:
        table.add_column(name, justify="right")
    for trial in result.trials:
        facts = _trial_facts(trial, result.threshold)
        table.add_row(
            format_size(trial.memory) + (" *" if trial.memory == result.memory else ""),
            f"{facts['missed']:,}",
            f"{facts['false']:,}",
            f"{100 * (facts['fnr'] + facts['fpr']):.2f}",
            f"{100 * facts['expected_ftr']:.2f}",
            f"{100 * facts['error']:.2f}",
            f"{100 * facts['coverage']:.1f}",
            f"{facts['saturated_hosts']:,}",
            f"{100 * facts['fill']:.1f}",
        )
    console = OutputConsole()
    console.print(table)
    note = "FTR: missed and false, of the super hosts · error: of the estimates, mean · held: the truth in the interval"
    console.print(note, style="dim", highlight=False)
    console.print(result.advice(), highlight=False)
