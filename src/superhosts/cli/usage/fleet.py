"""Options of the commands of a fleet: `edge`, `hub`, `site …`, `backup` and `batch`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    ALERTS,
    DETECTOR,
    DEVICE,
    ENDLESS_OUTPUT,
    EXACT,
    FILES,
    FORCE,
    GRACE,
    HUB_STATE,
    INPUTS,
    KEY_FILE,
    MERGED_BY_BATCH,
    NATS,
    NKEY,
    OUTPUT,
    SAVE,
    SITE,
    SLIDE,
    STATE,
    TLS_CA,
    TLS_CERT,
    TO,
    TRACEBACKS,
    VERBOSE,
    WINDOW,
    Counters,
    DashboardOptions,
    EndlessResultOptions,
    EndlessTrafficOptions,
    Exact,
    FleetCubeOptions,
    Json,
    LinkOptions,
    LiveGrace,
    MemoryTotal,
    NamesOptions,
    OutputQueueOptions,
    PairCubeOptions,
    Quiet,
    ResultOptions,
    ServiceOptions,
    SpoolCap,
    TrafficOptions,
    WantedOptions,
    shown,
    worded,
)
from superhosts.cli._signals import sighup_held
from superhosts.cli._values import check_positive_count, check_seconds, check_size, parse_at_least_one, split_commas
from superhosts.core import defaults
from superhosts.errors import UsageError

LOCAL = "nats://127.0.0.1:4222"


@dataclass(frozen=True)
class EdgeCubeOptions(FleetCubeOptions):
    """What hosts are counted with, at a site that reads pairs from traffic."""

    exact: Exact = None


@dataclass(frozen=True)
class SiteRowsOptions:
    """Where the rows of this site's own super hosts go."""

    panel: ClassVar = "Results"
    output: Annotated[
        list[str], worded(OUTPUT, f"Also report this site's own super hosts, in FILE: {ENDLESS_OUTPUT}")
    ] = field(default_factory=list)
    queue: OutputQueueOptions = field(default_factory=OutputQueueOptions)
    naming: NamesOptions = field(default_factory=NamesOptions)


@dataclass(frozen=True)
class EdgeLinkOptions(LinkOptions):
    """How an edge reaches its hub and proves who it is."""

    join: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Join a fleet with the token that `superhosts site enroll` printed: it has the hub's address, the "
            "name and key of the site, and the sketch key. A token is a secret: other users see the options of a "
            "command, so write @FILE, or set the variable SUPERHOSTS_EDGE_JOIN. Its parts are kept in the spool, "
            "readable by its owner alone.",
        ),
    ] = None


@dataclass(frozen=True)
class Edge:
    """Watch traffic at one place and send the sketch of every window to a hub.

    Flows never leave the site. With a key of one's own, which only the fleet knows, no address leaves it in the clear;
    with --key-file public anybody can read addresses from the sketches. With --output the site also reports its own
    super hosts, which stay here.

    With --slide, a sketch of every slide is sent, so that each packet travels once. A hub with the same --window and
    --slide makes windows that overlap of them; to any other hub these are windows as long as the slide. The rows of
    --output are those of the windows that overlap. After a restart, the first of them lack what came before it.

    Sketches stay in the spool until the hub has acknowledged them. All edges and the hub must have the same key, memory
    (or geometry) and detector, and all edges the same window. A hub refuses other sketches. They are kept in the spool,
    the last line counts them, and the exit status is 5.

    Examples:
        superhosts edge /var/captures --join @ams.token
        superhosts edge /var/captures --site ams --to /mnt/fleet
        tcpdump -U -w - | superhosts edge - --site ams --nkey ams.nk
        superhosts edge netflow://0.0.0.0:2055 --site ams --to s3://fleet/sketches
    """

    around: ClassVar = (sighup_held,)
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help=f"{INPUTS} A folder is followed: files that a program that captures or logs adds to it are read. "
            "Without any input, only what waits in the spool is sent.",
        ),
    ] = field(default_factory=list)
    site: Annotated[
        str, shown(worded(SITE, "Name of this site, unique in the fleet. It must be given, but for --join."), False)
    ] = ""
    spool: Annotated[
        Path, typer.Option(metavar="DIR", help="Where sketches wait until the hub has acknowledged them.")
    ] = Path("superhosts-spool")
    spool_cap: SpoolCap = "10GiB"
    grace: LiveGrace = defaults.GRACE
    device: Annotated[str, DEVICE] = "auto"
    memory_total: MemoryTotal = None
    to: Annotated[str | None, TO] = None
    nats: Annotated[
        str | None,
        shown(worded(NATS, "Send sketches to this NATS server: the hub's, or your own."), f"{LOCAL}; with --to none"),
    ] = None
    link: EdgeLinkOptions = field(default_factory=EdgeLinkOptions)
    rows: SiteRowsOptions = field(default_factory=SiteRowsOptions)
    wanted: WantedOptions = field(default_factory=WantedOptions)
    traffic: EndlessTrafficOptions = field(default_factory=EndlessTrafficOptions)
    cube: EdgeCubeOptions = field(default_factory=EdgeCubeOptions)
    service: ServiceOptions = field(default_factory=ServiceOptions)


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


SiteName = Annotated[str, typer.Argument(metavar="SITE", help="Name of the site, as its edge gives it with --site.")]


