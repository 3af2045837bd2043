"""How command lines are read and help is laid out: typer's commands, with one-line errors and plain usage lines.

| typer alone | here |
|---|---|
| a bad value ends in a box of five lines | one line that names the option, as for all other errors |
| `--output` given twice: the first is dropped | an error |
| `{INPUT...}...`, `<list[str]>`, `<bool>` | `INPUT...`; no types beside names that say enough |
| a paragraph keeps the line breaks of its source | it is filled to the width of the terminal |
"""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

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
        return without_types(super().get_params(ctx))

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
            if option.name in ONCE and times > 1:
                raise UsageError(f"{name_of(option)}: given {times} times; results go to one place, so give it once")


class Group(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, without the types that say nothing."""
        return without_types(super().get_params(ctx))


def name_of(parameter: Any) -> str:
    """Return the name of an option or argument as messages show it: --window, INPUT."""
    if isinstance(parameter, TyperArgument):
        return str(parameter.metavar or parameter.name).rstrip(".")
    return str(max(parameter.opts, key=len))


def without_types(parameters: list[Any]) -> list[Any]:
    """Take away the types beside arguments and flags, which typer shows whatever their metavar is."""
    for each in parameters:
        if isinstance(each, TyperArgument) or getattr(each, "is_flag", False):
            each.display_type_rich = _no_type
    return parameters


def _no_type(ctx: Any) -> None:
    return None


def fill_paragraphs(text: str | None) -> str:
    """Return help whose paragraphs are one line each; indented lines, such as examples, stay as they are."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(_fill(paragraph.splitlines()) for paragraph in paragraphs)


def _fill(lines: list[str]) -> str:
    filled = ""
    for line in lines:
        filled += f"\n{line}" if line.startswith(" ") else f"{' ' if filled else ''}{line}"
    return filled
