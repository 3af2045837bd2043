"""Options in groups: a dataclass with one field per option becomes the signature that typer reads.

    @dataclass(frozen=True)
    class Toy:
        \"""Count something.\"""            # the command's help

        name: Annotated[str, typer.Argument()]
        results: Results = field(default_factory=Results)     # a group: its options are the command's, too
        often: Annotated[int, typer.Option("--often", "-k")] = 1

The body of a command gets one such object. A field whose type is a dataclass is a group; its options appear in the help
under the title `panel`, if the class has one.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer.models import OptionInfo, ParameterInfo

from superhosts.cli._completing import completion_of
from superhosts.cli._parsing import fill_paragraphs


def list_parameters(options: type) -> Iterator[inspect.Parameter]:
    """Return the parameters of all options of a class and of its groups."""
    kinds = get_type_hints(options, include_extras=True)
    for each in fields(options):
        kind = kinds[each.name]
        if is_dataclass(kind):
            yield from list_parameters(kind)  # type: ignore[arg-type]  # is_dataclass is True for instances, too
        else:
            shown = _annotated(kind, each.name, getattr(options, "panel", None))
            yield inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=_default(each), annotation=shown)


def gather(options: type, values: Mapping[str, Any]) -> Any:
    """Return an object of the class and its groups from the values that typer has parsed."""
    kinds = get_type_hints(options)
    return options(
        **{
            each.name: gather(kinds[each.name], values) if is_dataclass(kinds[each.name]) else values[each.name]
            for each in fields(options)
        }
    )


def as_function(options: type, body: Callable[[Any], None]) -> Callable[..., None]:
    """Return a function with one parameter per option, which calls the body with an object of the class."""

    def command(**values: Any) -> None:
        body(gather(options, values))

    parameters = list(list_parameters(options))
    command.__doc__ = fill_paragraphs(options.__doc__)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _default(option: Field[Any]) -> Any:
    if option.default_factory is not MISSING:
        return option.default_factory()
    return inspect.Parameter.empty if option.default is MISSING else option.default


def _annotated(kind: Any, name: str, panel: str | None) -> Any:
    """Return an annotated type whose option is shown in a panel of the help, and has its values completed."""
    if get_origin(kind) is not Annotated:
        return kind
    plain, *notes = get_args(kind)
    moved = [copy.copy(note) for note in notes]
    for note in moved:
        if isinstance(note, OptionInfo) and note.rich_help_panel is None:
            note.rich_help_panel = panel
        if isinstance(note, ParameterInfo) and note.autocompletion is None:
            note.autocompletion = completion_of(name, note)
    return Annotated[(plain, *moved)]
