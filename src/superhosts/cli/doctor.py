"""`superhosts doctor`: what works on this machine, and what to do about the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from superhosts.cli._checks import CHECKS, PROBLEM, in_words
from superhosts.cli.usage.doctor import Doctor
from superhosts.errors import SuperhostsError


class Check(NamedTuple):
    """The result of one check."""

    name: str
    state: str
    text: str


def doctor(options: Doctor) -> None:
    """Print the result of every check; an error names those that found a problem."""
    checks = []
    for check in _examine():
        checks.append(check)
        if not options.json:
            print(f"{check.state:8} {check.name:14} {check.text}", flush=True)
    if options.json:
        print(json.dumps([check._asdict() for check in checks]))
    broken = [check.name for check in checks if check.state == PROBLEM]
    if broken:
        raise SuperhostsError(f"problems found: {', '.join(broken)}")


def _examine() -> Iterator[Check]:
    """Run all checks in order; one that raises an error is a problem, and the next one runs."""
    for name, check in CHECKS.items():
        try:
            state, text = check()
        except Exception as error:
            state, text = PROBLEM, in_words(error)
        yield Check(name, state, text)
