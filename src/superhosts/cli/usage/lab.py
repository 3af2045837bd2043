"""Options of the commands that plan and measure: `plan`, `calibrate`, `compare`, `synth`, `demo` and `bench`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from superhosts.cli._options import (
    DEVICE,
    ENDS,
    ERROR,
    EXACT,
    FLOWS,
    FORCE,
    INPUTS,
    KEY_FILE,
    MAP,
    MEMORY,
    PACKETS,
    PLACES,
    SEED,
    SUPER_HOSTS,
    THRESHOLD,
    WINDOW,
    WINDOWS,
    Exact,
    Inner,
    Ipv4Prefix,
    Ipv6Prefix,
    JsonObject,
    LocalTime,
    Plot,
    ResultOptions,
    Special,
    TableInputOptions,
    TrafficOptions,
    Window,
    shown,
    worded,
)
from superhosts.cli._values import check_count, check_size, parse_whole, split_commas
from superhosts.core import defaults
from superhosts.lab.lineup import ENTRANTS


@dataclass(frozen=True)
class Plan:
    """Plan a cube: the best geometry for a memory, or the least memory for an error, and what to expect of it.

    False rates are shares of the true super hosts. They are predicted for hosts with a heavy tail of peers: exponent
    1.05, one host in 10,000 flows with 1024 peers or more. A memory with a false rate above 20 % is refused. Windows
    that are counted exactly have no false hosts. Without --flows nothing is planned: the table shows the sizes that
    --memory alone gives, and what to expect of them with 5 M flows. Give the plan to scan, edge, hub and batch with
    --geometry; in Python: sh.Cube("128MiB", flows="20M", threshold=1024).

    Examples:
        superhosts plan --flows 20M --threshold 1024 --memory 128MiB
        superhosts plan --flows 20M --error 1%
    """

    flows: Annotated[str | None, shown(FLOWS, "5M, and the sizes that suit --memory alone")] = None
    threshold: Annotated[float, THRESHOLD] = defaults.THRESHOLD
    memory: Annotated[
        str | None,
        shown(worded(MEMORY, "Memory of one cube."), f"{defaults.MEMORY}; with --error the least that suffices"),
    ] = None
    error: Annotated[str | None, ERROR] = None
    key_bits: Annotated[
        int, typer.Option(metavar="BITS", parser=parse_whole, help="Bits of a host: 32, 64 or 128.")
    ] = 32
    json: JsonObject = False


@dataclass(frozen=True)
class Calibrate:
    """Compare the cube with the exact answer on your own traffic, and say how much memory it needs.

    Cubes with more and with less memory than --memory are tried, too. They count exactly while the pairs of a window
    fit; saved windows and hubs estimate, so calibrate for these with --exact off. The exact answer keeps every pair of
    a window in memory: of very long captures, take a part.

    Examples:
        superhosts calibrate trace.pcap --inner 10.0.0.0/8 --plot est.svg
        superhosts calibrate trace.pcap --threshold 300 --memory 64MiB
        superhosts calibrate trace.pcap --inner private --watch outer
        superhosts calibrate trace.pcap --exact off
    """

    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...", help=INPUTS)]
    traffic: TrafficOptions = field(default_factory=TrafficOptions)
    threshold: Annotated[float, THRESHOLD] = defaults.THRESHOLD
    memory: Annotated[str, worded(MEMORY, "Memory of the cube that is judged.")] = defaults.MEMORY
    error: Annotated[str, ERROR] = "1%"
    exact: Exact = None
    ipv4_prefix: Ipv4Prefix = defaults.IPV4_PREFIX
    ipv6_prefix: Ipv6Prefix = defaults.IPV6_PREFIX
    key_file: Annotated[
        Path | None,
        worded(KEY_FILE, "File with the secret key. Without it SUPERHOSTS_KEY counts, else the public key."),
    ] = None
    device: Annotated[str, DEVICE] = "auto"
    plot: Plot = None
    json: JsonObject = False
    local_time: LocalTime = False


def _split_sizes(values: list[str] | None) -> list[str]:
    """Return several sizes, each checked."""
    sizes = split_commas(values)
    for size in sizes:
        check_size(size)
    return sizes


MEMORIES = typer.Option(
    "--memory",
    "-m",
    metavar="SIZE",
    callback=_split_sizes,
    help="Memory of each detector. Several, as in 1MiB,4MiB,16MiB, compare them at each.",
)


@dataclass(frozen=True)
class SyntheticOptions:
    """The traffic that is made if no captures are given."""

    panel: ClassVar = "Synthetic traffic"
    windows: Annotated[str | None, shown(WINDOWS, "12; with --quick 2")] = None
    flows: Annotated[str | None, shown(FLOWS, "5M; with --quick 500k")] = None
    packets: Annotated[str | None, shown(PACKETS, "twice the flows")] = None
    super_hosts: Annotated[str | None, shown(SUPER_HOSTS, "600; with --quick 60")] = None
    seed: Annotated[int, SEED] = 1
    quick: Annotated[bool, typer.Option("--quick", help="Two small windows, in about a minute.")] = False


@dataclass(frozen=True)
class PairTableOptions(TableInputOptions):
    """The same for a command that looks at addresses and times alone."""

    map: Annotated[str | None, worded(MAP, f"{ENDS} {PLACES}")] = None


@dataclass(frozen=True)
class CaptureOptions:
    """Which hosts of captures are compared, in which windows."""

    panel: ClassVar = "Captures"
    inner: Inner = field(default_factory=list)
    special: Special = defaults.SPECIAL
    window: Window = defaults.WINDOW
    tables: PairTableOptions = field(default_factory=PairTableOptions)


@dataclass(frozen=True)
class Compare:
    """Run every detector over the same traffic and score it against the exact answer.

    The default is the experiment of the paper: 12 windows, 5 M flows and 600 super hosts each; it takes some minutes.
    Some detectors run on the CPU only.

    Examples:
        superhosts compare --quick
        superhosts compare --figures figures -o comparison.csv
        superhosts compare --memory 1MiB,8MiB,64MiB,512MiB --figures figures
        superhosts compare day.pcap --inner 10.0.0.0/8 --detector cube,gse
    """

    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help=f"{INPUTS} Without any, the traffic of the paper's experiment."),
    ] = field(default_factory=list)
    detector: Annotated[
        list[str],
        typer.Option(
            metavar="LIST",
            callback=split_commas,
            help=f"Only these, of {', '.join(ENTRANTS)}. A class of your own: module:Class.",
            show_default="all",
        ),
    ] = field(default_factory=list)
    threshold: Annotated[float, THRESHOLD] = defaults.THRESHOLD
    memory: Annotated[list[str], shown(MEMORIES, "as each paper sets it")] = field(default_factory=list)
    device: Annotated[str, DEVICE] = "cpu"
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw figures (PDF, SVG) into DIR.")] = None
    synthetic: SyntheticOptions = field(default_factory=SyntheticOptions)
    captures: CaptureOptions = field(default_factory=CaptureOptions)
    results: ResultOptions = field(default_factory=ResultOptions)


@dataclass(frozen=True)
class Synth:
    """Make synthetic backbone traffic, and its exact answer beside it.

    The traffic has hosts with a heavy tail of peers, popular servers, scanners and victims of floods. The inner network
    is 10.0.0.0/8, for IPv6 2001:db8::/32. The answer is written beside OUT, with the ending .truth.jsonl: rows like
    those of scan --json.

    Files that synth wrote before are overwritten. Before it overwrites any other file it asks; without a terminal it
    refuses, unless --force is given.

    Examples:
        superhosts synth day.pcap --super-hosts 50
        superhosts synth day.pcap.zst --flows 5M --packets 50M --windows 3
    """

    out: Annotated[Path, typer.Argument(metavar="OUT", help="Capture to write: .pcap, .pcap.zst or .parquet.")]
    flows: Annotated[str, FLOWS] = "100k"
    packets: Annotated[str, PACKETS] = "1M"
    windows: Annotated[str, WINDOWS] = "1"
    super_hosts: Annotated[str, SUPER_HOSTS] = "20"
    seed: Annotated[int, SEED] = 1
    family: Annotated[
        str, typer.Option("--family", metavar="FAMILY", help="Address family: 4, 6 or both (one third IPv6).")
    ] = "4"
    window: Annotated[str, WINDOW] = defaults.WINDOW
    truth_min: Annotated[
        str,
        typer.Option(
            metavar="COUNT", callback=check_count, help="Hosts of the answer: those with at least this many peers."
        ),
    ] = "100"
    ipv4_prefix: Ipv4Prefix = defaults.IPV4_PREFIX
    ipv6_prefix: Ipv6Prefix = defaults.IPV6_PREFIX
    force: Annotated[bool, worded(FORCE, "Overwrite OUT and its answer, whoever wrote them, without asking.")] = False


@dataclass(frozen=True)
class Demo:
    """See it work: write a synthetic capture with known super hosts, scan it, show the result beside the truth.

    With --fleet: start a hub and three edges, and show that their union is exact.

    Examples:
        superhosts demo /tmp/demo
        superhosts demo /tmp/demo --fleet
    """

    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the capture and its truth are written.")] = Path(
        "demo"
    )
    flows: Annotated[str | None, shown(FLOWS, "500k; with --fleet 200k")] = None
    packets: Annotated[str | None, shown(PACKETS, "5M; with --fleet 1M")] = None
    super_hosts: Annotated[str, SUPER_HOSTS] = "30"
    exact: Annotated[str | None, shown(EXACT, "on")] = None
    fleet: Annotated[
        bool, typer.Option("--fleet", help="A hub and three edges that see overlapping traffic, instead of a scan.")
    ] = False


@dataclass(frozen=True)
class Bench:
    """Measure this machine: update, restore, merge and save, with the error beside the time.

    A table in the end says where the time of one more update and restore went, by stage and thread.

    Example: superhosts bench --flows 5M --packets 50M
    """

    flows: Annotated[str, worded(FLOWS, "Distinct (host, peer) pairs to measure with, like 5M.")] = "1M"
    packets: Annotated[str, worded(PACKETS, "Packets to measure with, repeats included.")] = "10M"
    memory: Annotated[str, worded(MEMORY, "Memory of the cube.")] = defaults.MEMORY
    device: Annotated[str, DEVICE] = "auto"
    json: JsonObject = False
