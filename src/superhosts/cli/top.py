"""`superhosts top`: the live view of a web address, of a folder of sketches, or of traffic that it counts itself."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import click

from superhosts.cli._declaration import check_no_conflict, declared
from superhosts.cli._keys import key_for_sketches, read_token
from superhosts.cli._options import EndlessTrafficOptions, NamesOptions, PairCubeOptions, WantedOptions
from superhosts.cli._settings import make_settings, naming_of
from superhosts.cli._values import parse_seconds
from superhosts.cli.scan import ScanRun, run_scan, use_filter
from superhosts.cli.usage.traffic import Top
from superhosts.cli.web import REST, folder_view
from superhosts.core.text import printable
from superhosts.errors import SuperhostsError, UsageError
from superhosts.jit.compilation import NOTICE, before_compiling
from superhosts.output.console import OUT_OF_MEMORY, ReportedErrors, fail_with, say, say_traceback, use_log
from superhosts.output.destination import Destinations
from superhosts.output.names import Annotator
from superhosts.output.report import Report
from superhosts.pipeline.scan import Scan, scan_options
from superhosts.sources.base import Source
from superhosts.sources.open import follow_file, open_inputs
from superhosts.ui.board import Board
from superhosts.ui.live import OpenWindow
from superhosts.ui.service import STATUS
from superhosts.ui.top import load_app
from superhosts.ui.top.feed import Feed, RemoteFeed
from superhosts.ui.view import View

OPEN = "open"  # a note on a window that is not over
ENDED = "the input has ended"
PATIENCE = 10.0  # seconds in which a run that was stopped should end
RECENT = 10.0  # seconds for which a message is shown
KEPT = 50  # messages that are written when the screen has gone


class Messages:
    """Lines for standard error, which belongs to the screen: the last one is shown there, and all follow its end."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT)
        self._since, self._last = float("-inf"), ""

    def write(self, text: str) -> None:
        self.lines.append(text)
        self.tell(text)

    def tell(self, text: str) -> None:
        """Show a line that nobody needs to read later."""
        self._last, self._since = text, time.monotonic()

    def show(self, status: str) -> None:
        """Show nothing: the screen has its own lines."""

    def status(self) -> dict[str, int]:
        return {"waiting": 0, "dropped": 0}

    def latest(self) -> str:
        return self._last if time.monotonic() - self._since < RECENT else ""


def open_feed(options: Top) -> Feed:
    """Return what the inputs name. Raise UsageError if options do not belong to it."""
    first = options.inputs[0]
    is_address = first.startswith(("http://", "https://"))
    if is_address or _holds_sketches(first):
        if len(options.inputs) > 1:
            raise UsageError(f"{printable(options.inputs[1])}: top shows one address or folder at a time")
        return _address(options) if is_address else _folder(options, Path(first))
    kind = "only with an address or a folder; with other inputs `superhosts watch` makes alerts"
    check_no_conflict(options, ("token_file", "alerts"), kind)
    return LiveFeed(options)


def _holds_sketches(name: str) -> bool:
    """Return True for a folder of sketches, of a hub, or that is empty: others hold captures."""
    folder = Path(name)
    if not folder.is_dir():
        return False
    if (folder / STATUS).exists() or not any(folder.iterdir()):
        return True
    return any(file.endswith(".cube") for _, _, files in os.walk(folder) for file in files)


def _address(options: Top) -> Feed:
    groups = (EndlessTrafficOptions, WantedOptions, PairCubeOptions, NamesOptions)
    others = (*(name for group in groups for name in declared(group)), "alerts")
    check_no_conflict(options, others, "not with a web address: the program there was started with its own options")
    file = options.token_file
    feed = RemoteFeed(options.inputs[0], "" if file is None else read_token(file, "--token-file"))
    try:
        feed.summary()
    except UsageError:  # which trying again does not mend
        raise
    except (OSError, SuperhostsError):
        pass
    return feed


def _folder(options: Top, path: Path) -> Feed:
    made = [*declared(EndlessTrafficOptions), *declared(PairCubeOptions), "token_file"]
    others = [name for name in made if name not in ("key_file", "memory_total")]
    check_no_conflict(options, others, "not with a folder of sketches, which were made with their own options")
    view = folder_view(path, options, options.memory_total)
    view.start_filling(lambda _: None, follow=True, rest=REST)  # The screen shows what cannot be shown.
    return view


