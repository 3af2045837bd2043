"""What a shell offers when somebody presses TAB behind an option: its words, usual values, or names from files.

An option declares them (`offers`), has them in its metavar (on|off), or is written in a usual way (SIZE, DURATION). One
that takes a file has none: the shell completes file names then. Names in files are looked up when they are asked for,
and that never fails: a shell has no place for an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

import typer

DURATIONS = ("90s", "5m", "15m", "1h", "1d")
USUAL = {  # by metavar
    "SIZE": ("16MiB", "64MiB", "128MiB", "512MiB", "1GiB"),
    "DURATION": DURATIONS,
    "DEVICE": ("auto", "cpu", "cuda", "cuda:all"),
    "SHARE": ("0.1%", "1%", "5%"),
    "FAMILY": ("4", "6", "both"),
}

Complete = Callable[[typer.Context, str], list[str]]
Values = Iterable[str] | str  # or `module:function`, which gets the context and returns them


def completion_of(metavar: str, offers: Values | None) -> Complete | None:
    """Return the function that completes an option or argument; None if it takes a file or anything.

    Values of a LIST can be joined by commas, and the last one is completed. Where a FILE is possible as well, a value
    is offered only when its first letter is there; otherwise the shell offers files.
    """
    values = offers or USUAL.get(metavar) or (metavar.split("|") if "|" in metavar else None)
    if values is None:
        return None

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        given, comma, last = incomplete.rpartition(",") if metavar == "LIST" else ("", "", incomplete)
        if metavar == "FILE" and not last:
            return []
        taken = given.split(",")
        try:
            offered = _looked_up(values, ctx) if isinstance(values, str) else values
        except Exception:  # whatever is wrong with a file: nothing can be offered
            return []
        return [f"{given}{comma}{value}" for value in offered if value.startswith(last) and value not in taken]

    return complete


def _looked_up(place: str, ctx: typer.Context) -> Iterable[str]:
    """Return what a function finds. It is loaded now: every press of TAB would load what one option needs."""
    module, _, name = place.partition(":")
    found: Iterable[str] = getattr(import_module(module), name)(ctx)
    return found
