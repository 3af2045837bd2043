"""`superhosts config`: write, check and show the configuration file."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, replace
from typing import Any

import click

from superhosts import cli
from superhosts.cli._alerts import for_alerts, open_desk, policy_of, wants_alerts
from superhosts.cli._config import (
    COMMANDS,
    NEVER,
    RULES,
    SECRETS,
    Config,
    ConfigError,
    checked,
    keys_of_tables,
    read_config,
    read_with_problems,
    unknown_keys,
)
from superhosts.cli._link import join, nats_options
from superhosts.cli._program import Command, default_of
from superhosts.cli._settings import output_options, traffic_settings
from superhosts.cli._summary import CountersOutput
from superhosts.cli._values import toml_text
from superhosts.cli.edge import edge_settings
from superhosts.cli.hub import check_links, hub_grid, hub_settings
from superhosts.cli.usage.fleet import LOCAL
from superhosts.cli.usage.setup import ConfigCheck, ConfigInit, ConfigShow
from superhosts.cli.web import Dashboard
from superhosts.core.files import output_errors, replacing
from superhosts.core.keys import find_key
from superhosts.core.text import counted
from superhosts.errors import OutputError, SuperhostsError, UsageError
from superhosts.output.alerts.rules import Rule, rules_of
from superhosts.output.console import say, say_error
from superhosts.output.destination import ENDLESS, RUN_THAT_ENDS
from superhosts.output.names import Annotator
from superhosts.output.registry import ALERT_TO, OutputOptions, check_addresses
from superhosts.sources.livecapture import DLT_RAW, MOST_SNAP, MissingLibraryError, compile_filter

HEAD = """\
# Configuration of superhosts: scan, watch, edge and hub --config FILE.
# A key is an option of the command line without its dashes, and takes the same values; several values are a list.
# Keys up here are for every command that has the option, those in a table for one command.
# An option on the command line counts most, then the environment (SUPERHOSTS_HUB_THRESHOLD), then this file.
"""
RULE = """
# Rules of alerts (--alerts FILE). A rule without a name of its own is called many-peers.
# [[rule]]
# name = "scan-out"
# side = "inner"                        # inner or outer
# direction = "unanswered"              # any, out, in, opened, answered, unanswered; -in: the peer opened
# counts = "hosts"                      # hosts, ports or host-ports
# threshold = 500
# prefixes = { "10.0.0.0/24" = 5000 }   # other thresholds; the longest prefix counts
# times-usual = 5                       # besides, so many times the median of the host's last 12 windows
# baseline = "week"                     # or of what it usually has in this hour of the week
# new = "7d"                            # besides, hosts that were not seen for so long
# persistent = "9/12"                   # besides, hosts that were seen in so many of the last windows
# rises = 2.4                           # besides, 240 % more peers than in the window before
# hours = "mon-fri 08:00-18:00"
# zone = "Europe/Berlin"
# grown = 2                             # told again when the peers have grown by this factor
# quiet = 2                             # windows without the host after which it is closed
"""


def config_init(options: ConfigInit) -> None:
    commands = {name: _loaded(name) for name in COMMANDS}
    tables = keys_of_tables(commands)
    text = "".join([HEAD, *(line for name, keys in tables.items() for line in _table(name, keys, commands)), RULE])
    if str(options.file) == "-":
        sys.stdout.write(text)
        return
    if options.file.exists() and not options.force:
        raise OutputError(f"{options.file} exists; --force replaces it")
    with output_errors(options.file), replacing(options.file) as fresh:
        fresh.write_text(text, "utf-8")
    say(f"{options.file}: written; check it with superhosts config check {options.file}")


def config_check(options: ConfigCheck) -> None:
    config = read_with_problems(options.file)
    commands = {name: _loaded(name) for name in COMMANDS}
    problems = [*config.problems, *unknown_keys(config, (each for one in commands.values() for each in one.params))]
    rules, wrong = _rules(config)
    own = [name for name in COMMANDS if name in config.tables]
    known = {each.key for name in own for each in commands[name].params}
    if not {name.replace("_", "-") for name in config.common} <= known or not own:
        own.append("scan")  # which has most of the options that no table is about
    for name, command in commands.items():
        found, bad = checked(config, name, _context(command, name))
        problems += bad
        if name in own:
            problems += _refused(command, config, rules, found, bad)
    problems += wrong
    in_order = sorted(_merged(config, problems), key=lambda each: each.line)
    for each in in_order[:-1]:
        say_error(each)
    if in_order:
        raise in_order[-1]
    values = sum(len(config.tables.get(name, ())) for name in COMMANDS) + len(config.common)
    say(f"{options.file}: {counted(values, 'value')} and {counted(len(rules), 'rule')}, all right")


def _merged(config: Config, problems: Sequence[ConfigError]) -> Iterator[ConfigError]:
    """Yield once what is wrong for several commands, with all that refuse it: [scan], [hub]."""
    first = {(each.place, each.shown): each for each in reversed(problems)}  # words may differ between commands
    shown: dict[tuple[str, str], list[str]] = {}
    for each in reversed(first.values()):
        shown.setdefault((each.place, each.problem), []).append(each.shown)
    for (place, problem), names in shown.items():
        yield ConfigError(config, place, ", ".join(names), problem)


def _rules(config: Config) -> tuple[dict[str, Mapping[str, Any]], list[ConfigError]]:
    """Return the rules that are right by themselves, by their place in the file, and what is wrong with others."""
    right: dict[str, Mapping[str, Any]] = {}
    problems: list[ConfigError] = []
    for number, rule in enumerate(config.rules, 1):
        place = f"rule {number}"
        wrong = [each for key in rule for each in _problem(config, {key: rule[key]}, f"{place}.{key}", place)]
        wrong = wrong or list(_problem(config, rule, place, place))
        problems += wrong
        right |= {} if wrong else {place: rule}
    try:
        rules_of([*right.values()], str(config.path))
    except UsageError as error:  # two of one name
        problems.append(ConfigError(config, RULES, RULES, str(error).removeprefix(f"{config.path}: ")))
        right = {}
    return right, problems


def _problem(config: Config, rule: Mapping[str, Any], place: str, shown: str) -> Iterator[ConfigError]:
    """Yield what is wrong with a rule, or a part of it."""
    try:
        rules_of([rule], "")
    except UsageError as error:
        yield ConfigError(config, place, shown, str(error).removeprefix(": rule 1: "))


def _refused(
    command: Command,
    config: Config,
    all_rules: Mapping[str, Mapping[str, Any]],
    found: Mapping[str, tuple[str, Any]],
    bad: Sequence[ConfigError],
) -> Iterator[ConfigError]:
    """Yield why a command would refuse values and rules of a file that are right by themselves.

    A command says what it finds first. So the value or rule that it speaks of is left out, and it is asked again. What
    it says of values that are missing because of that, or because they were wrong by themselves, is not meant.
    """
    name, values, rules = str(command.name), dict(found), dict(all_rules)
    wrong = {each.place for each in bad}
    left_out = {key for key, (place, _) in config.values(name).items() if place in wrong}
    words = [] if name == "hub" or "inputs" in values else ["-"]
    while True:
        try:
            given = command.parse(words, values={each: value for each, (_, value) in values.items()})
            check_together(name, given, replace(config, rules=tuple(rules.values())))
            return
        except SuperhostsError as error:
            said = str(error)
            rule = next((at for at, each in rules.items() if said.startswith(f"rule {_name(each)}: ")), None)
            keys = {each.key: str(each.name) for each in command.params if each.name in values}
            named = re.findall(r"--([a-z][a-z0-9-]+)", said) or _keys_by_value(keys, values, said)
            named = named or re.findall(r"[a-z][a-z0-9-]+", said)
            culprit = next((key for key in named if key in keys), None)
            if not left_out.intersection(named):
                place = rule or (name if culprit is None else values[keys[culprit]][0])
                yield ConfigError(config, place, f"[{name}]", said)
            if rule is not None:
                del rules[rule]
            elif culprit is None:
                return
            else:
                left_out.add(culprit)
                del values[keys[culprit]]


def _name(rule: Mapping[str, Any]) -> Any:
    return rule.get("name", Rule.name)


def _keys_by_value(keys: Mapping[str, str], values: Mapping[str, tuple[str, Any]], said: str) -> list[str]:
    """Return the keys whose values, such as names of files, stand in a message that names no option."""

    def stands(value: Any) -> bool:
        texts = value if isinstance(value, list) else [value]
        return any(isinstance(text, str) and text and text in said for text in texts)

    return [key for key, name in keys.items() if stands(values[name][1])]


def config_show(options: ConfigShow) -> None:
    config, command = read_config(options.file), _loaded(options.command)
    found, problems = checked(config, options.command, _context(command, options.command))
    for problem in problems:
        raise problem
    lines = []
    for each in command.params:
        if each.name in NEVER:
            continue
        variable = f"SUPERHOSTS_{options.command.upper()}_{each.name.upper()}"
        value, source = _default(each), "default"
        if each.name in found:
            source, value = found[each.name]
        if os.environ.get(variable) and not isinstance(each, click.Argument):
            value, source = os.environ[variable], variable
        if each.name in SECRETS and value and not str(value).startswith("@"):
            value = "(a secret)"
        lines.append((each.key, toml_text(value), source))
    width, wide = (max(len(line[place]) for line in lines) for place in (0, 1))
    for key, value, source in lines:
        sys.stdout.write(f"{key:{width}}  {value:{min(wide, 40)}}  {source}\n".rstrip() + "\n")


def _loaded(name: str) -> Any:
    return Command(name, cli.COMMANDS[name])


def _table(name: str, parameters: list[Any], commands: Mapping[str, Command]) -> Iterator[str]:
    """Yield the lines of a table: of one command, or of the options that all have if the name is empty."""
    yield f"\n[{name}]\n" if name else "\n"
    for each in parameters:
        said = _defaults(each, {one: commands[one] for one in ([name] if name else COMMANDS)})
        about = textwrap.fill(f"{each.help}{said}", 118, break_on_hyphens=False, break_long_words=False)
        yield f"{textwrap.indent(about, '# ')}\n# {each.key} = {toml_text(_default(each))}\n"


def _default(parameter: Any) -> Any:
    """Return the default of an option, or what stands for none."""
    if parameter.each.default is MISSING:
        return [] if parameter.takes_many else None
    return parameter.each.default


def _defaults(parameter: Any, commands: Mapping[str, Command]) -> str:
    """Return in words what an option does by default, where its value does not say that."""
    words: dict[str, list[str]] = {}
    for name, command in commands.items():
        (same,) = (each for each in command.params if each.key == parameter.key)
        words.setdefault(default_of(same), []).append(name)
    if len(words) == 1:
        (default,) = words
        return f" Default: {default}." if isinstance(parameter.each.shown, str) else ""
    return "".join(f" Default of {', '.join(names)}: {default}." for default, names in words.items() if default)


def _context(command: Any, name: str) -> Any:
    return command.context_class(command, info_name=name)


def check_together(command: str, options: Any, config: Config) -> None:
    """Make what a command would make of its options before it reads traffic or writes anything. Raise an error."""
    outputs = output_options(options, RUN_THAT_ENDS if command == "scan" else ENDLESS)
    if options.key_file is not None:
        find_key(options.key_file)
    Annotator(outputs.naming)
    if command == "edge":
        edge_settings(options)
        if join(options, say=lambda _: None) is None and options.to is None:
            nats_options(options.nats or LOCAL, options)
        return
    if command == "hub":
        settings = hub_settings(options)
        hub_grid(options)
        check_links(options)
    else:
        settings = traffic_settings(options)
        CountersOutput(options.counters, options)
        if options.filter is not None:
            with suppress(MissingLibraryError):
                compile_filter(options.filter, DLT_RAW, MOST_SNAP)
    check_addresses(OutputOptions(outputs=options.alert_to, option=ALERT_TO), ENDLESS)
    policy = policy_of(options, config, settings.inner, threshold=settings.threshold)
    if wants_alerts(options) and command != "hub":
        for_alerts(settings, policy)
    if options.alerts is None:
        open_desk(options, policy, outputs.delivery)  # says what is missing
    if command != "scan":
        Dashboard(options)
