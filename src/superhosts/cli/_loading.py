"""Commands that are loaded when they are called.

The program knows each command by name and by one line of help. Its options are loaded when it is called, its body after
the options have been parsed: so help and usage errors need none of the packages that the work needs.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.util import resolve_name
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from superhosts.cli._console import announce_compiling, use_log_format
from superhosts.cli._groups import as_function
from superhosts.cli._parsing import Command, Group
from superhosts.core.times import local_times
from superhosts.errors import UsageError
from superhosts.output.streams import silence_stdout

PACKAGE = "superhosts.cli"  # to which names with a leading dot are relative


class Entry(NamedTuple):
    """Where a command is: `module:name` of the class of its options and of its body, and one line of help."""

    options: str
    body: str
    help: str


class LazyCommand(TyperCommand):
    """A command that stands in the list of commands and loads its options when it is called."""

    def __init__(self, name: str, entry: Entry) -> None:
        super().__init__(name, help=entry.help)
        self._entry = entry

    def load(self, body: Callable[[Any], None] | None = None) -> Any:
        """Return the command with its options, as typer makes it; `body` instead of its own gets the options."""
        options = _load(self._entry.options)
        app = typer.Typer(add_completion=False)
        body = body or (lambda given: _run(self._entry, given))
        app.command(self.name, cls=Command)(as_function(options, body))
        return typer.main.get_command(app)

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments with the options of the command."""
        global _parse
        _parse = partial(self._parse, info_name, list(args), parent)
        return self.load().make_context(info_name, args, parent=parent, **extra)

    def _parse(self, info_name: Any, args: list[str], parent: Any) -> Any:
        """Return the options that the arguments give now, as an object."""
        found: list[Any] = []
        command = self.load(found.append)
        with command.make_context(info_name, list(args), parent=parent) as context:
            command.invoke(context)
        return found[0]


_parse: Callable[[], Any] | None = None  # parses the arguments of the command that runs


def options_now() -> Any:
    """Return the options of the command that runs as its arguments, its file and the environment give them now.

    Raise UsageError if they are wrong by now.
    """
    assert _parse is not None
    try:
        return _parse()
    except typer.BadParameter as error:
        raise UsageError(error.message) from None


def add_commands(program: TyperGroup, entries: Mapping[str, Entry], groups: Mapping[str, str]) -> None:
    """Add commands to a program. A name of two words is a command in a group, for which `groups` has the help."""
    for words, entry in entries.items():
        *path, name = words.split()
        group = program
        for step in path:
            if step not in group.commands:
                group.add_command(Group(name=step, help=groups[step], no_args_is_help=True))
            inner = group.commands[step]
            assert isinstance(inner, TyperGroup)
            group = inner
        group.add_command(LazyCommand(name, entry))


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    if resolve_name(module, PACKAGE) not in sys.modules:
        with _collecting_nothing():
            import_module(module, PACKAGE)
    return getattr(import_module(module, PACKAGE), name)


@contextlib.contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Load modules without the garbage collector: they are not garbage, and examining them takes a tenth of a second.

    `freeze` hides them from later collections, too.
    """
    collected_before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collected_before:
            gc.enable()


def _run(entry: Entry, options: Any) -> None:
    """Load and run the body. It ends without an error if the reader of its output has gone."""
    with contextlib.ExitStack() as around:
        shown = getattr(options, "service", options)  # the group that has it, or the command itself
        use_log_format(getattr(shown, "log_format", "text"))
        announce_compiling(quiet=getattr(options, "quiet", False))
        around.enter_context(local_times(getattr(shown, "local_time", False)))
        for make_context in getattr(options, "around", ()):  # entered before the body is loaded, which takes a second
            around.enter_context(make_context())
        try:
            _load(entry.body)(options)
            sys.stdout.flush()
        except BrokenPipeError:  # caught here: typer would exit with status 1
            silence_stdout()
