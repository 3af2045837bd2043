"""Options of `superhosts backup`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import ALERTS, FORCE, HUB_STATE, STATE, worded


@dataclass(frozen=True)
class Backup:
    """Copy the state of a hub to a tar file, also while the hub runs.

    The file has the windows of the hub, its sites and its own key, what waits for an upstream hub or a destination,
    and with --alerts its alerts. To go on from it, extract it into an empty folder and start a hub with that as
    --state. What the hub has received since the copy is missing then, unless its archive has it. The sketch key and the
    archive are not in the file: keep copies of these, too.

    Example: superhosts backup hub.tar --state /var/lib/superhosts-hub
    """

    file: Annotated[Path, typer.Argument(metavar="FILE.tar", help="The file to write; only its owner can read it.")]
    state: Annotated[Path, STATE] = HUB_STATE
    alerts: Annotated[Path | None, worded(ALERTS, "The file of the hub's alerts, which is copied, too.")] = None
    force: Annotated[bool, worded(FORCE, "Replace a file that exists.")] = False
