"""JSON Schemas of rows, alerts and their events, the dashboard's answers and the configuration file.

`python docs/schemas.py docs/reference/schemas` writes them. They follow from the types and options that the program
declares; tests compare the files with them, and real output with the files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from superhosts.cli import COMMANDS
from superhosts.cli._config import COMMANDS as CONFIGURED
from superhosts.cli._config import NEVER, RULES
from superhosts.cli._program import Command
from superhosts.output.acts import AuditLine, ListedAct
from superhosts.output.alerts.machine import AlertEvent, ListedAlert
from superhosts.output.alerts.rules import Hours, Rule
from superhosts.output.schema import Row
from superhosts.output.senders.hook import Call
from superhosts.ui.answers import ANSWERS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, str]:
    """Return the text of each schema by the name of its file."""
    from msgspec.json import schema

    made = {"config.schema": config_schema()}
    types = {"row": Row, "alert": AlertEvent, "listed-alert": ListedAlert}
    types |= {"listed-act": ListedAct, "audit-line": AuditLine, "exec-call": Call}
    types |= {f"api-{name}": kind for name, kind in ANSWERS.items()}
    made |= {name: schema(kind) for name, kind in types.items()}
    return {f"{name}.json": json.dumps({"$schema": DIALECT, **each}, indent=1) + "\n" for name, each in made.items()}


RULE_TYPES: dict[Any, dict[str, Any]] = {  # of keys of rules; all others are numbers
    str: {"type": "string"},
    str | None: {"type": "string"},
    Hours | None: {"type": "string"},
    Sequence[str]: {"type": "array", "items": {"type": "string"}},
    Mapping[str, float]: {"type": "object", "additionalProperties": {"type": "number"}},
}


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration file. Words such as durations are checked by config check alone."""
    commands = {name: Command(name, COMMANDS[name]).params for name in CONFIGURED}
    tables = {name: [each for each in members if each.name not in NEVER] for name, members in commands.items()}
    shared = {each.key: _type(each) for members in tables.values() for each in members}
    own = {name: _object({each.key: _type(each) for each in members}) for name, members in tables.items()}
    kinds = get_type_hints(Rule)
    rule = {each.name.replace("_", "-"): RULE_TYPES.get(kinds[each.name], {"type": "number"}) for each in fields(Rule)}
    rules = {"type": "array", "items": _object({**rule, "zone": {"type": "string"}})}
    return {"title": "Configuration file of superhosts"} | _object({**shared, **own, RULES: rules})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a table. A person may write _ for - in a key; editors complete those with -."""
    others = {
        f"^{key.replace('-', '[-_]')}$": {word: said for word, said in each.items() if word != "description"}
        for key, each in properties.items()
        if "-" in key
    }
    return {"type": "object", "properties": properties, "patternProperties": others, "additionalProperties": False}


def _type(parameter: Any) -> dict[str, Any]:
    """Return the schema of the value of an option. Numbers may be text, and text with a number only a number."""
    said = {"description": " ".join(parameter.help.split())}
    if parameter.is_flag:
        return {"type": "boolean", **said}
    plain = {"type": ["string", "number"]}
    if "|" in str(parameter.metavar):
        plain = {"enum": parameter.metavar.split("|")}
    return {**({"anyOf": [plain, {"type": "array", "items": plain}]} if parameter.takes_many else plain), **said}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name, text in schemas().items():
        (folder / name).write_text(text, "utf-8")
