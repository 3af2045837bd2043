"""Every option that more than one command has: one name, short form and type, in groups that commands share.

The help is the same, too, unless an option does something else in a command. This module imports nothing that is slow
to load, because help needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from superhosts.cli._completion import DURATIONS
from superhosts.cli._config import use_config
from superhosts.cli._declaration import Options, arg, flag, opt, setting
from superhosts.cli._signals import sighup_held
from superhosts.cli._values import check_web_url, check_window, one_of
from superhosts.core import defaults
from superhosts.core.units import parse_count, parse_duration, parse_place
from superhosts.errors import UsageError
from superhosts.lab.lineup import RIVALS
from superhosts.sources.tables.mapping import ROLES, parse_map
from superhosts.sources.tables.options import EXPORT_FORMATS, FORMAT_NAMES, WHICH_TIME, TableOptions

FORMATS = (*FORMAT_NAMES, *EXPORT_FORMATS)


def _check_map(text: str) -> None:
    try:
        parse_map(text)
    except UsageError as error:  # It begins with the option, which is added again.
        raise UsageError(str(error).partition(": ")[2]) from None


def either(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


# Names of detectors, written out because the registry is slow to load; tests/cli/test_structure.py compares them.
MERGED_BY_HUBS = ("cube", "cbaa", "cbaa-paper")
MERGED_BY_BATCH = (*MERGED_BY_HUBS, "exact")
DETECTORS = (*MERGED_BY_BATCH, "stream", *RIVALS)
SIDES = ("inner", "outer")
HUB_STATE = Path("superhosts-hub")
FILES = (
    "Captures (pcap, pcapng), tables (Parquet, Arrow, CSV, JSON Lines) and logs (Zeek, Suricata and others), also .gz, "
    ".zst and .xz, folders of them, patterns in quotes ('day/**/*.pcap')"
)
INPUTS = (
    f"{FILES}, URLs (s3://…), - for standard input, live:eth0 for a network interface (live:eth0,eth1, live:any), "
    "netflow://0.0.0.0:2055 (NetFlow, IPFIX) and sflow://0.0.0.0:6343 for flow exports from the network, "
    "kafka://BROKER/TOPIC, or synth:flows=100k,… for synthetic traffic."
)
SENT_OUTPUT = (
    "Or send them to syslog://HOST, webhook+https://HOST/PATH, alertmanager+http://HOST, smtp://HOST/?to=…, "
    "nats://HOST/SUBJECT, kafka://BROKER/TOPIC, splunk+https://HOST:8088, elastic+https://HOST:9200/INDEX, "
    "exec:/PROGRAM or apprise:URL (docs/guides/destinations.md); @FILE holds addresses with secrets. ?format=ecs, ocsf "
    "or cef chooses another format of records. May be given several times."
)
ENDLESS_OUTPUT = (
    "rows are appended to a file (.jsonl, .csv), or a Parquet file for each window is written to a folder. "
    f"With - they go to standard output, as JSON Lines. {SENT_OUTPUT}"
)
TRACEBACKS = "Log the traceback of an internal error of an input, a destination or a window."
ENDS = "Columns of a table: src=COLUMN,dst=COLUMN,time=COLUMN, also time_end, duration."
PLACES = "A number is a place, from 1. Times may name their unit: time=start:ms (s, ms, us, ns)."

# Options that commands have outside of a group, or with other words or another default

INPUT = arg(
    "INPUT...",
    brief="Captures, tables and logs, folders of them, - (standard input), live:eth0, netflow://0.0.0.0:2055 and "
    "others.",
).about(INPUTS)
ALERTS = opt("FILE").about("""Make alerts: one when a host breaks a rule, one each time its peers have doubled, one when
    it is over. FILE keeps them over restarts (superhosts alerts list FILE). Rules are in the file of --config; without
    any, a host with 1024 peers or more is an alert.""")
KEPT_ALERTS = ALERTS.about("""The file of alerts that a run keeps, to show and to mute hosts. Without it alerts.db or
    alerts.sqlite in the folder counts.""")
CONFIG = opt("FILE", callback=use_config).about("""Values of options, and rules of alerts, from a TOML file (superhosts
    config init writes one). Options on the command line, and variables like SUPERHOSTS_SCAN_WINDOW, count more.""")
COUNTERS = setting("FILE").about("""Write the counters of the run to FILE as one line of JSON: packets, pairs, windows,
    what was not counted by reason, truncated files and seconds. With - they go to standard output; then rows need
    --output FILE.""")
DETECTOR = opt("NAME", "cube", offers=DETECTORS).about(f"{either(DETECTORS)}.")
CHOSEN_DETECTOR = DETECTOR(default="auto", shown=f"cube; stream with {defaults.STREAM_MEMORY} or less").about(
    f"{either(DETECTORS)}. stream is better with little memory, but its sketches cannot be merged: if they are kept, "
    "or windows overlap, the default is cube."
)
DEVICE = opt("DEVICE", "auto").about("cpu, cuda, cuda:all, cuda:0,1 or auto.")
DIRECTION = opt("LIST", ["any"], offers=("any", "out", "in")).about("""Packets that count: any, out (sent by the host),
    in, or several.""")
ERROR = opt("SHARE").about("Wrong answers to accept, as a share of the super hosts, like 1%.")
EXACT = opt("on|off", shown="on; off if --device names a GPU").about("""Keep the pairs, and count exactly, while they
    fit in half of the memory; then the cube estimates. off: the cube from the first pair on.""")
FAIL_ON_FIND = flag().about("Exit with status 1 if any host reached the threshold (1024 without --threshold).")
FLOWS = opt("COUNT").about("Distinct (host, peer) pairs in each window, like 5M.")
FORCE = flag().about("Replace a file that exists.")
GRACE = opt("DURATION").about("Longest wait before a window closes.")
LIVE_GRACE = GRACE(default=defaults.GRACE, setting=True).about("""How long after its end a window of a live input stays
    open for packets that are late.""")
INNER = opt("LIST", [], check=list, offers=("private",)).about("""Monitored prefixes, or @FILE of prefixes; private
    stands for 10/8, 172.16/12, 192.168/16, fc00::/7 and link-local addresses. Without this option every address is a
    host.""")
IPV4_PREFIX = setting("BITS", defaults.IPV4_PREFIX, offers=("16", "24", "32")).about("""Bits of an IPv4 host: 32 counts
    full addresses, 24 /24 prefixes.""")
IPV6_PREFIX = setting("BITS", defaults.IPV6_PREFIX, offers=("48", "56", "64", "128")).about("""Bits of an IPv6 host: 64
    counts /64 prefixes, 128 full addresses.""")
JSON = flag().about("Write results to standard output as JSON Lines.")
JSON_OBJECT = JSON.about("Write results to standard output as one line of JSON.")
KEEP = opt("DURATION", shown="for ever", offers=("7d", "30d", "90d", "365d")).about("How long sketches are kept.")
KEY_FILE = opt("FILE", offers=("public",)).about("""File with the secret key, or public for the key that everybody
    knows. Without it SUPERHOSTS_KEY counts, else your own key, which is made when it is first needed (superhosts key
    show).""")
SKETCH_KEY_FILE = KEY_FILE.about("""File with the key of the sketches. Without it SUPERHOSTS_KEY counts, else your own
    key or the public one.""")
LOCAL_TIME = flag(name="--local").about("""Show times in this machine's time zone, in tables and messages. Rows for
    programs are in UTC.""")
LOG_FORMAT = setting("auto|text|json", "auto").about("""Lines on standard error: text, json (a line of JSON each, with
    time, level, event and message), or auto: text on a terminal, else json.""")
MAP = opt(
    "LIST", check=_check_map, shown="usual names of columns are found", offers=[f"{role}=" for role in ROLES]
).about(f"""{ENDS} For --peers, --count, --by, --proto and --port: proto, sport, dport, flags (of TCP), and of tables of
    whole conversations state (as Zeek or Argus write it) or replies (packets that came back). {PLACES}""")
MEMORY = opt("SIZE", defaults.MEMORY, short="-m").about("Memory of one cube, or of another detector.")
MEMORY_TOTAL = setting("SIZE").about("Refuse to use more memory than this for all sketches together.")
NATS = opt("URL").about("The NATS server of the link.")
NKEY = opt("FILE").about("File with this site's nkey seed, as `superhosts site enroll` wrote it.")
OUTPUT = opt("FILE", [], short="-o").about(f"""Also write results to FILE (.jsonl, .csv, .parquet), which is replaced.
    With - they go to standard output, as JSON Lines unless --csv is given. {SENT_OUTPUT}""")
PACKETS = opt("COUNT").about("Packets in each window, repeats included.")
PLOT = opt("FILE").about("Draw a figure into FILE, which ends in .svg, .pdf or .png.")
QUIET = flag(short="-q").about("""Write no progress and no summary, but errors, and warnings about data that is lost or
    not counted.""")
REFRESH = setting("DURATION", "3s", offers=("1s", "3s", "10s")).about("""How often the hosts of the open window are
    looked for.""")
SAVE = opt("DIR").about("""Save the sketch of every window to DIR. It is merged into a sketch of the same window and
    site that is there, and a line says so; one that was made with other options is left as it is. The sketch
    of a window that was counted exactly has the exact numbers.""")
SEED = opt("NUMBER", 1).about("The same seed gives the same traffic.")
SITE = opt("NAME", "local").about("Name of this site, kept in its sketches; unique in a fleet.")
SLIDE = opt("DURATION", check=parse_duration, shown="the window, which means that windows do not overlap").about("""From
    the end of one window to the end of the next, like 30s: windows overlap, and each has what came in the last
    --window, which is a multiple of this. Memory: up to one sketch for each slide of a window, and two more.""")
SPECIAL = setting("drop|keep", defaults.SPECIAL).about("""Multicast, broadcast and unspecified addresses: drop (they are
    peers, but no hosts) or keep.""")
SPOOL_CAP = setting("SIZE", "10GiB").about("""Most disk space for sketches that wait for the hub; then the oldest is
    dropped.""")
STATE = opt("DIR", HUB_STATE).about("Where the hub keeps its windows, and the broker its queue and keys.")
SUPER_HOSTS = opt("COUNT", check=parse_count).about("Hosts with 1024 or more peers in each window.")
THRESHOLD = opt("COUNT", defaults.THRESHOLD, short="-t").about("Least number of distinct peers, like 1024 or 1k.")
TLS_CA = opt("FILE").about("Certificate of the authority that signed the server's certificate.")
TLS_KEY = opt("FILE").about("Private key of that certificate.")
TLS_CERT = opt("FILE").about("This site's own certificate, for mutual TLS.")
TO = opt("DIR").about("Send sketches as files to a folder, or to s3://BUCKET/PREFIX, that the hub reads with --from.")
VERBOSE = flag(short="-v").about("""Say which memory and device are used, in the end where the time went, by stage and
    thread, and the traceback of an internal error.""")
WINDOW = opt("DURATION", defaults.WINDOW, check=parse_duration, short="-w").about("""Length of a window: 90s, 5m, 1h or
    30d.""")
WINDOW_OR_ALL = WINDOW(check=check_window, offers=(*DURATIONS, "all")).about("""Length of a window: 90s, 5m, 1h, 30d, or
    all: one window over the whole input.""")
WINDOWS = opt("COUNT").about("Number of synthetic windows.")

# Groups


class TableInputOptions(Options, panel="Tables and logs"):
    map: str | None = MAP
    format: str | None = opt("NAME", check=one_of(*FORMATS), shown="by content", offers=FORMATS).about(f"""Format of all
        inputs that are not captures: {", ".join(FORMAT_NAMES)}. With {either(EXPORT_FORMATS)} also captures of exports
        are read: the flows that they report.""")
    time: str = setting("|".join(WHICH_TIME), "record").about("""Which time of a record counts: its start or end, of
        flow exports also export or received. With record it is the start, and for exports from the network the time at
        which they are received.""")

    @property
    def tables(self) -> TableOptions:
        return TableOptions(self.format, None if self.map is None else parse_map(self.map), self.time)


class PacketOptions(Options, panel="Traffic"):
    inner: list[str] = INNER
    exclude: list[str] = opt("LIST", [], check=list).about("""Prefixes, or @FILE of prefixes, whose addresses are never
        hosts.""")
    watch: list[str] = opt("LIST", ["inner"], offers=SIDES).about("Hosts to find: inner, outer, or inner,outer.")
    direction: list[str] = DIRECTION
    special: str = SPECIAL
    peers: list[str] = opt(
        "LIST", [], shown="any; with --count ports opened", offers=("any", "opened", "answered", "unanswered")
    ).about("""Peers that count: any, opened (the host opened a conversation to them), and of these answered or
        unanswered; or several. With --direction in: those who opened to the host.""")
    count: str = opt("hosts|ports|host-ports", "hosts").about("""What is counted: distinct peers, distinct destination
        ports (scans of one host), or distinct pairs of both. Ports are those that the host opened to, unless --peers is
        given.""")
    by: str = opt("address|address-port", "address").about("""What a host is: an address (or a prefix), or an address
        with the destination port (10.1.2.3:443).""")
    proto: list[str] = opt("LIST", [], offers=("tcp", "udp", "icmp", "icmp6", "sctp", "gre", "esp")).about(
        "Only packets of these protocols: tcp, udp, icmp, 47."
    )
    port: list[str] = opt("LIST", [], offers=("22", "53", "80", "443", "445", "3389")).about("""Only packets from or to
        these ports: 443, 8000-8100, https.""")
    tunnels: str = opt("outer|inner|both", "outer").about("""Whose addresses count in tunnels (GRE, IP in IP, VXLAN,
        GTP-U and others): the outer IP header's, the innermost one's, or both.""")
    window: str | None = WINDOW_OR_ALL

    @property
    def varying(self) -> frozenset[str]:
        """The fields of rows, side and direction, of which several are looked for, so that tables have to show them."""
        directions = [f"{peers} {way}" for way in self.direction for peers in self.peers or ["any"]]
        wanted: dict[str, Sequence[str | None]] = {"side": self.watch, "direction": directions}
        wanted["group"] = [getattr(self, "group_by", None), None]
        return frozenset(name for name, values in wanted.items() if len(set(values)) > 1)


class TrafficOptions(PacketOptions, TableInputOptions, panel="Traffic"): ...


class EvidenceOptions(Options, panel="Evidence"):
    evidence: bool = flag(
        brief="Keep a sample of who talked to whom, and say what the peers of each host look like."
    ).about("""Keep a sample of who talked to whom, and say of each host what its peers look like: a scan, a flood, a
        resolver and others (docs/guides/evidence.md). Saved sketches have that sample, too.""")
    evidence_pairs: int = setting("COUNT", defaults.EVIDENCE_PAIRS).about("""Most pairs in that sample, of IPv4 and of
        IPv6.""")


class ScanTrafficOptions(TrafficOptions, EvidenceOptions, panel="Traffic"):
    """The same for a scan, which takes a short input as one window."""

    window: str | None = WINDOW_OR_ALL(
        default=None,
        shown=f"{defaults.WINDOW}; input that ends and is shorter is one window, except with --save, --slide, --peers "
        "or the setting memory-total",
    )
    group_by: str | None = opt("exporter|interface|vlan", offers=("exporter", "interface", "vlan")).about("""Count the
        traffic of each exporter of flows, interface or VLAN apart, where networks overlap: rows have a group. Each
        group, of which a window has 64 at most, takes the memory of a detector. Not with --evidence.""")
    slide: str | None = SLIDE
    filter: str | None = opt("EXPRESSION").about("""Packets that a live capture takes, as tcpdump writes it: 'tcp port
        22'. Needs libpcap.""")


