"""The configuration file: values of options, by their names on the command line, and the rules of alerts.

    inner = ["10.0.0.0/8"]            # for every command that has the option
    window = "5m"

    [hub]                             # for one command
    state = "/var/lib/superhosts/hub"

    [[rule]]                          # of alerts, see `superhosts.output.alerts.rules`
    name = "scan-out"
    direction = "unanswered"
    threshold = 500

What a command takes is checked by the options of the command itself, so a value means the same in the file as on the
command line. An option on the command line counts most, then the environment (SUPERHOSTS_SCAN_WINDOW), the table of the
command, the values for all commands, and the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from superhosts.cli._values import nearest, toml_text
from superhosts.core.text import printable
from superhosts.errors import UsageError

COMMANDS = ("scan", "watch", "edge", "hub")  # that have a table
RULES = "rule"
LARGEST = 16 << 20  # bytes of a file
NEVER = ("config",)  # options that say nothing in a file
SECRETS = ("join",)  # options whose value is a secret, unless it names a file (@FILE)


class ConfigError(UsageError):
    """What is wrong at one place of a file: a key (hub.state), a table (hub), a rule or its key (rule 2.threshold)."""

    def __init__(self, config: Config, place: str, shown: str, problem: str) -> None:
        self.place, self.shown, self.problem = place, shown, problem
        self.line = config.lines.get(place) or config.lines.get(place.rpartition(".")[0]) or 0
        super().__init__(f"{config.path}: {f'line {self.line}: ' if self.line else ''}{shown}: {problem}")


@dataclass(frozen=True)
class Config:
    """What a file says. Values are as the command line would give them: text, lists of text, or True for a flag."""

    path: Path
    common: Mapping[str, Any] = field(default_factory=dict)  # for all commands
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by command
    rules: tuple[Mapping[str, Any], ...] = ()  # as the file has them
    lines: Mapping[str, int] = field(default_factory=dict)  # of tables and keys: hub.state, rule 2.threshold
    problems: tuple[ConfigError, ...] = ()  # of the file as a whole

    def values(self, command: str) -> dict[str, tuple[str, Any]]:
        """Return the values for a command: key → where it stands in the file, and its value."""
        found = {_key(name): (name, value) for name, value in self.common.items()}
        own = self.tables.get(command, {})
        return found | {_key(name): (f"{command}.{name}", value) for name, value in own.items()}


def read_config(path: Path) -> Config:
    """Read a file. Raise UsageError, which names the line or the key, if it is not a configuration file."""
    config = read_with_problems(path)
    for problem in config.problems:
        raise problem
    return config


def read_with_problems(path: Path) -> Config:
    """Read a file, with what is wrong with its tables. Raise UsageError if it is not TOML."""
    import tomllib  # here: most runs have no file

    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise UsageError(f"{path}: larger than {LARGEST >> 20} MiB; is it a configuration?")
        text = content.decode("utf-8")
        read = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not TOML: byte {error.start} is not valid UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    tables, rules = {name: read.pop(name) for name in COMMANDS if name in read}, read.pop(RULES, [])
    config = Config(path, lines=_lines(text))
    problems = []
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        problems.append(ConfigError(config, RULES, RULES, f"must be tables, each of which begins with [[{RULES}]]"))
        rules = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            problems.append(ConfigError(config, name, name, f"must be a table, which begins with [{name}]"))
    for name, value in read.items():
        if isinstance(value, dict):
            known = ", ".join(f"[{each}]" for each in COMMANDS)
            problems.append(ConfigError(config, name, f"[{name}]", f"no such table; there are {known}"))
    common = {name: value for name, value in read.items() if not isinstance(value, dict)}
    sound = {name: table for name, table in tables.items() if isinstance(table, dict)}
    return replace(config, common=common, tables=sound, rules=tuple(rules), problems=tuple(problems))


TABLE = re.compile(r"""\s*\[(\[?)\s*["']?([\w-]+)""")
KEY = re.compile(r"""\s*["']?([\w-]+)["']?\s*[=.]""")


def _lines(text: str) -> dict[str, int]:
    """Return the line of each table and key. It is a help for people: text in several lines may mislead it."""
    found: dict[str, int] = {}
    table, rules = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if begins := TABLE.match(line):
            rules += bool(begins[1])
            table = f"{begins[2]} {rules}" if begins[1] else begins[2]
            found.setdefault(table, number)
        elif key := KEY.match(line):
            found.setdefault(f"{table}.{key[1]}" if table else key[1], number)
    return found


def use_config(ctx: click.Context, path: Path | None) -> Path | None:
    """Give the values of a file to a command, as defaults of its options. The callback of `--config`."""
    if path is not None and not ctx.resilient_parsing:
        found, problems = checked(read_config(path), str(ctx.info_name), ctx)
        for problem in problems:
            raise problem
        ctx.default_map = {name: value for name, (_, value) in found.items()}
    return path


def checked(config: Config, command: str, ctx: Any) -> tuple[dict[str, tuple[str, Any]], list[ConfigError]]:
    """Return the values for a command by the names of its options, and what is wrong with others.

    Each value is checked by the option itself.
    """
    parameters = {each.key: each for each in ctx.command.params if each.name not in NEVER}
    found, problems = {}, []
    for key, (place, value) in config.values(command).items():
        if key not in parameters:
            if "." in place:
                problems.append(ConfigError(config, place, place, _unknown(key, parameters)))
            continue  # an option of another command
        try:
            given = _as_typed(value, parameters[key])
            parameters[key].process_value(ctx, given)
        except (UsageError, click.BadParameter) as error:
            problem = error.message if isinstance(error, click.BadParameter) else str(error)
            shown = "(a secret)" if key in SECRETS else _shown(value)
            problems.append(ConfigError(config, place, f"{place} = {shown}", problem))
        else:
            found[str(parameters[key].name)] = (place, given)
    return found, problems


def unknown_keys(config: Config, parameters: Iterable[Any]) -> list[ConfigError]:
    """Return the keys for all commands that none of them has; `parameters`: of all of them."""
    known = {each.key for each in parameters if each.name not in NEVER}
    unknown = [name for name in config.common if _key(name) not in known]
    return [ConfigError(config, name, name, _unknown(_key(name), known)) for name in unknown]


def keys_of_tables(commands: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the parameters whose keys each table has, by command; those of all commands by the empty name."""
    shown = {name: [each for each in commands[name].params if each.name not in NEVER] for name in COMMANDS}
    shared = set.intersection(*({each.name for each in params} for params in shown.values()))
    own = {name: [each for each in params if each.name not in shared] for name, params in shown.items()}
    return {"": [each for each in shown[COMMANDS[0]] if each.name in shared], **own}


def _key(name: str) -> str:
    """Return a key as options are called; a person may write _ for -."""
    return name.replace("_", "-")


def _unknown(key: str, known: Iterable[str]) -> str:
    near = nearest(key, sorted(known))
    return "no such option" + (f"; is it {near}?" if near else "; superhosts COMMAND --help lists them")


def _as_typed(value: Any, parameter: Any) -> Any:
    """Return a value as a person would type it: text, a list of text, or a truth."""
    if parameter.is_flag:
        if not isinstance(value, bool):
            raise UsageError("must be true or false")
        return value
    if isinstance(value, bool) and "|" in parameter.metavar:  # exact = true, as in Python
        raise UsageError(f"must be one of {', '.join(map(toml_text, parameter.metavar.split('|')))}")
    values = value if isinstance(value, list) else [value]
    if not parameter.takes_many and isinstance(value, list):
        raise UsageError("takes one value, not a list")
    if not all(isinstance(each, str | int | float) and not isinstance(each, bool) for each in values):
        raise UsageError("must be text or a number, or a list of them")
    words = [str(each) for each in values]
    return words if parameter.takes_many else words[0]


def _shown(value: Any) -> str:
    return printable(repr(value) if not isinstance(value, bool) else str(value).lower())
