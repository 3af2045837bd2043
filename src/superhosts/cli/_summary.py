"""The summary of a run: how many packets were read, and which of them did not count."""

from __future__ import annotations

from collections import Counter

from superhosts.cli._console import say
from superhosts.pipeline.scan import Counters
from superhosts.prefixes import PRIVATE, SHOWN_PREFIXES, is_private
from superhosts.text import counted

WRONG_INNER = 0.9  # share of packets without an inner end from which on --inner is probably not what was meant


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


def warn_of_wrong_inner(counters: Counters) -> bool:
    """Warn, even with --quiet, if hardly any packet has an end within --inner, and name the prefixes that were seen.

    Return True if there was a warning.
    """
    packets = counters.ipv4 + counters.ipv6 - counters.skipped_family - counters.repeated - counters.unused
    if counters.no_inner_end <= WRONG_INNER * packets:
        return False
    share = f"{counters.no_inner_end:,} of {counted(packets, 'packet')} ({counters.no_inner_end / packets:.1%})"
    has, is_ = ("has", "is") if counters.no_inner_end == 1 else ("have", "are")
    said = f"{share} {has} no end within --inner and {is_} not counted"
    seen = [prefix for prefix, _ in Counter(counters.outside).most_common(SHOWN_PREFIXES)]
    if seen:
        hint = PRIVATE if is_private(seen[0]) else seen[0]
        said += f"; prefixes seen most: {', '.join(seen)}; if the first is yours: --inner {hint}"
    say(f"superhosts: warning: {said}")
    return True
