"""The one grammar of inputs: what a name given to a command or to `superhosts.scan` stands for.

- A word of `SCHEMES` and a colon (synth:flows=100k): the source that the scheme opens. ./synth:x is a file.
- `-`: standard input. A path or URL of a file, or a pipe: its first bytes say which of `FORMATS` reads it, or which
  format of tables (`tables/formats.py`), unless the caller names one.
- A folder: the files below it; with `follow` the files that a program writes into it, now and later.
- A pattern in quotes ('day/**/*.pcap') that is not a file's name: the files that match it.

To add a kind of traffic, write its `FileFormat`, or a function that opens such names, in a file of its own, and name it
in one of the two lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from superhosts.errors import InputError, SuperhostsError, UsageError
from superhosts.sources.base import Scheme, Source, input_border
from superhosts.sources.capture import CAPTURES, not_a_capture
from superhosts.sources.exports.containers import advice, exports_in, recognise_exports
from superhosts.sources.files import FoundFile, OnError, describe_file, find_files, is_url, natural_order
from superhosts.sources.folder import FolderSource
from superhosts.sources.input import STANDARD_INPUT, FileFormat, FileSource, Input
from superhosts.sources.tables.options import DEFAULT, EXPORT_FORMATS, TableOptions

if TYPE_CHECKING:
    from superhosts.sources.exports.collector import Pool


def _scheme(word: str, place: str) -> Scheme:
    """Return a scheme whose module is loaded where there is such an input: most runs have none of them."""
    module, _, name = place.partition(":")

    def open(text: str) -> Source | Sequence[Source]:
        opened: Source | Sequence[Source] = getattr(import_module(f"superhosts.sources.{module}"), name)(text)
        return opened

    return Scheme(word, open)


SCHEMES: list[Scheme] = [
    _scheme("synth", "synthetic.source:open_synthetic"),
    _scheme("kafka", "kafka:open_kafka"),
    _scheme("live", "livecapture:open_live"),
    _scheme("netflow", "exports.udp:open_port"),
    _scheme("sflow", "exports.udp:open_port"),
]
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
        from superhosts.sources.tables.formats import check_format  # as in `file_format`

        check_format(tables.format)
    sources: list[Source] = []
    pool: Pool = {}
    kinds = partial(file_format, tables=tables, pool=pool)
    for name in _expand(inputs, on_error, follow=follow):
        with _reported(on_error, name):
            if follow and _is_folder(name):
                opened: Sequence[Source] = [FolderSource(name, kinds, done=done, on_error=on_error)]
            else:
                opened = open_all(name, tables, pool)
            for source in opened:
                source.counters.on_warning = on_warning
                if not done or source.identity() not in done:
                    _warn_of_exports(source, tables)
                    sources.append(source)
    return sources


def open_all(name: Name, tables: TableOptions = DEFAULT, pool: Pool | None = None) -> Sequence[Source]:
    """Open the sources that a name stands for: one, unless its scheme has names of several.

    Inputs that share a `pool` learn templates of flow exports from each other.
    """
    scheme = _scheme_of(name)
    if scheme is None:
        return [FileSource(Input(name), partial(_recognise, tables=tables, pool={} if pool is None else pool))]
    opened = scheme.open(str(name))
    sources = opened if isinstance(opened, Sequence) else [opened]
    for source in sources:
        source.choose_time(tables.time)
    return sources


def follow_file(path: Path, on_error: OnError, tables: TableOptions) -> Source:
    """Return a source that reads a file while it grows."""
    return FolderSource(path.parent, partial(file_format, tables=tables, pool={}), only=path.name, on_error=on_error)


def _warn_of_exports(source: Source, tables: TableOptions) -> None:
    """Warn if a capture that is read as traffic has flow exports, which the caller may have meant."""
    if not isinstance(source, FileSource) or source.format is not CAPTURES or tables.format is not None:
        return
    if (found := exports_in(source.head())) is not None:
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


def _recognise(file: Input, tables: TableOptions, pool: Pool) -> FileFormat:
    head = file.head()
    format = file_format(head, file.first_lines, tables, pool)
    if format is None and head and file.reopens:  # Of a pipe the reader says it.
        raise not_a_capture(head, file.name, file.compression)
    return format or CAPTURES


def file_format(head: bytes, first_lines: Callable[[], bytes], tables: TableOptions, pool: Pool) -> FileFormat | None:
    """Return the format of a file by its first bytes; None if nothing recognises it.

    A format of tables that the caller names holds for every file except captures, one of exports for captures, too.
    """
    export = tables.format if tables.format in EXPORT_FORMATS else None if tables.format else recognise_exports(head)
    if export is not None and head:
        from superhosts.sources.exports.files import export_files

        return export_files(export, tables.time, pool)
    for format in FORMATS:
        if format.recognises(head):
            return format
    if not head:
        return None
    # Loaded where there is a table, as the modules of exports and of schemes are: a capture needs none of their loops.
    from superhosts.sources.tables.formats import table_format
    from superhosts.sources.tables.source import table_files

    table = table_format(tables.format, first_lines())
    return None if table is None else table_files(table, tables)


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
