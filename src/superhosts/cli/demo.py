"""`superhosts demo`: synthetic traffic, a scan, and the result beside the truth."""

from __future__ import annotations

import json
from typing import Any

from rich.table import Table

from superhosts.cli._console import say
from superhosts.cli._demo_fleet import show_fleet
from superhosts.cli._options import check_no_conflict
from superhosts.cli._settings import make_settings
from superhosts.cli.scan import ReportedErrors, run_scan
from superhosts.cli.synth import synth
from superhosts.cli.usage.demo import Demo
from superhosts.cli.usage.synth import Synth
from superhosts.core import defaults
from superhosts.core.text import counted
from superhosts.errors import OutputError
from superhosts.output.registry import OutputOptions, open_destinations
from superhosts.output.table import OutputConsole, interval, peers_text
from superhosts.sources.open import open_inputs


def demo(options: Demo) -> None:
    """Make traffic, scan it, and compare the result with the truth."""
    folder, super_hosts = options.folder, options.super_hosts
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be created: {error.strerror}") from None
    if options.fleet:
        check_no_conflict({"--exact": options.exact}, "not with --fleet, where the hub estimates")
        size = f"flows={options.flows or '200k'},packets={options.packets or '1M'},super_hosts={super_hosts}"
        show_fleet(folder / "fleet", size)
        return
    flows, packets = options.flows or "500k", options.packets or "5M"
    capture, found = folder / "demo.pcap", folder / "found.jsonl"
    say(f"$ superhosts synth {capture} --flows {flows} --packets {packets} --super-hosts {super_hosts}")
    synth(Synth(capture, flows=flows, packets=packets, super_hosts=super_hosts))
    more = "" if options.exact is None else f" --exact {options.exact}"
    say(f"$ superhosts scan {capture} --inner 10.0.0.0/8 --threshold {defaults.THRESHOLD} --output {found}{more}")
    outputs = open_destinations(OutputOptions(outputs=[str(found)]), table=False)
    settings = make_settings(options, inner=["10.0.0.0/8"], threshold=defaults.THRESHOLD)
    run_scan(open_inputs([str(capture)]), settings, outputs, ReportedErrors())
    truth_rows = (json.loads(line) for line in capture.with_suffix(".truth.jsonl").read_text().splitlines())
    truth = {row["host"]: row["peers"] for row in truth_rows if row["side"] == "inner"}
    _compare([json.loads(line) for line in found.read_text().splitlines()], truth)


def _compare(rows: list[dict[str, Any]], truth: dict[str, int]) -> None:
    """Print what was found beside the truth, and the score."""

    table = Table(title="found beside the truth", title_justify="left", box=None, header_style="bold", pad_edge=False)
    for title in ("host", "peers", "95 % interval", "truth", "error"):
        table.add_column(title, justify="left" if title == "host" else "right", no_wrap=True)
    for row in rows:
        true = truth.get(row["host"], 0)
        table.add_row(row["host"], peers_text(row), interval(row), f"{true:,}", _error(row, true))
    OutputConsole().print(table)
    wanted = {host for host, peers in truth.items() if peers >= defaults.THRESHOLD}
    got = {row["host"] for row in rows}
    inside = sum(row["peers_low"] <= truth.get(row["host"], 0) <= (row["peers_high"] or 1 << 62) for row in rows)
    score = f"{len(wanted & got)} of {counted(len(wanted), 'super host')} found, {len(got - wanted)} false"
    if rows and all(row["exact"] for row in rows):
        same = sum(row["peers"] == truth.get(row["host"]) for row in rows)
        right = f"{same} of {counted(len(rows), 'number')} as in the truth"
        print(f"{score}; {right} (with --exact off: estimates and their intervals)")
    else:
        print(f"{score}; the truth in {inside} of {counted(len(rows), 'interval')}")


def _error(row: dict[str, Any], true: int) -> str:
    """Return the relative error of a row's peers."""
    if not true:
        return "not seen"
    return "–" if row["peers"] is None else f"{row['peers'] / true - 1:+.1%}"
