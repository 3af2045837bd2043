"""What a shell offers when somebody presses TAB behind an option: its words, usual values, or names from files.

Options with a few words say them in their metavar (`on|off`), detectors in their help; the others are in `VALUES`, by
the name of the option. An option that takes a file has none: the shell completes file names then. Names in files are
looked up when they are asked for, and that never fails: a shell has no place for an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from superhosts.sources.tables.mapping import ROLES
from superhosts.sources.tables.options import EXPORT_FORMATS, FORMAT_NAMES

MOST_FILES = 1000  # sketches whose sites are looked up
DURATIONS = ("90s", "5m", "15m", "1h", "1d")
SIZES = ("16MiB", "64MiB", "128MiB", "512MiB", "1GiB")
PREFIXES = ("48", "56", "64", "128")
SIDES = ("inner", "outer")

Complete = Callable[[typer.Context, str], list[str]]
Values = Iterable[str] | Callable[[typer.Context], Iterable[str]]


def completion_of(name: str, option: Any) -> Complete | None:
    """Return the function that completes an option or argument; None if it takes a file or anything."""
    values: Values | None = VALUES.get(name)
    if (name, option.metavar) in NAMES:
        values = NAMES[name, option.metavar]
    elif name == "detector":
        values = _names_in(str(option.help))
    elif "|" in str(option.metavar):
        values = str(option.metavar).split("|")
    elif name == "window" and re.search(r"\ball\b", str(option.help)):
        values = (*DURATIONS, "all")
    if values is None:
        return None
    return _completing(values, several=option.metavar == "LIST", with_files=name in ("key_file",))


def _completing(values: Values, *, several: bool, with_files: bool) -> Complete:
    """Return a function that offers values.

    `several`: they can be joined by commas, and the last one is completed. `with_files`: a file is possible as well, so
    a value is offered only when its first letter is there; otherwise the shell offers files.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        given, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        if with_files and not last:
            return []
        taken = given.split(",")
        try:
            offered = list(values(ctx) if callable(values) else values)
        except Exception:  # whatever is wrong with a file: nothing can be offered
            return []
        return [f"{given}{comma}{value}" for value in offered if value.startswith(last) and value not in taken]

    return complete


def _names_in(help: str) -> list[str]:
    """Return the names that the first sentence of a help lists."""
    return re.split(", | or ", help.split(".")[0].removeprefix("Only these, of "))


def _sites_of_sketches(ctx: typer.Context) -> list[str]:
    from superhosts.cli._sketches import find_sketches
    from superhosts.sketch.files import saved_sketch

    # Behind an option without its value, words are not yet assigned to arguments.
    paths = find_sketches(ctx.params.get("files") or ctx.args, lambda _: None)[:MOST_FILES]
    return sorted({site for path in paths for site in saved_sketch(path).sites})


def _enrolled_sites(ctx: typer.Context) -> list[str]:
    from superhosts.cli._options import HUB_STATE
    from superhosts.cli.site import BROKER
    from superhosts.fleet.nats.enrolment import read_sites

    return sorted(read_sites(Path(ctx.params.get("state") or HUB_STATE) / BROKER))


ROW_FORMATS = (
    "JSONEachRow",
    "CSV",
    "CSVWithNames",
    "TabSeparated",
    "TabSeparatedWithNames",
    "RowBinary",
    "RowBinaryWithNamesAndTypes",
)
VALUES: dict[str, Values] = {
    "columns": ("host", "peers", "peers_low", "peers_high", "family", "exact", "window_start", "window_end"),
    "device": ("auto", "cpu", "cuda", "cuda:all"),
    "direction": ("any", "out", "in"),
    "duration": ("1h", "8h", "1d", "7d", "30d"),
    "peers": ("any", "opened", "answered", "unanswered"),
    "port": ("22", "53", "80", "443", "445", "3389"),
    "proto": ("tcp", "udp", "icmp", "icmp6", "sctp", "gre", "esp"),
    "error": ("0.1%", "1%", "5%"),
    "family": ("4", "6", "both"),
    "format": (*FORMAT_NAMES, *EXPORT_FORMATS),
    "grace": DURATIONS,
    "inner": ("private",),
    "ipv4_prefix": ("16", "24", "32"),
    "ipv6_prefix": PREFIXES,
    "keep": ("7d", "30d", "90d", "365d"),
    "key_bits": ("32", "64", "128"),
    "key_file": ("public",),
    "late": DURATIONS,
    "map": tuple(f"{role}=" for role in ROLES),
    "memory": SIZES,
    "memory_total": SIZES,
    "out": ROW_FORMATS,
    "output_queue_cap": SIZES,
    "output_wait": DURATIONS,
    "side": SIDES,
    "refresh": ("1s", "3s", "10s"),
    "since": DURATIONS,
    "slide": DURATIONS,
    "sites": _enrolled_sites,
    "watch": SIDES,
    "window": DURATIONS,
}
NAMES: dict[tuple[str, str | None], Values] = {  # by name and metavar, where one name means several things
    ("format", "ROWS"): (*ROW_FORMATS, "ArrowStream"),
    ("site", "LIST"): _sites_of_sketches,
    ("site", "SITE"): _enrolled_sites,
}
