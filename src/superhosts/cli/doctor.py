"""`superhosts doctor`: what works on this machine, and what to do about the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import typer

from superhosts.cli._checks import CHECKS, PROBLEM, in_words


class Check(NamedTuple):
    """What one check says."""

    name: str
    state: str
    text: str


def doctor(
    json: Annotated[bool, typer.Option("--json", help="The list as one line of JSON on standard output.")] = False,
) -> None:
    """Say what works here and what to do about the rest: versions, memory, compiled code, GPUs, optional packages.

    A small cube is filled on the CPU and on every GPU; they must agree bit by bit.
    What is missing is optional. The exit status is 2 if something is there and does not work.

    Example: superhosts doctor
    """
    import json as json_module

    from superhosts.errors import SuperhostsError

    checks = []
    for check in _examine():
        checks.append(check)
        if not json:
            print(f"{check.state:8} {check.name:14} {check.text}", flush=True)
    if json:
        print(json_module.dumps([check._asdict() for check in checks]))
    broken = [check.name for check in checks if check.state == PROBLEM]
    if broken:
        raise SuperhostsError(f"not in order: {', '.join(broken)}")


def _examine() -> Iterator[Check]:
    """Make all checks, one after the other; one that breaks is a problem, and the next is made."""
    for name, check in CHECKS.items():
        try:
            state, text = check()
        except Exception as error:
            state, text = PROBLEM, in_words(error)
        yield Check(name, state, text)
