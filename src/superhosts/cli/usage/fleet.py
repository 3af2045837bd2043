"""Options of the commands of a fleet: `edge`, `hub`, `site …`, `backup` and `batch`."""

from __future__ import annotations

from dataclasses import MISSING
from pathlib import Path
from typing import ClassVar

from superhosts.cli import _options as common
from superhosts.cli._declaration import Options, arg, flag, opt, setting
from superhosts.core.units import parse_host_port

LOCAL = "nats://127.0.0.1:4222"
ENROLLED = "superhosts.cli.site:enrolled_sites"


class Edge(
    common.LinkOptions,
    common.OutputQueueOptions,
    common.NamesOptions,
    common.WantedOptions,
    common.EndlessTrafficOptions,
    common.FleetCubeOptions,
    common.PairCubeOptions,
    common.ServiceOptions,
):
    """Flows never leave the site. With a key of one's own, which only the fleet knows, no address leaves it in the
    clear; with --key-file public anybody can read addresses from the sketches. With --output the site also reports its
    own super hosts, which stay here.

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

    first: ClassVar = (
        *("inputs", "join", "site", "to", "inner", "window", "memory", "key_file", "output", "spool"),
        *("metrics", "config"),
    )
    inputs: list[str] = common.INPUT(default=[]).about(f"""{common.INPUTS} A folder is followed: files that a program
        that captures or logs adds to it are read. Without any input, only what waits in the spool is sent.""")
    site: str = common.SITE(default="", shown=False).about("""Name of this site, unique in the fleet. Required unless
        --join is given.""")
    join: str | None = opt(
        "TOKEN", panel="Link", brief="The token that `superhosts site enroll` printed, as @FILE."
    ).about("""Join a fleet with the token that `superhosts site enroll` printed: it has the hub's address, the name and
        key of the site, and the sketch key. A token is a secret: other users see the options of a command, so write
        @FILE, or set the variable SUPERHOSTS_EDGE_JOIN. Its parts are kept in the spool, readable by its owner
        alone.""")
    output: list[str] = common.OUTPUT(panel="Results").about(f"""Also report this site's own super hosts, in FILE:
        {common.ENDLESS_OUTPUT}""")
    tls_ca: Path | None = common.TLS_CA(setting=True)
    tls_cert: Path | None = common.TLS_CERT(setting=True)
    tls_key: Path | None = common.TLS_KEY(setting=True)
    spool: Path = opt("DIR", Path("superhosts-spool")).about("Where sketches wait until the hub has acknowledged them.")
    spool_cap: str = common.SPOOL_CAP
    to: str | None = common.TO
    nats: str | None = common.NATS(shown=f"{LOCAL}; none with --to").about("""Send sketches to this NATS server: the
        hub's, or your own.""")


LISTEN = "127.0.0.1:4222"
BROKER_CAP = "4GiB"


class WayInOptions(Options, panel="Link"):
    listen: str | None = opt("HOST:PORT", check=parse_host_port, shown=f"{LISTEN}; none with --nats or --from").about(
        "Where the embedded broker listens."
    )
    nats: str | None = common.NATS.about("Use this NATS server instead of starting the embedded broker.")
    from_folder: str | None = opt("DIR", name="--from").about("""Take sketches from a folder or from s3://BUCKET/PREFIX
        (edge --to), without a broker.""")
    broker_cap: str | None = setting("SIZE", shown=BROKER_CAP).about("""Most disk space for sketches in transit, in the
        embedded broker or in the stream of your own server.""")
    quota_bytes: str = setting("SIZE", "4GiB").about("""Most bytes that one site may send in a minute. What is more
        waits, and other sites are not affected.""")
    quota_sketches: str = setting("COUNT", "1000").about("""Most sketches that one site may send in a minute. What is
        more waits.""")


