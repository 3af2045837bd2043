"""`superhosts synth`: synthetic backbone traffic and its exact answer beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from superhosts.cli._progress import Progress
from superhosts.cli.usage.lab import Synth
from superhosts.core.pairs import PacketBlock
from superhosts.core.text import counted
from superhosts.core.units import format_size, parse_count
from superhosts.errors import UsageError
from superhosts.output.console import confirmed, is_terminal, say
from superhosts.sources.synthetic.capture import foreign_files, write_traffic
from superhosts.sources.synthetic.source import make_traffic
from superhosts.sources.synthetic.traffic import Traffic, packet_blocks
from superhosts.sources.synthetic.truth import Truth


def synth(options: Synth) -> None:
    began = time.perf_counter()
    words = ("flows", "packets", "windows", "super_hosts", "seed", "family", "window")
    traffic = make_traffic(**{word: getattr(options, word) for word in words})
    truth = Truth(traffic, parse_count(options.truth_min), options.ipv6_prefix, options.ipv4_prefix)
    for path in () if options.force else foreign_files(options.out):
        _ask_to_overwrite(path)
    made = write_traffic(options.out, _watched(traffic), truth)
    say(
        f"{made.path}: {counted(made.packets, 'packet')}, {counted(made.flows, 'flow')}, "
        f"{counted(made.super_hosts, 'host')} of 1024+ peers, "
        f"{format_size(made.bytes)}, {time.perf_counter() - began:.1f} s; "
        f"truth in {made.truth_path}: {counted(len(made.truth), 'row')}"
    )


def _ask_to_overwrite(path: Path) -> None:
    """Ask on a terminal; raise UsageError without one, and if the answer is no."""
    state = "is there, and synth did not write it"
    if not is_terminal():
        raise UsageError(f"{path}: {state}; superhosts synth --force overwrites it")
    if not confirmed(f"{path} {state}. Overwrite it?"):
        raise UsageError(f"{path}: nothing was written")


def _watched(traffic: Traffic) -> Iterator[PacketBlock]:
    done = 0
    with Progress("packets", traffic.all_packets) as progress:
        for block in packet_blocks(traffic):
            progress.update(done)
            yield block
            done += sum(len(batch) for batch in block)
