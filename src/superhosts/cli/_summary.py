"""The summary of a run: how many packets were read, and which of them did not count."""

from __future__ import annotations

from superhosts.cli._console import say
from superhosts.pipeline.scan import Counters
from superhosts.text import counted


def summarise(counters: Counters) -> None:
    """Write how many packets were read, and how many did not become pairs, by reason."""
    parts = [counted(counters.packets, "packet")]
    notes = {
        "not_ip": "not IP",
        "truncated": "truncated before their addresses",
        "unsupported_link": "of an unsupported link type",
        "no_inner_end": "without an inner end",
        "same_ends": "from an address to itself",
        "special_ends": "multicast, broadcast or unspecified (peers, but no hosts; --special keep)",
        "late": "too late for their window",
        "stray": "with a stray time",
        "repeated": "of windows that were finished before",
        "skipped_family": "IPv6, which this detector does not take",
        "unused": "read when the scan was stopped, and in no window",
    }
    parts += [f"{getattr(counters, name):,} {words}" for name, words in notes.items() if getattr(counters, name)]
    say(", ".join(parts))
    for warning in counters.warnings:
        say(f"warning: {warning}")


def warn_of_late(counters: Counters) -> None:
    """Write what makes results incomplete or repeated, even with --quiet."""
    if counters.revised:
        windows = counted(counters.revised, "window was", "windows were")
        again = f"{windows} reported a second time, as revision 2: keep the later rows"
        say(f"superhosts: warning: packets far out of order: {again}")
    if counters.unrevised:
        windows = counted(counters.unrevised, "window was", "windows were")
        late = counted(counters.late, "packet that was", "packets that were")
        lacking = f"without {late} far out of order; scan the files again"
        say(f"superhosts: warning: INCOMPLETE: {windows} reported and saved {lacking}")
    elif counters.late * 100 > counters.packets:
        share = f"{counters.late:,} of {counted(counters.packets, 'packet')} ({counters.late / counters.packets:.1%})"
        way = "a file may be in any order, a pipe may not"
        say(f"superhosts: warning: {share} came too late for their window and are not counted; {way}")
