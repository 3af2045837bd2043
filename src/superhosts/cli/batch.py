"""`superhosts batch`: many captures on a Dask cluster."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import replace
from pathlib import Path

from superhosts.cli._keys import key_for_sketches
from superhosts.cli._progress import Progress
from superhosts.cli._settings import make_settings, output_options
from superhosts.cli._summary import CountersOutput, RunTotals, tell_end, windows_text
from superhosts.cli.usage.fleet import Batch as BatchOptions
from superhosts.core.files import copy_synced, output_errors, replacing, sync_folder
from superhosts.core.text import counted
from superhosts.core.units import parse_size
from superhosts.cubefile.container import is_whole
from superhosts.errors import DeviceWarning, SketchFileError, SuperhostsError, UsageError
from superhosts.fleet.batch import Batch, BatchWindow, TaskError, connect, prepare
from superhosts.output.console import fail_with, say, say_traceback
from superhosts.output.destination import Destinations, RunKind
from superhosts.output.registry import open_destinations
from superhosts.output.report import Report, words_of
from superhosts.pipeline.saver import file_name, merge_saved, merged_into, prepare_folder
from superhosts.pipeline.settings import Settings
from superhosts.sketch.sketch import Sketch
from superhosts.sources.open import list_files


def batch(options: BatchOptions) -> None:
    if options.local_cluster == (options.scheduler is not None):
        raise UsageError("give either --scheduler ADDRESS or --local-cluster")
    if options.workers is not None and not options.local_cluster:
        raise UsageError("--workers: only with --local-cluster; a cluster's number of workers is fixed")
    settings = make_settings(options, device="cpu")
    settings = replace(settings, key=key_for_sketches(options.key_file, saves=True))
    counters = CountersOutput(options.counters, options)
    kind = RunKind(varying=options.varying)
    outputs = open_destinations(output_options(options), kind, table=not counters.takes_standard_output)
    fail_with(_run(options, settings, outputs, counters))


def _run(
    options: BatchOptions, settings: Settings, outputs: Destinations, counters: CountersOutput
) -> list[SuperhostsError]:
    """Run and write the results; return the errors of the inputs, already reported."""
    save, quiet = options.save.absolute(), options.quiet
    work = options.work or save.with_name(f"{save.name}.work")
    errors: list[SuperhostsError] = []
    windows, started = 0, time.monotonic()
    progress = Progress("tasks", wanted=not quiet)

    def on_error(error: SuperhostsError) -> None:
        errors.append(error)
        with progress.paused():
            _tell(error, options.verbose)

    if quiet:
        warnings.simplefilter("ignore", DeviceWarning)
    with outputs:
        outputs.outlive_reader()
        outputs.on_error = on_error
        settings = prepare(settings)  # before anything is started
        captures = list_files(options.inputs, on_error)
        prepare_folder(save, settings.site)
        if not captures:
            return errors
        with connect(options.scheduler, options.workers) as client, progress:
            run = Batch(
                client,
                captures,
                settings,
                work,
                task_size=None if options.task_size is None else max(1, parse_size(options.task_size)),
                tables=options.tables,
                on_error=on_error,
                on_progress=progress.update,
            )
            try:
                for result in run:
                    words = words_of(settings.selection, len(result.rows))
                    with progress.paused():
                        outputs.write(Report(rows=result.rows, window=result.window, **words))
                    windows += 1
                    path = save / file_name(result.window, settings)
                    if save_window(result, path, settings) and not quiet:
                        with progress.paused():
                            say(merged_into(path))
            except BaseException:
                if not run.tasks:
                    run.clear()
                elif not quiet:
                    say(f"finished work is kept in {work}: the same command resumes from there")
                raise
        if not options.keep_work:
            run.clear()
    totals = RunTotals(run.counters, time.monotonic() - started, windows, windows_text(windows, settings))
    if not quiet:
        again = f", {run.reused:,} of them from an earlier run" if run.reused else ""
        say(f"{counted(len(captures), 'capture')}, {counted(run.tasks, 'task')}{again}")
    tell_end(totals, quiet=quiet)
    counters.write(totals)
    return errors


def _tell(error: SuperhostsError, verbose: bool) -> None:
    if verbose and isinstance(error, TaskError):
        say_traceback(error.traceback)
    say(f"superhosts: {error}")


def save_window(result: BatchWindow, path: Path, settings: Settings) -> bool:
    """Save the sketch of a window; return True if it was merged with what an earlier run saved of window and site."""
    is_merged = path.exists()
    if is_merged:
        whole = Sketch()
        whole.merge_file(result.path, key=settings.key)
        merge_saved(whole, path, settings)
        whole.save(path)
    else:
        with output_errors(path), replacing(path, private=True) as temporary:
            if not is_whole(result.path):
                damaged = "damaged since it was written; the same command makes it again"
                raise SketchFileError(damaged, file=str(result.path))
            if not _link(result.path, temporary):
                copy_synced(result.path, temporary)
    sync_folder(path.parent)  # before the work folder is removed
    return is_merged


def _link(path: Path, other: Path) -> bool:
    """Give a file of the work folder, from which it is removed later, another name. Return False if it must be copied.

    That is so on another file system, or one without hard links, and if the work folder is open to other users: a link
    would be, too.
    """
    if path.stat().st_mode & 0o077:
        return False
    other.unlink()
    try:
        os.link(path, other)
    except OSError:
        return False
    return True
