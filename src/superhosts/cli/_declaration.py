"""How an option is declared: once, with its words, its check and its default, as a field of a class.

    class WantedOptions(Options, panel="Results"):  # a group; the title stands above its options in the help
        top: int | None = opt("K", short="-n").about("Only the K hosts with the most peers.")

    class Toy(WantedOptions):                       # a command: its own options, and those of its groups
        '''What follows the first line of the help, which is in `HELP`.'''

        words: list[str] = arg("WORD...").about("Words to look at.")
        letter: str = opt("LETTER", "a").about("The letter to count.")

A command with many options names those that most people need as `first`, which its first screen shows. What few people
set is a `setting`: in commands with a configuration file a key of the file and a variable, and no option.

The body of a command gets one frozen object of its class. What several commands have is a constant (`DEVICE`) or a
group of `_options.py`; `DEVICE.about("…")` is the same option with other words, `DEVICE(default="cpu")` with another
default. The metavar says how a value is written, and so how it is checked, unless the option has a check of its own:
SIZE, DURATION, COUNT, LIST, or words between bars (on|off).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform, get_args, get_origin

from superhosts.cli._completion import Values
from superhosts.cli._values import (
    check_positive_count,
    one_of,
    parse_at_least_one,
    parse_seconds,
    parse_threshold,
    parse_whole,
    split_commas,
)
from superhosts.core.device import check_device
from superhosts.core.units import parse_share, parse_size
from superhosts.errors import UsageError

CHECKS: dict[str, Callable[[Any], Any]] = {  # of the text of an option, by its metavar; LIST of a list of texts
    "SIZE": parse_size,
    "DURATION": parse_seconds,
    "COUNT": check_positive_count,
    "DEVICE": check_device,
    "SHARE": parse_share,
    "LIST": split_commas,
}


class Opt(NamedTuple):
    metavar: str
    default: Any = None  # MISSING: it must be given
    help: str = ""
    check: Callable[[Any], Any] | None = None  # raises UsageError; of a list, returns its items
    name: str = ""  # --for, where the field has another name
    short: str = ""
    shown: str | bool = True  # the default in words; False: none is shown
    is_argument: bool = False
    callback: Callable[[Any, Any], Any] | None = None  # gets click's context and the value, before others are parsed
    panel: str | None = None
    offers: Values | None = None  # what a shell completes, unless the metavar says it
    brief: str = ""  # instead of the first sentence of the help, on the first screen
    setting: bool = False  # of commands that have a configuration file; as an option of theirs it is not shown
    outdated: bool = True  # a setting that was an option in the last release, so that using it as one is warned of
    old: str = ""  # how the option was called in the last release: --listen

    def __call__(self, **changes: Any) -> Any:
        """Return the same option with another default, for instance."""
        return self._replace(**changes)

    def about(self, help: str) -> Any:
        """Return the same option with this help, whose lines are filled when it is shown."""
        return self._replace(help=" ".join(help.split()))


def opt(metavar: str, default: Any = None, **more: Any) -> Any:
    """Declare an option, for a field of a class of options."""
    return Opt(metavar, default, **more)


def setting(metavar: str, default: Any = None, **more: Any) -> Any:
    """Declare an option that few people set."""
    return Opt(metavar, default, setting=True, **more)


def flag(**more: Any) -> Any:
    """Declare an option without a value."""
    return Opt("", False, **more)


def arg(metavar: str, default: Any = MISSING, **more: Any) -> Any:
    return Opt(metavar, default, is_argument=True, **more)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options:
    """A command or a group, like a frozen dataclass. The help shows options without a panel first.

    An option that a class has again, with other words, stays in its panel. Making these classes dataclasses would take
    30 ms at every start.
    """

    _own: ClassVar[dict[str, Opt]] = {}  # what a class declares besides its groups

    def __init_subclass__(cls, panel: str | None = None) -> None:
        groups = _of_groups(cls)
        cls._own = {name: each for name, each in vars(cls).items() if isinstance(each, Opt)}
        for name, each in cls._own.items():
            delattr(cls, name)
            panel_before = groups[name].panel if name in groups else panel
            cls._own[name] = each if each.panel else each._replace(panel=panel_before)

    def __init__(self, **values: Any) -> None:
        known = declared(type(self))
        if values.keys() - known.keys():
            raise TypeError(f"unknown options: {', '.join(sorted(values.keys() - known.keys()))}")
        for name, each in known.items():
            default = each.default.copy() if isinstance(each.default, list) else each.default
            vars(self)[name] = values.get(name, default)
            if vars(self)[name] is MISSING:
                raise TypeError(f"missing option: {name}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} cannot be changed; `changed` returns other options")

    def changed(self, **changes: Any) -> Self:
        """Return a copy with other values of some options."""
        return type(self)(**{**vars(self), **changes})


def _of_groups(options: type[Options]) -> dict[str, Opt]:
    groups = [base for base in options.__bases__ if issubclass(base, Options)]
    return {name: each for group in groups for name, each in declared(group).items()}


def declared(options: type[Options]) -> dict[str, Opt]:
    """Return the options of a class by name: those of its groups, in the order of the groups, and its own."""
    found = _of_groups(options) | options._own
    for group in reversed(options.__mro__):
        found |= vars(group).get("_own", {})
    return found


def option_name(name: str, each: Opt) -> str:
    return each.name or f"--{name.replace('_', '-')}"


def check_no_conflict(options: Options, names: Iterable[str], why: str) -> None:
    """Refuse options that were given but would have no effect."""
    known = declared(type(options))
    given = [option_name(name, known[name]) for name in names if getattr(options, name) != known[name].default]
    if given:
        raise UsageError(f"{', '.join(given)}: {why}")


def read_value(each: Opt, kind: Any, value: Any) -> Any:
    """Return the value of an option whose field has the type `kind`. Raise UsageError if it is not accepted.

    Text comes from a person, a file or the environment; anything else is a default.
    """
    plain = next(part for part in get_args(kind) if part is not type(None)) if isinstance(kind, UnionType) else kind
    texts = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(text, str) and "\0" in text for text in texts):  # from a file: no path may have it
        raise UsageError("a null character is no text; leave it out")
    check = each.check or CHECKS.get(each.metavar)
    if get_origin(plain) is list:
        return check(list(value)) if check and value else list(value or ())
    if not isinstance(value, str):
        return value
    if plain is int:
        return parse_at_least_one(value) if each.metavar in ("COUNT", "K") else parse_whole(value)
    if plain is float:
        return parse_threshold(value)
    if plain is Path:
        return Path(value)
    if "|" in each.metavar:
        check = one_of(*each.metavar.split("|"))
    if check:
        check(value)  # It stays text, and is read when the command runs.
    return value
