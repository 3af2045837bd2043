"""Every option that more than one command has: one name, short form and type, in groups that commands share.

The help is the same, too, unless an option does something else in a command: `worded` gives it other words there.
This module imports nothing that is slow to load, because help needs it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from superhosts.cli._config import use_config
from superhosts.cli._values import (
    check_count,
    check_device,
    check_duration,
    check_place,
    check_positive_count,
    check_seconds,
    check_share,
    check_size,
    check_special,
    check_switch,
    check_window,
    checked,
    one_of,
    parse_at_least_one,
    parse_threshold,
    parse_whole,
    split_commas,
)
from superhosts.core import defaults
from superhosts.errors import UsageError
from superhosts.sources.tables.mapping import parse_map
from superhosts.sources.tables.options import EXPORT_FORMATS, FORMAT_NAMES, WHICH_TIME, TableOptions

# Tables and logs, for every command that reads inputs


_EXPORTS = " or ".join((", ".join(EXPORT_FORMATS[:-1]), EXPORT_FORMATS[-1]))


def _format(text: str) -> None:
    if text not in (*FORMAT_NAMES, *EXPORT_FORMATS):
        raise UsageError(f"{text!r} is no format; use {', '.join((*FORMAT_NAMES, *EXPORT_FORMATS))}")


def _which_time(text: str) -> None:
    if text not in WHICH_TIME:
        raise UsageError(f"{text!r} is no time; use {', '.join(WHICH_TIME)}")


def _map(text: str) -> None:
    try:
        parse_map(text)
    except UsageError as error:  # It begins with the option, which is added again.
        raise UsageError(str(error).partition(": ")[2]) from None


check_format, check_map, check_which_time = checked(_format), checked(_map), checked(_which_time)

ENDS = "Columns of a table: src=COLUMN,dst=COLUMN,time=COLUMN, also time_end, duration."
PLACES = "A number is a place, from 1. Times may name their unit: time=start:ms (s, ms, us, ns)."
MAP = typer.Option(
    metavar="LIST",
    callback=check_map,
    help=f"{ENDS} For --peers, --count, --by, --proto and --port: proto, sport, dport, flags (of TCP), and of tables "
    f"of whole conversations state (as Zeek or Argus write it) or replies (packets that came back). {PLACES}",
    show_default="usual names of columns are found",
)


@dataclass(frozen=True)
class TableInputOptions:
    """Inputs that are tables or logs."""

    panel: ClassVar = "Tables and logs"
    map: Annotated[str | None, MAP] = None
    format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            callback=check_format,
            help=f"Format of all inputs that are no captures: {', '.join(FORMAT_NAMES)}. With {_EXPORTS} also captures "
            "of exports are read: the flows that they report.",
            show_default="by content",
        ),
    ] = None
    time: Annotated[
        str,
        typer.Option(
            metavar="|".join(WHICH_TIME),
            callback=check_which_time,
            help="Which time of a record counts: its start or end, of flow exports also export or received. With "
            "record it is the start, and for exports from the network the time at which they are received.",
        ),
    ] = "record"

    def read(self) -> TableOptions:
        """Return what the sources take."""
        return TableOptions(self.format, None if self.map is None else parse_map(self.map), self.time)


# Names of detectors, written out because the registry is slow to load; tests/cli/test_structure.py compares them.
DETECTORS = "cube, cbaa, cbaa-paper, exact, dcds, vbfa, gse, filter, spreadsketch, pairsample or rgs"
MERGED_BY_BATCH = "cube, cbaa, cbaa-paper or exact"
MERGED_BY_HUBS = "cube, cbaa or cbaa-paper"
SKETCH_FILES = "Saved sketches: files, folders, or patterns in quotes ('archive/**/*.cube')."


def check_no_conflict(options: Mapping[str, object], why: str) -> None:
    """Refuse options that were given but would have no effect."""
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise UsageError(f"{', '.join(given)}: {why}")


def shown(option: Any, default: str | bool) -> Any:
    """Return an option that shows this text as its default value; False: none."""
    same = copy.copy(option)
    same.show_default = default
    return same


def worded(option: Any, help: str) -> Any:
    """Return an option with the help for a command in which it does something else."""
    same = copy.copy(option)
    same.help = help
    return same


# Options. Those whose default differs between commands are constants, the others are types.

ALERTS = typer.Option(
    metavar="FILE",
    help="Make alerts: one when a host breaks a rule, one each time its peers have doubled, one when it is over. FILE "
    "keeps them over restarts (superhosts alerts list FILE). Rules are in the file of --config; without any, a host "
    "with 1024 peers or more is an alert.",
)
DETECTOR = typer.Option(metavar="NAME", help=f"{DETECTORS}.")
DEVICE = typer.Option(  # Named in full: typer 0.27 takes a metavar that equals the name for the name.
    "--device", metavar="DEVICE", callback=check_device, help="cpu, cuda, cuda:all, cuda:0,1 or auto."
)
DIRECTION = typer.Option(
    metavar="LIST", callback=split_commas, help="Packets that count: any, out (sent by the host), in, or several."
)
ERROR = typer.Option(
    metavar="SHARE",
    callback=check_share,
    help="Wrong answers to accept, as a share of the super hosts, like 1%.",
)
EXACT = typer.Option(
    metavar="on|off",
    callback=check_switch,
    help="Keep the pairs, and count exactly, while they fit in half of the memory; then the cube estimates. "
    "off: the cube from the first pair on.",
    show_default="on; off if --device names a GPU",
)
FLOWS = typer.Option(
    metavar="COUNT", callback=check_positive_count, help="Distinct (host, peer) pairs in each window, like 5M."
)
FORCE = typer.Option("--force", help="Replace a file that exists.")
GRACE = typer.Option(metavar="DURATION", callback=check_seconds, help="Longest wait before a window closes.")
FILES = (
    "Captures (pcap, pcapng), tables (Parquet, Arrow, CSV, JSON Lines) and logs (Zeek, Suricata and others), also .gz, "
    ".zst and .xz, folders of them, patterns in quotes ('day/**/*.pcap')"
)
INPUTS = (
    f"{FILES}, URLs (s3://…), - for standard input, live:eth0 for a network interface (live:eth0,eth1, live:any), "
    "netflow://0.0.0.0:2055 (NetFlow, IPFIX) and sflow://0.0.0.0:6343 for flow exports from the network, "
    "kafka://BROKER/TOPIC, or synth:flows=100k,… for synthetic traffic."
)
JSON = typer.Option("--json", help="Write results to standard output as JSON Lines.")
KEY_FILE = typer.Option(
    metavar="FILE",
    help="File with the secret key, or public for the key that everybody knows. Without it SUPERHOSTS_KEY counts, else "
    "your own key, which is made when it is first needed (superhosts key show).",
)
MEMORY = typer.Option(
    "--memory", "-m", metavar="SIZE", callback=check_size, help="Memory of one cube, or of another detector."
)
MEMORY_TOTAL = typer.Option(
    metavar="SIZE", callback=check_size, help="Refuse to use more memory than this for all sketches together."
)
NATS = typer.Option(metavar="URL", help="The NATS server of the link.")
NKEY = typer.Option(metavar="FILE", help="File with this site's nkey seed, as `superhosts site enroll` wrote it.")
SENT_OUTPUT = (
    "Or send them to syslog://HOST, webhook+https://HOST/PATH, alertmanager+http://HOST, smtp://HOST/?to=…, "
    "nats://HOST/SUBJECT, kafka://BROKER/TOPIC, exec:/PROGRAM or apprise:URL (docs/guides/destinations.md); @FILE "
    "holds addresses with secrets. May be given several times."
)
OUTPUT = typer.Option(
    "--output",
    "-o",
    metavar="FILE",
    help="Also write results to FILE (.jsonl, .csv, .parquet), which is replaced. With - they go to standard output, "
    f"as JSON Lines unless --csv is given. {SENT_OUTPUT}",
)
ENDLESS_OUTPUT = (
    "rows are appended to a file (.jsonl, .csv), or a Parquet file for each window is written to a folder. "
    f"With - they go to standard output, as JSON Lines. {SENT_OUTPUT}"
)
PACKETS = typer.Option(metavar="COUNT", callback=check_positive_count, help="Packets in each window, repeats included.")
REFRESH = typer.Option(
    metavar="DURATION", callback=check_seconds, help="How often the hosts of the open window are looked for."
)
SAVE = typer.Option(
    metavar="DIR",
    help="Save the sketch of every window to DIR. It is merged into a sketch of the same window and site that is "
    "there, and a line says so; one that was made with other options is left as it is. Saved cubes are asked by "
    "estimate, even where the window was counted exactly.",
)
SEED = typer.Option(metavar="NUMBER", parser=parse_whole, help="The same seed gives the same traffic.")
SITE = typer.Option(metavar="NAME", help="Name of this site, kept in its sketches; unique in a fleet.")
STATE = typer.Option(metavar="DIR", help="Where the hub keeps its windows, and the broker its queue and keys.")
HUB_STATE = Path("superhosts-hub")
SLIDE = typer.Option(
    metavar="DURATION",
    callback=check_duration,
    show_default="the window, which means that windows do not overlap",
    help="From the end of one window to the end of the next, like 30s: windows overlap, and each has what came in the "
    "last --window, which is a multiple of this. Memory: up to one sketch for each slide of a window, and two more.",
)
SUPER_HOSTS = typer.Option(metavar="COUNT", callback=check_count, help="Hosts with 1024 or more peers in each window.")
THRESHOLD = typer.Option(
    "--threshold",
    "-t",
    metavar="COUNT",
    parser=parse_threshold,
    help="Least number of distinct peers, like 1024 or 1k.",
)
TLS_CERT = typer.Option(metavar="FILE", help="This site's own certificate, for mutual TLS.")
TLS_CA = typer.Option(metavar="FILE", help="Certificate of the authority that signed the server's certificate.")
TO = typer.Option(
    metavar="DIR", help="Send sketches as files to a folder, or to s3://BUCKET/PREFIX, that the hub reads with --from."
)
WINDOW = typer.Option(
    "--window", "-w", metavar="DURATION", callback=check_duration, help="Length of a window: 90s, 5m, 1h or 30d."
)
WINDOWS = typer.Option(metavar="COUNT", callback=check_positive_count, help="Number of synthetic windows.")

Csv = Annotated[bool, typer.Option("--csv", help="Write results to standard output as CSV.")]
Counters = Annotated[
    str | None,
    typer.Option(
        "--counters",
        metavar="FILE",
        help="Write the counters of the run to FILE as one line of JSON: packets, pairs, windows, what was not counted "
        "by reason, truncated files and seconds. With - they go to standard output; then rows need --output FILE.",
    ),
]
Creds = Annotated[Path | None, typer.Option(metavar="FILE", help="Credentials file (.creds) for the NATS server.")]
Direction = Annotated[list[str], DIRECTION]
Exact = Annotated[str | None, EXACT]
Exclude = Annotated[
    list[str], typer.Option(metavar="LIST", help="Prefixes, or @FILE of prefixes, whose addresses are never hosts.")
]
FailOnFind = Annotated[
    bool,
    typer.Option(
        "--fail-on-find", help="Exit with status 1 if any host reached the threshold (1024 without --threshold)."
    ),
]
KeepEvidence = Annotated[
    bool,
    typer.Option(
        "--evidence",
        help="Keep a sample of who talked to whom, and say of each host what its peers look like: a scan, a flood, a "
        "resolver and others (docs/guides/evidence.md). Saved sketches have that sample, too.",
    ),
]
EvidencePairs = Annotated[
    int,
    typer.Option(metavar="COUNT", parser=parse_whole, help="Most pairs in that sample, of IPv4 and of IPv6."),
]
Filter = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="EXPRESSION",
        help="Packets that a live capture takes, as tcpdump writes it: 'tcp port 22'. Needs libpcap.",
    ),
]
Geometry = Annotated[
    str, typer.Option(metavar="TEXT", help="Sizes of one cube as superhosts plan writes them, instead of --memory.")
]
Inner = Annotated[
    list[str],
    typer.Option(
        metavar="LIST",
        help="Monitored prefixes, or @FILE of prefixes; private stands for 10/8, 172.16/12, 192.168/16, fc00::/7 and "
        "link-local addresses. Without this option every address is a host.",
    ),
]
Ipv4Prefix = Annotated[
    int,
    typer.Option(
        metavar="BITS", parser=parse_whole, help="Bits of an IPv4 host: 32 counts full addresses, 24 /24 prefixes."
    ),
]
Ipv6Prefix = Annotated[
    int,
    typer.Option(
        metavar="BITS", parser=parse_whole, help="Bits of an IPv6 host: 64 counts /64 prefixes, 128 full addresses."
    ),
]
Json = Annotated[bool, JSON]
JsonObject = Annotated[bool, worded(JSON, "Write results to standard output as one line of JSON.")]
KeyFile = Annotated[Path | None, KEY_FILE]
SketchKeyFile = Annotated[
    Path | None,
    worded(
        KEY_FILE,
        "File with the key of the sketches. Without it SUPERHOSTS_KEY counts, else your own key or the public one.",
    ),
]
LiveGrace = Annotated[
    str, worded(GRACE, "How long after its end a window of a live input stays open for packets that are late.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=use_config,
        help="Values of options, and rules of alerts, from a TOML file (superhosts config init writes one). Options on "
        "the command line, and variables like SUPERHOSTS_SCAN_WINDOW, count more.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw a figure into FILE, which ends in .svg, .pdf or .png."),
]
LocalTime = Annotated[
    bool,
    typer.Option(
        "--local", help="Show times in this machine's time zone, in tables and messages. Rows for programs are in UTC."
    ),
]
LogFormat = Annotated[
    str,
    typer.Option(
        "--log-format",
        metavar="auto|text|json",
        callback=one_of("auto", "text", "json"),
        help="Lines on standard error: text, json (a line of JSON each, with time, level, event and message), or auto: "
        "text on a terminal, else json.",
    ),
]
MemoryTotal = Annotated[str | None, MEMORY_TOTAL]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        callback=check_place,
        help="Answer there, over HTTP: /metrics for Prometheus, /healthz and /readyz. :9105 answers this machine only, "
        "0.0.0.0:9105 everybody. Needs the packages of the extra metrics (docs/reference/metrics.md).",
    ),
]
Output = Annotated[list[str], OUTPUT]
OutputQueue = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Keep reports for destinations that send (syslog://, webhook+https:// and others) on disk until they are "
        "delivered; the next run goes on with those that wait.",
        show_default="an edge's or a hub's own folder; elsewhere they wait in memory",
    ),
]
OutputQueueCap = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        callback=check_size,
        help="Most space for the reports that wait for one destination; then the oldest is dropped.",
    ),
]
OutputWait = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        callback=check_seconds,
        help="How long a run that ends waits for reports that are not delivered. If some are left then, the exit "
        "status is 4.",
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Write no progress and no summary, but errors, and warnings about data that is lost or not counted.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Only windows that end after this time: 2026-11-14T12:00 (UTC), or 1h for an hour ago."
    ),
]
Slide = Annotated[str | None, SLIDE]
Special = Annotated[
    str,
    typer.Option(
        metavar="drop|keep",
        callback=check_special,
        help="Multicast, broadcast and unspecified addresses: drop (they are peers, but no hosts) or keep.",
    ),
]
SpoolCap = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        callback=check_size,
        help="Most disk space for sketches that wait for the hub; then the oldest is dropped.",
    ),
]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Private key of that certificate.")]
Top = Annotated[
    int | None,
    typer.Option(
        "--top",
        "-n",
        metavar="K",
        parser=parse_at_least_one,
        help="Only the K hosts with the most peers. Without --threshold they may have few: 1 in windows that are "
        "counted exactly, down to about 16 in others, and the title says so; saved cubes are asked by estimate.",
    ),
]
By = Annotated[
    str,
    typer.Option(
        metavar="address|address-port",
        callback=one_of("address", "address-port"),
        help="What a host is: an address (or a prefix), or an address with the destination port (10.1.2.3:443).",
    ),
]
Count = Annotated[
    str,
    typer.Option(
        metavar="hosts|ports|host-ports",
        callback=one_of("hosts", "ports", "host-ports"),
        help="What is counted: distinct peers, distinct destination ports (scans of one host), or distinct pairs of "
        "both. Ports are those that the host opened to, unless --peers is given.",
    ),
]
Peers = Annotated[
    list[str],
    typer.Option(
        metavar="LIST",
        callback=split_commas,
        show_default="any; with --count ports opened",
        help="Peers that count: any, opened (the host opened a conversation to them), and of these answered or "
        "unanswered; or several. With --direction in: those who opened to the host.",
    ),
]
Port = Annotated[
    list[str],
    typer.Option(
        metavar="LIST", callback=split_commas, help="Only packets from or to these ports: 443, 8000-8100, https."
    ),
]
Proto = Annotated[
    list[str],
    typer.Option(metavar="LIST", callback=split_commas, help="Only packets of these protocols: tcp, udp, icmp, 47."),
]
Tunnels = Annotated[
    str,
    typer.Option(
        metavar="outer|inner|both",
        callback=one_of("outer", "inner", "both"),
        help="Whose addresses count in tunnels (GRE, IP in IP, VXLAN, GTP-U and others): the outer IP header's, "
        "the innermost one's, or both.",
    ),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only windows that begin before this time.")]
TRACEBACKS = "Log the traceback of an internal error of an input, a destination or a window."
VERBOSE = typer.Option(
    "--verbose",
    "-v",
    help="Say which memory and device are used, in the end where the time went, by stage and thread, and the traceback "
    "of an internal error.",
)
Web = Annotated[
    str | None,
    typer.Option(
        "--web",
        metavar="HOST:PORT",
        callback=check_place,
        help="Show the dashboard there, in browsers. :8105 answers this machine only; at an address that others reach, "
        "like 0.0.0.0:8105, a token is asked for. Needs the packages of the extra web (docs/guides/dashboard.md).",
    ),
]
WebTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--web-token-file",
        metavar="FILE",
        help="File with the token that the dashboard asks for, at least 16 characters; made if it is not there.",
        show_default="at an address that others reach, a new token, which is told at the start; elsewhere none",
    ),
]
WebTrustProxy = Annotated[
    list[str],
    typer.Option(
        "--web-trust-proxy",
        metavar="LIST",
        callback=split_commas,
        help="Names under which a reverse proxy shows the dashboard, like hub.example.org. The proxy asks people who "
        "they are: no token is asked for.",
    ),
]
Watch = Annotated[
    list[str], typer.Option(metavar="LIST", callback=split_commas, help="Hosts to find: inner, outer, or inner,outer.")
]
WINDOW_OR_ALL = typer.Option(
    "--window",
    "-w",
    metavar="DURATION",
    callback=check_window,
    help="Length of a window: 90s, 5m, 1h, 30d, or all: one window over the whole input.",
)
Window = Annotated[str, WINDOW_OR_ALL]


# Groups


@dataclass(frozen=True)
class TrafficOptions:
    """Which packets count, and for which hosts."""

    panel: ClassVar = "Traffic"
    inner: Inner = field(default_factory=list)
    exclude: Exclude = field(default_factory=list)
    watch: Watch = field(default_factory=lambda: ["inner"])
    direction: Direction = field(default_factory=lambda: ["any"])
    special: Special = defaults.SPECIAL
    peers: Peers = field(default_factory=list)
    count: Count = "hosts"
    by: By = "address"
    proto: Proto = field(default_factory=list)
    port: Port = field(default_factory=list)
    tunnels: Tunnels = "outer"
    window: Annotated[str | None, WINDOW_OR_ALL] = defaults.WINDOW
    tables: TableInputOptions = field(default_factory=TableInputOptions)

    @property
    def varying(self) -> frozenset[str]:
        """The fields of rows, side and direction, of which several are looked for, so that tables have to show them."""
        directions = [f"{peers} {way}" for way in self.direction for peers in self.peers or ["any"]]
        wanted = {"side": self.watch, "direction": directions}
        return frozenset(name for name, values in wanted.items() if len(set(values)) > 1)


@dataclass(frozen=True)
class EvidenceOptions:
    """What is kept of who talked to whom."""

    panel: ClassVar = "Evidence"
    evidence: KeepEvidence = False
    evidence_pairs: EvidencePairs = defaults.EVIDENCE_PAIRS


@dataclass(frozen=True)
class ScanTrafficOptions(TrafficOptions):
    """The same for a scan, which takes a short input as one window."""

    window: Annotated[
        str | None,
        shown(
            WINDOW_OR_ALL,
            f"{defaults.WINDOW}; input that ends and is shorter is one window, but with --save, --memory-total, "
            "--slide or --peers",
        ),
    ] = None
    slide: Slide = None
    filter: Filter = None
    keeping: EvidenceOptions = field(default_factory=EvidenceOptions)


@dataclass(frozen=True)
class EndlessTrafficOptions(TrafficOptions):
    """The same for traffic that does not end."""

    window: Annotated[str, WINDOW] = defaults.WINDOW
    slide: Slide = None
    filter: Filter = None
    keeping: EvidenceOptions = field(default_factory=EvidenceOptions)


@dataclass(frozen=True)
class CubeOptions:
    """What hosts are counted with; the same at all sites whose sketches are to be merged."""

    panel: ClassVar = "Detector"
    detector: Annotated[str, DETECTOR] = "cube"
    memory: Annotated[str, MEMORY] = defaults.MEMORY
    geometry: Geometry = ""
    ipv4_prefix: Ipv4Prefix = defaults.IPV4_PREFIX
    ipv6_prefix: Ipv6Prefix = defaults.IPV6_PREFIX
    key_file: KeyFile = None


@dataclass(frozen=True)
class PairCubeOptions(CubeOptions):
    """The same for commands that read pairs from traffic."""

    exact: Exact = None


@dataclass(frozen=True)
class FleetCubeOptions(CubeOptions):
    """The same for edges and hubs."""

    detector: Annotated[str, worded(DETECTOR, f"{MERGED_BY_HUBS}.")] = "cube"


@dataclass(frozen=True)
class WantedOptions:
    """Which hosts are reported."""

    panel: ClassVar = "Results"
    threshold: Annotated[float | None, shown(THRESHOLD, f"{defaults.THRESHOLD}; with --top none")] = None
    top: Top = None


@dataclass(frozen=True)
class ScanWantedOptions(WantedOptions):
    """The same for a scan, which shows the largest hosts by default, too."""

    threshold: Annotated[
        float | None,
        shown(THRESHOLD, f"the top {defaults.TOP} of a window and all from {defaults.THRESHOLD} on; with --top none"),
    ] = None


@dataclass(frozen=True)
class OutputQueueOptions:
    """How reports wait for destinations that send."""

    panel: ClassVar = "Results"
    output_queue: OutputQueue = None
    output_queue_cap: OutputQueueCap = "64MiB"
    output_wait: OutputWait = "30s"


@dataclass(frozen=True)
class ResultOptions:
    """Where results go."""

    panel: ClassVar = "Results"
    json: Json = False
    csv: Csv = False
    output: Output = field(default_factory=list)
    queue: OutputQueueOptions = field(default_factory=OutputQueueOptions)


@dataclass(frozen=True)
class AlertOptions:
    """Alerts of hosts that break a rule."""

    panel: ClassVar = "Alerts"
    alerts: Annotated[Path | None, ALERTS] = None
    alert_to: Annotated[
        list[str],
        typer.Option(
            metavar="ADDRESS", help="Where alerts go: an address as --output takes it. May be given several times."
        ),
    ] = field(default_factory=list)
    allow: Annotated[
        list[str],
        typer.Option(
            metavar="HOST",
            help="Hosts or prefixes of which no alert is wanted, or @FILE of them; with a rule's name behind it, only "
            "for that rule.",
        ),
    ] = field(default_factory=list)
    never_act: Annotated[
        list[str],
        typer.Option(
            metavar="HOST",
            help='Hosts or prefixes against which nothing may be done ("act": false), besides your own, private ones, '
            "public resolvers and root servers.",
        ),
    ] = field(default_factory=list)
    alert_cap: Annotated[
        int, typer.Option(metavar="COUNT", parser=parse_at_least_one, help="Most alerts that are opened in a window.")
    ] = 100


@dataclass(frozen=True)
class NamesOptions:
    """What is known of hosts besides their traffic."""

    panel: ClassVar = "Names"
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Labels of hosts, a prefix and a label in each line (10.1.0.0/16,office); the most specific counts.",
        ),
    ] = None
    geo: Annotated[
        list[str],  # as text: for lists of paths typer loads a package of its own
        typer.Option(
            metavar="FILE",
            help="Autonomous systems or countries of hosts, in MaxMind's format. May be given several times.",
        ),
    ] = field(default_factory=list)
    names: Annotated[
        bool,
        typer.Option(
            "--names",
            help="Names of hosts by reverse DNS, looked up in the background. Your name server learns which hosts are "
            "reported.",
        ),
    ] = False


@dataclass(frozen=True)
class ScanResultOptions(ResultOptions):
    """Where results go, with alerts."""

    alerting: AlertOptions = field(default_factory=AlertOptions)
    naming: NamesOptions = field(default_factory=NamesOptions)


@dataclass(frozen=True)
class EndlessResultOptions(ScanResultOptions):
    """The same for a command that runs without an end."""

    output: Annotated[list[str], worded(OUTPUT, f"Also write results to FILE: {ENDLESS_OUTPUT}")] = field(
        default_factory=list
    )


@dataclass(frozen=True)
class SketchOptions:
    """Saved sketches to read."""

    files: Annotated[list[str], typer.Argument(metavar="FILE.cube...", help=SKETCH_FILES)]
    memory_total: Annotated[str | None, shown(MEMORY_TOTAL, "what this machine or container has left")] = None
    key_file: SketchKeyFile = None


@dataclass(frozen=True)
class TimeOptions:
    """The span of time from which sketches are taken."""

    since: Since = None
    until: Until = None


@dataclass(frozen=True)
class ServiceOptions:
    """What all programs that run on have besides."""

    metrics: Metrics = None
    log_format: LogFormat = "auto"
    config: ConfigFile = None
    local_time: LocalTime = False
    verbose: Annotated[bool, worded(VERBOSE, TRACEBACKS)] = False


@dataclass(frozen=True)
class DashboardOptions:
    """The dashboard of a program that runs on."""

    panel: ClassVar = "Dashboard"
    web: Web = None
    web_token_file: WebTokenFile = None
    web_trust_proxy: WebTrustProxy = field(default_factory=list)


@dataclass(frozen=True)
class LinkOptions:
    """How this end of a link over NATS proves who it is."""

    panel: ClassVar = "Link"
    nkey: Annotated[Path | None, NKEY] = None
    creds: Creds = None
    tls_ca: Annotated[Path | None, TLS_CA] = None
    tls_cert: Annotated[Path | None, TLS_CERT] = None
    tls_key: TlsKey = None

    @property
    def proofs(self) -> dict[str, object]:
        """The options that say who this is."""
        return {"--nkey": self.nkey, "--creds": self.creds}

    @property
    def tls(self) -> dict[str, object]:
        """The options of TLS."""
        return {"--tls-ca": self.tls_ca, "--tls-cert": self.tls_cert, "--tls-key": self.tls_key}