class HubWindowOptions(Options, panel="Windows"):
    window: str | None = common.WINDOW(default=None, shown="whatever windows the edges send").about("""Length of the
        windows, like 5m. Sketches of other windows are refused. Without --slide it is the --window of the edges.""")
    slide: str | None = common.SLIDE(shown="none: the windows are those that the edges send").about("""The --slide of
        the edges, like 30s: with every pane of this length that they send, a window ends that has what all sites saw in
        the last --window. Memory: up to one sketch for each slide of a window, and three more.""")
    grace: str = common.GRACE(default="60s").about("""Longest wait for the other sites after the first sketch of a
        window has arrived.""")
    late: str = opt("DURATION", "1d").about("How long a late sketch re-opens its window (longer with --archive).")


class ArchiveOptions(Options, panel="Archive"):
    archive: Path | None = opt("DIR").about("Keep the union of every window in DIR.")
    archive_sites: bool = flag().about("Keep the sketch of every site, too.")
    keep: str = common.KEEP(default="90d", shown=True).about("How long archived sketches are kept.")


class UpstreamOptions(Options, panel="Upstream hub"):
    to: str | None = common.TO.about("""Send unions as files to a folder, or to s3://BUCKET/PREFIX, that the upstream
        hub reads with --from.""")
    up: str | None = opt("URL").about("Send unions to the NATS server of an upstream hub.")
    up_nkey: Path | None = setting("FILE").about("File with this hub's nkey seed at the upstream hub.")
    up_ca: Path | None = setting("FILE").about("Like --tls-ca, for the upstream hub.")
    up_cert: Path | None = setting("FILE").about("Like --tls-cert, for the upstream hub.")
    up_key: Path | None = setting("FILE").about("Like --tls-key, for the upstream hub.")
    spool_cap: str = common.SPOOL_CAP


class Hub(
    HubWindowOptions,
    WayInOptions,
    common.LinkOptions,
    ArchiveOptions,
    UpstreamOptions,
    common.WantedOptions,
    common.EndlessResultOptions,
    common.FleetCubeOptions,
    common.DashboardOptions,
    common.ServiceOptions,
):
    """Starts its own NATS server unless --nats or --from is given. A late sketch re-opens its window: the rows are
    written again with a higher revision. Memory, detector and key must be those of the edges. SIGHUP reloads keys,
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

    first: ClassVar = (
        *("sites", "from_folder", "listen", "state", "threshold", "top", "alerts", "archive", "json", "output", "web"),
        *("metrics", "config"),
    )
    nkey: Path | None = common.NKEY.about("File with the hub's nkey seed for your own server (--nats).")
    tls_ca: Path | None = common.TLS_CA.about("""Certificate of the authority that signed the certificates of the sites
        (mutual TLS); with --nats, that of the server.""")
    tls_cert: Path | None = common.TLS_CERT.about("Certificate of the embedded broker; with --nats, this hub's own.")
    state: Path = common.STATE
    site: str = common.SITE(default="hub").about("Name of this hub, in its archive and at the upstream hub.")
    sites: list[str] = opt("LIST", [], shown="those of the last 12 windows", offers=ENROLLED).about("""Sites to wait
        for, like ams,fra,nyc.""")


SITE_NAME = arg("SITE", offers=ENROLLED).about("Name of the site, as its edge gives it with --site.")


class TokenOptions(Options):
    """What a token says besides the site's own key."""

    site: str = SITE_NAME
    state: Path = common.STATE
    address: str | None = opt("URL", shown="the last one given, or where the hub listens").about("""Address under which
        edges reach the hub, like tls://hub.example:4222. It is remembered for the next site.""")
    tls_ca: Path | None = common.TLS_CA.about("""Certificate of the authority that signed the hub's certificate; it is
        remembered, too.""")
    key_file: Path | None = common.KEY_FILE.about("The key file of the hub, if it has one.")


