"""Options of `superhosts config`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import FORCE, worded

FILE = typer.Argument(metavar="FILE", help="The configuration file.")


@dataclass(frozen=True)
class Init:
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
class Check:
    """Check a configuration file: every key, every value and every rule, for all commands.

    What is wrong is named with its key and its value, and the exit status is 2.

    Examples:
        superhosts config check superhosts.toml
    """

    file: Annotated[Path, FILE]


@dataclass(frozen=True)
class Show:
    """Show the value that each option of a command has with a file, and where it comes from.

    Examples:
        superhosts config show superhosts.toml hub
        SUPERHOSTS_HUB_THRESHOLD=500 superhosts config show superhosts.toml hub
    """

    file: Annotated[Path, FILE]
    command: Annotated[str, typer.Argument(metavar="COMMAND", help="scan, watch, edge or hub.")] = "scan"
