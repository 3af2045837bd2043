"""Which hosts a table shows, in words."""

from __future__ import annotations

from dataclasses import dataclass

from superhosts.core.results import Selection, SuperHost
from superhosts.core.text import counted, printable

PARTIAL = "partial: interrupted"  # a note about a window that was interrupted


@dataclass(frozen=True)
class Outcome:
    """How a search has ended, as far as the rows alone do not show it."""

    count: int  # rows
    reached: int | None = None  # rows of hosts with as many peers as asked for; None: all
    largest: SuperHost | None = None  # the host with the most peers, if no host has enough of them
    least_listed: float = 1  # peers below which hosts are not listed, however few were found
    left_out: int = 0  # hosts with as many peers as asked for that are not among the rows
    counts: str = "hosts"  # what peers are (pairs.COUNTS)


def which_hosts(selection: Selection, outcome: Outcome) -> str:
    """Say which hosts a table shows, selected by peers or rank, or why it is empty."""
    return f"{_hosts(selection, outcome)}{_depth(selection, outcome)}"


def is_incomplete(selection: Selection, outcome: Outcome) -> bool:
    """Return True if hosts are left out, or could not be listed."""
    return outcome.left_out > 0 or bool(_depth(selection, outcome))


def _hosts(selection: Selection, outcome: Outcome) -> str:
    count, threshold = outcome.count, selection.threshold
    if not count:
        return _none(selection, outcome)
    hosts = counted(count, "host")
    if threshold is None:
        return f"top {hosts}"
    reached = count if outcome.reached is None else outcome.reached
    if reached < count:
        those = f"{reached:,}" if reached else "none"
        return f"top {hosts}, {those} with at least {_peers(threshold, outcome)}"
    if outcome.left_out:
        hosts = f"{count:,} of {counted(count + outcome.left_out, 'host')}"
    return f"{hosts} with at least {_peers(threshold, outcome)}"


def _none(selection: Selection, outcome: Outcome) -> str:
    least = outcome.least_listed if selection.threshold is None or selection.either else selection.threshold
    if outcome.largest is not None:
        largest = outcome.largest
        about = "" if largest.exact else "about "
        most = f"{printable(largest.host)} with {about}{largest.known_peers:,}"
        return f"none with {_peers(least, outcome)} or more; largest: {most}"
    return f"none with {_peers(least, outcome)} or more" if least > 1 else "no hosts"


def _peers(count: float, outcome: Outcome) -> str:
    return counted_peers(count, outcome.counts)


def counted_peers(count: float, counts: str) -> str:
    """Return a number of peers with its noun; `counts` says what peers are (pairs.COUNTS)."""
    return counted(count, {"hosts": "peer", "ports": "port"}.get(counts, "host-port"))


def _depth(selection: Selection, outcome: Outcome) -> str:
    """Say how deep the search could look, if it found fewer hosts than the top ones that were asked for."""
    if outcome.least_listed <= 1 or selection.top is None or outcome.count >= selection.top:
        return ""
    if selection.threshold is not None and not selection.either and selection.threshold >= outcome.least_listed:
        return ""
    return f"; hosts with fewer than {_peers(outcome.least_listed, outcome)} cannot be listed: the window is estimated"
