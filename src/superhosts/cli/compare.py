"""`superhosts compare`: every detector side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from superhosts.cli.output import CsvFlag, Json, Output, command_line, fail_with, say, tell_packets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from superhosts.errors import SuperhostsError
    from superhosts.evaluation.experiment import Row
    from superhosts.evaluation.panel import Make

QUICK_WINDOWS, QUICK_FLOWS, QUICK_SUPER_HOSTS = 2, "500K", 60


def compare(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[INPUT...]", help="Captures; without any, synthetic backbone traffic."),
    ] = None,
    detector: Annotated[
        list[str] | None, typer.Option(help="Compare only this detector; repeatable. [default: all]")
    ] = None,
    threshold: Annotated[float, typer.Option("--threshold", "-t", help="Least number of distinct peers.")] = 1024,
    windows: Annotated[int, typer.Option(help="Synthetic windows of five minutes.")] = 12,
    flows: Annotated[str, typer.Option(help="Distinct pairs in each synthetic window.")] = "5M",
    packets: Annotated[str | None, typer.Option(help="Packets in each. [default: twice the flows]")] = None,
    super_hosts: Annotated[int, typer.Option(help="Hosts of 1024 or more peers in each.")] = 600,
    seed: Annotated[int, typer.Option(help="Another seed gives other traffic.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Two small windows, in about a minute.")] = False,
    inner: Annotated[
        list[str] | None, typer.Option(help="Of captures: monitored prefix, or @FILE of prefixes; repeatable.")
    ] = None,
    window: Annotated[str, typer.Option("--window", "-w", help="Of captures: length of a window, or all.")] = "5m",
    memory: Annotated[
        str | None, typer.Option("--memory", "-m", help="Memory of each detector. [default: as each paper sets it]")
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
    from superhosts.evaluation.experiment import averages
    from superhosts.sources.synth import Traffic
    from superhosts.units import parse_count

    if json and csv:
        raise UsageError("--json and --csv: choose one")
    if threshold < 1:
        raise UsageError(f"--threshold {threshold:g}: at least 1")
    if quick:
        windows, flows, super_hosts = QUICK_WINDOWS, QUICK_FLOWS, QUICK_SUPER_HOSTS
    each = parse_count(flows)
    terms = Terms(threshold, choose_device(device), memory, flows=None if inputs else each)
    makers = choose(detector or [], terms)
    if figures is not None:
        from superhosts.evaluation.figures import draw_comparison, prepare

        prepare(figures)
    errors: list[SuperhostsError] = []
    if inputs:
        run = _over_inputs(inputs, makers, errors, threshold=threshold, inner=inner or [], window=window)
    else:
        sent = parse_count(packets) if packets is not None else 2 * each
        traffic = Traffic(flows=each, packets=sent, windows=windows, super_hosts=super_hosts, seed=seed)
        run = _over_synthetic(traffic, makers, threshold)
    outputs = _Outputs(json=json, csv=csv, output=output)
    rows: list[Row] = []
    with outputs:
        for some in run:
            outputs.write(some)
            rows += some
    if not rows:
        say("superhosts: nothing to compare: no packet has a monitored end")
        fail_with(errors)
        return
    if not (json or csv):
        _print_table(averages(rows), threshold)
    if figures is not None:
        for path in draw_comparison(rows, figures, command_line(sys.argv)):
            say(str(path))
    fail_with(errors)


def _over_synthetic(traffic: Any, makers: dict[str, Make], threshold: float) -> Iterator[list[Row]]:
    from superhosts.evaluation.experiment import on_synthetic

    def tell(number: int) -> None:
        say(f"window {number + 1} of {traffic.windows}: {traffic.flows:,} flows, {len(makers)} detectors …")

    yield from on_synthetic(traffic, makers, threshold, tell)


def _over_inputs(
    inputs: list[str], makers: dict[str, Make], errors: list[SuperhostsError], **settings: Any
) -> Iterator[list[Row]]:
    from superhosts.evaluation.experiment import PanelSettings, on_inputs
    from superhosts.pipeline import open_inputs

    def on_error(error: SuperhostsError) -> None:
        errors.append(error)
        say(f"superhosts: {error}")

    panels = PanelSettings(makers=lambda _bits: makers, **settings)
    sources = open_inputs(inputs, on_error)
    yield from on_inputs(sources, panels, on_error=on_error, on_progress=tell_packets())


class _Outputs:
    """Rows to standard output, where they are wanted there, and to a file."""

    def __init__(self, *, json: bool, csv: bool, output: Path | None) -> None:
        from superhosts.evaluation.experiment import COLUMNS
        from superhosts.reports.files import Csv, JsonLines, OutputFile

        self._stream: Any = JsonLines(sys.stdout) if json else Csv(sys.stdout, COLUMNS) if csv else None
        self._file = OutputFile(output, COLUMNS) if output is not None else None

    def write(self, rows: list[Row]) -> None:
        """Hand on the rows of one window."""
        from dataclasses import asdict

        plain = [asdict(row) for row in rows]
        for place in (self._stream, self._file):
            if place is not None:
                place.write(plain)

    def __enter__(self) -> _Outputs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is not None:
            (self._file.close if kind is None else self._file.abandon)()


def _print_table(means: list[Any], threshold: float) -> None:
    from rich.table import Table

    from superhosts.reports.terminal import OutputConsole

    hosts = f"{means[0].true:,.0f} super hosts (at least {threshold:,g} peers) a window"
    windows = "1 window" if means[0].windows == 1 else f"means of {means[0].windows} windows"
    table = Table(title=f"{windows}, {hosts}", title_justify="left", box=None, pad_edge=False)
    table.add_column("detector", no_wrap=True)
    for name in ("FNR %", "FPR %", "FTR %", "±", "err %", "held %", "M/s", "ms", "MiB", "file"):
        table.add_column(name, justify="right", no_wrap=True)
    for mean in means:
        table.add_row(
            mean.detector,
            f"{100 * mean.fnr:.2f}",
            f"{100 * mean.fpr:.2f}",
            f"{100 * mean.ftr:.2f}",
            f"{100 * mean.ftr_error:.2f}",
            f"{100 * mean.error:.2f}",
            f"{100 * mean.coverage:.1f}",
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