@dataclass(frozen=True)
class TokenOptions:
    """What a token says besides the site's own key."""

    address: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address under which edges reach the hub, like tls://hub.example:4222. It is remembered for the next "
            "site.",
            show_default="the last one given, or where the hub listens",
        ),
    ] = None
    tls_ca: Annotated[
        Path | None,
        worded(TLS_CA, "Certificate of the authority that signed the hub's certificate; it is remembered, too."),
    ] = None
    key_file: Annotated[Path | None, worded(KEY_FILE, "The key file of the hub, if it has one.")] = None


@dataclass(frozen=True)
class Enroll:
    """Make the key of a site, or replace it, and print the token with which its edge joins.

    The token is one word with the hub's address, the site's key, the authority of the hub's certificate and the sketch
    key. It is a secret: whoever has it can send as this site and read addresses from the fleet's sketches. Start the
    edge with --join @FILE. An older key of the site is no longer accepted. A hub that is running notices the change
    within seconds.

    Examples:
        superhosts site enroll ams --address tls://hub.example:4222 > ams.token
        superhosts site enroll fra > fra.token
    """

    site: SiteName
    state: Annotated[Path, STATE] = HUB_STATE
    token: TokenOptions = field(default_factory=TokenOptions)


@dataclass(frozen=True)
class Rotate:
    """Give an enrolled site a new key, and print its new token.

    The old key is rejected within seconds, or with --grace after that time. The edge waits meanwhile, and loses
    nothing. The key of sketches stays the same: sketches of two keys cannot be merged (docs/guides/fleet/keys.md).

    Example: superhosts site rotate ams --grace 1d > ams.token
    """

    site: SiteName
    state: Annotated[Path, STATE] = HUB_STATE
    grace: Annotated[str, worded(GRACE, "How long the old key is still accepted.")] = "0s"
    token: TokenOptions = field(default_factory=TokenOptions)


@dataclass(frozen=True)
class Revoke:
    """Revoke the key of a site: the hub turns its edge away.

    A hub that is running notices the change within seconds. Sketches of the site that wait in the queue are dropped.
    Keys belong to the hub's broker: a hub that reads a folder (--from) takes the sketches of everybody who can write
    there.

    Example: superhosts site revoke ams
    """

    site: SiteName
    state: Annotated[Path, STATE] = HUB_STATE


@dataclass(frozen=True)
class SiteList:
    """List the sites of a hub: their keys, when they were last heard, how far they are, and what is wrong there.

    seen: when something of the site last arrived. version: the release of its edge. lag: age of the window that
    arrived last, counted from its end. spool: sketches that wait at the edge, and their size. refused: sketches that
    the hub refused since it started. slowed: how often the site had to wait, as it was over its quota. clock: how far
    its clock is ahead of the hub's. What a site does not tell, as edges of earlier releases or links by files, is
    shown as -.

    Example: superhosts site list --json
    """

    state: Annotated[Path, STATE] = HUB_STATE
    json: Json = False


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


@dataclass(frozen=True)
class PlaceOptions:
    """Where the work is done, and in pieces of what size."""

    panel: ClassVar = "Cluster"
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The cluster's scheduler, like tcp://host:8786.")
    ] = None
    local: Annotated[bool, typer.Option("--local", help="Start worker processes on this machine instead.")] = False
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT",
            parser=parse_at_least_one,
            help="Worker processes of --local.",
            show_default="one for each core",
        ),
    ] = None
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for intermediate results; all workers must see it.", show_default="SAVE.work"
        ),
    ] = None
    keep_work: Annotated[bool, typer.Option("--keep-work", help="Keep the intermediate results.")] = False
    task_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            callback=check_size,
            help="Size of the captures that one task reads, like 1GiB.",
            show_default="by the number of workers",
        ),
    ] = None


@dataclass(frozen=True)
class MergedCubeOptions(PairCubeOptions):
    """What hosts are counted with: a detector whose sketches merge, on the CPUs of the workers."""

    detector: Annotated[str, worded(DETECTOR, f"{MERGED_BY_BATCH}.")] = "cube"
    exact: Annotated[str | None, shown(EXACT, "on")] = None


@dataclass(frozen=True)
class Batch:
    """Find the super hosts of many captures on a Dask cluster: the same sketches as one scan over all of them.

    The workers read the captures, so these must be in a shared folder or behind URLs. A run that was interrupted
    resumes when the same command is given again. The key is sent to the workers: use Dask's TLS if others can listen.

    Examples:
        superhosts batch 'day/**/*.pcap.gz' --local --save sketches
        superhosts batch s3://captures --scheduler tcp://head:8786 --save /shared
    """

    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help=f"{FILES}, or URLs (s3://…)."),
    ]
    save: Annotated[Path, SAVE]
    place: PlaceOptions = field(default_factory=PlaceOptions)
    traffic: TrafficOptions = field(default_factory=TrafficOptions)
    wanted: WantedOptions = field(default_factory=WantedOptions)
    results: ResultOptions = field(default_factory=ResultOptions)
    cube: MergedCubeOptions = field(default_factory=MergedCubeOptions)
    site: Annotated[str, SITE] = "local"
    counters: Counters = None
    quiet: Quiet = False
    verbose: Annotated[bool, worded(VERBOSE, TRACEBACKS)] = False