class EndlessTrafficOptions(ScanTrafficOptions, panel="Traffic"):
    """The same for traffic that does not end."""

    window: str = WINDOW
    grace: str = LIVE_GRACE


class CubeOptions(Options, panel="Detector"):
    detector: str = DETECTOR
    memory: str = MEMORY
    geometry: str = setting("TEXT", "").about("Sizes of one cube as superhosts plan writes them, instead of --memory.")
    ipv4_prefix: int = IPV4_PREFIX
    ipv6_prefix: int = IPV6_PREFIX
    key_file: Path | None = KEY_FILE


class PairCubeOptions(CubeOptions, panel="Detector"):
    detector: str = CHOSEN_DETECTOR
    exact: str | None = EXACT
    device: str = DEVICE
    memory_total: str | None = MEMORY_TOTAL


class FleetCubeOptions(CubeOptions, panel="Detector"):
    detector: str = DETECTOR(offers=MERGED_BY_HUBS).about(f"{either(MERGED_BY_HUBS)}.")


class WantedOptions(Options, panel="Results"):
    threshold: float | None = THRESHOLD(default=None, shown=f"{defaults.THRESHOLD}; none with --top")
    top: int | None = opt("K", short="-n").about("""Only the K hosts with the most peers. Without --threshold they may
        have few: 1 in windows that are counted exactly, down to about 16 in others, and the title says so.""")


