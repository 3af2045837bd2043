"""Options of the commands that plan and measure: `plan`, `calibrate`, `compare`, `synth`, `demo` and `bench`."""

from __future__ import annotations

from pathlib import Path

from superhosts.cli import _options as common
from superhosts.cli._declaration import Options, arg, flag, opt
from superhosts.cli._values import split_sizes
from superhosts.core import defaults
from superhosts.core.units import parse_count
from superhosts.lab.lineup import ENTRANTS


class Plan(Options):
    """False rates are shares of the true super hosts. They are predicted for hosts with a heavy tail of peers: exponent
    1.05, one host in 10,000 flows with 1024 peers or more. A memory with a false rate above 20 % is refused. Windows
    that are counted exactly have no false hosts. Without --flows nothing is planned: the table shows the sizes that
    --memory alone gives, and what to expect of them with 5 M flows. Give the plan to scan, edge and hub as the setting
    geometry, to batch with --geometry; in Python: sh.Cube("128MiB", flows="20M", threshold=1024).

    Examples:
        superhosts plan --flows 20M --threshold 1024 --memory 128MiB
        superhosts plan --flows 20M --error 1%
    """

    flows: str | None = common.FLOWS(shown="5M, and the sizes that suit --memory alone")
    threshold: float = common.THRESHOLD
    memory: str | None = common.MEMORY(
        default=None, shown=f"{defaults.MEMORY}; with --error the least that suffices"
    ).about("Memory of one cube.")
    error: str | None = common.ERROR
    key_bits: int = opt("BITS", 32, offers=("32", "64", "128")).about("Bits of a host: 32, 64 or 128.")
    json: bool = common.JSON_OBJECT


class Calibrate(common.TrafficOptions):
    """Cubes with more and with less memory than --memory are tried, too. They count exactly while the pairs of a window
    fit; unions of windows and sites estimate, so calibrate for these with --exact off. The exact answer keeps every
    pair of a window in memory: of very long captures, take a part.

    Examples:
        superhosts calibrate trace.pcap --inner 10.0.0.0/8 --plot est.svg
        superhosts calibrate trace.pcap --threshold 300 --memory 64MiB
        superhosts calibrate trace.pcap --inner private --watch outer
        superhosts calibrate trace.pcap --exact off
    """

    inputs: list[str] = common.INPUT
    threshold: float = common.THRESHOLD
    memory: str = common.MEMORY.about("Memory of the cube that is judged.")
    error: str = common.ERROR(default="1%")
    exact: str | None = common.EXACT
    ipv4_prefix: int = common.IPV4_PREFIX
    ipv6_prefix: int = common.IPV6_PREFIX
    key_file: Path | None = common.KEY_FILE.about("""File with the secret key. Without it SUPERHOSTS_KEY counts, else
        the public key.""")
    device: str = common.DEVICE
    plot: Path | None = common.PLOT
    json: bool = common.JSON_OBJECT
    local_time: bool = common.LOCAL_TIME


class SyntheticOptions(Options, panel="Synthetic traffic"):
    """The traffic that is made if no captures are given."""

    windows: str | None = common.WINDOWS(shown="12; with --quick 2")
    flows: str | None = common.FLOWS(shown="5M; with --quick 500k")
    packets: str | None = common.PACKETS(shown="twice the flows")
    super_hosts: str | None = common.SUPER_HOSTS(shown="600; with --quick 60")
    seed: int = common.SEED
    quick: bool = flag().about("Two small windows, in about a minute.")


class Compare(SyntheticOptions, common.TableInputOptions, common.ResultOptions):
    """The default is the experiment of the paper: 12 windows, 5 M flows and 600 super hosts each; it takes some
    minutes. Some detectors run on the CPU only.

    Examples:
        superhosts compare --quick
        superhosts compare --figures figures -o comparison.csv
        superhosts compare --memory 1MiB,8MiB,64MiB,512MiB --figures figures
        superhosts compare day.pcap --inner 10.0.0.0/8 --detector cube,gse
    """

    inputs: list[str] = common.INPUT(default=[]).about(f"""{common.INPUTS} Without any, the traffic of the paper's
        experiment.""")
    inner: list[str] = common.INNER(panel="Captures")
    special: str = common.SPECIAL(panel="Captures")
    window: str = common.WINDOW_OR_ALL(panel="Captures")
    map: str | None = common.MAP.about(f"{common.ENDS} {common.PLACES}")  # of pairs and times alone
    detector: list[str] = opt("LIST", [], shown="all", offers=ENTRANTS).about(f"""Only these, of {", ".join(ENTRANTS)}.
        A class of your own: module:Class.""")
    threshold: float = common.THRESHOLD
    memory: list[str] = common.MEMORY(default=[], check=split_sizes, shown="as each paper sets it").about(
        """Memory of each detector; rivals are set for it and for the threshold. Several, as in 1MiB,4MiB,16MiB,
        compare them at each."""
    )
    device: str = common.DEVICE(default="cpu")
    figures: Path | None = opt("DIR").about("Draw figures (PDF, SVG) into DIR.")


class Synth(Options):
    """The traffic has hosts with a heavy tail of peers, popular servers, scanners and victims of floods. The inner
    network is 10.0.0.0/8, for IPv6 2001:db8::/32. The answer is written beside OUT, with the ending .truth.jsonl: rows
    like those of scan --json.

    Files that synth wrote before are overwritten. Before it overwrites any other file it asks; without a terminal it
    refuses, unless --force is given.

    Examples:
        superhosts synth day.pcap --super-hosts 50
        superhosts synth day.pcap.zst --flows 5M --packets 50M --windows 3
    """

    out: Path = arg("OUT").about("Capture to write: .pcap, .pcap.zst or .parquet.")
    flows: str = common.FLOWS(default="100k")
    packets: str = common.PACKETS(default="1M")
    windows: str = common.WINDOWS(default="1")
    super_hosts: str = common.SUPER_HOSTS(default="20")
    seed: int = common.SEED
    family: str = opt("FAMILY", "4").about("Address family: 4, 6 or both (one third IPv6).")
    window: str = common.WINDOW
    truth_min: str = opt("COUNT", "100", check=parse_count).about("""Hosts of the answer: those with at least this many
        peers.""")
    ipv4_prefix: int = common.IPV4_PREFIX
    ipv6_prefix: int = common.IPV6_PREFIX
    force: bool = common.FORCE.about("Overwrite OUT and its answer, whoever wrote them, without asking.")


class Demo(Options):
    """With --fleet: start a hub and three edges, and show that their union is exact.

    Examples:
        superhosts demo /tmp/demo
        superhosts demo /tmp/demo --fleet
    """

    folder: Path = arg("DIR", Path("demo")).about("Where the capture and its truth are written.")
    flows: str | None = common.FLOWS(shown="500k; with --fleet 200k")
    packets: str | None = common.PACKETS(shown="5M; with --fleet 1M")
    super_hosts: str = common.SUPER_HOSTS(default="30")
    exact: str | None = common.EXACT(shown="on")
    fleet: bool = flag().about("A hub and three edges that see overlapping traffic, instead of a scan.")


class Bench(Options):
    """A table in the end says where the time of one more update and restore went, by stage and thread.

    Example: superhosts bench --flows 5M --packets 50M
    """

    flows: str = common.FLOWS(default="1M").about("Distinct (host, peer) pairs to measure with, like 5M.")
    packets: str = common.PACKETS(default="10M").about("Packets to measure with, repeats included.")
    memory: str = common.MEMORY.about("Memory of the cube.")
    device: str = common.DEVICE
    json: bool = common.JSON_OBJECT
