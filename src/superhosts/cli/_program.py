"""Typer's commands, loaded when they are called, with options in groups, one-line errors and plain usage lines.

The program knows each command by name and by one line of help. Its options are loaded when it is called, its body after
the options have been parsed: so help and usage errors need none of the packages that the work needs.

| typer alone | here |
|---|---|
| a bad value ends in a box of five lines | one line that names the option, as for all other errors |
| `--output` of `merge` given twice: the first is dropped | an error |
| `{INPUT...}...`, `<list[str]>`, `<bool>` | `INPUT...`; no types beside names that say enough |
| a paragraph keeps the line breaks of its source | it is filled to the width of the terminal |
| pydantic converts every value, and takes 0.15 s to load | values that need no conversion are taken as they are |

A class of options (`_declaration.py`) becomes the signature that typer reads, and its docstring the help.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.util import resolve_name
from typing import Any, NamedTuple, get_origin

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from superhosts.core.times import local_times
from superhosts.errors import UsageError
from superhosts.output.console import announce_compiling, use_log_format
from superhosts.output.streams import silence_stdout

ONCE = ("output",)  # options that name a result: if given twice, the first one would silently not be written


class Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a value that is not accepted is an error of one line."""
        self._refuse_repeated(ctx, args)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if error.param is None or not error.message:  # a missing argument: typer shows the usage line
                raise
            raise UsageError(f"{name_of(error.param)}: {error.message}") from None

    def get_params(self, ctx: Any) -> list[Any]:
        return plain_parameters(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = ["[OPTIONS]"]
        for argument in self.params:
            if isinstance(argument, TyperArgument):
                words = str(argument.metavar or argument.name)
                pieces.append(words if argument.required else f"[{words}]")
        return pieces

    def _refuse_repeated(self, ctx: Any, args: list[str]) -> None:
        if ctx.resilient_parsing:
            return
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(given).items():
            if option.name in ONCE and times > 1 and not option.multiple:
                raise UsageError(f"{name_of(option)}: given {times} times; results go to one place, so give it once")


class Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return plain_parameters(super().get_params(ctx))


def name_of(parameter: Any) -> str:
    """Return the name of an option or argument as messages show it: --window, INPUT."""
    if isinstance(parameter, TyperArgument):
        return str(parameter.metavar or parameter.name).rstrip(".")
    return str(max(parameter.opts, key=len))


def plain_parameters(parameters: list[Any]) -> list[Any]:
    """Take away what typer shows beside arguments and flags whatever their metavar is, and names of variables.

    Every option has a variable of the environment, and --config says how they are called. Let typer convert only what
    needs it: neither text nor defaults. Versions without pydantic stay as they are.
    """
    for each in parameters:
        each.show_envvar = False
        if isinstance(each, TyperArgument) or getattr(each, "is_flag", False):
            each.display_type_rich = lambda ctx: None
        build = getattr(each, "get_runtime_param", None)
        if build is not None and not isinstance(build, _Lazily):
            each.get_runtime_param = _Lazily(build, each.type_descriptor)
    return parameters


class _Lazily:
    """typer's conversion of one parameter, which is built for the first value that needs it."""

    def __init__(self, build: Any, descriptor: Any) -> None:
        self._build = build
        self._kind = descriptor.annotation
        self._parse = descriptor.parameter_info.parser

    def __call__(self) -> _Lazily:
        return self

    def coerce(self, value: Any, **place: Any) -> Any:
        if value is None:
            return () if get_origin(self._kind) is list else None
        if isinstance(value, str) and self._parse is not None:
            with contextlib.suppress(ValueError):  # typer words the error
                return self._parse(value)
        elif self._kind is str or not isinstance(value, str | list | tuple):  # text, or a default
            return value
        elif self._kind == list[str] and isinstance(value, list | tuple):
            return list(value)
        return self._build().coerce(value, **place)


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
        made = _load("._declaration:as_function")(options, body, self._entry.help)
        app.command(self.name, cls=Command)(made)
        return typer.main.get_command(app)

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        global _parse
        _parse = partial(self.parse, list(args), parent)
        return self.load().make_context(info_name, args, parent=parent, **extra)

    def parse(self, args: list[str], parent: Any = None) -> Any:
        """Return the options that arguments, a configuration file and the environment give now, or raise UsageError."""
        found: list[Any] = []
        command = self.load(found.append)
        try:
            with command.make_context(self.name, list(args), parent=parent) as context:
                command.invoke(context)
        except typer.BadParameter as error:
            raise UsageError(error.message) from None
        return found[0]


_parse: Callable[[], Any] | None = None  # parses the arguments of the command that runs


def options_now() -> Any:
    """Return the options of the command that runs as they are now. Raise UsageError if they are wrong by now."""
    assert _parse is not None
    return _parse()


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
        use_log_format(getattr(options, "log_format", "text"))
        announce_compiling(quiet=getattr(options, "quiet", False))
        around.enter_context(local_times(getattr(options, "local_time", False)))
        for make_context in getattr(options, "around", ()):  # entered before the body is loaded, which takes a second
            around.enter_context(make_context())
        try:
            _load(entry.body)(options)
            sys.stdout.flush()
        except BrokenPipeError:  # caught here: typer would exit with status 1
            silence_stdout()
