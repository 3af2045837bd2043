"""`superhosts scan`: super hosts of captures."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from superhosts.cli._keys import key_for_sketches
from superhosts.cli._progress import ScanProgress, View
from superhosts.cli._settings import output_options, tell_detector, traffic_settings
from superhosts.cli._signals import ENDING, Interruption
from superhosts.cli._summary import CountersOutput, RunTotals, profiled, tell_end, windows_text
from superhosts.cli._values import parse_seconds
from superhosts.cli.usage.traffic import Scan as ScanOptions
from superhosts.core.device import choose_device, gpus_of, thread_count
from superhosts.core.notices import as_warning
from superhosts.core.profile import measured
from superhosts.core.text import counted
from superhosts.core.units import format_size
from superhosts.errors import DeviceWarning
from superhosts.jit.compilation import seconds_compiling
from superhosts.output.console import ReportedErrors, fail_with, say, warn_of_compiling
from superhosts.output.destination import Destinations, RunKind
from superhosts.output.registry import open_destinations
from superhosts.output.report import columns_with
from superhosts.pipeline.builder import gathered_memory, report_of
from superhosts.pipeline.network import Counters
from superhosts.pipeline.saver import SketchSaver, prepare_folder
from superhosts.pipeline.scan import RunOptions, Scan, scan_options
from superhosts.pipeline.settings import Settings
from superhosts.sources.base import Source, exports_of
from superhosts.sources.capture import most_memory
from superhosts.sources.open import open_inputs


def use_filter(sources: Sequence[Source], expression: str | None) -> None:
    """Let live captures take only packets that match; UsageError if the expression or another input is wrong."""
    if expression is not None:
        for source in sources:
            source.use_filter(expression)


class LiveWarnings:
    """Writes warnings of live captures when they come: such a run may last for days."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._said: set[str] = set()
        for source in sources:
            if source.loses:
                source.counters.on_warning = self._say

    def _say(self, text: str) -> None:
        self._said.add(text)
        say(as_warning(text))

    def left(self, counters: Counters) -> Counters:
        return replace(counters, warnings=[text for text in counters.warnings if text not in self._said])


OF_FILES = RunOptions(revises=True, leaves_open=False)


@dataclass(frozen=True)
class ScanRun:
    """Output and progress options of one scan."""

    save: Path | None = None
    quiet: bool = False
    verbose: bool = False
    counters: CountersOutput = field(default_factory=lambda: CountersOutput(None))
    run: RunOptions = OF_FILES
    prepares: bool = False  # whatever the inputs are: it says when it is ready
    view: View | None = None  # None: a progress bar
    around: Callable[[Scan], AbstractContextManager[object]] = nullcontext  # entered while the scan runs
    on_step: Callable[[], None] | None = None  # called after each step of the view
    reload: Callable[[], None] | None = None  # what SIGHUP calls


def scan(options: ScanOptions) -> None:
    settings = traffic_settings(options)
    counters, asked = CountersOutput(options.counters, options), output_options(options, site=options.site)
    errors = ReportedErrors()
    sources = open_inputs(options.inputs, errors.add, tables=options.tables)
    use_filter(sources, options.filter)
    if not sources:  # No file of this name exists: no key is made, and no output is replaced.
        fail_with(errors.found)
    settings = replace(settings, key=key_for_sketches(options.key_file, saves=options.save is not None))
    desk = None
    if options.alerts is not None or options.alert_to:
        # Imported here: a scan without alerts does not wait for them.
        from superhosts.cli._alerts import with_alerts

        settings, desk = with_alerts(options, options.config, settings, asked, ends=True, quiet=options.quiet)
    lives = settings.window != "all" and not all(source.replays for source in sources)  # windows come one by one
    columns = columns_with(settings.evidence, settings.group_by)
    kind = RunKind(columns, many_windows=True if lives else None, varying=options.varying)
    outputs = open_destinations(asked, kind, table=not counters.takes_standard_output, desk=desk)
    # Saved sketches keep the windows that all sites have.
    joins = not options.window and not settings.slides and options.save is None
    timing = scan_options(sources, settings, joins_short=joins, grace=parse_seconds(options.grace))
    how = ScanRun(options.save, options.quiet, options.verbose, counters, timing._replace(leaves_open=False))
    outputs.on_error = errors.add
    tell_detector(options, settings)
    with profiled(options.verbose):
        found_any = run_scan(sources, settings, outputs, errors, how)
    fail_with(errors.found)
    if options.fail_on_find and found_any:
        raise click.exceptions.Exit(1)


