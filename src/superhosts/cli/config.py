"""`superhosts config`: write, check and show the configuration file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from superhosts import cli
from superhosts.cli._alerts import for_alerts, open_desk, policy_of, wants_alerts
from superhosts.cli._config import COMMANDS, NEVER, SECRETS, check_common, checked, key_of, keys_of_tables, read_config
from superhosts.cli._program import Command
from superhosts.cli._settings import output_options, traffic_settings
from superhosts.cli.edge import edge_settings
from superhosts.cli.hub import hub_grid, hub_settings
from superhosts.cli.usage.setup import ConfigCheck, ConfigInit, ConfigShow
from superhosts.cli.web import Dashboard
from superhosts.core.files import output_errors, replacing
from superhosts.core.text import counted
from superhosts.errors import OutputError, UsageError
from superhosts.output.alerts.rules import rules_of
from superhosts.output.console import say
from superhosts.output.destination import ENDLESS, RUN_THAT_ENDS
from superhosts.output.registry import OutputOptions, check_addresses

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
# hours = "mon-fri 08:00-18:00"
# zone = "Europe/Berlin"
# grown = 2                             # told again when the peers have grown by this factor
# quiet = 2                             # windows without the host after which it is closed
"""


def config_init(options: ConfigInit) -> None:
    tables = keys_of_tables({name: _loaded(name) for name in COMMANDS})
    text = "".join([HEAD, *(line for name, keys in tables.items() for line in _table(name, keys)), RULE])
    if str(options.file) == "-":
        sys.stdout.write(text)
        return
    if options.file.exists() and not options.force:
        raise OutputError(f"{options.file} exists; --force replaces it")
    with output_errors(options.file), replacing(options.file) as fresh:
        fresh.write_text(text, "utf-8")
    say(f"{options.file}: written; check it with superhosts config check {options.file}")


def config_check(options: ConfigCheck) -> None:
    config = read_config(options.file)
    commands = {name: _loaded(name) for name in COMMANDS}
    check_common(config, (each for command in commands.values() for each in command.params))
    for name, command in commands.items():
        checked(config, name, _context(command, name))
    own = [name for name in COMMANDS if name in config.tables]
    known = {key_of(each) for name in own for each in commands[name].params}
    if not {name.replace("_", "-") for name in config.common} <= known or not own:
        own.append("scan")  # which has most of the options that no table is about
    for name in dict.fromkeys(own):
        words = [] if name == "hub" or "inputs" in config.values(name) else ["-"]
        try:
            given = Command(name, cli.COMMANDS[name]).parse(["--config", str(config.path), *words])
            check_together(name, given, config.path)
        except UsageError as error:
            raise config.wrong(f"[{name}]", str(error)) from None
    rules = rules_of(config.rules, str(config.path))
    values = sum(len(config.tables.get(name, ())) for name in COMMANDS) + len(config.common)
    say(f"{options.file}: {counted(values, 'value')} and {counted(len(rules), 'rule')}, all right")


def config_show(options: ConfigShow) -> None:
    if options.command not in COMMANDS:
        raise UsageError(f"COMMAND {options.command}: one of {', '.join(COMMANDS)}")
    config, command = read_config(options.file), _loaded(options.command)
    ctx = _context(command, options.command)
    found = checked(config, options.command, ctx)
    lines = []
    for each in command.params:
        if each.name in NEVER:
            continue
        variable = f"SUPERHOSTS_{options.command.upper()}_{each.name.upper()}"
        value, source = each.default, "default"
        if each.name in found:
            source, value = found[each.name]
        if os.environ.get(variable) and not isinstance(each, click.Argument):
            value, source = os.environ[variable], variable
        if each.name in SECRETS and value and not str(value).startswith("@"):
            value = "(a secret)"
        lines.append((key_of(each), _text(value), source))
    width, wide = (max(len(line[place]) for line in lines) for place in (0, 1))
    for key, value, source in lines:
        sys.stdout.write(f"{key:{width}}  {value:{min(wide, 40)}}  {source}\n".rstrip() + "\n")


def _loaded(name: str) -> Any:
    return Command(name, cli.COMMANDS[name])


def _table(name: str, parameters: list[Any]) -> Iterator[str]:
    """Yield the lines of a table: of one command, or of the options that all have if the name is empty."""
    yield f"\n[{name}]\n" if name else "\n"
    for each in parameters:
        words = " ".join((each.help or "").split())
        yield f"# {words}\n" if words else ""
        yield f"# {key_of(each)} = {_text(each.default)}\n"


def _context(command: Any, name: str) -> Any:
    return command.context_class(command, info_name=name)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, int | float):
        return str(value)
    return '""' if value is None else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def check_together(command: str, options: Any, config: Path) -> None:
    """Make what a command would make of its options before it reads or writes anything. Raise UsageError."""
    outputs = output_options(options, RUN_THAT_ENDS if command == "scan" else ENDLESS)
    if command == "edge":
        edge_settings(options)
        return
    if command == "hub":
        settings = hub_settings(options)
        hub_grid(options)
    else:
        settings = traffic_settings(options)
    check_addresses(OutputOptions(outputs=options.alert_to, option="--alert-to"), ENDLESS)
    policy = policy_of(options, config, settings.inner, threshold=settings.threshold)
    if wants_alerts(options) and command != "hub":
        for_alerts(settings, policy)
    if options.alerts is None:
        open_desk(options, policy, outputs.delivery)  # says what is missing
    if command != "scan":
        Dashboard(options)
