"""Validate untrusted JSON: the type, range and form of every field, before any of it is used.

A check is a function that takes a value and its place (`parts[0].side`). It returns the value, converted if that is
useful, or raises FieldError, which names the place. Checks are composed of smaller ones, so that a table of checks is
the grammar of a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from superhosts.core.text import counted, printable

# Names of sites. Where a name becomes part of a file's name or of a NATS subject, a stricter rule holds.
MAX_NAME = 63  # bytes of a name in UTF-8
NAME_RULE = f'1 to {MAX_NAME} bytes of printable text without " and \\'
FILE_NAME_RULE = "a name without slashes is needed, since it becomes part of file names"
FLEET_NAME_RULE = f"letters, digits, - and _ ({MAX_NAME} at most, the first a letter or digit)"
FLEET_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_NAME - 1}}}")  # part of a NATS subject and of file names


def is_name(text: str) -> bool:
    return text.isprintable() and not set(text) & set('"\\') and 1 <= len(text.encode()) <= MAX_NAME


def is_file_name(text: str) -> bool:
    return bool(text) and not set(text) & set("/\\\0")


def is_fleet_name(text: str) -> bool:
    return FLEET_NAME.fullmatch(text) is not None


Check = Callable[[Any, str], Any]
UNKNOWN = "unknown field"
MOST_QUOTED = 60  # characters of an invalid value that a message quotes


class FieldError(ValueError):
    """An invalid field. The message names its place."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"field {place}: {problem}")


def refuse(value: Any, place: str, rule: str) -> FieldError:
    return FieldError(place, f"{_quoted(value)}, must be {rule}")


def _quoted(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    if isinstance(value, dict):
        return f"an object of {counted(len(value), 'field')}"
    if isinstance(value, str):
        return f'"{printable(value, MOST_QUOTED)}"'
    named = {None: "null", True: "true", False: "false"} if value is None or isinstance(value, bool) else {}
    return named.get(value, printable(value, MOST_QUOTED))


def whole(low: int, high: int, rule: str = "") -> Check:
    """Return a check for an integer from `low` to `high`. It rejects true and 1.0. `rule` rewords the error."""
    rule = rule or f"a whole number from {low} to {high}"

    def check(value: Any, place: str) -> Any:
        if type(value) is not int or not low <= value <= high:
            raise refuse(value, place, rule)
        return value

    return check


def one_of(*known: Any) -> Check:
    """Return a check for one of the `known` values. The type must match too: true is not 1."""
    rule = ("one of " if len(known) > 1 else "") + ", ".join(
        each if isinstance(each, str) else _quoted(each) for each in known
    )

    def check(value: Any, place: str) -> Any:
        if not any(type(value) is type(each) and value == each for each in known):
            raise refuse(value, place, rule)
        return value

    return check


def text(pattern: str, rule: str) -> Check:
    form = re.compile(pattern, re.ASCII)

    def check(value: Any, place: str) -> Any:
        if not isinstance(value, str) or not form.fullmatch(value):
            raise refuse(value, place, rule)
        return value

    return check


def name(value: Any, place: str) -> Any:
    if not isinstance(value, str) or not is_name(value):
        raise refuse(value, place, f"a name: {NAME_RULE}")
    return value


def optional(check: Check) -> Check:
    return lambda value, place: None if value is None else check(value, place)


def sequence(check: Check, least: int = 0, most: int | None = None) -> Check:
    """Return a check for a list of `least` to `most` items, each of which passes `check`."""
    rule = f"a list of {least} to {most} items" if most is not None else "a list"

    def check_all(value: Any, place: str) -> Any:
        if not isinstance(value, list) or len(value) < least or (most is not None and len(value) > most):
            raise refuse(value, place, rule)
        return [check(item, f"{place}[{i}]") for i, item in enumerate(value)]

    return check_all


def table(check: Check) -> Check:
    """Return a check for an object with any fields, each of which passes `check`."""

    def check_all(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise refuse(value, place or "(all)", "an object")
        return {field: check(item, f"{place}.{printable(field, MOST_QUOTED)}") for field, item in value.items()}

    return check_all


def record(required: Mapping[str, Check], extra: Mapping[str, Check] | None = None, *, others: bool = False) -> Check:
    """Return a check for an object with all `required` fields, any of the `extra` ones, and no others.

    With `others`, fields that are not known are left out: a later version has added them.
    """
    known = {**required, **(extra or {})}

    def check_fields(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise refuse(value, place or "(all)", "an object")
        before = f"{place}." if place else ""
        for field in required:
            if field not in value:
                raise FieldError(before + field, "missing")
        for field in value:
            if field not in known and not others:
                raise FieldError(before + printable(field, MOST_QUOTED), UNKNOWN)
        return {field: check(value[field], before + field) for field, check in known.items() if field in value}

    return check_fields
