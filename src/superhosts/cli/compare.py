"""`superhosts compare`: every detector side by side."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from superhosts.cli._options import INPUT_HELP
from superhosts.cli._outputs import CsvFlag, Json, Output, command_line, fail_with, say, tell_packets
from superhosts.cli.scan import summarise

if TYPE_CHECKING:
    from collections.abc import Callable

    from superhosts.errors import SuperhostsError
    from superhosts.evaluation.experiment import Row
    from superhosts.evaluation.panel import Make
    from superhosts.pipeline.scan import Scan
    from superhosts.synthetic.traffic import Traffic

WINDOWS, FLOWS, SUPER_HOSTS = 12, "5M", 600
QUICK_WINDOWS, QUICK_FLOWS, QUICK_SUPER_HOSTS = 2, "500K", 60


def compare(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[INPUT...]", help=f"{INPUT_HELP} Without any, the traffic of the paper's experiment."),
    ] = None,
    detector: Annotated[
        list[str] | None, typer.Option(help="Compare only this detector; repeatable.", show_default="all")
    ] = None,
    threshold: Annotated[float, typer.Option("--threshold", "-t", help="Least number of distinct peers.")] = 1024,
    windows: Annotated[
        int | None, typer.Option(help="Synthetic windows of five minutes.", show_default=str(WINDOWS))
    ] = None,
    flows: Annotated[
        str | None, typer.Option(help="Distinct pairs in each synthetic window.", show_default=FLOWS)
    ] = None,
    packets: Annotated[str | None, typer.Option(help="Packets in each.", show_default="twice the flows")] = None,
    super_hosts: Annotated[
        int | None, typer.Option(help="Hosts of 1024 or more peers in each.", show_default=str(SUPER_HOSTS))
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed gives other traffic.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two small windows, in about a minute; what else is given counts.")
    ] = False,
    inner: Annotated[
        list[str] | None, typer.Option(help="Of captures: monitored prefix, or @FILE of prefixes; repeatable.")
    ] = None,
    window: Annotated[str, typer.Option("--window", "-w", help="Of captures: length of a window, or all.")] = "5m",
    memory: Annotated[
        str | None,
        typer.Option("--memory", "-m", help="Memory of each detector.", show_default="as each paper sets it"),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto; some rivals know only the CPU.")] = "cpu",
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw figures (PNG, SVG) into DIR.")] = None,
    json: Json = False,
    csv: CsvFlag = False,
    output: Output = None,
) -> None:
    """Run every detector over the same traffic and score it against the exact answer.

    The default is the experiment of the paper: 12 windows, 5 M flows and 600 super hosts each; it takes some minutes.

    Examples: superhosts compare --quick · superhosts compare --figures figures -o comparison.csv ·
    superhosts compare day.pcap --inner 10.0.0.0/8 --detector cube --detector gse
    """
    from superhosts.device import choose_device
    from superhosts.errors import UsageError
    from superhosts.evaluation.entrants import Terms, choose
    from superhosts.evaluation.experiment import COLUMNS, averages, on_inputs, on_synthetic, why_nothing
    from superhosts.hashing import DEFAULT_KEY
    from superhosts.reports.base import Report, RunKind
    from superhosts.reports.opening import OutputOptions, open_destinations
    from superhosts.synthetic.traffic import Traffic
    from superhosts.units import parse_count, parse_size

    outputs = OutputOptions(json, csv, output)
    if not threshold >= 1:
        raise UsageError(f"--threshold {threshold:g}: at least 1")
    windows = _given(windows, QUICK_WINDOWS if quick else WINDOWS)
    super_hosts = _given(super_hosts, QUICK_SUPER_HOSTS if quick else SUPER_HOSTS)
    each = parse_count(_given(flows, QUICK_FLOWS if quick else FLOWS))
    terms = Terms(
        threshold=threshold,
        device=choose_device(device),
        memory=None if memory is None else parse_size(memory),
        flows=None if inputs else each,
        key=None if inputs else DEFAULT_KEY,  # the same traffic must give the same scores everywhere
    )
    makers = choose(detector or [], terms, lambda name, why: say(f"superhosts: {name} is left out: {why}"))
    if figures is not None:
        from superhosts.evaluation.figures import prepare_folder

        prepare_folder(figures)
    errors: list[SuperhostsError] = []
    run: Scan | None = None
    if inputs:
        run = _scan(inputs, makers, errors, threshold=threshold, inner=inner or [], window=window)
        found = on_inputs(run, makers, threshold)
    else:
        sent = parse_count(packets) if packets is not None else 2 * each
        traffic = Traffic(flows=each, packets=sent, windows=windows, super_hosts=super_hosts, seed=seed)
        found = on_synthetic(traffic, makers, threshold, _teller(traffic, len(makers)))
    rows: list[Row] = []
    with open_destinations(outputs, RunKind(COLUMNS), table=False) as destinations:
        for some in found:
            destinations.write(Report(rows=[asdict(row) for row in some]))
            rows += some
    if run is not None:
        summarise(run.counters)
        if not rows:
            say(f"superhosts: nothing to compare: {why_nothing(run.counters)}")
            fail_with(errors)
            return
    if outputs.format == "table":
        _print_table(averages(rows), threshold)
    if figures is not None:
        _draw(rows, figures)
    fail_with(errors)


def _given(value: Any, default: Any) -> Any:
    """Return what was given, else the default."""
    return default if value is None else value


def _teller(traffic: Traffic, detectors: int) -> Callable[[int], None]:
    """Return what tells which window is next."""

    def tell(number: int) -> None:
        say(f"window {number + 1} of {traffic.windows}: {traffic.flows:,} flows, {detectors} detectors …")

    return tell


def _scan(inputs: list[str], makers: dict[str, Make], errors: list[SuperhostsError], **settings: Any) -> Scan:
    from superhosts.evaluation.panel import panel_maker
    from superhosts.pipeline.scan import RunOptions, Scan
    from superhosts.pipeline.settings import Settings
    from superhosts.sources.opening import open_inputs

    def on_error(error: SuperhostsError) -> None:
        errors.append(error)
        say(f"superhosts: {error}")

    terms = Settings(**settings, families=(4,))  # the rivals know no other hosts
    return Scan(
        open_inputs(inputs, on_error),
        terms,
        RunOptions(find=False),
        make_detector=panel_maker(lambda _bits: makers, terms),
        on_error=on_error,
        on_progress=tell_packets(),
    )


def _draw(rows: list[Row], folder: Path) -> None:
    from superhosts.evaluation.figures import draw_comparison

    if all(row.ftr is None for row in rows):
        say("superhosts: there are no super hosts, so no rates to draw")
    for path in draw_comparison(rows, folder, command_line(sys.argv)):
        say(str(path))


def _print_table(means: list[Any], threshold: float) -> None:
    from rich.table import Table

    from superhosts.evaluation.scores import percent
    from superhosts.reports.terminal import OutputConsole

    first = means[0]
    hosts = f"{first.true:,.0f} super hosts (at least {threshold:,g} peers) a window"
    windows = "1 window" if first.windows == 1 else f"means of {first.windows} windows"
    table = Table(title=f"{windows}, {hosts}", title_justify="left", box=None, pad_edge=False)
    table.add_column("detector", no_wrap=True)
    for name in ("FNR %", "FPR %", "FTR %", "±", "err %", "held %", "M/s", "ms", "MiB", "file"):
        table.add_column(name, justify="right", no_wrap=True)
    for mean in means:
        table.add_row(
            mean.detector,
            percent(mean.fnr),
            percent(mean.fpr),
            percent(mean.ftr),
            percent(mean.ftr_error),
            percent(mean.error),
            percent(mean.coverage, 1),
            f"{mean.update_rate / 1e6:.1f}",
            f"{mean.restore_ms:,.1f}",
            f"{mean.memory / (1 << 20):,.1f}",
            f"{mean.wire / (1 << 20):,.1f}",
        )
    console = OutputConsole()
    console.print(table)
    console.print(
        "FTR: FNR + FPR, ± its standard error · err: of the estimates, mean · held: the truth in the 95 % interval ·\n"
        "M/s: million pairs a second · ms: to restore, best of three · MiB: memory, host lists too · file: MiB to send",
        style="dim",
        highlight=False,
    )
    if first.rated < first.windows:
        empty = f"{first.windows - first.rated} of {first.windows} windows have" if first.rated else "There are"
        note = f"{empty} no super hosts: nothing to take rates of"
        false = [f"{mean.detector} {mean.unrated_false:,}" for mean in means if mean.unrated_false]
        note += f"; hosts reported there: {', '.join(false)}" if false else ""
        console.print(note, style="dim", highlight=False)