def run_scan(
    sources: list[Source], settings: Settings, outputs: Destinations, errors: ReportedErrors, how: ScanRun
) -> bool:
    """Scan and write the results; return True if any host was found.

    A scan that is interrupted reports what it has and then raises click.exceptions.Exit.
    """
    save, quiet = how.save, how.quiet
    view: View = ScanProgress(wanted=not quiet) if how.view is None else how.view
    found_any = is_partial = False
    windows, started, compiled = 0, time.monotonic(), seconds_compiling()
    live_warnings = LiveWarnings(sources)

    def on_progress(position: int, packets: int) -> None:
        view.step(position, packets)
        if how.on_step is not None:
            how.on_step()

    with outputs:
        if save is not None:
            outputs.outlive_reader()
            prepare_folder(save, settings.site)
        run = Scan(sources, settings, how.run, on_error=errors.add, on_progress=on_progress)
        keeper = None if save is None else SketchSaver(save, settings, say, quiet=quiet)
        if quiet:
            warnings.simplefilter("ignore", DeviceWarning)
        if how.verbose:
            _announce(settings)
        stopping = Interruption(run.stop, numbers=ENDING) if how.reload is None else Interruption(run.stop, how.reload)
        with stopping as interruption, how.around(run), view.of(run):
            if how.prepares and run.prepare(saves=save is not None, merges=save is not None):
                warn_of_compiling()
            for result in run:
                report = report_of(result, exports_of(sources))
                with measured("report"), view.reporting(report):
                    outputs.write(report)
                found_any |= bool(run.settings.selection.reached(result.found))
                windows, is_partial = windows + (result.revision == 1), result.partial
                if keeper is not None:
                    keeper.save(result)
                if not result.partial:
                    for source in sources:
                        source.release(result.window.end)
                del result  # frees its cubes: those of the next window are allocated while this loop waits
    compiled = seconds_compiling() - compiled
    seconds = time.monotonic() - started - compiled
    is_whole = interruption.number is None and not errors.found  # else nobody knows how long the input was
    counters, is_short = run.counters, how.run.joins_short and is_whole
    text = windows_text(windows, settings, skipped=counters.skipped_windows, is_short=is_short)
    totals = RunTotals(counters, seconds, windows, text, compiled)
    tell_end(totals._replace(counters=live_warnings.left(totals.counters)), quiet=quiet)
    how.counters.write(totals)
    if interruption.number is not None:
        say("superhosts: interrupted; the last window is partial" if is_partial else "superhosts: interrupted")
        raise click.exceptions.Exit(128 + interruption.number)
    if keeper is not None:
        errors.found[:0] = keeper.unsaved.values()
    return found_any


def _announce(settings: Settings) -> None:
    """Say which memory and device are used."""
    is_auto = settings.device == "auto"
    # With "auto", windows are exact on the CPU, and the driver is not asked, which takes time.
    chosen = "cpu" if settings.starts_exact and is_auto else choose_device(settings.device)
    gpus = gpus_of(chosen)
    if settings.grows_with_traffic:
        say("memory: grows with the traffic, as the exact answer needs every distinct pair")
    else:
        detectors = f"{counted(len(settings.parts), 'detector')} of {format_size(settings.cube_memory)}"
        waiting = f"{format_size(gathered_memory(thread_count(settings.threads)))} for packets that wait"
        besides = f"{format_size(most_memory())} for each open input, {waiting} and 250 MiB for Python"
        if gpus and settings.starts_exact:
            first = f"at most {format_size(settings.most_memory)} while windows are exact"
            say(f"memory: {first}, then {detectors} on each GPU, {besides}")
        elif gpus:
            say(f"memory: {detectors} on each GPU, and 0.1 GB of main memory, {besides}")
        else:
            say(f"memory: at most {format_size(settings.most_memory)} ({detectors} with buffers), {besides}")
    if settings.starts_exact and gpus:
        say(f"device: cpu while windows are exact, then {chosen}")
    else:
        more = "; superhosts doctor says more about GPUs" if chosen == "cpu" else ""
        say(f"device: {chosen}{f' (auto{more})' if is_auto else ''}")
