"""How command lines are read and help is laid out: typer's commands, with one-line errors and plain usage lines.

| typer alone | here |
|---|---|
| a bad value ends in a box of five lines | one line that names the option, as for all other errors |
| `--output` of `merge` given twice: the first is dropped | an error |
| `{INPUT...}...`, `<list[str]>`, `<bool>` | `INPUT...`; no types beside names that say enough |
| a paragraph keeps the line breaks of its source | it is filled to the width of the terminal |
| pydantic converts every value, and takes 0.15 s to load | values that need no conversion are taken as they are |
"""

from __future__ import annotations

import contextlib
import inspect
from collections import Counter
from typing import Any, get_origin

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from superhosts.errors import UsageError

ONCE = ("output",)  # options that name a result: if given twice, the first one would silently not be written


class Command(TyperCommand):
    """A command with its options."""

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
        """Return options and arguments, without the types that say nothing."""
        return [taken_as_is(each) for each in without_types(super().get_params(ctx))]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line."""
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
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, without the types that say nothing."""
        return [taken_as_is(each) for each in without_types(super().get_params(ctx))]


def name_of(parameter: Any) -> str:
    """Return the name of an option or argument as messages show it: --window, INPUT."""
    if isinstance(parameter, TyperArgument):
        return str(parameter.metavar or parameter.name).rstrip(".")
    return str(max(parameter.opts, key=len))


def without_types(parameters: list[Any]) -> list[Any]:
    """Take away the types beside arguments and flags, which typer shows whatever their metavar is, and variables.

    Every option has a variable of the environment, and --config says how they are called.
    """
    for each in parameters:
        each.show_envvar = False
        if isinstance(each, TyperArgument) or getattr(each, "is_flag", False):
            each.display_type_rich = _no_type
    return parameters


def _no_type(ctx: Any) -> None:
    return None


def taken_as_is(parameter: Any) -> Any:
    """Make typer convert only what needs it: neither text nor defaults. Versions without pydantic stay as they are."""
    build = getattr(parameter, "get_runtime_param", None)
    if build is not None and not isinstance(build, _Lazily):
        parameter.get_runtime_param = _Lazily(build, parameter.type_descriptor)
    return parameter


class _Lazily:
    """typer's conversion of one parameter, which is built for the first value that needs it."""

    def __init__(self, build: Any, descriptor: Any) -> None:
        self._build = build
        self._kind = descriptor.annotation
        self._parse = descriptor.parameter_info.parser

    def __call__(self) -> _Lazily:
        return self

    def coerce(self, value: Any, **place: Any) -> Any:
        """Return the value of a parameter; typer calls it like the method of its own class."""
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


def fill_paragraphs(text: str | None) -> str:
    """Return help whose paragraphs are one line each; indented lines, such as examples, stay as they are."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(_fill(paragraph.splitlines()) for paragraph in paragraphs)


def _fill(lines: list[str]) -> str:
    filled = ""
    for line in lines:
        filled += f"\n{line}" if line.startswith(" ") else f"{' ' if filled else ''}{line}"
    return filled
