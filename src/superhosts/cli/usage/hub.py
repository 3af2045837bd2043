"""Options of `superhosts hub`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    GRACE,
    HUB_STATE,
    NATS,
    NKEY,
    SITE,
    SLIDE,
    STATE,
    TLS_CA,
    TLS_CERT,
    TO,
    WINDOW,
    DashboardOptions,
    EndlessResultOptions,
    FleetCubeOptions,
    LinkOptions,
    ServiceOptions,
    SpoolCap,
    WantedOptions,
    shown,
    worded,
)
from superhosts.cli._signals import sighup_held
from superhosts.cli._values import check_positive_count, check_seconds, check_size, split_commas
from superhosts.errors import UsageError

LISTEN = "127.0.0.1:4222"
BROKER_CAP = "4GiB"


@dataclass(frozen=True)
class WayInOptions:
    """Where the sketches come from."""

    panel: ClassVar = "Link"
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the embedded broker listens.",
            show_default=f"{LISTEN}; with --nats or --from none",
        ),
    ] = None
    nats: Annotated[str | None, worded(NATS, "Use this NATS server instead of starting the embedded broker.")] = None
    from_folder: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Take sketches from a folder or from s3://BUCKET/PREFIX (edge --to), without a broker.",
        ),
    ] = None
    broker_cap: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            callback=check_size,
            help="Most disk space for sketches in transit, in the embedded broker or in the stream of your own server.",
            show_default=BROKER_CAP,
        ),
    ] = None
    quota_bytes: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            callback=check_size,
            help="Most bytes that one site may send in a minute. What is more waits, and other sites are not affected.",
        ),
    ] = "4GiB"
    quota_sketches: Annotated[
        str,
        typer.Option(
            metavar="COUNT",
            callback=check_positive_count,
            help="Most sketches that one site may send in a minute. What is more waits.",
        ),
    ] = "1000"


@dataclass(frozen=True)
class HubLinkOptions(LinkOptions):
    """How the hub proves who it is, to its edges or to your own server."""

    nkey: Annotated[Path | None, worded(NKEY, "File with the hub's nkey seed for your own server (--nats).")] = None
    tls_ca: Annotated[
        Path | None,
        worded(
            TLS_CA,
            "Certificate of the authority that signed the certificates of the sites (mutual TLS); with --nats, that of "
            "the server.",
        ),
    ] = None
    tls_cert: Annotated[
        Path | None, worded(TLS_CERT, "Certificate of the embedded broker; with --nats, this hub's own.")
    ] = None


@dataclass(frozen=True)
class HubWindowOptions:
    """Which windows are reported, and how long the hub waits for their sketches."""

    panel: ClassVar = "Windows"
    window: Annotated[
        str | None,
        shown(
            worded(
                WINDOW,
                "Length of the windows, like 5m. Sketches of other windows are refused. Without --slide it is the "
                "--window of the edges.",
            ),
            "whatever windows the edges send",
        ),
    ] = None
    slide: Annotated[
        str | None,
        shown(
            worded(
                SLIDE,
                "The --slide of the edges, like 30s: with every pane of this length that they send, a window ends that "
                "has what all sites saw in the last --window. Memory: up to one sketch for each slide of a window, and "
                "three more.",
            ),
            "none: the windows are those that the edges send",
        ),
    ] = None
    grace: Annotated[
        str, worded(GRACE, "Longest wait for the other sites after the first sketch of a window has arrived.")
    ] = "60s"
    late: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            callback=check_seconds,
            help="How long a late sketch re-opens its window (longer with --archive).",
        ),
    ] = "1d"


@dataclass(frozen=True)
class ArchiveOptions:
    """What is kept, and for how long."""

    panel: ClassVar = "Archive"
    archive: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the union of every window in DIR.")] = None
    archive_sites: Annotated[bool, typer.Option("--archive-sites", help="Keep the sketch of every site, too.")] = False
    keep: Annotated[
        str, typer.Option(metavar="DURATION", callback=check_seconds, help="How long archived sketches are kept.")
    ] = "90d"


@dataclass(frozen=True)
class UpstreamOptions:
    """The upstream hub, to which this hub is an edge."""

    panel: ClassVar = "Upstream hub"
    to: Annotated[
        str | None,
        worded(
            TO, "Send unions as files to a folder, or to s3://BUCKET/PREFIX, that the upstream hub reads with --from."
        ),
    ] = None
    up: Annotated[
        str | None, typer.Option(metavar="URL", help="Send unions to the NATS server of an upstream hub.")
    ] = None
    up_nkey: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with this hub's nkey seed at the upstream hub.")
    ] = None
    up_ca: Annotated[Path | None, typer.Option(metavar="FILE", help="Like --tls-ca, for the upstream hub.")] = None
    up_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Like --tls-cert, for the upstream hub.")] = None
    up_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Like --tls-key, for the upstream hub.")] = None
    spool_cap: SpoolCap = "10GiB"

    @property
    def proofs(self) -> dict[str, object]:
        """The options that only a link over NATS uses."""
        return {"--up-nkey": self.up_nkey, "--up-ca": self.up_ca, "--up-cert": self.up_cert, "--up-key": self.up_key}


def _refuse(instead: str) -> Callable[[str | None], None]:
    """Return the callback of an option that is now a command."""

    def refuse(site: str | None) -> None:
        if site is not None:
            raise UsageError(
                f"{instead} is a command of its own now: superhosts {instead} {site} (with the hub's --state)"
            )

    return refuse


@dataclass(frozen=True)
class Hub:
    """Merge the sketches of all edges, window by window, and report the super hosts of the whole network.

    Starts its own NATS server unless --nats or --from is given. A late sketch re-opens its window: the rows are written
    again with a higher revision. Memory, detector and key must be those of the edges. SIGHUP reloads keys,
    certificates, rules, lists, --threshold and --top, and destinations, and opens the files of --output again.

    With --window and --slide, which the edges have, too, windows overlap: the hub merges the panes that the edges send
    and reports the windows made of them. A late sketch revises the windows that its pane is in. The archive and an
    upstream hub get the panes.

    Examples:
        superhosts hub --sites ams,fra,nyc --json
        superhosts hub --from /mnt/fleet --archive archive --keep 90d
        superhosts hub --sites ams,fra,nyc --window 5m --slide 30s --json
        superhosts hub --listen 0.0.0.0:4222 --tls-cert hub.crt --tls-key hub.key
        superhosts hub --sites ams,fra,nyc --archive archive --web :8105
    """

    around: ClassVar = (sighup_held,)
    state: Annotated[Path, STATE] = HUB_STATE
    site: Annotated[str, worded(SITE, "Name of this hub, in its archive and at the upstream hub.")] = "hub"
    sites: Annotated[
        list[str],
        typer.Option(
            metavar="LIST",
            callback=split_commas,
            help="Sites to wait for, like ams,fra,nyc.",
            show_default="those of the last 12 windows",
        ),
    ] = field(default_factory=list)
    windows: HubWindowOptions = field(default_factory=HubWindowOptions)
    way_in: WayInOptions = field(default_factory=WayInOptions)
    link: HubLinkOptions = field(default_factory=HubLinkOptions)
    archive: ArchiveOptions = field(default_factory=ArchiveOptions)
    upstream: UpstreamOptions = field(default_factory=UpstreamOptions)
    wanted: WantedOptions = field(default_factory=WantedOptions)
    results: EndlessResultOptions = field(default_factory=EndlessResultOptions)
    cube: FleetCubeOptions = field(default_factory=FleetCubeOptions)
    dashboard: DashboardOptions = field(default_factory=DashboardOptions)
    service: ServiceOptions = field(default_factory=ServiceOptions)
    enroll: Annotated[
        str | None, typer.Option("--enroll", hidden=True, is_eager=True, callback=_refuse("site enroll"))
    ] = None
    revoke: Annotated[
        str | None, typer.Option("--revoke", hidden=True, is_eager=True, callback=_refuse("site revoke"))
    ] = None
