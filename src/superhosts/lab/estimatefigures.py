"""Estimates against the truth: each host with its interval, and how often intervals hold, by the size of the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.text import counted
from superhosts.lab.drawing import GREY, OKABE_ITO, Look, show_thousands
from superhosts.lab.intervals import LEVEL, wilson_interval
from superhosts.lab.scores import Estimates

MOST_DRAWN = 150  # hosts of one scatter: more would only make the file larger
CUBE = Look(OKABE_ITO["vermillion"], "o")


class Coverage(NamedTuple):
    """How often the truth lies in the interval, of hosts of similar size."""

    size: float  # geometric mean of their peers
    held: int
    hosts: int

    @property
    def share(self) -> float:
        """The share of intervals that hold the truth."""
        return self.held / self.hosts


def coverage_by_size(estimates: Estimates, threshold: float) -> list[Coverage]:
    """Return the coverage of hosts from the threshold to twice of it, to four times, and so on."""
    found = []
    groups = np.floor(np.log2(np.maximum(estimates.true / threshold, 1)) + 1e-9).astype(int)
    for group in np.unique(groups):
        mine = groups == group
        size = float(np.exp(np.log(estimates.true[mine]).mean()))
        found.append(Coverage(size, int(estimates.held[mine].sum()), int(mine.sum())))
    return found


def drawn_hosts(true: NDArray[np.int64], most: int = MOST_DRAWN) -> NDArray[np.int64]:
    """Return which hosts a scatter shows: all, or of many the largest and others at even distances in rank."""
    order: NDArray[np.int64] = np.argsort(-true, kind="stable")
    if len(order) > most:
        order = order[np.unique(np.linspace(0, len(order) - 1, most).round().astype(int))]
    return order


def drawn_words(hosts: int, most: int = MOST_DRAWN) -> str:
    """Say how many hosts of so many are drawn, if not all."""
    return f"drawn, evenly by rank: {most} of {counted(hosts, 'host')}" if hosts > most else ""


def has_intervals(estimates: Estimates) -> bool:
    """Return True if a detector gives intervals."""
    return bool(len(estimates.true)) and not bool(np.isnan(estimates.high).all())


def plot_estimates(
    axes: Any, estimates: Estimates, threshold: float, look: Look = CUBE, most: int = MOST_DRAWN
) -> None:
    """Draw estimates against true numbers of peers with intervals, and the diagonal."""
    some = estimates.of(drawn_hosts(estimates.true, most))
    known = some.measured
    true, peers = some.true[known], some.peers[known]
    style = {**look.options, "ms": 1.6, "lw": 0.5, "ls": "none", "zorder": 3}
    if has_intervals(some):
        bars = np.array([peers - some.low[known], some.high[known] - peers]).clip(0)
        axes.errorbar(true, peers, yerr=bars, label="estimate, 95 % interval", **style)
    else:
        axes.plot(true, peers, label="estimate, no interval", **style)
    if (~known).any():
        lower = {"marker": "^", "ms": 3, "ls": "none", "color": GREY, "zorder": 3}
        axes.plot(some.true[~known], some.low[~known], label="saturated: lower bound", **lower)
    largest = float(estimates.true.max()) if len(estimates.true) else 2 * threshold
    axes.plot([threshold, largest], [threshold, largest], lw=0.6, color="black", label="estimate = truth", zorder=2)
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        show_thousands(axis)


def plot_coverage(axes: Any, estimates: Estimates, threshold: float, look: Look = CUBE) -> list[Coverage]:
    """Draw the share of intervals that hold the truth by size of host, with Wilson intervals, and the nominal share."""
    axes.axhline(LEVEL, color="black", lw=0.6, ls="--", zorder=2)
    axes.set(xscale="log", ylim=(0, 1.04))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    if not has_intervals(estimates):
        show_thousands(axes.xaxis)
        axes.text(0.5, 0.5, "no intervals", transform=axes.transAxes, ha="center", fontsize=7, color=GREY)
        return []
    found = coverage_by_size(estimates, threshold)
    ends = np.array([wilson_interval(each.held, each.hosts) for each in found])
    shares = np.array([each.share for each in found])
    bars = np.array([shares - ends[:, 0], ends[:, 1] - shares]).clip(0)
    axes.errorbar([each.size for each in found], shares, yerr=bars, ls="none", ms=3, zorder=3, **look.options)
    show_thousands(axes.xaxis)
    return found
