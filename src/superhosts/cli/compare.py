"""`superhosts compare`: every detector side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from superhosts.cli._console import command_line, fail_with, say
from superhosts.cli._outputs import output_options
from superhosts.cli._progress import Progress, ScanProgress
from superhosts.cli._settings import make_settings
from superhosts.cli._summary import summarise, warn_of_wrong_inner
from superhosts.cli.usage.compare import Compare, SyntheticOptions
from superhosts.detectors.arguments import check_threshold
from superhosts.detectors.base import Detector
from superhosts.errors import SuperhostsError
from superhosts.evaluation.comparing import FAMILIES, comparing_run, shared_settings, synthetic_traffic
from superhosts.evaluation.entrants import choose
from superhosts.evaluation.experiment import (
    COLUMNS,
    Row,
    averages,
    on_inputs,
    on_synthetic,
    why_nothing,
)
from superhosts.evaluation.figures import draw_comparison, prepare_folder
from superhosts.evaluation.panel import Makers, Panels
from superhosts.evaluation.scores import percent
from superhosts.pipeline.scan import Scan
from superhosts.reports.base import Report, RunKind
from superhosts.reports.opening import open_destinations
from superhosts.reports.terminal import OutputConsole
from superhosts.sources.opening import open_inputs
from superhosts.synthetic.traffic import Traffic
from superhosts.text import counted


def compare(options: Compare) -> None:
    """Run the detectors, write the scores of each window, and print their means."""
    outputs = output_options(options.results)
    threshold = check_threshold(options.threshold, "--threshold")
    traffic = None if options.inputs else make_traffic(options.synthetic)
    shared = shared_settings(options.threshold, options.memory, options.device, traffic)
    makers = choose(options.detector, shared, lambda name, why: say(f"superhosts: {name} is left out: {why}"))
    if options.figures is not None:
        prepare_folder(options.figures)
    errors: list[SuperhostsError] = []
    run: Scan | None = None
    found: Iterator[list[Row]]
    progress: Progress
    if traffic is None:
        progress = reading = ScanProgress()
        run, panels = _scan(options, makers, reading, errors)
        reading.of(run.sources)
        found = on_inputs(run, panels, threshold)
    else:
        progress = Progress(f"windows of {counted(traffic.flows, 'flow')}", traffic.windows)
        found = on_synthetic(traffic, makers, threshold, progress.update)
    rows: list[Row] = []
    with open_destinations(outputs, RunKind(COLUMNS), table=False) as destinations, progress:
        for some in found:
            with progress.paused():
                destinations.write(Report(rows=[asdict(row) for row in some]))
            rows += some
    if run is not None:
        summarise(run.counters)
        warn_of_wrong_inner(run.counters)
        if not rows:
            say(f"superhosts: nothing to compare: {why_nothing(run.counters)}")
            fail_with(errors)
            return
    if outputs.format == "table":
        _print_table(averages(rows), threshold)
    if options.figures is not None:
        _draw(rows, options.figures)
    fail_with(errors)


def make_traffic(options: SyntheticOptions) -> Traffic:
    """Return the synthetic traffic; options that are given override --quick."""
    return synthetic_traffic(
        windows=options.windows,
        flows=options.flows,
        packets=options.packets,
        super_hosts=options.super_hosts,
        seed=options.seed,
        quick=options.quick,
    )


def _scan(
    options: Compare, makers: Makers[Detector], progress: ScanProgress, errors: list[SuperhostsError]
) -> tuple[Scan, Panels[Detector]]:
    def on_error(error: SuperhostsError) -> None:
        errors.append(error)
        say(f"superhosts: {error}")

    settings = make_settings(options.captures, threshold=options.threshold, families=FAMILIES)
    sources = open_inputs(options.inputs, on_error, tables=options.captures.tables.read())
    return comparing_run(sources, settings, makers, on_error=on_error, on_progress=progress.read)


def _draw(rows: list[Row], folder: Path) -> None:
    if all(row.ftr is None for row in rows):
        say("superhosts: there are no super hosts, so no rates to draw")
    for path in draw_comparison(rows, folder, command_line(sys.argv)):
        say(str(path))


def _print_table(means: list[Any], threshold: float) -> None:

    first = means[0]
    hosts = f"{counted(round(first.true), 'super host')} (at least {counted(threshold, 'peer')}) a window"
    windows = ("" if first.windows == 1 else "means of ") + counted(first.windows, "window")
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
        note = f"{empty} no super hosts, so no rates can be computed"
        false = [f"{mean.detector} {mean.unrated_false:,}" for mean in means if mean.unrated_false]
        note += f"; hosts reported there: {', '.join(false)}" if false else ""
        console.print(note, style="dim", highlight=False)