class ScanWantedOptions(WantedOptions, panel="Results"):
    """The same for a scan, which shows the largest hosts by default, too."""

    threshold: float | None = THRESHOLD(
        default=None, shown=f"the top {defaults.TOP} of a window and all from {defaults.THRESHOLD} on; none with --top"
    )


class OutputQueueOptions(Options, panel="Results"):
    output_queue: Path | None = setting(
        "DIR", shown="an edge's or a hub's own folder; elsewhere they wait in memory"
    ).about("""Keep reports for destinations that send (syslog://, webhook+https:// and others) on disk until they are
        delivered; the next run goes on with those that wait.""")
    output_queue_cap: str = setting("SIZE", "64MiB").about("""Most space for the reports that wait for one destination;
        then the oldest is dropped.""")
    output_wait: str = setting("DURATION", "30s").about("""How long a run that ends waits for reports that are not
        delivered. If some are left then, the exit status is 4.""")


class ResultOptions(OutputQueueOptions, panel="Results"):
    json: bool = JSON
    csv: bool = flag().about("Write results to standard output as CSV.")
    output: list[str] = OUTPUT


class AlertOptions(Options, panel="Alerts"):
    alerts: Path | None = ALERTS
    alert_to: list[str] = opt("ADDRESS", []).about("""Where alerts go: an address as --output takes it. May be given
        several times.""")
    allow: list[str] = setting("HOST", []).about("""Hosts or prefixes of which no alert is wanted, or @FILE of them;
        with a rule's name behind it, only for that rule.""")
    never_act: list[str] = setting("HOST", []).about("""Hosts or prefixes against which nothing may be done ("act":
        false), besides your own, private ones, public resolvers and root servers.""")
    alert_cap: int = setting("COUNT", 100).about("Most alerts that are opened in a window.")
    baseline: str | None = setting(
        "windows|week", shown="windows", outdated=False
    ).about("""What is usual for rules with
        times-usual: the median of a host's last windows, or its peers in this hour of the week. Without rules, week is
        3 times as many as usual.""")
    web_url: str | None = setting("URL", check=check_web_url, outdated=False).about("""The dashboard's address for
        people: alerts link to its pages of hosts.""")


