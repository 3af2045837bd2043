"""What a shell offers when somebody presses TAB behind an option: its words, usual values, or names from files.

An option declares them (`offers`), has them in its metavar (on|off), or is written in a usual way (SIZE, DURATION). One
that takes a file has none: the shell completes file names then. Names in files are looked up when they are asked for,
and that never fails: a shell has no place for an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import typer

MOST_FILES = 1000  # sketches whose sites are looked up
DURATIONS = ("90s", "5m", "15m", "1h", "1d")
USUAL = {  # by metavar
    "SIZE": ("16MiB", "64MiB", "128MiB", "512MiB", "1GiB"),
    "DURATION": DURATIONS,
    "DEVICE": ("auto", "cpu", "cuda", "cuda:all"),
    "SHARE": ("0.1%", "1%", "5%"),
    "FAMILY": ("4", "6", "both"),
}

Complete = Callable[[typer.Context, str], list[str]]
Values = Iterable[str] | Callable[[typer.Context], Iterable[str]]


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
            offered = list(values(ctx) if callable(values) else values)
        except Exception:  # whatever is wrong with a file: nothing can be offered
            return []
        return [f"{given}{comma}{value}" for value in offered if value.startswith(last) and value not in taken]

    return complete


def sites_of_sketches(ctx: typer.Context) -> list[str]:
    from superhosts.cli._sketches import find_sketches
    from superhosts.sketch.files import saved_sketch

    # Behind an option without its value, words are not yet assigned to arguments.
    paths = find_sketches(ctx.params.get("files") or ctx.args, lambda _: None)[:MOST_FILES]
    return sorted({site for path in paths for site in saved_sketch(path).sites})


def enrolled_sites(ctx: typer.Context) -> list[str]:
    from superhosts.cli._options import HUB_STATE
    from superhosts.cli.site import BROKER
    from superhosts.fleet.nats.enrolment import read_sites

    return sorted(read_sites(Path(ctx.params.get("state") or HUB_STATE) / BROKER))
