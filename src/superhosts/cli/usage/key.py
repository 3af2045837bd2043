"""Options of `superhosts key new` and `key show`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import FORCE, JsonObject, worded


@dataclass(frozen=True)
class New:
    """Make a key file that only you can read, and print the fingerprint of the key.

    All sites of a fleet need the same key: copy the file to each of them and give it with --key-file. Without FILE, the
    key becomes your own, which commands use if no other is given. A sketch can be queried only with the key that it
    was written with, so keep old keys as long as their sketches.

    Example: superhosts key new /etc/superhosts/key
    """

    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The file to make.", show_default=False)] = None
    force: Annotated[bool, worded(FORCE, "Replace a key that exists.")] = False


@dataclass(frozen=True)
class Show:
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
