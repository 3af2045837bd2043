"""Options of `superhosts site enroll`, `site revoke` and `site list`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import HUB_STATE, KEY_FILE, STATE, Json, worded

Name = Annotated[str, typer.Argument(metavar="SITE", help="Name of the site, as its edge gives it with --site.")]


@dataclass(frozen=True)
class Enroll:
    """Make the key of a site, or replace it, and print the file that holds the secret half.

    Take the file to the edge and start it with --site SITE --nkey FILE. An older key of the site is no longer accepted.
    A hub that is running notices the change within seconds. The edge also needs the sketch key of the hub (--key-file);
    this command says where that is.

    Example: superhosts site enroll ams
    """

    site: Name
    state: Annotated[Path, STATE] = HUB_STATE
    key_file: Annotated[Path | None, worded(KEY_FILE, "The key file of the hub, if it has one.")] = None


@dataclass(frozen=True)
class Revoke:
    """Revoke the key of a site: the hub turns its edge away.

    A hub that is running notices the change within seconds. Sketches of the site that wait in the queue are dropped.
    Keys belong to the hub's broker: a hub that reads a folder (--from) takes the sketches of everybody who can write
    there.

    Example: superhosts site revoke ams
    """

    site: Name
    state: Annotated[Path, STATE] = HUB_STATE


@dataclass(frozen=True)
class List:
    """List the sites that are enrolled or were revoked, and since when.

    Example: superhosts site list --json
    """

    state: Annotated[Path, STATE] = HUB_STATE
    json: Json = False
