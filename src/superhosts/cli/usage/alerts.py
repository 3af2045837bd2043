"""Options of `superhosts alerts`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import JSON
from superhosts.cli._values import check_seconds

FILE = typer.Argument(metavar="FILE", help="The file in which a run keeps its alerts.")
RULE = typer.Option(metavar="NAME", help="Only this rule.")


@dataclass(frozen=True)
class List:
    """List alerts: open ones, or with --all also those that were closed.

    Open ones come first, those with the most peers before the others.

    Examples:
        superhosts alerts list alerts.sqlite
        superhosts alerts list alerts.sqlite --all --json
    """

    file: Annotated[Path, FILE]
    all: Annotated[bool, typer.Option("--all", help="Closed alerts, too.")] = False
    rule: Annotated[str | None, RULE] = None
    json: Annotated[bool, JSON] = False


@dataclass(frozen=True)
class Show:
    """Show one alert, or those of a host.

    Examples:
        superhosts alerts show alerts.sqlite 203.0.113.66
        superhosts alerts show alerts.sqlite 4f1c9a7be2d0
    """

    file: Annotated[Path, FILE]
    alert: Annotated[str, typer.Argument(metavar="ALERT", help="A host, or the id of an alert.")]
    json: Annotated[bool, JSON] = False


@dataclass(frozen=True)
class Mute:
    """Want no alert of a host or prefix for some time. An alert that is open is closed with the next window.

    The file is made if there is none, for a run that comes later.

    Examples:
        superhosts alerts mute alerts.sqlite 10.0.0.53 --why 'our resolver'
        superhosts alerts mute alerts.sqlite 192.0.2.0/24 --for 8h --rule scan-out
        superhosts alerts mute alerts.sqlite 10.0.0.53 --off
    """

    file: Annotated[Path, FILE]
    host: Annotated[str, typer.Argument(metavar="HOST", help="An address or a prefix.")]
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", callback=check_seconds, help="For how long.")
    ] = "30d"
    rule: Annotated[str | None, RULE] = None
    why: Annotated[str, typer.Option(metavar="NOTE", help="A note for others.")] = ""
    off: Annotated[bool, typer.Option("--off", help="Want alerts again.")] = False


@dataclass(frozen=True)
class Export:
    """Write all alerts, open and closed, as JSON Lines.

    Examples:
        superhosts alerts export alerts.sqlite
        superhosts alerts export alerts.sqlite | jq .host
    """

    file: Annotated[Path, FILE]
