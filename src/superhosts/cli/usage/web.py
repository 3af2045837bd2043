"""Options of `superhosts web`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import (
    ALERTS,
    LogFormat,
    NamesOptions,
    ScanWantedOptions,
    SketchKeyFile,
    WebTokenFile,
    WebTrustProxy,
    worded,
)
from superhosts.cli._values import check_place


@dataclass(frozen=True)
class Web:
    """Show a folder of saved sketches in the browser: super hosts over time, one host's past, other thresholds.

    The folder is that of --save, or a hub's archive; nothing in it is changed, and new sketches appear as they come.
    Of a hub's own folder (--state), the sites are shown, too. A program that runs shows itself: superhosts hub --web,
    superhosts watch --web. Ctrl-C ends it.

    Examples:
        superhosts web archive
        superhosts web archive --threshold 500 --labels hosts.csv
        superhosts web archive --listen 0.0.0.0:8105 --web-token-file token
    """

    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of saved sketches, with all folders in it.")]
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            callback=check_place,
            help="Where browsers find it. At an address that others reach, like 0.0.0.0:8105, a token is asked for.",
        ),
    ] = "127.0.0.1:8105"
    web_token_file: WebTokenFile = None
    web_trust_proxy: WebTrustProxy = field(default_factory=list)
    wanted: ScanWantedOptions = field(default_factory=ScanWantedOptions)
    naming: NamesOptions = field(default_factory=NamesOptions)
    alerts: Annotated[
        Path | None,
        worded(
            ALERTS,
            "The file of alerts that a run keeps, to show and to mute hosts. Without it alerts.db or alerts.sqlite in "
            "the folder counts.",
        ),
    ] = None
    key_file: SketchKeyFile = None
    log_format: LogFormat = "auto"
