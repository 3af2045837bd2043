"""`superhosts synth`: synthetic backbone traffic and its exact answer beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from superhosts.cli._console import confirmed, is_terminal, say
from superhosts.cli._progress import Progress
from superhosts.cli.usage.synth import Synth
from superhosts.errors import UsageError
from superhosts.pairs import PacketBlock
from superhosts.replacing import output_errors, replaceable, replacing
from superhosts.synthetic.capture_writer import is_written_here, write_capture
from superhosts.synthetic.traffic import Family, Traffic, packet_blocks
from superhosts.synthetic.truth import Tally, is_truth, truth_path, write_rows
from superhosts.text import counted
from superhosts.units import SECOND, format_size, parse_count, parse_duration


def synth(options: Synth) -> None:
    """Write a capture, and the true number of peers of its hosts."""
    began, out = time.perf_counter(), options.out
    if options.family not in ("4", "6", "both"):
        raise UsageError(f"--family {options.family}: choose 4, 6 or both")
    length = parse_duration(options.window)
    if length % SECOND:
        raise UsageError(f"--window {options.window}: synthetic windows last whole seconds")
    traffic = Traffic(
        flows=parse_count(options.flows),
        packets=parse_count(options.packets),
        windows=parse_count(options.windows),
        super_hosts=parse_count(options.super_hosts),
        seed=options.seed,
        family=cast(Family, options.family if options.family == "both" else int(options.family)),
        window_seconds=length // SECOND,
    )
    tally = Tally(traffic, parse_count(options.truth_min), options.ipv6_prefix, options.ipv4_prefix)
    truth = truth_path(out)
    if not options.force:
        for path, is_ours in ((out, is_written_here), (truth, is_truth)):
            if path.is_file() and not is_ours(path):
                _ask_to_overwrite(path)
    # The truth's file is opened first: if that fails, no capture without its truth is left behind.
    with output_errors(truth), replacing(replaceable(truth), durable=False) as part:
        written = write_capture(out, _watched(traffic, tally))
        rows = tally.rows()
        write_rows(part, rows)
    say(
        f"{out}: {counted(written.packets, 'packet')}, {counted(tally.flows, 'flow')}, "
        f"{counted(tally.super_hosts, 'host')} of 1024+ peers, "
        f"{format_size(written.bytes)}, {time.perf_counter() - began:.1f} s; "
        f"truth in {truth}: {counted(len(rows), 'row')}"
    )


def _ask_to_overwrite(path: Path) -> None:
    """Ask on a terminal; raise UsageError without one, and if the answer is no."""
    state = "is there, and synth did not write it"
    if not is_terminal():
        raise UsageError(f"{path}: {state}; superhosts synth --force overwrites it")
    if not confirmed(f"{path} {state}. Overwrite it?"):
        raise UsageError(f"{path}: nothing was written")


def _watched(traffic: Traffic, tally: Tally) -> Iterator[PacketBlock]:
    """Yield the blocks, count the truth, and show progress."""
    done = 0
    with Progress("packets", traffic.all_packets) as progress:
        for block in packet_blocks(traffic):
            progress.update(done)
            tally.add(block)
            yield block
            done += sum(len(batch) for batch in block)
