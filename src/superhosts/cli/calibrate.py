"""`superhosts calibrate`: the cube against the exact answer on the user's own traffic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from superhosts.cli._options import Inputs
from superhosts.cli._outputs import KeyFile, command_line, fail_with, parse_share, read_key, say, tell_packets
from superhosts.cli.scan import summarise

if TYPE_CHECKING:
    from superhosts.errors import SuperhostsError
    from superhosts.evaluation.calibration import Calibration, Trial
    from superhosts.pairs import Window


def calibrate(
    inputs: Inputs,
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
    from superhosts.evaluation.calibration import calibrate as judge
    from superhosts.evaluation.calibration import cubes_around
    from superhosts.evaluation.experiment import why_nothing
    from superhosts.evaluation.panel import panel_maker
    from superhosts.pipeline.scan import RunOptions, Scan
    from superhosts.pipeline.settings import Settings
    from superhosts.sources.opening import open_inputs
    from superhosts.units import parse_size

    if figure is not None:
        from superhosts.evaluation.figures import prepare_file

        prepare_file(figure)
    errors: list[SuperhostsError] = []

    def on_error(problem: SuperhostsError) -> None:
        errors.append(problem)
        say(f"superhosts: {problem}")

    size, key = parse_size(memory), read_key(key_file)
    settings = Settings(
        inner=inner or [],
        threshold=threshold,
        window=window,
        memory=size,
        ipv6_prefix=ipv6_prefix,
        key=key,
        device=device,
    )
    share = parse_share("error", error)
    others = [least for least in (threshold / 8, threshold / 4, threshold / 2) if least >= 16]
    run = Scan(
        open_inputs(inputs, on_error),
        settings,
        RunOptions(find=False),
        make_detector=panel_maker(cubes_around(size, key=key, device=device), settings),
        on_error=on_error,
        on_progress=tell_packets(),
    )
    result = judge(run, error=share, thresholds=others, on_window=_tell)
    summarise(run.counters)
    if not result.windows:
        say(f"superhosts: nothing to judge: {why_nothing(run.counters)}")
        fail_with(errors)
        return
    if json:
        import json as json_module

        print(json_module.dumps(_facts(result)))
    else:
        _print(result)
    if figure is not None:
        _draw(result, figure)
    fail_with(errors)


def _tell(window: Window, hosts: int) -> None:
    """Tell a person what is going on: the cubes are asked for many hosts, which may take a while."""
    from superhosts.times import iso_time

    if sys.stderr.isatty():
        say(f"window {iso_time(window.start)}: {hosts:,} hosts …")


def _draw(result: Calibration, figure: Path) -> None:
    from superhosts.evaluation.figures import draw_estimates

    estimates = result.asked.all_estimates()
    if not len(estimates.true):
        say(f"superhosts: no host has {result.threshold:,g} peers, so there is nothing to draw: {figure} is not made")
        return
    for path in draw_estimates(estimates, figure, command_line(sys.argv), result.threshold):
        say(str(path))


def _trial_facts(trial: Trial, threshold: float) -> dict[str, Any]:
    from superhosts.evaluation.scores import known

    score, estimates, fill = trial.scores[threshold], trial.all_estimates(), trial.fill
    assert fill is not None
    expected = trial.expected.get(threshold)
    return {
        "memory": trial.memory,
        "missed": score.missed,
        "false": score.false,
        "fnr": known(score.fnr),
        "fpr": known(score.fpr),
        "ftr": known(score.ftr),
        "expected_ftr": None if expected is None else expected.total,
        "error": known(estimates.mean_error),
        "coverage": known(estimates.coverage),
        "saturated_hosts": int(estimates.saturated.sum()),
        "fill": fill.mean,
        "fullest_column": fill.fullest,
        "ftr_by_threshold": {f"{least:g}": known(score.ftr) for least, score in sorted(trial.scores.items())},
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

    from superhosts.evaluation.scores import percent
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
            percent(facts["ftr"]),
            percent(facts["expected_ftr"]),
            percent(facts["error"]),
            percent(facts["coverage"], 1),
            f"{facts['saturated_hosts']:,}",
            f"{100 * facts['fill']:.1f}",
        )
    console = OutputConsole()
    console.print(table)
    note = (
        "FTR: missed and false, of the super hosts · predicted: the FTR of such a cube, for the hosts of the fullest\n"
        "window with super hosts · error: of the estimates, mean · held: the truth in the interval"
    )
    console.print(note, style="dim", highlight=False)
    console.print(result.advice(), highlight=False)