class LiveFeed(View):
    """A view of inputs that a thread counts, with the open window besides those that have closed."""

    def __init__(self, options: Top) -> None:
        if "-" in options.inputs:
            raise UsageError("-: top reads keys from standard input; superhosts watch reads pipes")
        self.errors = ReportedErrors()
        self._options, board = options, Board()
        self._sources = _open_sources(options, self.errors)
        self._settings = replace(make_settings(options), key=key_for_sketches(options.key_file, saves=False))
        naming = naming_of(options)
        self._outputs = Destinations([board], Annotator(naming) if naming else None)
        self._open = OpenWindow(parse_seconds(options.refresh))
        self._scan: Scan | None = None
        self._thread = threading.Thread(target=self._run, name="count", daemon=True)
        title = "watch " + ", ".join(dict.fromkeys(source.name for source in self._sources))
        super().__init__(title, board, lambda: self._settings.selection, is_live=True)
        self.on_end: Callable[[], None] = lambda: None
        self._ended = ""

    @property
    def lost(self) -> str:
        """Why nothing is counted: the input has ended, or it cannot be read."""
        if self._ended or self.board.newest is not None:
            return self._ended
        return str(self.errors.found[-1]) if self.errors.found else ""

    def _run(self) -> None:
        try:
            self._count()
        except SuperhostsError as error:
            self.errors.add(error)
        except MemoryError:
            self.errors.add(SuperhostsError(OUT_OF_MEMORY))
        except Exception as error:
            say_traceback(traceback.format_exc())
            self.errors.add(SuperhostsError(f"counting has failed ({error!r}): please report this"))
        finally:  # or the screen would say that it is live
            self._ended = str(self.errors.found[-1]) if self.errors.found else ENDED
            self.on_end()

    def _count(self) -> None:
        grace = parse_seconds(self._options.grace)
        timing = scan_options(self._sources, self._settings, joins_short=False, grace=grace)
        how = ScanRun(view=self, quiet=True, run=timing._replace(leaves_open=False))
        run_scan(self._sources, self._settings, self._outputs, self.errors, how)

    # What `run_scan` tells while it counts (`View` in _progress.py)

    @contextmanager
    def of(self, run: Scan) -> Iterator[None]:
        self._scan = run
        if self._closing.is_set():
            run.stop()
        yield

    def step(self, _position: int, _packets: int) -> None:
        assert self._scan is not None
        if self._open.ask_if_due(self._scan) and self._open.report is not None:
            report = self._open.report
            self._outputs.write(replace(report, notes=[*report.notes, OPEN]))

    def reporting(self, _report: Report) -> AbstractContextManager[object]:
        """Do nothing: nothing is printed, and the board is a destination."""
        return nullcontext()

    def follow(self, listener: Callable[[], None]) -> None:
        super().follow(listener)
        self._thread.start()

    def close(self) -> None:
        super().close()
        if self._scan is not None:
            self._scan.stop()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE)


def _open_sources(options: Top, errors: ReportedErrors) -> list[Source]:
    """Open the inputs as `watch` does; a file that is not compressed is followed while it grows."""
    tables = options.tables
    sources: list[Source] = []
    for name in options.inputs:
        path = Path(name)
        if path.is_file():
            sources.append(follow_file(path, errors.add, tables))
        else:
            sources += open_inputs([name], errors.add, follow=True, tables=tables)
    use_filter(sources, options.filter)
    if not sources:
        fail_with(errors.found)
    return sources


LEFT = 6  # lines of the terminal that what stays there does not take
NO_TERMINAL = (
    "top needs a terminal for {}; without one, superhosts watch writes windows as they close, and superhosts hosts "
    "answers from saved sketches"
)


def top(options: Top) -> None:
    make_settings(options)  # A wrong value is told wherever this runs.
    check_terminal()
    make_app = load_app()
    feed = open_feed(options)
    messages = Messages()
    app = make_app(feed, messages=messages.latest)
    if isinstance(feed, LiveFeed):
        feed.on_end = lambda: app.leave_if_empty()
    use_log(messages)
    before_compiling(lambda what: messages.tell(NOTICE.format(what)))
    try:
        app.run(mouse=False)
    finally:
        feed.close()
        use_log(None)
        size = shutil.get_terminal_size()
        for line in app.findings(size.columns, size.lines - LEFT):
            click.echo(line)
        for line in messages.lines:
            say(line)
    if app.return_code:
        raise click.exceptions.Exit(app.return_code)
    if isinstance(feed, LiveFeed):
        fail_with(feed.errors.found)


def check_terminal() -> None:
    """Raise UsageError if the screen cannot be shown, or its keys cannot be read."""
    streams = {"standard input": sys.stdin, "standard output": sys.stdout, "standard error": sys.stderr}
    for name, stream in streams.items():
        if stream is None or not stream.isatty():
            raise UsageError(NO_TERMINAL.format(name))
