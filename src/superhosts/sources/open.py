"""The one grammar of inputs: what a name given to a command or to `superhosts.scan` stands for.

- A word of `SCHEMES` and a colon (synth:flows=100k): the source that the scheme opens. ./synth:x is a file.
- `-`: standard input. A path or URL of a file, or a pipe: its first bytes say which of `FORMATS` reads it, or which
  format of tables (`tables/formats.py`), unless the caller names one.
- A folder: the files below it; with `follow` the files that a program writes into it, now and later.
- A pattern in quotes ('day/**/*.pcap') that is no file's name: the files that match it.

To add a kind of traffic, write its source in a file of its own and add one line to one of the two lists here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from superhosts.core.pairs import PacketBlock
from superhosts.errors import InputError, SuperhostsError, UsageError
from superhosts.sources.base import Scheme, Source, SourceCounters, Stopped, input_border
from superhosts.sources.capture import CAPTURES, CaptureSource
from superhosts.sources.exports.containers import advice, exports_in, recognise_exports
from superhosts.sources.files import FoundFile, OnError, describe_file, find_files, is_url, natural_order
from superhosts.sources.folder import FolderSource
from superhosts.sources.input import STANDARD_INPUT, FileFormat, Input
from superhosts.sources.kafka import KAFKA
from superhosts.sources.livecapture import LIVE
from superhosts.sources.synthetic.source import SYNTHETIC
from superhosts.sources.tables.formats import check_format, table_format
from superhosts.sources.tables.options import DEFAULT, EXPORT_FORMATS, TableOptions
from superhosts.sources.tables.source import TableSource

if TYPE_CHECKING:
    from superhosts.sources.exports.collector import Pool


class PipeSource(Source):
    """An input whose bytes come once. `recognise` opens it once its first bytes are there."""

    replays = False

    def __init__(self, pipe: Input, recognise: Callable[[Input], Source]) -> None:
        self.name = pipe.name
        self.live = pipe.live
        self.counters = SourceCounters()
        self._input = pipe
        self._recognise = recognise
        self._source: Source | None = None

    def _recognised(self) -> Source:
        if self._source is None:
            source = self._recognise(self._input)
            source.counters.on_warning = self.counters.on_warning
            source.want(self.wants)
            self._source, self.counters = source, source.counters
        return self._source

    def first_time(self) -> int | None:
        return self._recognised().first_time()

    def blocks(self) -> Iterator[PacketBlock]:
        try:
            source = self._recognised()
        except Stopped:
            return
        yield from source.blocks()

    def position(self) -> int:
        return 0 if self._source is None else self._source.position()

    def size(self) -> int | None:
        return self._input.size

    def waits(self) -> bool:
        return self._input.waiting.waits

    def stop(self) -> None:
        self._input.waiting.stopped = True


def _open_port(text: str) -> Source:
    # Loaded where there is such an input, as `ExportFile` below: it has many compiled loops, which take 60 ms to load.
    from superhosts.sources.exports.udp import UdpSource, parse_listening

    return UdpSource(text, parse_listening(text))


SCHEMES: list[Scheme] = [SYNTHETIC, KAFKA, LIVE, Scheme("netflow", _open_port), Scheme("sflow", _open_port)]
FORMATS: list[FileFormat] = [CAPTURES]

Name = str | Path


def open_inputs(
    inputs: Sequence[Name],
    on_error: OnError | None = None,
    *,
    follow: bool = False,
    done: frozenset[str] = frozenset(),
    on_warning: Callable[[str], None] | None = None,
    tables: TableOptions = DEFAULT,
) -> list[Source]:
    """Open inputs by name. One that cannot be read goes to `on_error` where that is given, and the rest is opened.

    A name that makes no sense raises UsageError: nothing is read before all names are understood.

    `follow`: folders are followed. `done`: identities of files to leave out. `on_warning` takes warnings as they come,
    from the threads that read; without it all wait in the counters. `tables`: what is known of inputs that are tables.
    """
    if tables.format is not None and tables.format not in EXPORT_FORMATS:
        check_format(tables.format)
    sources: list[Source] = []
    pool: Pool = {}
    for name in _expand(inputs, on_error, follow=follow):
        with _reported(on_error, name):
            if follow and _is_folder(name):
                opened: Sequence[Source] = [FolderSource(name, done=done, on_error=on_error, tables=tables)]
            else:
                opened = open_all(name, tables, pool)
            for source in opened:
                if not done or source.identity() not in done:
                    source.counters.on_warning = on_warning
                    _warn_of_exports(source, tables)
                    sources.append(source)
    return sources


def open_all(name: Name, tables: TableOptions = DEFAULT, pool: Pool | None = None) -> Sequence[Source]:
    """Open the sources that a name stands for: one, unless its scheme has names of several.

    Inputs that share a `pool` learn templates of flow exports from each other.
    """
    scheme = _scheme_of(name)
    if scheme is None:
        file = Input(name)
        # A pipe may have nothing to read for hours, and opening must not wait for its first bytes.
        recognise = partial(_recognise, tables=tables, pool={} if pool is None else pool)
        return [recognise(file) if file.reopens else PipeSource(file, recognise)]
    opened = scheme.open(str(name))
    sources = opened if isinstance(opened, Sequence) else [opened]
    for source in sources:
        source.choose_time(tables.time)
    return sources


def open_input(name: Name, tables: TableOptions = DEFAULT) -> Source:
    (source,) = open_all(name, tables)
    return source


def _warn_of_exports(source: Source, tables: TableOptions) -> None:
    """Warn if a capture that is read as traffic has flow exports, which the caller may have meant."""
    if isinstance(source, CaptureSource) and source.replays and tables.format is None:
        found = exports_in(source.first_bytes())
        if found is not None:
            source.counters.warn(advice(source.name, found))


def list_files(inputs: Iterable[str], on_error: OnError) -> list[FoundFile]:
    """Return the files that inputs stand for, each once, by names that hold in any directory: for other machines.

    Missing files, and inputs that are not files, go to `on_error`.
    """
    found: dict[str, FoundFile] = {}
    for name in inputs:
        with _reported(on_error, name):
            if name == STANDARD_INPUT or _scheme_of(name) is not None:
                raise InputError("is not a file; other inputs are for scan", file=name)
            for file in find_files(name, on_error) or [describe_file(name)]:
                found[_full_name(file.name)] = file._replace(name=_full_name(file.name))
    return sorted(found.values(), key=lambda file: natural_order(file.name))


def _expand(inputs: Sequence[Name], on_error: OnError | None, *, follow: bool) -> Iterator[Name]:
    """Yield the inputs with folders and patterns replaced by their files; a file that several stand for comes once."""
    named: set[str] = set()
    found: set[str] = set()
    for name in inputs:
        files: list[FoundFile] | None = []
        with _reported(on_error, name):
            is_single = name == STANDARD_INPUT or _scheme_of(name) is not None or (follow and _is_folder(name))
            files = None if is_single else find_files(str(name), on_error or _raise)
        if files is not None:
            by_name = {_full_name(file.name): file.name for file in files}
            yield from (file for full, file in by_name.items() if full not in named and full not in found)
            found.update(by_name)
        elif _full_name(name) not in found:
            if name == STANDARD_INPUT and _full_name(name) in named:
                raise UsageError("-: given twice; standard input can be read only once")
            named.add(_full_name(name))
            yield name


def _recognise(file: Input, tables: TableOptions, pool: Pool) -> Source:
    """Open a file by its first bytes. One that nothing recognises is opened as a capture, which says what is wrong.

    A format of tables that the caller names holds for every file that is no capture, one of exports for captures, too.
    """
    head = file.head()
    export = tables.format if tables.format in EXPORT_FORMATS else None if tables.format else recognise_exports(head)
    if export is not None and head:
        from superhosts.sources.exports.files import ExportFile

        return ExportFile(file, export, tables.time, pool)
    for format in FORMATS:
        if format.recognises(head):
            return format.open(file)
    table = table_format(tables.format, file.first_lines()) if head else None
    return CAPTURES.open(file) if table is None else TableSource(file, table, tables)


def _scheme_of(name: Name) -> Scheme | None:
    if not isinstance(name, str):
        return None
    return next((scheme for scheme in SCHEMES if name.startswith(f"{scheme.word}:")), None)


def _is_folder(name: Name) -> bool:
    return not is_url(name) and Path(name).is_dir()


def _full_name(name: Name) -> str:
    return str(name) if is_url(name) else str(Path(name).absolute())


@contextmanager
def _reported(on_error: OnError | None, name: Name) -> Iterator[None]:
    """Hand the error of an input to `on_error` where that is given. Usage errors end the command."""
    try:
        with input_border(str(name)):
            yield
    except SuperhostsError as error:
        if on_error is None or isinstance(error, UsageError):
            raise
        on_error(error)


def _raise(error: SuperhostsError) -> None:
    raise error
