"""`superhosts demo`: synthetic traffic, a scan, and the result beside the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from superhosts.cli._outputs import say


def demo(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the capture and its truth are written.")] = Path(
        "demo"
    ),
    flows: Annotated[
        str | None, typer.Option(help="Distinct (host, peer) pairs.", show_default="500k; with --fleet 200k a window")
    ] = None,
    packets: Annotated[str | None, typer.Option(help="Packets.", show_default="5M; with --fleet 1M a window")] = None,
    super_hosts: Annotated[str, typer.Option(help="Super hosts among them.")] = "30",
    fleet: Annotated[
        bool, typer.Option("--fleet", help="A hub and three edges that see overlapping traffic, instead of a scan.")
    ] = False,
) -> None:
    """See it work: write a synthetic capture with known super hosts, scan it, show the result beside the truth.

    With --fleet: start a hub and three edges, and show that their union is exact.

    Examples: superhosts demo /tmp/demo · superhosts demo /tmp/demo --fleet
    """
    import json

    from superhosts.cli.scan import run_scan
    from superhosts.cli.synth import synth
    from superhosts.errors import OutputError
    from superhosts.pipeline.settings import Settings
    from superhosts.reports.opening import OutputOptions, open_destinations

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be made: {error.strerror}") from None
    if fleet:
        from superhosts.cli._demo_fleet import show_fleet

        size = f"flows={flows or '200k'},packets={packets or '1M'},super_hosts={super_hosts}"
        show_fleet(folder / "fleet", size)
        return
    flows, packets = flows or "500k", packets or "5M"
    capture, found = folder / "demo.pcap", folder / "found.jsonl"
    say(f"$ superhosts synth {capture} --flows {flows} --packets {packets} --super-hosts {super_hosts}")
    synth(capture, flows=flows, packets=packets, super_hosts=super_hosts)
    say(f"$ superhosts scan {capture} --inner 10.0.0.0/8 --output {found}")
    outputs = open_destinations(OutputOptions(output=str(found)), table=False)
    run_scan([str(capture)], Settings(inner=["10.0.0.0/8"]), outputs)
    truth_rows = (json.loads(line) for line in capture.with_suffix(".truth.jsonl").read_text().splitlines())
    truth = {row["host"]: row["peers"] for row in truth_rows if row["side"] == "inner"}
    _compare([json.loads(line) for line in found.read_text().splitlines()], truth)


def _compare(rows: list[dict[str, Any]], truth: dict[str, int]) -> None:
    """Print what was found beside what is true, and the score."""
    from rich.table import Table

    from superhosts.reports.terminal import OutputConsole, interval

    table = Table(title="found beside the truth", title_justify="left", box=None, header_style="bold", pad_edge=False)
    for title in ("host", "peers", "95 % interval", "truth", "error"):
        table.add_column(title, justify="left" if title == "host" else "right", no_wrap=True)
    for row in rows:
        true = truth.get(row["host"], 0)
        error = f"{row['peers'] / true - 1:+.1%}" if true else "not seen"
        table.add_row(row["host"], f"{row['peers']:,}", interval(row), f"{true:,}", error)
    OutputConsole().print(table)
    wanted = {host for host, peers in truth.items() if peers >= 1024}
    got = {row["host"] for row in rows}
    inside = sum(row["peers_low"] <= truth.get(row["host"], 0) <= (row["peers_high"] or 1 << 62) for row in rows)
    score = f"{len(wanted & got)} of {len(wanted)} super hosts found, {len(got - wanted)} false"
    print(f"{score}; {inside} of {len(rows)} intervals hold the truth")
