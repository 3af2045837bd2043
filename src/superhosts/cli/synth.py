"""`superhosts synth`: synthetic backbone traffic and its exact answer beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from superhosts.pairs import PacketBlock
    from superhosts.synthetic.traffic import Traffic
    from superhosts.synthetic.truth import Tally


def synth(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Capture to write: .pcap, .pcap.zst or .parquet.")],
    flows: Annotated[str, typer.Option(help="Distinct (host, peer) pairs of each window, like 5M.")] = "100k",
    packets: Annotated[str, typer.Option(help="Packets of each window, at least one per flow.")] = "1M",
    windows: Annotated[str, typer.Option(help="Number of windows.")] = "1",
    super_hosts: Annotated[str, typer.Option(help="Inner hosts with 1024 peers or more, in each window.")] = "20",
    seed: Annotated[int, typer.Option(help="The same seed gives the same traffic.")] = 1,
    family: Annotated[str, typer.Option(help="Address family: 4, 6 or both (one third IPv6).")] = "4",
    window: Annotated[str, typer.Option(help="Length of a window, like 90s, 5m or 1h.")] = "5m",
    truth_min: Annotated[str, typer.Option(help="Write the true peers of hosts with at least so many.")] = "100",
    ipv6_prefix: Annotated[int, typer.Option(help="IPv6 hosts of the truth are prefixes of this length.")] = 64,
) -> None:
    """Make synthetic backbone traffic, and its exact answer beside it.

    Heavy-tailed hosts, popular servers, scanners and victims of floods; the inner network is 10.0.0.0/8,
    for IPv6 2001:db8::/32. The answer stands beside OUT, with the ending .truth.jsonl: rows like those of scan --json.

    Example: superhosts synth day.pcap.zst --flows 5M --packets 50M --super-hosts 600 --windows 3
    """
    import time
    from typing import cast

    from superhosts.errors import UsageError
    from superhosts.replacing import output_errors, replaceable, replacing
    from superhosts.synthetic.capture_writer import write_capture
    from superhosts.synthetic.traffic import Family, Traffic
    from superhosts.synthetic.truth import Tally, truth_path, write_rows
    from superhosts.units import SECOND, format_size, parse_count, parse_duration

    began = time.perf_counter()
    if family not in ("4", "6", "both"):
        raise UsageError(f"--family {family}: choose 4, 6 or both")
    length = parse_duration(window)
    if length % SECOND:
        raise UsageError(f"--window {window}: synthetic windows last whole seconds")
    traffic = Traffic(
        flows=parse_count(flows),
        packets=parse_count(packets),
        windows=parse_count(windows),
        super_hosts=parse_count(super_hosts),
        seed=seed,
        family=cast(Family, family if family == "both" else int(family)),
        window_seconds=length // SECOND,
    )
    tally = Tally(traffic, parse_count(truth_min), ipv6_prefix)
    truth = truth_path(out)
    # The truth's file is opened first: where it cannot be written, no capture is left without it.
    with output_errors(truth), replacing(replaceable(truth), durable=False) as part:
        written = write_capture(out, _watched(traffic, tally))
        rows = tally.rows()
        write_rows(part, rows)
    typer.echo(
        f"{out}: {written.packets:,} packets, {tally.flows:,} flows, {tally.super_hosts:,} hosts of 1024+ peers, "
        f"{format_size(written.bytes)}, {time.perf_counter() - began:.1f} s; truth in {truth}: {len(rows):,} rows",
        err=True,
    )


def _watched(traffic: Traffic, tally: Tally) -> Iterator[PacketBlock]:
    """Pass the blocks on, counting the truth and, on a terminal, showing how far the work has come."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from superhosts.synthetic.traffic import packet_blocks

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("packets", total=traffic.all_packets)
        for block in packet_blocks(traffic):
            tally.add(block)
            yield block
            progress.advance(task, sum(len(batch) for batch in block))
