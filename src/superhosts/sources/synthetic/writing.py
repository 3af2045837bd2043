"""`superhosts.synth`: synthetic backbone traffic in a capture, and its exact answer beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from superhosts.core import defaults
from superhosts.core.files import output_errors, replaceable, replacing
from superhosts.core.pairs import PacketBlock
from superhosts.core.text import setting
from superhosts.core.units import SECOND, parse_count, parse_duration
from superhosts.errors import UsageError
from superhosts.sources.synthetic.capture_writer import is_written_here, write_capture
from superhosts.sources.synthetic.traffic import Family, Traffic, packet_blocks
from superhosts.sources.synthetic.truth import Row, Tally, is_truth, truth_path, write_rows


class Synthetic(NamedTuple):
    """A capture that was made: its file, that of the answer, and what they hold."""

    path: Path
    truth_path: Path
    packets: int
    flows: int
    super_hosts: int  # hosts with at least 1024 peers
    bytes: int
    truth: list[Row]  # the answer: rows like those of a result, exact


def synth(
    out: str | Path,
    *,
    flows: str | int = "100k",
    packets: str | int = "1M",
    windows: str | int = 1,
    super_hosts: str | int = 20,
    seed: int = 1,
    family: Family = 4,
    window: str = defaults.WINDOW,
    truth_min: str | int = 100,
    ipv4_prefix: int = defaults.IPV4_PREFIX,
    ipv6_prefix: int = defaults.IPV6_PREFIX,
    force: bool = False,
) -> Synthetic:
    """Write synthetic traffic to a capture (.pcap, .pcap.zst, .parquet) and its exact answer beside it (.truth.jsonl).

    Flows, packets and super hosts are those of each of the `windows`. The answer has hosts of at least `truth_min`
    peers. The same arguments give the same traffic. The inner network is 10.0.0.0/8, for IPv6 (`family` 6 or "both")
    2001:db8::/32. Files that this did not write are overwritten only with `force`.

    >>> made = synth("day.pcap", super_hosts=50)
    >>> made.truth[0]["host"], made.truth[0]["peers"]
    """
    path = Path(out)
    traffic = make_traffic(flows, packets, windows, super_hosts, seed, family, window)
    tally = Tally(traffic, parse_count(truth_min), ipv6_prefix, ipv4_prefix)
    for each in () if force else foreign_files(path):
        raise UsageError(f"{each}: is there, and synth did not write it; force=True overwrites it")
    return write_traffic(path, packet_blocks(traffic), tally)


def make_traffic(
    flows: str | int,
    packets: str | int,
    windows: str | int,
    super_hosts: str | int,
    seed: int,
    family: str | int,
    window: str,
) -> Traffic:
    """Return the parameters of traffic, from values as callers write them."""
    families: dict[str | int, Family] = {4: 4, 6: 6, "4": 4, "6": 6, "both": "both"}
    if family not in families:
        raise UsageError(f"{setting('family', family)}: choose 4, 6 or both")
    length = parse_duration(window)
    if length % SECOND:
        raise UsageError(f"{setting('window', window)}: synthetic windows last whole seconds")
    return Traffic(
        flows=parse_count(flows),
        packets=parse_count(packets),
        windows=parse_count(windows),
        super_hosts=parse_count(super_hosts),
        seed=seed,
        family=families[family],
        window_seconds=length // SECOND,
    )


def foreign_files(capture: Path) -> Iterator[Path]:
    """Yield the files that would be overwritten although something else wrote them."""
    for path, is_ours in ((capture, is_written_here), (truth_path(capture), is_truth)):
        if path.is_file() and not is_ours(path):
            yield path


def write_traffic(capture: Path, blocks: Iterable[PacketBlock], tally: Tally) -> Synthetic:
    """Write packets to a capture and the answer, which the tally counts, beside it."""
    truth = truth_path(capture)
    # The truth's file is opened first: if that fails, no capture without its truth is left behind.
    with output_errors(truth), replacing(replaceable(truth), durable=False) as part:
        written = write_capture(capture, _counted(blocks, tally))
        rows = tally.rows()
        write_rows(part, rows)
    return Synthetic(capture, truth, written.packets, tally.flows, tally.super_hosts, written.bytes, rows)


def _counted(blocks: Iterable[PacketBlock], tally: Tally) -> Iterator[PacketBlock]:
    for block in blocks:
        tally.add(block)
        yield block