class SiteEnroll(TokenOptions):
    """The token is one word with the hub's address, the site's key, the authority of the hub's certificate and the
    sketch key. It is a secret: whoever has it can send as this site and read addresses from the fleet's sketches. Start
    the edge with --join @FILE. An older key of the site is no longer accepted. A hub that is running notices the change
    within seconds.

    Examples:
        superhosts site enroll ams --address tls://hub.example:4222 > ams.token
        superhosts site enroll fra > fra.token
    """


class SiteRotate(TokenOptions):
    """The old key is rejected within seconds, or with --grace after that time. The edge waits meanwhile, and loses
    nothing. The key of sketches stays the same: sketches of two keys cannot be merged (docs/guides/fleet/keys.md).

    Example: superhosts site rotate ams --grace 1d > ams.token
    """

    grace: str = common.GRACE(default="0s").about("How long the old key is still accepted.")


class SiteRevoke(Options):
    """A hub that is running notices the change within seconds. Sketches of the site that wait in the queue are dropped.
    Keys belong to the hub's broker: a hub that reads a folder (--from) takes the sketches of everybody who can write
    there.

    Example: superhosts site revoke ams
    """

    site: str = SITE_NAME
    state: Path = common.STATE


class SiteList(Options):
    """seen: when something of the site last arrived. version: the release of its edge. lag: age of the window that
    arrived last, counted from its end. spool: sketches that wait at the edge, and their size. refused: sketches that
    the hub refused since it started. slowed: how often the site had to wait, as it was over its quota. clock: how far
    its clock is ahead of the hub's. What a site does not tell, as edges of earlier releases or links by files, is
    shown as -.

    Example: superhosts site list --json
    """

    state: Path = common.STATE
    json: bool = common.JSON


class Backup(Options):
    """The file has the windows of the hub, its sites and its own key, what waits for an upstream hub or a destination,
    and with --alerts its alerts. To go on from it, extract it into an empty folder and start a hub with that as
    --state. What the hub has received since the copy is missing then, unless its archive has it. The sketch key and the
    archive are not in the file: keep copies of these, too.

    Example: superhosts backup hub.tar --state /var/lib/superhosts-hub
    """

    file: Path = arg("FILE.tar").about("The file to write; only its owner can read it.")
    state: Path = common.STATE
    alerts: Path | None = common.ALERTS.about("The file of the hub's alerts, which is copied, too.")
    force: bool = common.FORCE


class PlaceOptions(Options, panel="Cluster"):
    scheduler: str | None = opt("ADDRESS").about("The cluster's scheduler, like tcp://host:8786.")
    local_cluster: bool = flag(old="--local").about("Start worker processes on this machine instead.")
    workers: int | None = opt("COUNT", shown="one for each core").about("Worker processes of --local-cluster.")
    work: Path | None = opt("DIR", shown="SAVE.work").about("Folder for intermediate results; all workers must see it.")
    keep_work: bool = flag().about("Keep the intermediate results.")
    task_size: str | None = opt("SIZE", shown="by the number of workers").about("""Size of the captures that one task
        reads, like 1GiB.""")


class Batch(PlaceOptions, common.TrafficOptions, common.WantedOptions, common.ResultOptions, common.CubeOptions):
    """The workers read the captures, so these must be in a shared folder or behind URLs. A run that was interrupted
    resumes when the same command is given again. The key is sent to the workers: use Dask's TLS if others can listen.

    Examples:
        superhosts batch 'day/**/*.pcap.gz' --local-cluster --save sketches
        superhosts batch s3://captures --scheduler tcp://head:8786 --save /shared
    """

    inputs: list[str] = arg("INPUT...").about(f"{common.FILES}, or URLs (s3://…).")
    detector: str = common.DETECTOR(offers=common.MERGED_BY_BATCH).about(f"{common.either(common.MERGED_BY_BATCH)}.")
    exact: str | None = common.EXACT(panel="Detector", shown="on")
    save: Path = common.SAVE(default=MISSING)
    site: str = common.SITE
    counters: str | None = common.COUNTERS
    quiet: bool = common.QUIET
    verbose: bool = common.VERBOSE.about(common.TRACEBACKS)
