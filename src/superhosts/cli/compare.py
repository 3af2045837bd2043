"""`superhosts compare`: every detector side by side."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from superhosts.cli._declaration import declared
from superhosts.cli._progress import Progress, ScanProgress
from superhosts.cli._settings import output_options
from superhosts.cli._summary import summarise, warn_of_wrong_inner
from superhosts.cli.usage.lab import Compare, SyntheticOptions
from superhosts.core.hashing import fingerprint, secret_of
from superhosts.core.text import counted
from superhosts.core.units import format_size, parse_size
from superhosts.detectors.arguments import check_threshold
from superhosts.errors import SuperhostsError, UsageError
from superhosts.lab.compare import FAMILIES, SharedSettings, choose, shared_settings, synthetic_traffic
from superhosts.lab.experiment import (
    COLUMNS,
    Judged,
    Makers,
    Panels,
    Row,
    averages,
    on_inputs,
    on_synthetic,
    why_nothing,
)
from superhosts.lab.figures import Facts, draw_comparison
from superhosts.lab.scores import Estimates, joined, percent
from superhosts.lab.sheet import key_words, prepare_folder
from superhosts.output.console import command_line, fail_with, say
from superhosts.output.destination import Destinations, RunKind
from superhosts.output.registry import open_destinations
from superhosts.output.report import Report
from superhosts.output.table import OutputConsole, print_table
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings
from superhosts.sources.open import open_inputs

COSTS = ("err", "held", "M/s", "ms", "MiB", "file")


def compare(options: Compare) -> None:
    outputs = output_options(options)
    threshold = check_threshold(options.threshold, "--threshold")
    if options.figures is not None:
        prepare_folder(options.figures)
    contest = Contest(options, threshold)
    memories: list[str | None] = [*options.memory] or [None]
    rounds = {memory: contest.choose(memory) for memory in memories}
    rows: list[Row] = []
    with open_destinations(outputs, RunKind(COLUMNS), table=False) as destinations:
        for memory, makers in rounds.items():
            for some in contest.run(makers, memory, destinations):
                rows += some
    if not rows:
        fail_with(contest.errors)
        return
    if outputs.format == "table":
        _print_table(averages(rows), threshold)
    if options.figures is not None:
        _draw(rows, options.figures, contest)
    fail_with(contest.errors)


class Contest:
    """What all rounds of a comparison share: the same traffic, once for each memory."""

    def __init__(self, options: Compare, threshold: float) -> None:
        self.options, self.threshold = options, threshold
        given = {name: getattr(options, name) for name in declared(SyntheticOptions)}  # which override --quick
        self.traffic = None if options.inputs else synthetic_traffic(**given)
        self.errors: list[SuperhostsError] = []
        self.estimates: dict[str, list[Estimates]] = defaultdict(list)  # of all windows, by detector, for figures
        self._rounds = 0

    def choose(self, memory: str | None) -> Makers:
        shared = self._shared(memory)
        of = f" of {memory}" if len(self.options.memory) > 1 else ""
        return choose(
            self.options.detector, shared, lambda name, why: say(f"superhosts: {name}{of} is left out: {why}")
        )

    def _shared(self, memory: str | None) -> SharedSettings:
        return shared_settings(self.threshold, memory, self.options.device, self.traffic)

    def run(self, makers: Makers, memory: str | None, destinations: Destinations) -> Iterator[list[Row]]:
        """Run one round, write the rows of each window and yield them."""
        self._rounds += 1
        run: Scan | None = None
        found: Iterator[list[Judged]]
        given = None if memory is None else parse_size(memory)
        progress: Progress
        if self.traffic is None:
            progress = reading = ScanProgress()
            run, panels = self._scan(makers, reading)
            reading.of(run)
            found = on_inputs(run, panels, self.threshold, given)
        else:
            words = f"windows of {counted(self.traffic.flows, 'flow')}"
            progress = Progress(words + (f", {memory}" if memory else ""), self.traffic.windows)
            found = on_synthetic(self.traffic, makers, self.threshold, given, progress.update)
        windows = 0
        with progress:
            for judged in found:
                with progress.paused():
                    destinations.write(Report(rows=[asdict(each.row) for each in judged]))
                if self.options.figures is not None and len(self.options.memory) < 2:  # Figures show one memory's.
                    for row, estimates in judged:
                        self.estimates[row.detector].append(estimates)
                windows += 1
                yield [each.row for each in judged]
        if run is not None and self._rounds == 1:
            summarise(run.counters)
            warn_of_wrong_inner(run.counters)
            if not windows:
                say(f"superhosts: nothing to compare: {why_nothing(run.counters)}")

    def _scan(self, makers: Makers, progress: ScanProgress) -> tuple[Scan, Panels]:
        def on_error(error: SuperhostsError) -> None:
            if self._rounds == 1:  # The next round meets the same errors.
                self.errors.append(error)
                say(f"superhosts: {error}")

        options = self.options
        settings = Settings(
            options.inner,
            special=options.special,
            window=options.window,
            threshold=options.threshold,
            families=FAMILIES,
        )
        sources = open_inputs(options.inputs, on_error, tables=options.tables)
        for source in sources:
            if len(options.memory) > 1 and not source.replays:
                raise UsageError(f"--memory: {source.name} can be read only once, so give a single --memory")
        panels = Panels(lambda _bits: makers, settings)
        return panels.run(sources, on_error=on_error, on_progress=progress.step), panels

    def facts(self) -> Facts:
        key = key_words([fingerprint(secret_of(self._shared(None).key))])
        estimates = {name: joined(some) for name, some in self.estimates.items()}
        return Facts(self.threshold, key, command_line(sys.argv), estimates)


def _draw(rows: list[Row], folder: Path, contest: Contest) -> None:
    if all(row.ftr is None for row in rows):
        say("superhosts: there are no super hosts, so no rates to draw")
    for path in draw_comparison(rows, folder, contest.facts()):
        say(str(path))


def _print_table(means: list[Any], threshold: float) -> None:
    first = means[0]
    hosts = f"{counted(round(first.true), 'super host')} (at least {counted(threshold, 'peer')}) a window"
    windows = ("" if first.windows == 1 else "means of ") + counted(first.windows, "window")
    several = len({mean.memory_given for mean in means}) > 1
    titles = ("detector", *(["given"] if several else []), "FNR", "FPR", "FTR", "±", "ph.", *COSTS)
    cells = [
        (
            mean.detector,
            *([format_size(mean.memory_given)] if several else []),
            _rate(mean.fnr),
            _rate(mean.fpr),
            _rate(mean.ftr),
            percent(mean.ftr_error),
            f"{mean.phantoms:.2g}",
            percent(mean.error),
            _rate(mean.coverage, 1),
            f"{mean.update_rate / 1e6:.1f}",
            _short(mean.restore_ms),
            _short(mean.memory / (1 << 20)),
            _short(mean.wire / (1 << 20)),
        )
        for mean in means
    ]
    print_table(titles, cells, title=f"{windows}, {hosts}", tight=True)
    console = OutputConsole()
    console.print(
        "FNR, FPR, FTR = FNR + FPR, ± its standard error, err (of the estimates, mean) and held (the truth in the\n"
        "95 % interval) in % · ph.: phantoms, hosts never seen, a window; they are part of FPR · M/s: million pairs a\n"
        "second · ms: to restore, best of three · MiB: memory, host lists too · file: MiB to send",
        style="dim",
        highlight=False,
    )
    if first.rated < first.windows:
        empty = f"{first.windows - first.rated} of {first.windows} windows have" if first.rated else "There are"
        note = f"{empty} no super hosts, so no rates can be computed"
        false = [f"{mean.detector} {mean.unrated_false:,}" for mean in means if mean.unrated_false]
        note += f"; hosts reported there: {', '.join(false)}" if false else ""
        console.print(note, style="dim", highlight=False)


def _rate(rate: float | None, places: int = 2) -> str:
    """Write a rate in few letters: 0.17, 5.74, 301."""
    return percent(rate, places if rate is None or rate < 0.9995 else 0)


def _short(value: float) -> str:
    """Write a number in few letters: 0.2, 12.3, 1,024."""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
