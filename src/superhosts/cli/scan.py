"""`superhosts scan`: super hosts of captures."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from superhosts.cli._options import (
    Device,
    Direction,
    Exclude,
    GeometryText,
    Inner,
    Inputs,
    Ipv6Prefix,
    Memory,
    MemoryTotal,
    Quiet,
    Site,
    Watch,
    WindowLength,
)
from superhosts.cli._outputs import CsvFlag, Json, KeyFile, Output, Threshold, Top, fail_with, read_key, say
from superhosts.cli._signals import Wishes
from superhosts.text import printable

if TYPE_CHECKING:
    from superhosts.errors import OutputError, SuperhostsError
    from superhosts.pairs import Window
    from superhosts.pipeline.building import WindowResult
    from superhosts.pipeline.scan import Counters, Scan
    from superhosts.pipeline.settings import Settings
    from superhosts.reports.fanout import Destinations
    from superhosts.sketches.bundle import Sketch


def scan(
    inputs: Inputs,
    inner: Inner = [],  # noqa: B006
    exclude: Exclude = [],  # noqa: B006
    watch: Watch = ["inner"],  # noqa: B006
    direction: Direction = ["any"],  # noqa: B006
    threshold: Threshold = None,
    top: Top = None,
    window: WindowLength = "5m",
    detector: Annotated[
        str, typer.Option(help="cube, cbaa, cbaa-paper, exact, dcds, vbfa, gse, filter or spreadsketch.")
    ] = "cube",
    memory: Memory = "128MiB",
    geometry: GeometryText = "",
    memory_total: MemoryTotal = None,
    ipv6_prefix: Ipv6Prefix = 64,
    key_file: KeyFile = None,
    site: Site = "local",
    device: Device = "auto",
    json: Json = False,
    csv: CsvFlag = False,
    output: Output = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Save the sketch of every window to DIR; a sketch of the same window and site that is there is merged "
            "into it.",
        ),
    ] = None,
    fail_on_find: Annotated[bool, typer.Option(help="Exit with status 1 if any super host was found.")] = False,
    quiet: Quiet = False,
) -> None:
    """Find the super hosts of captures: hosts that talk to many distinct peers within a window.

    Examples: superhosts scan trace.pcap --inner 10.0.0.0/8 · tcpdump -w - | superhosts scan - --json ·
    superhosts scan day/*.pcap.gz --window 1h --top 20 --save sketches

    Ctrl-C and SIGTERM end it in good order: the open window is reported and saved, marked as partial. A second one,
    half a second later or more, ends it at once.

    Where a sketch cannot be saved (a file of its name is damaged, or of another geometry) the file stays as it is, the
    scan goes on, and the exit status is 4.
    """
    from superhosts.pipeline.settings import Settings
    from superhosts.reports.opening import OutputOptions, open_destinations

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
        memory_total=memory_total,
        ipv6_prefix=ipv6_prefix,
        key=read_key(key_file),
        site=site,
        device=device,
    )
    several = len(set(watch)) > 1 or len(set(direction)) > 1
    outputs = open_destinations(OutputOptions(json, csv, output), with_part=several)
    errors, found_any = run_scan(inputs, settings, outputs, save=save, quiet=quiet)
    fail_with(errors)
    if fail_on_find and found_any:
        raise typer.Exit(1)


def run_scan(
    inputs: list[str], settings: Settings, outputs: Destinations, *, save: Path | None = None, quiet: bool = False
) -> tuple[list[SuperhostsError], bool]:
    """Scan and hand out the results; return all errors, said already, and whether any host was found.

    A scan that is interrupted reports what it has and then raises typer.Exit.
    """
    from superhosts.pipeline.scan import RunOptions, Scan
    from superhosts.reports.base import Report
    from superhosts.reports.rows import make_rows
    from superhosts.sources.opening import open_inputs

    errors: list[SuperhostsError] = []

    def on_error(error: SuperhostsError) -> None:
        errors.append(error)
        say(f"superhosts: {error}")

    progress = _Progress(show=not quiet and sys.stderr.isatty())
    found_any = is_partial = False
    with outputs:
        if save is not None:
            outputs.outlive_reader()
            prepare_folder(save, settings.site)
        sources = open_inputs(inputs, on_error)
        options = RunOptions(revises=True, leaves_open=False)
        run = Scan(sources, settings, options, on_error=on_error, on_progress=progress.update)
        keeper = None if save is None else _Keeper(save, settings)
        if quiet:
            warnings.simplefilter("ignore")
        else:
            _announce(settings)
        with Interruption(run.stop) as interruption, progress.over(run):
            for result in run:
                progress.pause()
                rows = make_rows(result.window, result.found, partial=result.partial, revision=result.revision)
                outputs.write(
                    Report(rows=rows, window=result.window, revision=result.revision, title=_title(result, settings))
                )
                found_any, is_partial = found_any or bool(rows), result.partial
                if keeper is not None:
                    keeper.save(result)
                del result  # its cubes: the next window's are made while this loop waits
                progress.resume()
    if not quiet:
        summarise(run.counters)
    _warn(run.counters)
    if interruption.number is not None:
        say("superhosts: interrupted; the last window is partial" if is_partial else "superhosts: interrupted")
        raise typer.Exit(128 + interruption.number)
    unsaved = [] if keeper is None else list(keeper.unsaved.values())
    return [*unsaved, *errors], found_any


class Interruption:
    """The first SIGINT or SIGTERM stops the work in good order, a second one ends the process at once."""

    def __init__(self, stop: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.number: int | None = None  # of the signal that came
        self._stop = stop
        self._wishes = Wishes(clock)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as a shell sets it for what runs in the background
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: object) -> None:
        wish = self._wishes.note()
        if wish == 2:
            os._exit(128 + number)
        if wish == 1:
            self.number = number
            self._stop()


def _title(result: WindowResult, settings: Settings) -> str:
    from superhosts.reports.titles import PARTIAL, window_title

    title = window_title(result.window, settings.least_peers, settings.top, len(result.found))
    notes = {PARTIAL: result.partial, f"revision {result.revision}": result.revision > 1}
    return title + "".join(f" ({note})" for note, holds in notes.items() if holds)


def prepare_folder(folder: Path, site: str) -> None:
    """Make the folder for sketches whose names hold the site's."""
    from superhosts.errors import OutputError, UsageError

    if not site or set(site) & set("/\\\0"):
        shown = printable(site) if site else "is empty"
        raise UsageError(f"--site {shown}: a name without slashes is needed, since it becomes part of file names")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"--save {folder}: cannot be made: {error.strerror}") from None


class _Keeper:
    """Saves the windows' sketches; what an earlier run saved of the same window and site is kept, too."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder, self._settings = folder, settings
        self._older: set[Path] = set()  # files that hold what an earlier run saved
        self.unsaved: dict[Path, OutputError] = {}  # why, each said already

    def save(self, result: WindowResult) -> None:
        """Save a sketch; where that fails say so. A later revision of a window holds all that this run saved of it."""
        from superhosts.errors import OutputError

        path = self._folder / file_name(result.window, self._settings)
        try:
            if result.revision == 1 and path.exists():
                self._older.add(path)
            if path in self._older:
                merge_saved(result.sketch, path, self._settings.key)
            result.sketch.partial |= result.partial
            result.sketch.save(path)
            self.unsaved.pop(path, None)
        except OutputError as error:
            if path not in self.unsaved:
                say(f"superhosts: NOT SAVED: {error}")
            self.unsaved[path] = error


def merge_saved(sketch: Sketch, path: Path, key: bytes | str | None) -> None:
    """Merge what an earlier run saved; OutputError says why that cannot be."""
    from superhosts.cli._sketches import merge_named
    from superhosts.errors import InputError, MergeError, OutputError

    try:
        merge_named(sketch, path, key)
    except (InputError, MergeError) as error:
        raise OutputError(f"{error}; move this file away, or save to another folder") from None


def file_name(window: Window, settings: Settings) -> str:
    """Name a window's sketch: START-LENGTH-SITE.cube, START as 20261114T120000Z."""
    from superhosts.times import compact_time, window_name

    second = window.start - window.start % 10**9  # the window over all begins with its first packet, at any fraction
    name = f"{compact_time(second)}-all" if settings.window == "all" else window_name(window)
    return f"{name}-{settings.site}.cube"


def _announce(settings: Settings) -> None:
    from superhosts.compiled import is_cold
    from superhosts.detectors.cube.cpu import fill
    from superhosts.device import choose_device, gpus_of
    from superhosts.sources.capture import MOST_MEMORY
    from superhosts.units import format_size

    gpus = gpus_of(choose_device(settings.device))
    if settings.detector == "exact":
        say("memory: grows with the traffic, as the exact answer needs every distinct pair")
    else:
        cubes = f"{len(settings.parts)} cubes of {format_size(settings.cube_memory)}"
        besides = f"{format_size(MOST_MEMORY)} for each open input and 250 MiB for Python"
        if gpus:
            say(f"memory: {cubes} on each GPU, and a tenth of a gigabyte here, {besides}")
        else:
            say(f"memory: at most {format_size(settings.most_memory)} ({cubes} with buffers), {besides}")
    say(_device(settings))
    if sys.stderr.isatty() and is_cold(fill):
        say("first run on this machine: compiling, 10 to 20 seconds …")
    elif sys.stderr.isatty() and gpus:
        say("compiling kernels for the GPU, a few seconds …")


def _device(settings: Settings) -> str:
    """Say where the work is done, and who chose that."""
    from superhosts.device import choose_device

    chosen = choose_device(settings.device)
    if settings.device != "auto":
        return f"device: {chosen}"
    return f"device: {chosen} (auto" + ("; superhosts doctor says more about GPUs)" if chosen == "cpu" else ")")


def summarise(counters: Counters) -> None:
    """Say what passed, and everything that did not become a pair."""
    parts = [f"{counters.packets:,} packet" + "s" * (counters.packets != 1)]
    notes = {
        "not_ip": "not IP",
        "cut": "cut short of their addresses",
        "unsupported_link": "of an unsupported link type",
        "no_inner_end": "without an inner end",
        "same_ends": "from an address to itself",
        "late": "too late for their window",
        "stray": "with a stray time",
        "repeated": "of windows that were done before",
        "skipped_family": "IPv6, which this detector does not take",
    }
    parts += [f"{getattr(counters, name):,} {words}" for name, words in notes.items() if getattr(counters, name)]
    say(", ".join(parts))
    for warning in counters.warnings:
        say(f"warning: {warning}")


def _warn(counters: Counters) -> None:
    """Say what makes results other than they look, also to those who asked for quiet."""
    if counters.revised:
        windows = "1 window was" if counters.revised == 1 else f"{counters.revised:,} windows were"
        again = f"{windows} reported a second time, as revision 2: keep the later rows"
        say(f"superhosts: warning: packets far out of order: {again}")
    if counters.unrevised:
        windows = "1 window was" if counters.unrevised == 1 else f"{counters.unrevised:,} windows were"
        lacking = f"without {counters.late:,} packets that lay far out of order; scan the files again"
        say(f"superhosts: warning: INCOMPLETE: {windows} reported and saved {lacking}")
    elif counters.late * 100 > counters.packets:
        share = f"{counters.late:,} of {counters.packets:,} packets ({counters.late / counters.packets:.1%})"
        way = "a file may be in any order, a pipe may not"
        say(f"superhosts: warning: {share} came too late for their window and are not counted; {way}")


class _Progress:
    """A bar with rate and time left on standard error, where that is a terminal."""

    def __init__(self, *, show: bool) -> None:
        self._bar = None
        if show:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), DownloadColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)

    def over(self, run: Scan) -> _Progress:
        """Take the size of all inputs as the whole."""
        if self._bar is not None:
            sizes = [source.size() for source in run.sources]
            total = None if None in sizes else sum(size or 0 for size in sizes)
            self._task = self._bar.add_task("scan", total=total, rate="")
        return self

    def __enter__(self) -> None:
        if self._bar is not None:
            self._started = time.monotonic()
            self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, position: int, packets: int) -> None:
        """Show how far the scan is."""
        if self._bar is not None:
            rate = packets / max(1e-9, time.monotonic() - self._started)
            self._bar.update(self._task, completed=position, rate=f"{rate / 1e6:.1f} M packets/s")

    def pause(self) -> None:
        """Clear the bar while results are printed."""
        if self._bar is not None:
            self._bar.stop()

    def resume(self) -> None:
        """Show the bar again."""
        if self._bar is not None:
            self._bar.start()