class NamesOptions(Options, panel="Names"):
    labels: Path | None = setting("FILE").about("""Labels of hosts, a prefix and a label in each line
        (10.1.0.0/16,office); the most specific counts.""")
    geo: list[str] = setting("FILE", []).about("""Autonomous systems or countries of hosts, in MaxMind's format. May be
        given several times.""")
    names: bool = flag(setting=True).about("""Names of hosts by reverse DNS, looked up in the background. Your name
        server learns which hosts are reported.""")


class ScanResultOptions(ResultOptions, AlertOptions, NamesOptions): ...


class EndlessResultOptions(ScanResultOptions, panel="Results"):
    output: list[str] = OUTPUT.about(f"Also write results to FILE: {ENDLESS_OUTPUT}")


class SketchOptions(Options):
    files: list[str] = arg("FILE.cube...").about("""Saved sketches: files, folders, or patterns in quotes
        ('archive/**/*.cube').""")
    memory_total: str | None = MEMORY_TOTAL(shown="what this machine or container has left")
    key_file: Path | None = SKETCH_KEY_FILE


class TimeOptions(Options):
    since: str | None = opt("TIME", offers=DURATIONS).about("""Only windows that end after this time: 2026-11-14T12:00
        (UTC), or 1h for an hour ago.""")
    until: str | None = opt("TIME").about("Only windows that begin before this time.")


