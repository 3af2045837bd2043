"""Every option that more than one command has: one name, short form, type and help, in groups that commands share.

Sizes are written like 128MiB, durations like 5m, counts like 5M; a list is written with commas or by repeating the
option. This module imports nothing that is slow to load, because help needs it.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from superhosts import defaults
from superhosts.errors import UsageError
from superhosts.units import SECOND, parse_count, parse_duration

DETECTORS = "cube, cbaa, cbaa-paper, exact, dcds, vbfa, gse, filter or spreadsketch"
SKETCH_FILES = "Saved sketches: files, folders, or patterns in quotes ('archive/**/*.cube')."


# How values are written


def parse_threshold(text: str | float) -> float:
    """Read a number of peers: 1024, 1k, 1.5k or 1e3."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(parse_count(str(text)))
    except UsageError:
        raise typer.BadParameter(f"{text!r} is not a number; write it like 1024 or 1k") from None


def split_commas(values: list[str] | None) -> list[str]:
    """Return the items of a list whose items may hold several each: `in,out` is two."""
    return [item.strip() for value in values or [] for item in value.split(",")]


def parse_share(option: str, text: str) -> float:
    """Read a share like 1% or 0.01."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share < 1:
        raise UsageError(f"--{option} {text}: write a share of the super hosts, like 1% or 0.01")
    return share


def parse_seconds(option: str, text: str) -> float:
    """Read a duration in seconds; zero is allowed."""
    try:
        return 0.0 if text.strip().rstrip("smhd") == "0" else parse_duration(text) / SECOND
    except UsageError as error:
        raise UsageError(f"--{option}: {error}") from None


def check_threshold(threshold: float) -> float:
    """Return a threshold that is at least 1 and finite."""
    if not 1 <= threshold < math.inf:
        raise UsageError(f"--threshold {threshold:g}: at least 1, and finite")
    return threshold


def check_no_conflict(options: Mapping[str, object], why: str) -> None:
    """Refuse options that were given but would have no effect."""
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise UsageError(f"{', '.join(given)}: {why}")


def shown(option: Any, default: str) -> Any:
    """Return an option that shows this text as its default value."""
    same = copy.copy(option)
    same.show_default = default
    return same


# Options. Those whose default differs between commands are constants, the others are types.

DETECTOR = typer.Option(
    metavar="NAME", help=f"{DETECTORS}. Fleets and batch need one whose sketches merge, which filter's do not."
)
DEVICE = typer.Option(metavar="DEVICE", help="cpu, cuda, cuda:all, cuda:0,1 or auto.")
ERROR = typer.Option(metavar="SHARE", help="Wrong answers to accept, as a share of the super hosts, like 1%.")
FLOWS = typer.Option(metavar="COUNT", help="Distinct (host, peer) pairs in each window, like 5M.")
GRACE = typer.Option(
    metavar="DURATION",
    help="Longest wait before a window closes: an edge waits for packets of a live input, a hub for missing sites.",
)
INPUTS = (
    "Captures (pcap, pcapng; also .gz, .zst, .xz), folders of them, patterns in quotes ('day/**/*.pcap'), URLs "
    "(s3://…), - for standard input, or synth:flows=100k,… for synthetic traffic."
)
MEMORY = typer.Option("--memory", "-m", metavar="SIZE", help="Memory of one cube, or of another detector.")
MEMORY_TOTAL = typer.Option(metavar="SIZE", help="Refuse to use more memory than this for all sketches together.")
NATS = typer.Option(
    metavar="URL", help="The NATS server of the link. A hub with this option starts no broker of its own."
)
PACKETS = typer.Option(metavar="COUNT", help="Packets in each window, repeats included.")
SAVE = typer.Option(
    metavar="DIR",
    help="Save the sketch of every window to DIR. A sketch of the same window and site that is already there is "
    "merged into it.",
)
SEED = typer.Option(help="The same seed gives the same traffic.")
SITE = typer.Option(metavar="NAME", help="Name of this site, kept in its sketches; unique in a fleet.")
STATE = typer.Option(metavar="DIR", help="Where the hub keeps its windows, and the broker its queue and keys.")
HUB_STATE = Path("superhosts-hub")
SUPER_HOSTS = typer.Option(metavar="COUNT", help="Hosts with 1024 or more peers in each window.")
THRESHOLD = typer.Option(
    "--threshold",
    "-t",
    metavar="COUNT",
    parser=parse_threshold,
    help="Least number of distinct peers, like 1024 or 1k.",
    show_default=str(defaults.THRESHOLD),
)
TO = typer.Option(metavar="DIR", help="Send sketches as files to a folder that the (upstream) hub reads with --from.")
WINDOWS = typer.Option(metavar="COUNT", help="Number of synthetic windows.")

Csv = Annotated[bool, typer.Option("--csv", help="Write results to standard output as CSV.")]
Creds = Annotated[Path | None, typer.Option(metavar="FILE", help="Credentials file (.creds) for the NATS server.")]
Direction = Annotated[
    list[str],
    typer.Option(
        metavar="LIST", callback=split_commas, help="Packets that count: any, out (sent by the host), in, or several."
    ),
]
Exclude = Annotated[
    list[str], typer.Option(metavar="LIST", help="Prefixes, or @FILE of prefixes, whose addresses are never hosts.")
]
Geometry = Annotated[
    str, typer.Option(metavar="TEXT", help="Sizes of one cube as superhosts plan writes them, instead of --memory.")
]
Inner = Annotated[
    list[str],
    typer.Option(
        metavar="LIST", help="Monitored prefixes, or @FILE of prefixes. Without this option every address is a host."
    ),
]
Ipv6Prefix = Annotated[
    int, typer.Option(metavar="BITS", help="Bits of an IPv6 host: 64 counts /64 prefixes, 128 full addresses.")
]
Json = Annotated[bool, typer.Option("--json", help="Write results to standard output as JSON Lines.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="File with the secret key. Without it SUPERHOSTS_KEY counts, else a public default key."
    ),
]
MemoryTotal = Annotated[str | None, MEMORY_TOTAL]
Nkey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with this site's nkey seed, as `superhosts site enroll` wrote it."),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Also write results to FILE (.jsonl, .csv, .parquet), or - for standard output. A run that ends replaces "
        "the file; a run without an end appends to it, and writes Parquet to a folder.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Write nothing but errors to standard error.")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only windows that end after this time (2026-11-14T12:00, UTC).")
]
SpoolCap = Annotated[
    str,
    typer.Option(
        metavar="SIZE", help="Most disk space for sketches that wait for the hub; then the oldest is dropped."
    ),
]
TlsCa = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate of the authority that the link trusts.")]
TlsCert = Annotated[Path | None, typer.Option(metavar="FILE", help="Own certificate, for (mutual) TLS.")]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Key of the own certificate.")]
Top = Annotated[
    int | None,
    typer.Option(
        "--top",
        "-n",
        metavar="K",
        help="Only the K hosts with the most peers. Without --threshold they may have few peers, down to about 16: "
        "with fewer, a sketch cannot name a host.",
    ),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only windows that begin before this time.")]
Watch = Annotated[
    list[str], typer.Option(metavar="LIST", callback=split_commas, help="Hosts to find: inner, outer, or inner,outer.")
]
Window = Annotated[
    str,
    typer.Option(
        "--window", "-w", metavar="DURATION", help="Length of a window: 90s, 5m, 1h, 30d, or all (the whole input)."
    ),
]


# Groups


@dataclass(frozen=True)
class TrafficOptions:
    """Which packets count, and for which hosts."""

    panel: ClassVar = "Traffic"
    inner: Inner = field(default_factory=list)
    exclude: Exclude = field(default_factory=list)
    watch: Watch = field(default_factory=lambda: ["inner"])
    direction: Direction = field(default_factory=lambda: ["any"])
    window: Window = defaults.WINDOW

    @property
    def has_parts(self) -> bool:
        """True if hosts of several sides or directions are found, so that rows have to say which."""
        return len(set(self.watch)) > 1 or len(set(self.direction)) > 1


@dataclass(frozen=True)
class CubeOptions:
    """What hosts are counted with; the same at all sites whose sketches are to be merged."""

    panel: ClassVar = "Detector"
    detector: Annotated[str, DETECTOR] = "cube"
    memory: Annotated[str, MEMORY] = defaults.MEMORY
    geometry: Geometry = ""
    ipv6_prefix: Ipv6Prefix = defaults.IPV6_PREFIX
    key_file: KeyFile = None


@dataclass(frozen=True)
class WantedOptions:
    """Which hosts are reported."""

    panel: ClassVar = "Results"
    threshold: Annotated[float | None, THRESHOLD] = None
    top: Top = None


@dataclass(frozen=True)
class ResultOptions:
    """Where results go."""

    panel: ClassVar = "Results"
    json: Json = False
    csv: Csv = False
    output: Output = None


@dataclass(frozen=True)
class SketchOptions:
    """Saved sketches to read."""

    files: Annotated[list[str], typer.Argument(metavar="FILE.cube...", help=SKETCH_FILES)]
    memory_total: Annotated[str | None, shown(MEMORY_TOTAL, "what this machine or container has left")] = None
    key_file: KeyFile = None


@dataclass(frozen=True)
class TimeOptions:
    """The span of time from which sketches are taken."""

    since: Since = None
    until: Until = None


@dataclass(frozen=True)
class LinkOptions:
    """How this end of a link over NATS proves who it is."""

    panel: ClassVar = "Link"
    nkey: Nkey = None
    creds: Creds = None
    tls_ca: TlsCa = None
    tls_cert: TlsCert = None
    tls_key: TlsKey = None

    @property
    def proofs(self) -> dict[str, object]:
        """The options that say who this is."""
        return {"--nkey": self.nkey, "--creds": self.creds}

    @property
    def tls(self) -> dict[str, object]:
        """The options of TLS."""
        return {"--tls-ca": self.tls_ca, "--tls-cert": self.tls_cert, "--tls-key": self.tls_key}
