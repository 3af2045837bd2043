"""Rules as a configuration file has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from superhosts.core.text import printable
from superhosts.errors import UsageError
from superhosts.output.alerts.rules import Hours, Rule

_TEXT = ("name", "side", "direction", "counts", "hours", "zone")


def rules_of(tables: Sequence[Mapping[str, Any]], file: str) -> list[Rule]:
    """Return the rules of a file's tables. Raise UsageError, which names the rule and the key, if one is wrong."""
    rules = [_rule(table, f"{file}: rule {number}") for number, table in enumerate(tables, 1)]
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{file}: two rules are called {name}; alerts are told apart by the names of their rules")
    return rules


def _rule(table: Mapping[str, Any], place: str) -> Rule:
    values = {key.replace("-", "_"): value for key, value in table.items()}
    known = {each.name for each in fields(Rule)} | {"zone"}
    for key, value in values.items():
        shown = f"{place}: {key.replace('_', '-')} = {printable(repr(value))}"
        if key not in known:
            keys = ", ".join(sorted(each.replace("_", "-") for each in known))
            raise UsageError(f"{place}: {key.replace('_', '-')}: no such key; there are {keys}")
        if key in _TEXT:
            _require(isinstance(value, str), shown, "text")
        elif key == "patterns":
            right = isinstance(value, list) and all(isinstance(each, str) for each in value)
            _require(right, shown, 'a list of patterns: ["horizontal scan"]')
        elif key == "prefixes":
            right = isinstance(value, dict) and all(map(_is_number, value.values()))
            _require(right, shown, 'thresholds by prefix: { "10.0.0.0/8" = 100 }')
        else:
            _require(_is_number(value), shown, "a number")
    hours, zone = values.pop("hours", None), values.pop("zone", "UTC")
    try:
        return Rule(**values, hours=None if hours is None else Hours.parse(hours, zone))
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require(holds: bool, place: str, rule: str) -> None:
    if not holds:
        raise UsageError(f"{place}: must be {rule}")
