"""The line above a table: which window, and which hosts."""

from __future__ import annotations

from dataclasses import dataclass

from superhosts.pairs import Window
from superhosts.results import Found, Selection
from superhosts.text import counted
from superhosts.times import iso_time

PARTIAL = "partial: interrupted"  # a note in the title of a window that was interrupted


@dataclass(frozen=True)
class Outcome:
    """How a search has ended, as far as the rows alone do not show it."""

    count: int  # rows
    reached: int | None = None  # rows of hosts with as many peers as asked for; None: all
    largest: Found | None = None  # the host with the most peers, if no host has enough of them
    least_listed: float = 1  # peers below which hosts are not listed, however few were found


def window_title(window: Window | None, selection: Selection, outcome: Outcome) -> str:
    """Say what a table shows, or why it is empty: the window, and the hosts, selected by peers or rank."""
    span = f"{iso_time(window.start)} to {iso_time(window.end)}" if window else "no window"
    return f"{span}: {_hosts(selection, outcome)}{_depth(selection, outcome)}"


def _hosts(selection: Selection, outcome: Outcome) -> str:
    count, threshold = outcome.count, selection.threshold
    if not count:
        return _none(selection, outcome)
    hosts = counted(count, "host")
    if threshold is None:
        return f"top {hosts}"
    reached = count if outcome.reached is None else outcome.reached
    if reached < count:
        those = f"{reached:,} of them" if reached else "none of them"
        return f"top {hosts}, {those} with at least {_peers(threshold)}"
    limit = f", the top {selection.top}" if selection.top is not None and not selection.either else ""
    return f"{hosts} with at least {_peers(threshold)}{limit}"


def _none(selection: Selection, outcome: Outcome) -> str:
    least = outcome.least_listed if selection.threshold is None or selection.either else selection.threshold
    if outcome.largest is not None:
        peers = outcome.largest.row.known_peers
        return f"none with {_peers(least)} or more; largest: {outcome.largest.host} with {peers:,}"
    return f"none with {_peers(least)} or more" if least > 1 else "no hosts"


def _peers(count: float) -> str:
    return f"{count:,g} peer" + "s" * (count != 1)


def _depth(selection: Selection, outcome: Outcome) -> str:
    """Say how deep the search could look, if it found fewer hosts than the top ones that were asked for."""
    if outcome.least_listed <= 1 or selection.top is None or outcome.count >= selection.top:
        return ""
    if selection.threshold is not None and not selection.either and selection.threshold >= outcome.least_listed:
        return ""
    return f"; hosts with fewer than {_peers(outcome.least_listed)} cannot be listed: the window is estimated"
