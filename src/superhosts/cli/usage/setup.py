"""Options of the commands that set up and check: `key …`, `alerts …`, `config …` and `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import FORCE, JSON, JsonObject, worded
from superhosts.cli._values import check_seconds


@dataclass(frozen=True)
class KeyNew:
    """Make a key file that only you can read, and print the fingerprint of the key.

    All sites of a fleet need the same key: copy the file to each of them and give it with --key-file. Without FILE, the
    key becomes your own, which commands use if no other is given. A sketch can be queried only with the key that it
    was written with, so keep old keys as long as their sketches.

    Example: superhosts key new /etc/superhosts/key
    """

    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The file to make.", show_default=False)] = None
    force: Annotated[bool, worded(FORCE, "Replace a key that exists.")] = False


@dataclass(frozen=True)
class KeyShow:
    """Print the fingerprint of the key in use, or of a key file, and where it comes from; never the key itself.

    Two sites can merge their sketches if the fingerprints are equal.

    Examples:
        superhosts key show
        superhosts key show /etc/superhosts/key
    """

    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A key file, or `public` for the public key.", show_default=False),
    ] = None
    json: JsonObject = False


ALERTS_FILE = typer.Argument(metavar="FILE", help="The file in which a run keeps its alerts.")
ALERTS_RULE = typer.Option(metavar="NAME", help="Only this rule.")


@dataclass(frozen=True)
class AlertsList:
    """List alerts: open ones, or with --all also those that were closed.

    Open ones come first, those with the most peers before the others.

    Examples:
        superhosts alerts list alerts.sqlite
        superhosts alerts list alerts.sqlite --all --json
    """

    file: Annotated[Path, ALERTS_FILE]
    all: Annotated[bool, typer.Option("--all", help="Closed alerts, too.")] = False
    rule: Annotated[str | None, ALERTS_RULE] = None
    json: Annotated[bool, JSON] = False


@dataclass(frozen=True)
class AlertsShow:
    """Show one alert, or those of a host.

    Examples:
        superhosts alerts show alerts.sqlite 203.0.113.66
        superhosts alerts show alerts.sqlite 4f1c9a7be2d0
    """

    file: Annotated[Path, ALERTS_FILE]
    alert: Annotated[str, typer.Argument(metavar="ALERT", help="A host, or the id of an alert.")]
    json: Annotated[bool, JSON] = False


@dataclass(frozen=True)
class AlertsMute:
    """Want no alert of a host or prefix for some time. An alert that is open is closed with the next window.

    The file is made if there is none, for a run that comes later.

    Examples:
        superhosts alerts mute alerts.sqlite 10.0.0.53 --why 'our resolver'
        superhosts alerts mute alerts.sqlite 192.0.2.0/24 --for 8h --rule scan-out
        superhosts alerts mute alerts.sqlite 10.0.0.53 --off
    """

    file: Annotated[Path, ALERTS_FILE]
    host: Annotated[str, typer.Argument(metavar="HOST", help="An address or a prefix.")]
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", callback=check_seconds, help="For how long.")
    ] = "30d"
    rule: Annotated[str | None, ALERTS_RULE] = None
    why: Annotated[str, typer.Option(metavar="NOTE", help="A note for others.")] = ""
    off: Annotated[bool, typer.Option("--off", help="Want alerts again.")] = False


@dataclass(frozen=True)
class AlertsExport:
    """Write all alerts, open and closed, as JSON Lines.

    Examples:
        superhosts alerts export alerts.sqlite
        superhosts alerts export alerts.sqlite | jq .host
    """

    file: Annotated[Path, ALERTS_FILE]


CONFIG_FILE = typer.Argument(metavar="FILE", help="The configuration file.")


@dataclass(frozen=True)
class ConfigInit:
    """Write a configuration file to begin with: every option with its help, commented out.

    Examples:
        superhosts config init superhosts.toml
        superhosts config init -
    """

    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; - for standard output.")] = Path(
        "superhosts.toml"
    )
    force: Annotated[bool, worded(FORCE, "Replace a file that exists.")] = False


@dataclass(frozen=True)
class ConfigCheck:
    """Check a configuration file: every key, every value and every rule, for all commands.

    What is wrong is named with its key and its value, and the exit status is 2.

    Examples:
        superhosts config check superhosts.toml
    """

    file: Annotated[Path, CONFIG_FILE]


@dataclass(frozen=True)
class ConfigShow:
    """Show the value that each option of a command has with a file, and where it comes from.

    Examples:
        superhosts config show superhosts.toml hub
        SUPERHOSTS_HUB_THRESHOLD=500 superhosts config show superhosts.toml hub
    """

    file: Annotated[Path, CONFIG_FILE]
    command: Annotated[str, typer.Argument(metavar="COMMAND", help="scan, watch, edge or hub.")] = "scan"


@dataclass(frozen=True)
class Doctor:
    """Check this installation: versions, memory, compiled code, GPUs and optional packages.

    Each line says what works, or what to do about it. A small cube is filled on the CPU and on every GPU; they must
    agree bit by bit. What is reported as missing is optional. The exit status is 2 if something is installed and does
    not work.

    Example: superhosts doctor
    """

    json: JsonObject = False
