"""`superhosts batch`: many captures on a Dask cluster."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from superhosts.cli._options import (
    INPUT_HELP,
    Direction,
    Exclude,
    GeometryText,
    Inner,
    Ipv6Prefix,
    Memory,
    Quiet,
    Site,
    Watch,
    WindowLength,
)
from superhosts.cli._outputs import CsvFlag, Json, KeyFile, Output, Threshold, Top, fail_with, read_key, say

if TYPE_CHECKING:
    from superhosts.batch.run import BatchWindow
    from superhosts.errors import SuperhostsError
    from superhosts.pipeline.settings import Settings
    from superhosts.reports.fanout import Destinations


def batch(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help=f"{INPUT_HELP} Batch takes files only: not - or synth:…"),
    ],
    save: Annotated[Path, typer.Option(metavar="DIR", help="Save the sketch of every window to DIR.")],
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The cluster's scheduler, like tcp://host:8786.")
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Start worker processes on this machine instead.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes of --local.", show_default="one for each core")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for results in between; all workers must see it.", show_default="SAVE.work"
        ),
    ] = None,
    keep_work: Annotated[bool, typer.Option("--keep-work", help="Leave the results in between there.")] = False,
    task_size: Annotated[
        str | None, typer.Option(help="Captures of one task, like 1GiB.", show_default="by the number of workers")
    ] = None,
    inner: Inner = [],  # noqa: B006
    exclude: Exclude = [],  # noqa: B006
    watch: Watch = ["inner"],  # noqa: B006
    direction: Direction = ["any"],  # noqa: B006
    threshold: Threshold = None,
    top: Top = None,
    window: WindowLength = "5m",
    detector: Annotated[
        str, typer.Option(help="cube, cbaa, cbaa-paper, exact, dcds, vbfa, gse or spreadsketch.")
    ] = "cube",
    memory: Memory = "128MiB",
    geometry: GeometryText = "",
    ipv6_prefix: Ipv6Prefix = 64,
    key_file: KeyFile = None,
    site: Site = "local",
    json: Json = False,
    csv: CsvFlag = False,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Find the super hosts of many captures on a Dask cluster: the same sketches as one scan over all of them.

    Workers read the captures, so these lie in a shared folder or behind URLs. A run that was interrupted goes on where
    it was when the same command is given again. The key travels to the workers: use Dask's TLS where others listen.

    Examples: superhosts batch 'day/**/*.pcap.gz' --local --save sketches · superhosts batch s3://captures/2026-11-14
    --scheduler tcp://head:8786 --save /shared/sketches
    """
    from superhosts.errors import UsageError
    from superhosts.pipeline.settings import Settings
    from superhosts.reports.opening import OutputOptions, open_destinations

    if local == (scheduler is not None):
        raise UsageError("give either --scheduler ADDRESS or --local")
    if workers is not None and not local:
        raise UsageError("--workers: only with --local; a cluster has the workers that it has")
    settings = Settings(
        inner=inner,
        exclude=exclude,
        watch=watch,
        direction=direction,
        threshold=threshold,
        top=top,
        window=window,
        detector=detector,
        memory=memory,
        geometry=geometry,
        ipv6_prefix=ipv6_prefix,
        key=read_key(key_file),
        site=site,
        device="cpu",
    )
    several = len(set(watch)) > 1 or len(set(direction)) > 1
    place = _Place(scheduler, workers, work or _beside(save), keep_work, task_size)
    outputs = open_destinations(OutputOptions(json, csv, output), with_part=several)
    fail_with(_run(inputs, settings, outputs, save, place, quiet=quiet))


def _beside(save: Path) -> Path:
    whole = save.absolute()
    return whole.with_name(f"{whole.name}.work")


class _Place:
    """Where the work is done, and how it is cut."""

    def __init__(
        self, scheduler: str | None, workers: int | None, work: Path, keep: bool, task_size: str | None
    ) -> None:
        from superhosts.units import parse_size

        self.scheduler = scheduler
        self.workers = workers
        self.work = work
        self.keep = keep
        self.task_size = None if task_size is None else max(1, parse_size(task_size))


def _run(
    inputs: list[str], settings: Settings, outputs: Destinations, save: Path, place: _Place, *, quiet: bool
) -> list[SuperhostsError]:
    """Run and hand out the results; return the inputs' errors, all said already."""
    from superhosts.batch.cluster import connect
    from superhosts.batch.run import Batch, prepare
    from superhosts.cli.scan import file_name, prepare_folder, summarise
    from superhosts.reports.base import Report
    from superhosts.reports.titles import window_title
    from superhosts.sources.opening import list_files

    errors: list[SuperhostsError] = []
    progress = _Progress(show=not quiet)

    def on_error(error: SuperhostsError) -> None:
        errors.append(error)
        with progress.paused():
            say(f"superhosts: {error}")

    if quiet:
        warnings.simplefilter("ignore")
    with outputs:
        outputs.outlive_reader()
        settings = prepare(settings)  # before anything is started
        captures = list_files(inputs, on_error)
        prepare_folder(save, settings.site)
        if not captures:
            return errors
        with connect(place.scheduler, place.workers) as client, progress:
            run = Batch(
                client,
                captures,
                settings,
                place.work,
                task_size=place.task_size,
                on_error=on_error,
                on_progress=progress.update,
            )
            try:
                for result in run:
                    title = window_title(result.window, settings.least_peers, settings.top, len(result.rows))
                    with progress.paused():
                        outputs.write(Report(rows=result.rows, window=result.window, title=title))
                    _save(result, save / file_name(result.window, settings), settings)
            except BaseException:
                if not run.tasks:
                    run.clear()
                elif not quiet:
                    say(f"what was done is kept in {place.work}: the same command goes on from there")
                raise
        if not place.keep:
            run.clear()
    if not quiet:
        again = f", {run.reused:,} of them from before" if run.reused else ""
        say(f"{len(captures):,} captures, {run.tasks:,} tasks{again}")
        summarise(run.counters)
    return errors


def _save(result: BatchWindow, path: Path, settings: Settings) -> None:
    """Put a window's sketch into place; what an earlier run saved of the same window and site is kept, too."""
    import os

    from superhosts.cli.scan import merge_saved
    from superhosts.cubefile.container import is_whole
    from superhosts.durable import copy_synced
    from superhosts.errors import OutputError, SketchFileError
    from superhosts.replacing import place, sync_folder

    if path.exists():
        from superhosts.sketches.bundle import Sketch

        whole = Sketch()
        whole.merge_file(result.path, key=settings.key)
        merge_saved(whole, path, settings.key)
        whole.save(path)
        sync_folder(path.parent)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        if not is_whole(result.path):
            raise SketchFileError(
                "damaged since it was written; the same command makes it again", file=str(result.path)
            )
        try:
            os.link(result.path, temporary)  # the work folder's name for it goes away later
        except OSError:  # another file system, or one without links
            copy_synced(result.path, temporary, shared=True)
        place(temporary, path)  # before the work folder goes
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


class _Progress:
    """A bar of the tasks done, of those known so far, on standard error where that is a terminal."""

    def __init__(self, *, show: bool) -> None:
        self._bar = None
        if show and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("tasks", total=None)

    def update(self, done: int, total: int) -> None:
        """Show how far the work is."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Clear the bar, if it is shown, while something is printed."""
        shown = self._bar is not None and self._bar.live.is_started
        if self._bar is not None and shown:
            self._bar.stop()
        try:
            yield
        finally:
            if self._bar is not None and shown:
                self._bar.start()

    def __enter__(self) -> None:
        if self._bar is not None:
            self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