class ServiceOptions(Options, panel="Service"):
    around: ClassVar = (sighup_held,)
    metrics: str | None = opt("HOST:PORT", check=parse_place).about("""Answer there, over HTTP: /metrics for Prometheus,
        /healthz and /readyz. :9105 answers this machine only, 0.0.0.0:9105 everybody. Needs the packages of the extra
        metrics (docs/reference/metrics.md).""")
    log_format: str = LOG_FORMAT
    config: Path | None = CONFIG
    local_time: bool = LOCAL_TIME
    verbose: bool = VERBOSE.about(TRACEBACKS)


class DashboardOptions(Options, panel="Dashboard"):
    web: str | None = opt("HOST:PORT", check=parse_place).about("""Show the dashboard there, in browsers. :8105 answers
        this machine only; at an address that others reach, like 0.0.0.0:8105, a token is asked for. Needs the packages
        of the extra web (docs/guides/dashboard.md).""")
    web_token_file: Path | None = setting(
        "FILE", shown="at an address that others reach, a new token, which is told at the start; elsewhere none"
    ).about("File with the token that the dashboard asks for, at least 16 characters; made if it is not there.")
    web_viewer_token_file: Path | None = setting("FILE").about("""File with a second token, for people who may look and
        not change anything; made if it is not there. Then the dashboard also asks for the first one everywhere.""")
    web_cert: Path | None = setting("FILE").about("""Certificate of the dashboard, with its chain, in PEM: it is shown
        over HTTPS. SIGHUP reloads it.""")
    web_key: Path | None = setting("FILE", shown="in the file of the certificate").about("""Private key of that
        certificate.""")
    web_trust_proxy: list[str] = setting("LIST", []).about("""Names under which a reverse proxy shows the dashboard,
        like hub.example.org. The proxy asks people who they are: no token is asked for.""")


class LinkOptions(Options, panel="Link"):
    nkey: Path | None = NKEY
    creds: Path | None = setting("FILE").about("Credentials file (.creds) for the NATS server.")
    tls_ca: Path | None = TLS_CA
    tls_cert: Path | None = TLS_CERT
    tls_key: Path | None = TLS_KEY
